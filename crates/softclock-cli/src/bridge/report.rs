//! The state of a bridge as text and as JSON. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use softclock_link::{DirectionReport, NamedCounts, Row};

/// A snapshot of a bridge.
#[derive(Debug)]
pub(crate) struct Report {
    /// Time since the bridge started.
    pub(crate) after: Duration,
    /// Seed of the random decisions, if any setting is random.
    pub(crate) seed: Option<u64>,
    pub(crate) directions: Vec<Directed>,
}

/// The settings and counts of one direction.
#[derive(Debug)]
pub(crate) struct Directed {
    /// Names and values, as options write them.
    pub(crate) settings: Vec<(String, String)>,
    pub(crate) report: DirectionReport,
}

impl Report {
    /// Formats a table with rates since `previous`, and the packets that wait.
    pub(crate) fn lines(&self, previous: &Self) -> Vec<String> {
        let seconds = self.after.saturating_sub(previous.after).as_secs_f64();
        let mut lines = Vec::new();
        for (index, direction) in self.directions.iter().enumerate() {
            let before = previous.directions.get(index);
            lines.push(direction.head("queue"));
            for (place, row) in direction.report.rows.iter().enumerate() {
                let before = before.and_then(|direction| direction.report.rows.get(place));
                let before = before.map_or(0, |row| row.sent_bytes);
                let bits = row.sent_bytes.saturating_sub(before) as f64 * 8.0;
                let rate = (seconds > 0.0).then(|| bits / seconds);
                lines.push(line(row, rate, (row.queued_packets, row.queued_bytes)));
                lines.extend(counts("  ", &row.events));
            }
            lines.extend(direction.ends());
        }
        lines
    }

    /// Formats the summary: the settings, rates from the first frame to the last, and the longest queue.
    pub(crate) fn summary(&self) -> Vec<String> {
        let mut lines = self.settings();
        for direction in &self.directions {
            lines.push(direction.head("most held"));
            for row in &direction.report.rows {
                let activity = &row.activity;
                let most = (activity.most_queued_packets, activity.most_queued_bytes);
                lines.push(line(row, activity.bits_per_second(), most));
                lines.extend(counts("  ", &row.events));
            }
            lines.extend(direction.ends());
        }
        lines
    }

    /// Formats the settings, a line for each direction, and the seed.
    pub(crate) fn settings(&self) -> Vec<String> {
        let line = |direction: &Directed| {
            let named = direction.settings.iter().take(MOST_SETTINGS);
            let mut words: Vec<_> = named
                .map(|(name, value)| format!("{name} {value}"))
                .collect();
            if let more @ 1.. = direction.settings.len().saturating_sub(MOST_SETTINGS) {
                words.push(format!("and {more} more"));
            }
            if words.is_empty() {
                words.push("no changes to packets".into());
            }
            let DirectionReport { from, to, .. } = &direction.report;
            format!("{from} -> {to}: {}", words.join(", "))
        };
        let seed = self.seed.map(|seed| format!("--seed {seed}"));
        self.directions.iter().map(line).chain(seed).collect()
    }

    /// Formats the report as one JSON object.
    pub(crate) fn json(&self) -> Value {
        let directions: Vec<_> = self.directions.iter().map(Directed::json).collect();
        json!({ "seconds": self.after.as_secs_f64(), "seed": self.seed, "directions": directions })
    }
}

impl Directed {
    /// Formats the header of the table.
    fn head(&self, queue: &str) -> String {
        format!(
            "{:<26} {:>11} {:>14} {:>10} {queue:>15}",
            format!("{} -> {}", self.report.from, self.report.to),
            "packets",
            "bytes",
            "Mbit/s",
        )
    }

    /// Formats the lines below the classes: lateness, counts of errors and losses.
    fn ends(&self) -> impl Iterator<Item = String> {
        let lateness = self.report.lateness_ns.map(|lateness| {
            let [p50, p99, p999] = lateness.map(|ns| ns as f64 / 1e3);
            format!("  late by p50 {p50:.1}, p99 {p99:.1}, p99.9 {p999:.1} us")
        });
        let label = format!("  not sent at {}: ", self.report.to);
        let not_sent = counts(&label, &self.report.not_sent);
        let losses = self.port_line().into_iter().chain(not_sent);
        losses.chain(lateness)
    }

    fn port_line(&self) -> Option<String> {
        let label = format!("  at {}: ", self.report.from);
        let mut drops = self.report.not_received.clone();
        drops.insert(NOT_TAKEN, self.report.port_lost.unwrap_or(0));
        let counts = counts(&label, &drops);
        match self.report.port_lost {
            Some(_) => counts,
            None => Some(counts.map_or(label + "  ", |counts| counts + ", ") + "losses unknown"),
        }
    }

    /// Counts of one port as JSON. "Not taken in time" is null if the kernel does not report it.
    fn port_json(&self) -> Value {
        let mut drops = json!(self.report.port_drops);
        if self.report.port_lost != Some(0) {
            drops[NOT_TAKEN] = json!(self.report.port_lost);
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
                "most_queued_packets": row.activity.most_queued_packets,
                "most_queued_bytes": row.activity.most_queued_bytes,
                "active_seconds": row.activity.duration().as_secs_f64(),
                "bits_per_second": row.activity.bits_per_second(),
                "events": row.events,
            })
        };
        let lateness = self
            .report
            .lateness_ns
            .map(|[p50, p99, p999]| json!({ "p50": p50, "p99": p99, "p99.9": p999 }));
        json!({
            "from": self.report.from,
            "to": self.report.to,
            "mechanism": self.report.mechanism,
            "settings": by_name(&self.settings),
            "classes": self.report.rows.iter().map(class).collect::<Vec<_>>(),
            "port_drops": self.port_json(),
            "not_sent": self.report.not_sent,
            "lateness_ns": lateness,
        })
    }
}

fn line(row: &Row, bits_per_second: Option<f64>, (packets, bytes): (usize, u64)) -> String {
    let rate = bits_per_second.map_or("-".into(), |bits| format!("{:.3}", bits / 1e6));
    format!(
        "  {:<24} {:>11} {:>14} {rate:>10} {packets:>6} / {:>6}",
        format!("{} {}", row.name, row.rule),
        row.sent_packets,
        row.sent_bytes,
        kib(bytes),
    )
}

fn kib(bytes: u64) -> String {
    format!("{} KB", bytes.div_ceil(1 << 10))
}

/// Groups values by the name of the setting, since a setting may occur once for each class.
fn by_name(settings: &[(String, String)]) -> BTreeMap<&str, Vec<&str>> {
    let mut all: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, value) in settings {
        all.entry(name).or_default().push(value);
    }
    all
}

/// Formats the counts that are not zero on one line; `None` if all are zero.
fn counts(label: &str, counts: &NamedCounts) -> Option<String> {
    let named = counts.iter().filter(|(_, count)| **count > 0);
    let named: Vec<_> = named
        .map(|(name, count)| format!("{count} {name}"))
        .collect();
    (!named.is_empty()).then(|| format!("{label}  {}", named.join(", ")))
}

/// Limit of the settings of a direction on one line.
const MOST_SETTINGS: usize = 8;

const NOT_TAKEN: &str = "not taken in time";

#[cfg(test)]
mod tests {
    use super::*;
    use softclock_core::Instant;
    use softclock_link::Activity;

    fn report(after_s: u64, bytes: u64) -> Report {
        let mut activity = Activity::default();
        activity.on_sent(0, Instant::ORIGIN);
        activity.on_sent(bytes, Instant::from_ns(500_000_000));
        activity.on_queued(3, 4000);
        let row = Row {
            name: "web".into(),
            rule: "10mbit".into(),
            sent_packets: bytes / 1000,
            sent_bytes: bytes,
            activity,
            events: NamedCounts::from([("queue full", bytes / 10_000), ("never", 0)]),
            ..Row::default()
        };
        Report {
            after: Duration::from_secs(after_s),
            seed: Some(7),
            directions: vec![Directed {
                settings: vec![("delay".into(), "40ms".into())],
                report: DirectionReport {
                    from: "a".into(),
                    to: "b".into(),
                    mechanism: "packet",
                    rows: vec![row],
                    port_drops: NamedCounts::from([("link down", 3)]),
                    not_received: NamedCounts::from([("link down", 3)]),
                    not_sent: NamedCounts::from([("no room on the link", 2)]),
                    port_lost: Some(7),
                    lateness_ns: Some([1500, 2000, 3000]),
                },
            }],
        }
    }

    #[test]
    fn rates_are_of_the_time_since() {
        let (first, second) = (report(1, 1_000_000), report(3, 2_000_000));
        let text = second.lines(&first).join("\n");
        assert!(text.contains(" 4.000 "), "{text}");
        assert!(
            text.contains("200 queue full") && !text.contains("never"),
            "{text}"
        );
        assert!(text.contains("p50 1.5"), "{text}");
        assert!(text.contains(" 0 /   0 KB"), "{text}");
        let whole = second.summary().join("\n");
        assert!(
            whole.starts_with("a -> b: delay 40ms\n--seed 7\n"),
            "{whole}"
        );
        assert!(
            whole.contains(" 32.000 ") && whole.contains(" 3 /   4 KB"),
            "{whole}"
        );
    }

    /// A line that a terminal wraps could not be drawn over.
    #[test]
    fn tables_fit_into_80_columns() {
        let (first, second) = (report(1, 1_000_000), report(3, 20_000_000_000));
        for line in second.lines(&first).iter().chain(&second.summary()) {
            assert!(line.chars().count() <= 80, "{line}");
        }
        assert!(second.lines(&first)[0].ends_with(" queue"));
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
        assert_eq!(class["most_queued_packets"], json!(3));
        assert_eq!(class["bits_per_second"], json!(16e6));
        assert_eq!(json["seed"], json!(7));
    }

    #[test]
    fn losses_are_listed_under_their_direction() {
        let mut report = report(1, 1_000_000);
        let direction = &mut report.directions[0].report;
        direction.port_drops = NamedCounts::from([("link down", 3), ("too long to receive", 1)]);
        direction.not_received = NamedCounts::from([("too long to receive", 1)]);
        let text = report.summary().join("\n");
        assert!(
            text.contains("not sent at b:   2 no room on the link"),
            "{text}"
        );
        assert!(
            text.contains("at a:   7 not taken in time, 1 too long") && !text.contains("link down"),
            "{text}"
        );
        let json = &report.json()["directions"][0];
        assert_eq!(json["not_sent"], json!({ "no room on the link": 2 }));
        assert_eq!(json["port_drops"]["link down"], 3);
    }

    #[test]
    fn losses_may_not_be_known() {
        let mut report = report(1, 1_000_000);
        let mut told = |lost| {
            report.directions[0].report.port_lost = lost;
            let lines = report.summary();
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
        assert_eq!(line, "  at a:   3 link down, losses unknown");
        assert_eq!(drops, json!({ "link down": 3, "not taken in time": null }));
    }
}
