//! Formats how threads learn of frames, or of the events of the kernel's sockets.

use std::fmt::Write;

use super::{Change, number};

/// A source of work: the name of its arrivals, and the beginning of its metrics' names.
#[derive(Clone, Copy)]
pub(super) struct Source {
    arrivals: &'static str,
    metrics: &'static str,
}

pub(super) const FRAMES: Source = Source {
    arrivals: "frames",
    metrics: "softclock_signalling",
};

pub(super) const EVENTS: Source = Source {
    arrivals: "events",
    metrics: "softclock_event_signalling",
};

/// Appends how the threads learn of arrivals, unless the page does not say.
pub(super) fn lines(text: &mut String, change: &Change<'_>, source: Source) {
    let name = |metric: &str| format!("{}_{metric}", source.metrics);
    let info = name("info");
    let policies = change.current.by_label(&info, "policy");
    let Some(policy) = policies.keys().next() else {
        return;
    };
    let polling = change.current.value(&name("soft_polling_threads"));
    let now = match (policy.starts_with("automatic"), polling > 0.0) {
        (true, true) => ", now soft polls",
        (true, false) => ", now interrupts",
        (false, _) => "",
    };
    let looks = change.rates(&name("looks_total"), "result");
    let looks: f64 = looks.iter().map(|(_, rate)| rate).sum();
    let found = change.rate_of(&name("looks_total"), "result", "found");
    let arrivals = change.rate(&name(&format!("{}_total", source.arrivals)));
    let completions = change.rate(&name("completions_total"));
    let each = |rate: f64| number(if found > 0.0 { rate / found } else { 0.0 });
    let found_each = match completions > 0.0 {
        true => format!(
            "some: {} {}, {} completions each",
            each(arrivals),
            source.arrivals,
            each(completions)
        ),
        false => format!("{}, {} each", source.arrivals, each(arrivals)),
    };
    let masked = change.rate_of(&name("seconds_total"), "interrupts", "masked");
    let enabled = change.rate_of(&name("seconds_total"), "interrupts", "enabled");
    // Writing to a `String` does not fail.
    let _ = writeln!(
        text,
        "signalling   {policy}{now}\nlooks        {:>9} /s   {} found {found_each}",
        number(looks),
        percent(found, looks),
    );
    let _ = writeln!(
        text,
        "interrupts   {:>9} /s   masked for {} of the time",
        number(change.rate(&name("interrupts_total"))),
        percent(masked, enabled + masked),
    );
}

/// The share of a whole, in percent.
fn percent(part: f64, whole: f64) -> String {
    let share = if whole > 0.0 { part / whole } else { 0.0 };
    format!("{:.0}%", share * 100.0)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::super::Sample;
    use super::*;

    fn page(source: Source, n: u64, policy: &str, polling: u32) -> String {
        let Source { arrivals, metrics } = source;
        let mut page = format!(
            "softclock_threads 1\n{metrics}_info{{policy=\"{policy}\"}} 1\n\
             {metrics}_soft_polling_threads {polling}\n{metrics}_{arrivals}_total {}\n",
            9_300 * n
        );
        for (metric, value) in [
            ("looks_total{result=\"found\"}", 3_000 * n),
            ("looks_total{result=\"empty\"}", 1_000 * n),
            ("interrupts_total", 120 * n),
            ("seconds_total{interrupts=\"enabled\"}", n),
            ("seconds_total{interrupts=\"masked\"}", 3 * n),
        ] {
            page += &format!("{metrics}_{metric} {value}\n");
        }
        page
    }

    /// The lines for two seconds between these pages.
    fn shown(source: Source, pages: [&str; 2]) -> String {
        let now = Instant::now();
        let sample = |page, at| Sample::parse(page, at).unwrap();
        let (previous, current) = (sample(pages[0], now), sample(pages[1], now + TWO_SECONDS));
        let change = Change {
            previous: &previous,
            current: &current,
            seconds: 2.0,
        };
        let mut text = String::new();
        lines(&mut text, &change, source);
        text
    }

    const TWO_SECONDS: Duration = Duration::from_secs(2);

    #[test]
    fn what_is_done_now_is_shown_for_frames_and_events() {
        for (source, policy, polling, now) in [
            (FRAMES, "automatic", 1, "automatic, now soft polls"),
            (EVENTS, "automatic", 0, "automatic, now interrupts"),
            (EVENTS, "hybrid", 0, "hybrid"),
            (
                EVENTS,
                "automatic=timer",
                1,
                "automatic=timer, now soft polls",
            ),
        ] {
            let expected = format!(
                "signalling   {now}\n\
                 looks             4000 /s   75% found {}, 3.1 each\n\
                 interrupts         120 /s   masked for 75% of the time\n",
                source.arrivals
            );
            let pages = [1, 3].map(|n| page(source, n, policy, polling));
            assert_eq!(
                shown(source, pages.each_ref().map(|page| &page[..])),
                expected
            );
        }
    }

    #[test]
    fn completions_are_shown_if_looks_find_any() {
        let pages = [1, 3].map(|n| {
            let completions = format!("softclock_signalling_completions_total {}\n", 1_500 * n);
            page(FRAMES, n, "hybrid", 0) + &completions
        });
        let text = shown(FRAMES, pages.each_ref().map(|page| &page[..]));
        let expected =
            "looks             4000 /s   75% found some: 3.1 frames, 0.5 completions each\n";
        assert!(text.contains(expected), "{text}");
    }
}
