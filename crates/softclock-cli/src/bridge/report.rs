//! What a bridge did so far, as text and as JSON.

use std::rc::Rc;
use std::time::Duration;

use serde_json::{Value, json};

use super::frame::{Counts, Discipline, Row};
use super::way::Way;

/// A bridge at one moment.
#[derive(Debug)]
pub(crate) struct Report {
    /// How long it had been running.
    pub(crate) after: Duration,
    ways: Vec<WayReport>,
}

/// One direction.
#[derive(Debug)]
struct WayReport {
    from: String,
    to: String,
    /// By what frames are received.
    mechanism: &'static str,
    rows: Vec<Row>,
    /// What was lost at the port that receives.
    port_drops: Counts,
    /// What nobody took there in time, if that is known.
    port_lost: Option<u64>,
    /// How late transmissions began that waited for an event, in nanoseconds: p50, p99 and p99.9.
    lateness_ns: Option<[u64; 3]>,
}

impl Report {
    pub(crate) fn of<D: Discipline>(ways: &[Rc<Way<D>>], after: Duration) -> Self {
        let way = |way: &Rc<Way<D>>| {
            let lateness = way.lateness.borrow();
            let quantiles = || [0.5, 0.99, 0.999].map(|share| lateness.quantile_ns(share));
            WayReport {
                from: way.from.link().name().to_owned(),
                to: way.to.link().name().to_owned(),
                mechanism: way.from.mechanism(),
                rows: way.discipline.borrow().rows(),
                port_drops: way.from.drops(),
                port_lost: way.from.lost(),
                lateness_ns: (!lateness.is_empty()).then(quantiles),
            }
        };
        Self {
            after,
            ways: ways.iter().map(way).collect(),
        }
    }

    /// A table, with rates since `previous` or on the whole.
    pub(crate) fn lines(&self, previous: Option<&Self>) -> Vec<String> {
        let since = previous.map_or(Duration::ZERO, |previous| previous.after);
        let seconds = self.after.saturating_sub(since).as_secs_f64();
        let mut lines = Vec::new();
        for (index, way) in self.ways.iter().enumerate() {
            let before = previous.and_then(|previous| previous.ways.get(index));
            lines.push(format!(
                "{:<28} {:>12} {:>14} {:>10} {:>16}",
                format!("{} -> {}", way.from, way.to),
                "packets",
                "bytes",
                "Mbit/s",
                "queue"
            ));
            for (place, row) in way.rows.iter().enumerate() {
                let before = before.and_then(|way| way.rows.get(place));
                let before = before.map_or(0, |row| row.sent_bytes);
                lines.push(line(row, row.sent_bytes.saturating_sub(before), seconds));
                lines.extend(counts("  ", &row.events));
            }
            lines.extend(way.port_line());
            if let Some(lateness) = way.lateness_ns {
                let [p50, p99, p999] = lateness.map(|ns| ns as f64 / 1e3);
                lines.push(format!(
                    "  late by p50 {p50:.1}, p99 {p99:.1}, p99.9 {p999:.1} us"
                ));
            }
        }
        lines
    }

    /// For programs.
    pub(crate) fn json(&self) -> Value {
        let ways: Vec<_> = self.ways.iter().map(WayReport::json).collect();
        json!({ "seconds": self.after.as_secs_f64(), "directions": ways })
    }
}

impl WayReport {
    fn port_line(&self) -> Option<String> {
        let label = format!("  at {}: ", self.from);
        let mut drops = self.port_drops.clone();
        drops.insert(NOT_TAKEN, self.port_lost.unwrap_or(0));
        let counts = counts(&label, &drops);
        match self.port_lost {
            Some(_) => counts,
            None => Some(counts.map_or(label + "  ", |counts| counts + ", ") + "losses not known"),
        }
    }

    /// What was not taken in time is null if it is not known.
    fn port_json(&self) -> Value {
        let mut drops = json!(self.port_drops);
        if self.port_lost != Some(0) {
            drops[NOT_TAKEN] = json!(self.port_lost);
        }
        drops
    }

    fn json(&self) -> Value {
        let class = |row: &Row| {
            json!({
                "name": row.name,
                "packets": row.sent_packets,
                "bytes": row.sent_bytes,
                "queued_packets": row.queued_packets,
                "queued_bytes": row.queued_bytes,
                "events": row.events,
            })
        };
        let lateness = self
            .lateness_ns
            .map(|[p50, p99, p999]| json!({ "p50": p50, "p99": p99, "p99.9": p999 }));
        json!({
            "from": self.from,
            "to": self.to,
            "mechanism": self.mechanism,
            "classes": self.rows.iter().map(class).collect::<Vec<_>>(),
            "port_drops": self.port_json(),
            "lateness_ns": lateness,
        })
    }
}

fn line(row: &Row, bytes: u64, seconds: f64) -> String {
    let rate = match seconds > 0.0 {
        true => bytes as f64 * 8e-6 / seconds,
        false => 0.0,
    };
    format!(
        "  {:<26} {:>12} {:>14} {:>10.3} {:>7} / {:>6}",
        format!("{} {}", row.name, row.rule),
        row.sent_packets,
        row.sent_bytes,
        rate,
        row.queued_packets,
        kib(row.queued_bytes),
    )
}

fn kib(bytes: u64) -> String {
    format!("{} KB", bytes.div_ceil(1 << 10))
}

/// The counts that are not zero, in one line.
fn counts(label: &str, counts: &Counts) -> Option<String> {
    let named = counts.iter().filter(|(_, count)| **count > 0);
    let named: Vec<_> = named
        .map(|(name, count)| format!("{count} {name}"))
        .collect();
    (!named.is_empty()).then(|| format!("{label}  {}", named.join(", ")))
}

const NOT_TAKEN: &str = "not taken in time";

#[cfg(test)]
mod tests {
    use super::*;

    fn report(after_s: u64, bytes: u64) -> Report {
        let row = Row {
            name: "web".into(),
            rule: "10mbit".into(),
            sent_packets: bytes / 1000,
            sent_bytes: bytes,
            events: Counts::from([("queue full", bytes / 10_000), ("never", 0)]),
            ..Row::default()
        };
        Report {
            after: Duration::from_secs(after_s),
            ways: vec![WayReport {
                from: "a".into(),
                to: "b".into(),
                mechanism: "packet",
                rows: vec![row],
                port_drops: Counts::from([("link down", 3)]),
                port_lost: Some(7),
                lateness_ns: Some([1500, 2000, 3000]),
            }],
        }
    }

    #[test]
    fn rates_are_of_the_time_since() {
        let (first, second) = (report(1, 1_000_000), report(3, 2_000_000));
        let text = second.lines(Some(&first)).join("\n");
        assert!(text.contains(" 4.000 "), "{text}");
        assert!(
            text.contains("200 queue full") && !text.contains("never"),
            "{text}"
        );
        assert!(text.contains("p50 1.5"), "{text}");
        let whole = second.lines(None).join("\n");
        assert!(whole.contains(" 5.333 "), "{whole}");
    }

    #[test]
    fn json_names_classes() {
        let json = report(1, 1_000_000).json();
        let class = &json["directions"][0]["classes"][0];
        assert_eq!(
            (&class["name"], &class["packets"]),
            (&json!("web"), &json!(1000))
        );
        assert_eq!(class["events"]["queue full"], json!(100));
    }

    #[test]
    fn losses_may_not_be_known() {
        let mut report = report(1, 1_000_000);
        let mut told = |lost| {
            report.ways[0].port_lost = lost;
            let lines = report.lines(None);
            let line = lines.into_iter().find(|line| line.contains("at a:"));
            (
                line.unwrap(),
                report.json()["directions"][0]["port_drops"].clone(),
            )
        };
        let (line, drops) = told(Some(7));
        assert_eq!(line, "  at a:   3 link down, 7 not taken in time");
        assert_eq!(drops, json!({ "link down": 3, "not taken in time": 7 }));
        let (line, drops) = told(Some(0));
        assert_eq!(line, "  at a:   3 link down");
        assert_eq!(drops, json!({ "link down": 3 }));
        let (line, drops) = told(None);
        assert_eq!(line, "  at a:   3 link down, losses not known");
        assert_eq!(drops, json!({ "link down": 3, "not taken in time": null }));
    }
}
