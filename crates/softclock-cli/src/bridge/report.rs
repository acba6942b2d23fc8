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
    /// By what frames come and go.
    mechanism: &'static str,
    ways: Vec<WayReport>,
}

/// One direction.
#[derive(Debug)]
struct WayReport {
    from: String,
    to: String,
    rows: Vec<Row>,
    /// What was lost at the port that receives.
    port_drops: Counts,
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
                rows: way.discipline.borrow().rows(),
                port_drops: way.from.drops(),
                lateness_ns: (!lateness.is_empty()).then(quantiles),
            }
        };
        Self {
            after,
            mechanism: ways.first().map_or("", |way| way.from.mechanism()),
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
            lines.extend(counts(&format!("  at {}: ", way.from), &way.port_drops));
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
        json!({ "mechanism": self.mechanism, "seconds": self.after.as_secs_f64(), "directions": ways })
    }
}

impl WayReport {
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
            "classes": self.rows.iter().map(class).collect::<Vec<_>>(),
            "port_drops": self.port_drops,
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
            mechanism: "packet",
            ways: vec![WayReport {
                from: "a".into(),
                to: "b".into(),
                rows: vec![row],
                port_drops: Counts::new(),
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
}
