//! Formats results as text. Pure: no terminal, no clock.

use std::time::Duration;

use super::steal::Ticks;
use super::tally::{Lateness, ROWS, Result, Tally, asked_per_s, row_begin_us};
use super::variant::{PERIOD, Variant};
use crate::bar::bar;

/// Columns that a picture needs.
pub(super) const WIDTH: usize = 80;

/// Rows that a picture needs.
pub(super) const HEIGHT: usize = 3 + Variant::ALL.len() + 2 + ROWS + 2;

/// The first line of the output if nothing is drawn.
pub(super) fn opening(all: Duration) -> String {
    format!(
        "A busy web server with an event every {} us, for {} s; each mechanism in turn\n",
        PERIOD.as_micros(),
        all.as_secs()
    )
}

/// One line of intermediate results.
pub(super) fn progress(tally: &Tally, shown: Duration) -> String {
    let part = |variant: Variant| {
        let result = tally.result(variant)?;
        Some(format!("{} {}", variant.name(), format_change(result)))
    };
    let parts: Vec<_> = Variant::FIRING.into_iter().filter_map(part).collect();
    format!("{:>4} s  {}", shown.as_secs(), parts.join(", "))
}

/// The table of all results, without terminal sequences.
pub(super) fn table(tally: &Tally) -> String {
    let mut lines = throughput(tally);
    lines.push(String::new());
    lines.extend(histograms());
    lines.join("\n") + "\n"
}

/// The lines of the picture that is redrawn.
pub(super) fn whole(tally: &Tally, shown: Duration, all: Duration) -> Vec<String> {
    let mut lines = vec![
        format!(
            "softclock demo: a busy web server with an event every {} us  {:>9} of {} s",
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
    let most = Variant::ALL
        .into_iter()
        .filter_map(|variant| tally.result(variant))
        .map(|result| result.requests_per_s)
        .fold(1, u64::max);
    let mut lines = vec![format!(
        "{:<12}{:>10}  {:<BAR_WIDTH$} {:>17}  {:>16}",
        "", "requests/s", "", "change, spread", "events/s"
    )];
    for variant in Variant::ALL {
        let line = match tally.result(variant) {
            Some(result) => {
                let bar = bar(result.requests_per_s as f64 / most as f64, BAR_WIDTH);
                let line = format!(
                    "{:<12}{:>10}  {bar:<BAR_WIDTH$} {:>17}  {:>16}",
                    variant.name(),
                    result.requests_per_s,
                    format_change_and_spread(variant, result),
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

fn format_change_and_spread(variant: Variant, result: Result) -> String {
    match variant {
        Variant::Nothing => String::new(),
        _ => format!(
            "{}, {:>4.1} %",
            format_change(result),
            result.spread * 100.0
        ),
    }
}

fn format_change(result: Result) -> String {
    format!("{:+.1} %", result.change * 100.0)
}

fn format_events(variant: Variant, result: Result) -> String {
    if variant == Variant::Nothing {
        return format!("of {:.0}", asked_per_s());
    }
    let percent = result.events_share * 100.0;
    format!("{}  {percent:>4.0} %", result.events_per_s)
}

/// Histograms side by side: a row for each power of two, then the quantiles.
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

/// Conclusions in a few lines, and commands to try next.
pub(super) fn summary(tally: &Tally, steal: Ticks) -> String {
    let Some(base) = tally.result(Variant::Nothing) else {
        return "\nToo short for any conclusion: try --seconds 20.\n".into();
    };
    let mut text = format!(
        "\nWithout events the server answered {} requests a second.\n",
        base.requests_per_s
    );
    if let Some(reason) = disturbance(tally.busy(), steal) {
        text += &format!(
            "{reason}, so no conclusion can be drawn: try again when nothing else runs.\n"
        );
        return text + NEXT;
    }
    for variant in Variant::FIRING {
        let late = Lateness::of(variant.lateness().counts());
        if let Some(result) = tally.result(variant) {
            text += &sentence(variant, result, &late);
        }
    }
    text + NEXT
}

/// Returns the reason if other load affects the figures more than events do. A server that waits, for its clients or
/// for a processor that other programs use, has spare time for events, which then seem to cost nothing.
fn disturbance(busy: f64, steal: Ticks) -> Option<String> {
    if steal.is_high() {
        let percent = steal.percent();
        return Some(format!(
            "The host took {percent:.0} % of the processors' time for others (steal time)"
        ));
    }
    (busy < BUSY).then(|| {
        let percent = busy * 100.0;
        format!("The server got {percent:.0} % of a processor, but a busy server needs all of one")
    })
}

fn sentence(variant: Variant, result: Result, late: &Lateness) -> String {
    let what = match variant {
        Variant::Soft => "soft timers",
        Variant::Timerfd => "a timerfd",
        _ => "signals",
    };
    format!(
        "Events by {what}{}; {:.0} % of them fired, half of these within {}.\n",
        effect(result),
        result.events_share * 100.0,
        format_us(late.p50_ns)
    )
}

/// Describes the cost of events, if it exceeds the spread between rounds. If more requests were answered with events
/// than without, the difference is noise.
fn effect(result: Result) -> String {
    let cost = -result.change * 100.0;
    let spread = (result.spread * 100.0).max(-cost);
    if cost > spread {
        format!(" cost {cost:.1} % of that")
    } else if spread < NOTHING {
        format!(" cost nothing measurable; rounds differ by {spread:.1} %")
    } else {
        format!(": no conclusion, since rounds differ by {spread:.1} %")
    }
}

const NEXT: &str = "\
Try next: softclock serve, the server of this demo; softclock doctor, which checks this machine.
";

/// Least share of a processor that counts as a busy server.
const BUSY: f64 = 0.85;

/// Largest difference between rounds on a quiet machine, in per cent.
const NOTHING: f64 = 3.0;

const BAR_WIDTH: usize = 19;

/// Columns before the histograms.
const LABEL: usize = 13;

/// Columns of one histogram.
const COLUMN: usize = 22;

#[cfg(test)]
mod tests {
    use super::super::steal::tests::percent;
    use super::super::tally::tests::tally;
    use super::*;

    #[test]
    fn the_picture_fits_a_terminal() {
        let second = Duration::from_secs(1);
        let changing = tally(&[[100_000, 99_000, 50_000, 0], [50_000, 99_000, 100_000, 0]]);
        for tally in [Tally::default(), changing] {
            let lines = whole(&tally, second, 3600 * second);
            assert_eq!(lines.len(), HEIGHT);
            for line in lines {
                assert!(line.chars().count() <= WIDTH, "{line}");
            }
        }
    }

    #[test]
    fn losses_are_told() {
        let tally = tally(&[[100_000, 99_500, 50_000, 0]; 3]);
        let table = table(&tally);
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
        let summary = summary(&tally, percent(0));
        assert_eq!(summary.trim().lines().count(), 5);
        assert!(summary.contains("soft timers cost 0.5 %"), "{summary}");
        assert!(summary.contains("a timerfd cost 50.0 % of"), "{summary}");
        assert!(summary.contains("softclock serve"));
    }

    #[test]
    fn columns_agree() {
        let tally = tally(&[
            [100_000, 99_000, 83_000, 7],
            [100_000, 101_000, 66_000, 2_000],
            [60_000, 59_000, 50_000, 1],
            [60_000, 62_000, 50_000, 0],
            [100_000, 70_000, 66_000, 5],
        ]);
        let table = table(&tally);
        let row = |variant: Variant| {
            let mut lines = table.lines();
            let line = lines.find(|line| line.starts_with(variant.name())).unwrap();
            let (_, figures) = line.split_at(variant.name().len());
            let numbers = figures.split_whitespace().map(str::parse::<f64>);
            numbers
                .filter_map(std::result::Result::ok)
                .collect::<Vec<_>>()
        };
        let base = row(Variant::Nothing)[0];
        for variant in Variant::FIRING {
            let [requests, change, _spread, events, share] = row(variant)[..] else {
                panic!("five numbers in {table}");
            };
            let computed = (requests / base - 1.0) * 100.0;
            assert!((computed - change).abs() <= 0.05 + 1e-9, "{table}");
            assert!((events / 500.0 - share).abs() <= 0.5, "{table}");
        }
    }

    #[test]
    fn what_turns_differ_by_more_is_no_conclusion() {
        let little = [[100_000, 100_100, 66_000, 0], [100_000, 98_900, 83_000, 0]];
        let text = summary(&tally(&little), percent(0));
        for part in [
            "soft timers cost nothing measurable; rounds differ by 0.6 %",
            "a timerfd cost 25.5 % of that",
            "signals cost 100.0 % of that",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        let much = [[100_000, 140_000, 60_000, 0], [100_000, 70_000, 130_000, 0]];
        let text = summary(&tally(&much), percent(0));
        for part in [
            "soft timers: no conclusion, since rounds differ by 35.0 %",
            "a timerfd: no conclusion, since rounds differ by 35.0 %",
            "signals cost 100.0 % of that",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        // The server was faster with events, in all rounds alike.
        let text = summary(&tally(&[[100_000, 110_000, 1, 0]; 3]), percent(0));
        let part = "soft timers: no conclusion, since rounds differ by 10.0 %";
        assert!(text.contains(part), "{text}");
    }

    #[test]
    fn a_busy_machine_allows_no_conclusion() {
        let quiet = tally(&[[100_000, 99_000, 50_000, 0]; 3]);
        let stolen = summary(&quiet, percent(25));
        assert!(
            stolen.contains("took 25 % of the processors' time"),
            "{stolen}"
        );
        assert!(stolen.contains("no conclusion can be drawn"), "{stolen}");
        assert!(!stolen.contains("cost") && stolen.contains("softclock serve"));
        assert_eq!(disturbance(0.95, percent(1)), None);
        let shared = disturbance(0.5, percent(0)).unwrap();
        assert!(shared.contains("50 % of a processor"), "{shared}");
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
        assert!(summary(&Tally::default(), percent(0)).contains("Too short"));
    }
}
