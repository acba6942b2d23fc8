//! Formats a proxy's upstreams, one on each line.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::{Change, number, quantile, time};

/// Appends a table of the upstreams; nothing for a server without upstreams.
pub(super) fn table(text: &mut String, change: &Change<'_>, width: usize) {
    let upstreams = upstreams(change);
    if upstreams.is_empty() {
        return;
    }
    let longest = upstreams
        .iter()
        .map(|upstream| upstream.name.chars().count());
    let room = width.saturating_sub(COLUMNS);
    let width = longest
        .max()
        .unwrap_or(0)
        .max(TITLE.len() - INDENT)
        .min(room);
    // Writing to a `String` does not fail.
    let _ = writeln!(
        text,
        "\n{TITLE:<title$} {:<7}{:>9}{:>9}{:>6}{:>6}{:>9}{:>9}",
        "state",
        "requests",
        "failures",
        "now",
        "idle",
        "p50",
        "p99",
        title = INDENT + width
    );
    for upstream in upstreams.iter().take(MOST) {
        let name = shortened(upstream.name, width);
        let [requests, failures] = [upstream.requests, upstream.failures].map(per_second);
        let [active, idle] = [upstream.active, upstream.idle].map(number);
        let [p50, p99] = quantiles(change, upstream.name).map(time);
        let state = &upstream.state;
        let _ = writeln!(
            text,
            "{:INDENT$}{name:<width$} {state:<7}{requests:>9}{failures:>9}{active:>6}{idle:>6}{p50:>9}{p99:>9}",
            ""
        );
    }
    if let Some(rest) = upstreams.get(MOST..).filter(|rest| !rest.is_empty()) {
        let out = rest.iter().filter(|upstream| upstream.state != IN).count();
        let _ = writeln!(
            text,
            "{:INDENT$}and {} more, of which {out} are left out",
            "",
            rest.len()
        );
    }
}

/// The columns of one upstream.
struct Upstream<'a> {
    name: &'a str,
    state: String,
    /// Requests per second.
    requests: f64,
    failures: f64,
    /// Requests in progress.
    active: f64,
    /// Idle connections.
    idle: f64,
}

fn upstreams<'a>(change: &'a Change<'_>) -> Vec<Upstream<'a>> {
    let requests = change.rates("softclock_upstream_requests_total", LABEL);
    let failures = change.rates("softclock_upstream_failures_total", LABEL);
    let failures: BTreeMap<_, _> = failures.into_iter().collect();
    let now = |name| change.current.by_label(name, LABEL);
    let active = now("softclock_upstream_active");
    let idle = now("softclock_upstream_idle_connections");
    let up = now("softclock_upstream_up_threads");
    let threads = change.current.value("softclock_threads");
    let upstream = |(name, requests)| {
        let own = |values: &BTreeMap<&str, f64>| values.get(name).copied().unwrap_or_default();
        Upstream {
            name,
            state: state(own(&up), threads),
            requests,
            failures: own(&failures),
            active: own(&active),
            idle: own(&idle),
        }
    };
    requests.into_iter().map(upstream).collect()
}

/// Median and 99th percentile of the times to an upstream's responses, in seconds. Searches the histograms of all
/// upstreams, so call it for displayed ones only.
fn quantiles(change: &Change<'_>, name: &str) -> [Option<f64>; 2] {
    let times = change.histogram("softclock_upstream_response_seconds", Some((LABEL, name)));
    [0.5, 0.99].map(|share| quantile(&times, share))
}

/// Formats an upstream's state. The threads judge it independently, so some may use it while others do not.
fn state(up: f64, threads: f64) -> String {
    match up {
        0.0 => "out".into(),
        up if up < threads => format!("in {up}/{threads}"),
        _ => IN.into(),
    }
}

fn per_second(rate: f64) -> String {
    format!("{} /s", number(rate))
}

/// Shortens a name at its beginning, with `…`: similar upstreams usually differ at the end.
fn shortened(name: &str, width: usize) -> String {
    let excess = name.chars().count().saturating_sub(width);
    match excess {
        0 => name.to_owned(),
        _ => {
            let end = name.chars().skip(excess + 1);
            std::iter::once('…').chain(end).take(width).collect()
        }
    }
}

const LABEL: &str = "upstream";
const TITLE: &str = "upstreams";
const IN: &str = "in";
const INDENT: usize = 2;

/// Width of the columns beside the names.
const COLUMNS: usize = INDENT + 1 + 7 + 9 + 9 + 6 + 6 + 9 + 9;

/// Limit of the lines, which leaves room for the histograms below.
const MOST: usize = 12;

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use crate::top::sample::Sample;

    /// A page of a proxy with two threads, `n` seconds after the start.
    fn page(upstreams: &[(&str, u32)], n: u32) -> String {
        let mut page = "softclock_threads 2\n".to_owned();
        for (name, up) in upstreams {
            for (metric, value) in [
                ("requests_total", 1000 * n),
                ("failures_total", 2 * n),
                ("active", 3),
                ("idle_connections", 64),
                ("up_threads", *up),
            ] {
                page += &format!("softclock_upstream_{metric}{{upstream=\"{name}\"}} {value}\n");
            }
            for (bound, share) in [("0.000001", 97), ("0.001", 100), ("+Inf", 100)] {
                let count = share * n;
                page += &format!(
                    "softclock_upstream_response_seconds_bucket{{upstream=\"{name}\",le=\"{bound}\"}} {count}\n"
                );
            }
        }
        page
    }

    fn shown(upstreams: &[(&str, u32)], width: usize) -> String {
        let now = Instant::now();
        let sample = |n, at| Sample::parse(&page(upstreams, n), at).unwrap();
        let (before, after) = (sample(1, now), sample(2, now + Duration::from_secs(1)));
        super::super::text(&before, &after, "x", width)
    }

    #[test]
    fn a_line_for_each() {
        let text = shown(
            &[("http://a:80", 2), ("http://b:80", 0), ("unix:/c", 1)],
            80,
        );
        for line in [
            "upstreams     state   requests failures   now  idle      p50      p99",
            "  http://a:80 in       1000 /s     2 /s     3    64   1.0 us   1.0 ms",
            "  http://b:80 out      1000 /s     2 /s     3    64   1.0 us   1.0 ms",
            "  unix:/c     in 1/2   1000 /s     2 /s     3    64   1.0 us   1.0 ms",
        ] {
            assert!(
                text.lines().any(|own| own == line),
                "{line:?} is not in\n{text}"
            );
        }
        assert!(!shown(&[], 80).contains("upstreams"));
    }

    #[test]
    fn an_upstream_that_is_new_counts_from_its_beginning() {
        let now = Instant::now();
        let before = Sample::parse(&page(&[], 1), now).unwrap();
        let after = Sample::parse(&page(&[("new", 2)], 1), now + Duration::from_secs(1)).unwrap();
        let text = super::super::text(&before, &after, "x", 80);
        assert!(
            text.contains("1000 /s     2 /s     3    64   1.0 us   1.0 ms"),
            "{text}"
        );
    }

    #[test]
    fn long_names_and_many_upstreams_are_cut() {
        let names: Vec<_> = (0..20)
            .map(|n| format!("http://a.long.name.of.example:{n}"))
            .collect();
        let upstreams: Vec<_> = names.iter().map(|name| (name.as_str(), 0)).collect();
        let text = shown(&upstreams, 80);
        assert!(text.contains("  …ng.name.of.example:11 out"), "{text}");
        assert!(
            text.contains("  and 8 more, of which 8 are left out\n"),
            "{text}"
        );
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
    }

    /// Searching the histograms of all upstreams for each of them would take a hundred times as long as parsing the
    /// page, with a thousand upstreams.
    #[test]
    fn those_that_are_not_shown_cost_little() {
        let names: Vec<_> = (0..1000).map(|n| format!("http://a:{n}")).collect();
        let upstreams: Vec<_> = names.iter().map(|name| (name.as_str(), 2)).collect();
        let pages = [1, 2].map(|n| page(&upstreams, n));
        let mut least = [Duration::MAX; 2];
        for _ in 0..10 {
            let begun = Instant::now();
            let sample = |n: usize| Sample::parse(&pages[n], begun).unwrap();
            let (before, after) = (sample(0), sample(1));
            let parsed = Instant::now();
            super::super::text(&before, &after, "x", 80);
            for (least, took) in least.iter_mut().zip([parsed - begun, parsed.elapsed()]) {
                *least = took.min(*least);
            }
        }
        let [read, shown] = least;
        assert!(shown < read * 20, "{read:?} to read, {shown:?} to show");
    }

    #[test]
    fn names_are_no_commands_to_the_terminal() {
        let text = shown(&[("unix:/\u{1b}[2J", 2)], 80);
        assert!(
            text.contains("unix:/?[2J") && !text.contains('\u{1b}'),
            "{text}"
        );
    }
}
