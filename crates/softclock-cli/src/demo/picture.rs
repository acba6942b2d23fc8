//! Results as text. Pure: no terminal, no clock.

use std::time::Duration;

use super::tally::{Lateness, ROWS, Result, Tally, asked_per_s, row_begin_us};
use super::variant::{PERIOD, Variant};
use crate::bar::bar;

/// Columns that a picture takes.
pub(super) const WIDTH: usize = 80;

/// Rows that a picture takes.
pub(super) const HEIGHT: usize = 3 + Variant::ALL.len() + 2 + ROWS + 2;

/// The first line where nothing is drawn.
pub(super) fn opening(all: Duration) -> String {
    format!(
        "A busy web server with an event each {} us, for {} s; each way in turn\n",
        PERIOD.as_micros(),
        all.as_secs()
    )
}

/// A line for now and then.
pub(super) fn progress(tally: &Tally, shown: Duration) -> String {
    let part = |variant: Variant| {
        let result = tally.result(variant)?;
        let percent = format_change(variant, result);
        Some(format!("{} {percent}", variant.name()))
    };
    let parts: Vec<_> = Variant::FIRING.into_iter().filter_map(part).collect();
    format!("{:>4} s  {}", shown.as_secs(), parts.join(", "))
}

/// All results, without a terminal's arts.
pub(super) fn table(tally: &Tally) -> String {
    let mut lines = throughput(tally);
    lines.push(String::new());
    lines.extend(histograms());
    lines.join("\n") + "\n"
}

/// What is drawn over and over.
pub(super) fn whole(tally: &Tally, shown: Duration, all: Duration) -> Vec<String> {
    let mut lines = vec![
        format!(
            "softclock demo: a busy web server with an event each {} us  {:>9} of {} s",
            PERIOD.as_micros(),
            shown.as_secs(),
            all.as_secs()
        ),
        String::new(),
    ];
    lines.extend(throughput(tally));
    lines.push(String::new());
    lines.extend(histograms());
    lines
}

fn throughput(tally: &Tally) -> Vec<String> {
    let base = tally.result(Variant::Nothing);
    let most = Variant::ALL
        .into_iter()
        .filter_map(|variant| tally.result(variant))
        .map(|result| result.requests_per_s)
        .fold(1.0, f64::max);
    let mut lines = vec![format!(
        "{:<12}{:>10}  {:<27} {:>7}  {:>18}",
        "", "requests/s", "", "change", "events/s"
    )];
    for variant in Variant::ALL {
        let line = match tally.result(variant).filter(|_| base.is_some()) {
            Some(result) => {
                let bar = bar(result.requests_per_s / most, BAR_WIDTH);
                let line = format!(
                    "{:<12}{:>10.0}  {bar:<BAR_WIDTH$} {:>7}  {:>18}",
                    variant.name(),
                    result.requests_per_s,
                    format_change(variant, result),
                    format_events(variant, result)
                );
                line.trim_end().to_owned()
            }
            None => variant.name().to_owned(),
        };
        lines.push(line);
    }
    lines
}

fn format_change(variant: Variant, result: Result) -> String {
    match variant {
        Variant::Nothing => String::new(),
        _ => format!("{:+.1} %", (result.ratio - 1.0) * 100.0),
    }
}

fn format_events(variant: Variant, result: Result) -> String {
    if variant == Variant::Nothing {
        return format!("of {:.0}", asked_per_s());
    }
    let share = result.events_per_s / asked_per_s() * 100.0;
    format!("{:.0}  {share:>4.0} %", result.events_per_s)
}

/// Side by side: a row for each power of two, then the quantiles.
fn histograms() -> Vec<String> {
    let columns = Variant::FIRING.map(|variant| Lateness::of(variant.lateness().counts()));
    histograms_of(&columns)
}

fn histograms_of(columns: &[Lateness; 3]) -> Vec<String> {
    let row = |label: &str, cells: [String; 3]| {
        let [a, b, c] = cells.map(|cell| format!("{cell:<COLUMN$}"));
        format!("{label:<LABEL$}{a}{b}{c}").trim_end().to_owned()
    };
    let mut lines = vec![row("late by", Variant::FIRING.map(|v| v.name().into()))];
    for index in 0..ROWS {
        let cell = |late: &Lateness| bar(late.shares[index], COLUMN - 2);
        let [a, b, c] = columns;
        lines.push(row(&label(index), [cell(a), cell(b), cell(c)]));
    }
    let quantile = |name: &str, of: fn(&Lateness) -> Option<u64>| {
        let [a, b, c] = columns;
        row(name, [a, b, c].map(|late| format_us(of(late))))
    };
    lines.push(quantile("p50", |late| late.p50_ns));
    lines.push(quantile("p99", |late| late.p99_ns));
    lines
}

fn label(row: usize) -> String {
    let begin = row_begin_us(row);
    match row {
        0 => format!("{:>4}-{:<4} us", 0, 1),
        _ if row == ROWS - 1 => format!("{begin:>4}-     us"),
        _ => format!("{begin:>4}-{:<4} us", begin * 2),
    }
}

fn format_us(ns: Option<u64>) -> String {
    match ns {
        None => "-".into(),
        Some(ns @ ..100_000) => format!("{:.1} us", ns as f64 / 1e3),
        Some(ns) => format!("{:.0} us", ns as f64 / 1e3),
    }
}

/// Five lines that say what was seen, and what to try next.
pub(super) fn summary(tally: &Tally) -> String {
    let Some(base) = tally.result(Variant::Nothing) else {
        return "\nToo short to tell anything: try --seconds 20.\n".into();
    };
    let mut text = format!(
        "\nWithout events the server answered {:.0} requests a second{}.\n",
        base.requests_per_s,
        caution(tally.busy())
    );
    for variant in Variant::FIRING {
        let late = Lateness::of(variant.lateness().counts());
        if let Some(result) = tally.result(variant) {
            text += &sentence(variant, result, &late);
        }
    }
    text + NEXT
}

/// A server that waits, for clients or for a processor that others use, has time for events.
fn caution(busy: f64) -> String {
    if busy >= BUSY {
        return String::new();
    }
    let percent = busy * 100.0;
    format!(
        ", with {percent:.0} % of a processor: it was not busy, so try again when nothing else runs"
    )
}

fn sentence(variant: Variant, result: Result, late: &Lateness) -> String {
    let change = (result.ratio - 1.0) * 100.0;
    let effect = match change {
        // Rounds differ by more than that.
        -1.0.. => "cost nothing to be seen".to_owned(),
        _ => format!("cost {:.0} % of that", -change),
    };
    let what = match variant {
        Variant::Soft => "soft timers",
        Variant::Timerfd => "a timerfd",
        _ => "signals",
    };
    format!(
        "Events by {what} {effect}; {:.0} % of those asked for came, half of them within {}.\n",
        result.events_per_s / asked_per_s() * 100.0,
        format_us(late.p50_ns)
    )
}

const NEXT: &str = "\
Try next: softclock serve, the server you just saw; softclock doctor, what this machine offers it.
";

/// The least share of a processor of a server that is kept busy.
const BUSY: f64 = 0.7;

const BAR_WIDTH: usize = 27;

/// Before the histograms.
const LABEL: usize = 13;

/// Of one histogram.
const COLUMN: usize = 22;

#[cfg(test)]
mod tests {
    use super::super::tally::tests::tally;
    use super::*;

    #[test]
    fn the_picture_fits_a_terminal() {
        let second = Duration::from_secs(1);
        for tally in [Tally::default(), tally([100_000, 99_000, 50_000, 0])] {
            let lines = whole(&tally, second, 3600 * second);
            assert_eq!(lines.len(), HEIGHT);
            for line in lines {
                assert!(line.chars().count() <= WIDTH, "{line}");
            }
        }
    }

    #[test]
    fn losses_are_told() {
        let table = table(&tally([100_000, 99_500, 50_000, 0]));
        for part in [
            "-0.5 %",
            "-50.0 %",
            "-100.0 %",
            "40000    80 %",
            "late by",
            "p99",
        ] {
            assert!(table.contains(part), "{part} in {table}");
        }
        let summary = summary(&tally([100_000, 99_500, 50_000, 0]));
        assert_eq!(summary.trim().lines().count(), 5);
        assert!(
            summary.contains("soft timers cost nothing to be seen"),
            "{summary}"
        );
        assert!(summary.contains("a timerfd cost 50 % of that"), "{summary}");
        assert!(summary.contains("softclock serve"));
    }

    #[test]
    fn a_server_that_was_not_busy_is_told() {
        assert_eq!(caution(0.95), "");
        assert!(caution(0.2).contains("20 % of a processor"));
    }

    #[test]
    fn histograms_stand_side_by_side() {
        let one = |row| {
            let counts = [(1u64 << (10 + row), 1)];
            Lateness::of(counts.into_iter())
        };
        let lines = histograms_of(&[one(0), one(5), Lateness::default()]);
        assert_eq!(lines.len(), ROWS + 3);
        assert!(lines[1].starts_with("   0-1    us ██████"), "{}", lines[1]);
        assert!(
            lines[6].starts_with(&format!("{:<35}█", "  16-32   us")),
            "{}",
            lines[6]
        );
        assert_eq!(lines[ROWS + 1].split_whitespace().last(), Some("-"));
    }

    #[test]
    fn nothing_is_told_before_a_round_is_complete() {
        assert!(summary(&Tally::default()).contains("Too short"));
    }
}
