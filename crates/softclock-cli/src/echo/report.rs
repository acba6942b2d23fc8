//! The state of the server as text and as JSON. Pure.

use std::time::Duration;

use serde_json::{Map, Value, json};
use softclock::net::stack::StackReport;

/// A snapshot of the server.
#[derive(Debug)]
pub(super) struct Report {
    /// Time since the start.
    pub(super) after: Duration,
    pub(super) interface: String,
    pub(super) mechanism: &'static str,
    pub(super) echo: Served,
    pub(super) discard: Served,
    pub(super) stack: StackReport,
}

/// What a service has done.
#[derive(Debug, Default)]
pub(super) struct Served {
    pub(super) datagrams: u64,
    pub(super) bytes: u64,
    pub(super) unanswered: u64,
    pub(super) failed: u64,
}

impl Report {
    /// Formats the counts, with rates since `previous` if there is one, else since the start.
    pub(super) fn lines(&self, previous: Option<&Self>) -> Vec<String> {
        let since = previous.map_or(Duration::ZERO, |previous| previous.after);
        let seconds = self.after.saturating_sub(since).as_secs_f64();
        let line = |name: &str, now: u64, before: Option<u64>| {
            let more = now - before.unwrap_or(0);
            let rate = if seconds > 0.0 {
                more as f64 / seconds
            } else {
                0.0
            };
            format!("{name:24}{now:>14}  {rate:>12.0}/s")
        };
        let was = |of: fn(&Self) -> u64| previous.map(of);
        let counts = &self.stack.counts;
        let mut lines = vec![
            line(
                "echo, datagrams",
                self.echo.datagrams,
                was(|r| r.echo.datagrams),
            ),
            line(
                "discard, datagrams",
                self.discard.datagrams,
                was(|r| r.discard.datagrams),
            ),
            line(
                "ping",
                counts.echoes_answered,
                was(|r| r.stack.counts.echoes_answered),
            ),
            line(
                "frames received",
                counts.frames_received,
                was(|r| r.stack.counts.frames_received),
            ),
            line(
                "frames sent",
                counts.frames_sent,
                was(|r| r.stack.counts.frames_sent),
            ),
        ];
        if let Some(capture) = &self.stack.capture {
            lines.push(format!("{:24}{:>14}", "frames captured", capture.frames));
        }
        for (name, count) in self.losses() {
            lines.push(format!("{name:24}{count:>14}"));
        }
        if counts.address_conflicts > 0 {
            let conflicts = counts.address_conflicts;
            lines.push(format!(
                "another host uses an address of the stack: {conflicts} messages"
            ));
        }
        lines
    }

    /// What was lost or left unanswered, where that is anything.
    fn losses(&self) -> Vec<(String, u64)> {
        let named = |name: &str, count| (name.to_owned(), count);
        let drops = self.stack.drops.iter();
        let mut losses: Vec<_> = drops
            .map(|(reason, count)| (format!("dropped, {reason}"), count))
            .collect();
        losses.extend([
            named("lost in the device", self.stack.lost.unwrap_or(0)),
            named(
                "not captured, disk",
                self.stack
                    .capture
                    .as_ref()
                    .map_or(0, |capture| capture.missed),
            ),
            named("refused by the link", self.stack.refused),
            named("not returned, port", self.echo.unanswered),
            named("not returned, error", self.echo.failed),
        ]);
        losses.retain(|&(_, count)| count > 0);
        losses
    }

    /// The counts as a JSON object.
    pub(super) fn json(&self) -> Value {
        let served =
            |served: &Served| json!({"datagrams": served.datagrams, "bytes": served.bytes});
        let counts = &self.stack.counts;
        let drops = self.stack.drops.iter();
        let drops: Map<_, _> = drops
            .map(|(reason, count)| (reason.name().to_owned(), count.into()))
            .collect();
        json!({
            "interface": self.interface,
            "mechanism": self.mechanism,
            "seconds": self.after.as_secs_f64(),
            "echo": served(&self.echo),
            "discard": served(&self.discard),
            "pings": counts.echoes_answered,
            "not_returned": {"port": self.echo.unanswered, "error": self.echo.failed},
            "frames_received": counts.frames_received,
            "verdicts": {
                "channel": counts.to_channels,
                "control": counts.to_control,
                "fragment": counts.to_fragments,
            },
            "frames_sent": counts.frames_sent,
            "reassembled": counts.reassembled,
            "icmp_errors_sent": counts.errors_sent,
            "address_conflicts": counts.address_conflicts,
            "drops": drops,
            "lost": self.stack.lost,
            "refused": self.stack.refused,
            "capture": self.stack.capture.as_ref().map(|capture| {
                json!({
                    "frames": capture.frames,
                    "bytes": capture.bytes,
                    "missed": capture.missed,
                    "end": capture.end.as_ref().map(ToString::to_string),
                })
            }),
        })
    }
}
