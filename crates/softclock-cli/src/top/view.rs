//! Formats the difference of two samples as text.

mod signalling;
mod stack;
mod upstreams;

use std::fmt::Write;

use super::sample::Sample;

/// Formats the activity of the server `name` from `previous` to `current`, in lines of at most `width` columns.
pub(super) fn text(previous: &Sample, current: &Sample, name: &str, width: usize) -> String {
    let seconds = (current.at - previous.at).as_secs_f64().max(1e-3);
    let change = Change {
        previous,
        current,
        seconds,
    };
    let mut text = String::new();
    let clock = current.by_label("softclock_clock_info", "source");
    let clock = clock.keys().next().copied().unwrap_or_default();
    let events = current.by_label("softclock_readiness_info", "mechanism");
    let events = events.keys().next().copied().unwrap_or_default();
    let threads = current.value("softclock_threads");
    let plural = if threads == 1.0 { "" } else { "s" };
    // Writing to a `String` does not fail.
    let _ = writeln!(
        text,
        "softclock at {name}: {threads} thread{plural}, {events}, {clock}\n"
    );
    let has_stack = current.has("softclock_stack_frames_total");
    if has_stack {
        stack::lines(&mut text, &change);
        stack::tcp(&mut text, &change);
    }
    // An unknown server is shown as one of HTTP, without requests.
    if !has_stack || current.has("softclock_http_responses_total") {
        requests(&mut text, &change);
    }
    signalling::lines(&mut text, &change, signalling::EVENTS);
    timers(&mut text, &change);
    threads_line(&mut text, &change);
    if has_stack {
        stack::drops(&mut text, &change);
    }
    upstreams::table(&mut text, &change, width);
    triggers(&mut text, &change);
    histograms(&mut text, &change);
    let cut = |line: &str| line.chars().take(width).map(shown).collect::<String>() + "\n";
    text.lines().map(cut).collect()
}

/// Replaces control characters of the page, so that they cannot command the terminal.
fn shown(c: char) -> char {
    if c.is_control() { '?' } else { c }
}

/// The difference of two samples.
struct Change<'a> {
    previous: &'a Sample,
    current: &'a Sample,
    seconds: f64,
}

impl Change<'_> {
    /// Increase of a counter per second; 0 after a restart of the server.
    fn rate(&self, name: &str) -> f64 {
        let rise = self.current.value(name) - self.previous.value(name);
        rise.max(0.0) / self.seconds
    }

    fn rates(&self, name: &str, label: &str) -> Vec<(&str, f64)> {
        let before = self.previous.by_label(name, label);
        let rise = |(of, value): (_, f64)| {
            let rise = value - before.get(of).copied().unwrap_or_default();
            (of, rise.max(0.0) / self.seconds)
        };
        let now = self.current.by_label(name, label);
        now.into_iter().map(rise).collect()
    }

    /// Increase per second of the counter with this value of a label; 0 if there is none.
    fn rate_of(&self, name: &str, label: &str, value: &str) -> f64 {
        let rates = self.rates(name, label);
        let rate = rates.iter().find(|(of, _)| *of == value);
        rate.map_or(0.0, |(_, rate)| *rate)
    }

    /// Counts of a histogram between the samples.
    fn histogram(&self, name: &str, of: Option<(&str, &str)>) -> Vec<(f64, f64)> {
        let before = self.previous.histogram(name, of);
        let now = self.current.histogram(name, of).into_iter();
        // A new upstream has no earlier counts; they are 0.
        let before = before.into_iter().map(|(_, count)| count);
        now.zip(before.chain(std::iter::repeat(0.0)))
            .map(|((bound, now), before)| (bound, (now - before).max(0.0)))
            .collect()
    }
}

fn requests(text: &mut String, change: &Change<'_>) {
    let classes = change.rates("softclock_http_responses_total", "class");
    let all: f64 = classes.iter().map(|(_, rate)| rate).sum();
    let shown: Vec<_> = classes
        .iter()
        .filter(|(_, rate)| *rate > 0.0)
        .map(|(class, rate)| format!("{class} {}", number(*rate)))
        .collect();
    let _ = writeln!(
        text,
        "requests     {:>9} /s   {}",
        number(all),
        shown.join("  ")
    );
    let bytes = change.rate("softclock_http_body_bytes_total");
    let _ = writeln!(text, "sent         {:>9}B/s", number(bytes));
    let paced = change.rate("softclock_paced_bytes_total");
    if paced > 0.0 {
        let _ = writeln!(
            text,
            "paced        {:>9}B/s  {} pieces /s, {} trains /s",
            number(paced),
            number(change.rate("softclock_paced_pieces_total")),
            number(change.rate("softclock_paced_trains_total")),
        );
    }
    let _ = writeln!(
        text,
        "connections  {:>9}     of {} at most, {} accepted /s",
        number(change.current.value("softclock_connections_open")),
        number(change.current.value("softclock_connections_limit")),
        number(change.rate("softclock_connections_accepted_total")),
    );
}

fn timers(text: &mut String, change: &Change<'_>) {
    let fired = change.rates("softclock_events_fired_total", "source");
    let fired: f64 = fired.iter().map(|(_, rate)| rate).sum();
    let _ = writeln!(
        text,
        "timers       {:>9}     pending, {} fired /s, {} cancelled /s",
        number(change.current.value("softclock_events_pending")),
        number(fired),
        number(change.rate("softclock_events_cancelled_total")),
    );
}

fn threads_line(text: &mut String, change: &Change<'_>) {
    let threads = change.current.value("softclock_threads").max(1.0);
    let share = |name: &str| (100.0 * change.rate(name) / threads).min(100.0);
    let blocked = share("softclock_blocked_seconds_total");
    let spun = share("softclock_spun_seconds_total");
    let stolen = share("softclock_not_running_seconds_total");
    let _ = writeln!(
        text,
        "threads      {:>8.0}%     busy, {blocked:.0}% idle, {spun:.1}% spinning, {stolen:.1}% kept waiting",
        (100.0 - blocked - spun - stolen).max(0.0),
    );
    let log = change
        .current
        .by_label("softclock_access_log_lines_total", "outcome");
    for (outcome, lines) in log {
        if outcome != "written" && lines > 0.0 {
            let _ = writeln!(
                text,
                "access log   {:>9}     lines {outcome}",
                number(lines)
            );
        }
    }
}

fn triggers(text: &mut String, change: &Change<'_>) {
    let mut sources = change.rates("softclock_trigger_states_total", "source");
    sources.sort_by(|a, b| b.1.total_cmp(&a.1));
    let all: f64 = sources.iter().map(|(_, rate)| rate).sum();
    let _ = writeln!(text, "\ntrigger states {:>7} /s", number(all));
    for (source, rate) in sources.into_iter().filter(|(_, rate)| *rate > 0.0) {
        let share = rate / all;
        let bar = "█".repeat((share * BAR).round() as usize);
        let _ = writeln!(
            text,
            "  {source:<12} {:>7} /s {:>3.0}% {bar}",
            number(rate),
            100.0 * share
        );
    }
}

fn histograms(text: &mut String, change: &Change<'_>) {
    let _ = writeln!(
        text,
        "\n{:<18}{:>9}{:>9}   1us       1ms       1s",
        "", "p50", "p99"
    );
    for (title, name) in [
        ("between triggers", "softclock_trigger_interval_seconds"),
        ("timers' lateness", "softclock_event_lateness_seconds"),
    ] {
        let buckets = change.histogram(name, None);
        let (p50, p99) = (quantile(&buckets, 0.5), quantile(&buckets, 0.99));
        let columns = octaves(&buckets);
        let _ = writeln!(
            text,
            "{title:<18}{:>9}{:>9} {}",
            time(p50),
            time(p99),
            drawn(&columns)
        );
    }
}

/// The bound below which `share` of the values lies; `None` without values.
fn quantile(buckets: &[(f64, f64)], share: f64) -> Option<f64> {
    let all: f64 = buckets.iter().map(|(_, count)| count).sum();
    let mut below = 0.0;
    let found = buckets.iter().find(|(_, count)| {
        below += count;
        all > 0.0 && below >= all * share
    });
    found.map(|(bound, _)| *bound)
}

/// Counts by octave, from below 0.25 us to over 16 s.
fn octaves(buckets: &[(f64, f64)]) -> [f64; OCTAVES] {
    let mut columns = [0.0; OCTAVES];
    for (bound, count) in buckets {
        let octave = (bound * 1e9).log2().ceil() - LOWEST_OCTAVE;
        columns[octave.clamp(0.0, (OCTAVES - 1) as f64) as usize] += count;
    }
    columns
}

/// Draws a column for each count; counts above zero are always visible.
fn drawn(counts: &[f64]) -> String {
    let most = counts.iter().copied().fold(0.0, f64::max);
    let column = |&count: &f64| match (count / most * 8.0).ceil() {
        height if count > 0.0 => COLUMNS[(height as usize).clamp(1, 8)],
        _ => COLUMNS[0],
    };
    counts.iter().map(column).collect()
}

/// Formats three significant digits.
fn number(value: f64) -> String {
    // The sum of no values is -0.0, which would be shown with its sign.
    let (value, unit) = match value + 0.0 {
        1e9.. => (value / 1e9, "G"),
        1e6.. => (value / 1e6, "M"),
        1e4.. => (value / 1e3, "k"),
        value => (value, ""),
    };
    match value {
        100.0.. => format!("{value:.0}{unit}"),
        10.0.. if unit.is_empty() => format!("{value:.0}"),
        _ if value == value.trunc() && unit.is_empty() => format!("{value:.0}"),
        _ => format!("{value:.1}{unit}"),
    }
}

fn time(seconds: Option<f64>) -> String {
    match seconds {
        None => "-".into(),
        Some(seconds) if !seconds.is_finite() => ">20 s".into(),
        Some(seconds @ 1.0..) => format!("{seconds:.1} s"),
        Some(seconds @ 1e-3..) => format!("{:.1} ms", seconds * 1e3),
        Some(seconds @ 1e-6..) => format!("{:.1} us", seconds * 1e6),
        Some(seconds) => format!("{:.0} ns", seconds * 1e9),
    }
}

const BAR: f64 = 30.0;

/// 2^8 ns, the first bound of the server's histograms.
const LOWEST_OCTAVE: f64 = 8.0;
const OCTAVES: usize = 28;

const COLUMNS: [char; 9] = ['·', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn samples() -> (Sample, Sample) {
        let page = |n: u64| {
            format!(
                "softclock_threads 2\nsoftclock_readiness_info{{mechanism=\"epoll\"}} 1\n\
                 softclock_clock_info{{source=\"TSC at 2.4 MHz\"}} 1\n\
                 softclock_http_responses_total{{method=\"GET\",class=\"2xx\"}} {}\n\
                 softclock_connections_open 64\nsoftclock_connections_limit 480\n\
                 softclock_blocked_seconds_total {n}\n\
                 softclock_trigger_states_total{{source=\"receive\"}} {}\n\
                 softclock_trigger_states_total{{source=\"fault\"}} 0\n\
                 softclock_trigger_interval_seconds_bucket{{le=\"0.000001023\"}} {}\n\
                 softclock_trigger_interval_seconds_bucket{{le=\"0.001048575\"}} {}\n\
                 softclock_trigger_interval_seconds_bucket{{le=\"+Inf\"}} {}\n",
                24_690 * n,
                300 * n,
                98 * n,
                100 * n,
                100 * n
            )
        };
        let now = Instant::now();
        let parse = |n, at| Sample::parse(&page(n), at).unwrap();
        (parse(1, now), parse(2, now + Duration::from_secs(2)))
    }

    #[test]
    fn rates_shares_and_quantiles() {
        let (before, after) = samples();
        let text = text(&before, &after, "x:1", 80);
        for part in [
            "softclock at x:1: 2 threads, epoll, TSC at 2.4 MHz\n",
            "requests         12.3k /s   2xx 12.3k\n",
            "connections         64     of 480 at most",
            "threads            75%     busy, 25% idle",
            "  receive          150 /s 100% █████",
            "between triggers     1.0 us   1.0 ms ··█·········▁··",
            "timers' lateness          -        - ···",
        ] {
            assert!(text.contains(part), "{part:?} is not in\n{text}");
        }
        assert!(!text.contains("fault"));
    }

    #[test]
    fn lines_are_cut() {
        let (before, after) = samples();
        let text = text(&before, &after, &"x".repeat(100), 40);
        assert!(text.lines().all(|line| line.chars().count() <= 40));
    }

    #[test]
    fn numbers_are_short() {
        for (value, text) in [
            (0.0, "0"),
            (-0.0, "0"),
            (0.52, "0.5"),
            (64.0, "64"),
            (64.4, "64"),
            (9999.0, "9999"),
            (12_345.0, "12.3k"),
            (123_456.0, "123k"),
            (1.5e9, "1.5G"),
        ] {
            assert_eq!(number(value), text);
        }
    }
}
