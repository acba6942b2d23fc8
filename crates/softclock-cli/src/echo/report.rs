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

/// A line of the text.
struct Row {
    name: String,
    count: u64,
    /// Whether the line is left out while the count is 0.
    is_rare: bool,
}

impl Report {
    /// Formats the counts, with rates since `previous` if there is one, else since the start.
    pub(super) fn lines(&self, previous: Option<&Self>) -> Vec<String> {
        let since = previous.map_or(Duration::ZERO, |previous| previous.after);
        let seconds = self.after.saturating_sub(since).as_secs_f64();
        let before = previous.map(Self::rows).unwrap_or_default();
        let line = |row: &Row| {
            let was = before.iter().find(|before| before.name == row.name);
            // A device that stops to count its losses makes their sum smaller.
            let more = row.count.saturating_sub(was.map_or(0, |was| was.count));
            let rate = if seconds > 0.0 {
                more as f64 / seconds
            } else {
                0.0
            };
            format!("{:31}{:>14}  {rate:>12.0}/s", row.name, row.count)
        };
        let rows = self.rows();
        let shown = rows.iter().filter(|row| row.count > 0 || !row.is_rare);
        let mut lines: Vec<_> = shown.map(line).collect();
        let counts = &self.stack.counts;
        if counts.address_conflicts > 0 {
            let conflicts = counts.address_conflicts;
            lines.push(format!(
                "another host uses an address of the stack: {conflicts} messages"
            ));
        }
        lines
    }

    /// The counts of the text, in order.
    fn rows(&self) -> Vec<Row> {
        let row = |is_rare| {
            move |name: &str, count| Row {
                name: name.to_owned(),
                count,
                is_rare,
            }
        };
        let (row, rare) = (row(false), row(true));
        let counts = &self.stack.counts;
        let mut rows = vec![
            row("echo, datagrams", self.echo.datagrams),
            row("discard, datagrams", self.discard.datagrams),
            row("ping", counts.echoes_answered),
            row("frames received", counts.frames_received),
        ];
        let verdicts = counts.verdicts();
        rows.extend(verdicts.map(|(verdict, frames)| rare(&format!("verdict, {verdict}"), frames)));
        rows.push(row("frames sent", counts.frames_sent));
        let capture = self.stack.capture.as_ref();
        rows.extend(capture.map(|capture| row("frames captured", capture.frames)));
        // What was lost or left unanswered, where that is anything.
        let drops = self.stack.drops.iter();
        rows.extend(drops.map(|(reason, count)| rare(&format!("dropped, {reason}"), count)));
        rows.extend([
            rare("lost in the device", self.stack.lost.unwrap_or(0)),
            rare(
                "not captured, disk",
                capture.map_or(0, |capture| capture.missed),
            ),
            rare("refused by the link", self.stack.refused),
            rare("not returned, port", self.echo.unanswered),
            rare("not returned, error", self.echo.failed),
        ]);
        rows
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
        let verdicts = counts.verdicts().into_iter();
        let verdicts: Map<_, _> = verdicts
            .map(|(verdict, frames)| (verdict.to_owned(), frames.into()))
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
            "verdicts": verdicts,
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

#[cfg(test)]
mod tests {
    use softclock::net::stack::DropReason;

    use super::*;

    fn report(seconds: u64) -> Report {
        Report {
            after: Duration::from_secs(seconds),
            interface: "sc0".into(),
            mechanism: "tap",
            echo: Served::default(),
            discard: Served::default(),
            stack: StackReport::default(),
        }
    }

    /// The count and the rate of a line.
    fn shown(lines: &[String], name: &str) -> Option<(u64, u64)> {
        let mut lines = lines.iter().filter_map(|line| line.strip_prefix(name));
        let line = lines.find(|rest| rest.starts_with(' '))?;
        let (count, rate) = line.trim().strip_suffix("/s")?.split_once(' ')?;
        Some((count.parse().ok()?, rate.trim().parse().ok()?))
    }

    #[test]
    fn rates_are_those_since_the_previous_report() {
        let (mut before, mut after) = (report(10), report(12));
        before.echo.datagrams = 1_000;
        after.echo.datagrams = 1_500;
        after.discard.datagrams = 7;
        before.stack.counts.frames_received = 1_100;
        after.stack.counts.frames_received = 1_700;
        for (report, channel, control) in [(&mut before, 1_000, 100), (&mut after, 1_500, 190)] {
            report.stack.counts.to_channels = channel;
            report.stack.counts.to_control = control;
        }
        after.stack.counts.demux_drops = 10;
        after.stack.counts.echoes_answered = 80;
        let lines = after.lines(Some(&before));
        for (name, expected) in [
            ("echo, datagrams", (1_500, 250)),
            ("discard, datagrams", (7, 4)),
            ("ping", (80, 40)),
            ("frames received", (1_700, 300)),
            ("verdict, channel", (1_500, 250)),
            ("verdict, control", (190, 45)),
            ("verdict, drop", (10, 5)),
            ("frames sent", (0, 0)),
        ] {
            assert_eq!(shown(&lines, name), Some(expected), "{name}: {lines:#?}");
        }
        assert_eq!(shown(&lines, "verdict, fragment"), None);
        assert_eq!(lines.len(), 8, "{lines:#?}");
        // Of the summary: those since the start.
        let lines = after.lines(None);
        assert_eq!(shown(&lines, "echo, datagrams"), Some((1_500, 125)));
        // Without any time, too.
        assert_eq!(shown(&report(0).lines(None), "ping"), Some((0, 0)));
    }

    #[test]
    fn drops_and_losses_have_rates_and_are_hidden_while_they_are_none() {
        let (mut before, mut after) = (report(1), report(2));
        let reason = DropReason::TcpAcceptQueueFull;
        before.stack.drops.count_many(reason, 5);
        after.stack.drops.count_many(reason, 30);
        after.stack.drops.count_many(DropReason::ChannelFull, 9);
        before.stack.lost = Some(4);
        after.stack.lost = Some(6);
        after.echo.unanswered = 1;
        let lines = after.lines(Some(&before));
        for (name, expected) in [
            ("dropped, tcp_accept_queue_full", (30, 25)),
            ("dropped, channel_full", (9, 9)),
            ("lost in the device", (6, 2)),
            ("not returned, port", (1, 1)),
        ] {
            assert_eq!(shown(&lines, name), Some(expected), "{name}: {lines:#?}");
        }
        for name in [
            "not captured, disk",
            "refused by the link",
            "not returned, error",
            "frames captured",
        ] {
            assert_eq!(shown(&lines, name), None, "{lines:#?}");
        }
        let width = lines[0].len();
        assert!(lines.iter().all(|line| line.len() == width), "{lines:#?}");
        // The device has stopped to count.
        after.stack.lost = None;
        let lines = after.lines(Some(&before));
        assert_eq!(shown(&lines, "lost in the device"), None);
    }

    #[test]
    fn the_summary_has_the_verdicts() {
        let mut report = report(1);
        report.stack.counts.to_fragments = 3;
        report.stack.counts.demux_drops = 4;
        let expected = json!({"channel": 0, "control": 0, "fragment": 3, "drop": 4});
        assert_eq!(report.json()["verdicts"], expected);
    }

    #[test]
    fn another_owner_of_an_address_is_told_in_words() {
        let mut report = report(1);
        report.stack.counts.address_conflicts = 2;
        let lines = report.lines(None);
        assert!(
            lines
                .last()
                .is_some_and(|line| line.ends_with(": 2 messages"))
        );
    }
}
