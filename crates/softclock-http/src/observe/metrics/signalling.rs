//! The metrics of how threads learn of work.

use softclock::signalling::SignallingReport;

use super::text::MetricType::{Counter, Gauge};
use super::text::MetricsPage;

/// The names of the metrics of a source of work.
pub(super) struct Names {
    info: &'static str,
    soft_polling: &'static str,
    looks: &'static str,
    found: &'static str,
    /// Devices have completions of transmissions.
    completions: Option<&'static str>,
    interrupts: &'static str,
    waits: &'static str,
    seconds: &'static str,
}

pub(super) const OF_FRAMES: Names = Names {
    info: "softclock_signalling_info",
    soft_polling: "softclock_signalling_soft_polling_threads",
    looks: "softclock_signalling_looks_total",
    found: "softclock_signalling_frames_total",
    completions: Some("softclock_signalling_completions_total"),
    interrupts: "softclock_signalling_interrupts_total",
    waits: "softclock_signalling_waits_total",
    seconds: "softclock_signalling_seconds_total",
};

pub(super) const OF_EVENTS: Names = Names {
    info: "softclock_event_signalling_info",
    soft_polling: "softclock_event_signalling_soft_polling_threads",
    looks: "softclock_event_signalling_looks_total",
    found: "softclock_event_signalling_events_total",
    completions: None,
    interrupts: "softclock_event_signalling_interrupts_total",
    waits: "softclock_event_signalling_waits_total",
    seconds: "softclock_event_signalling_seconds_total",
};

impl Names {
    pub(super) fn add(&self, page: &mut MetricsPage, report: &SignallingReport) {
        let help = "The policy by which the threads learn of arrivals; always 1.";
        page.family(self.info, Gauge, help);
        page.labelled(&[("policy", &report.policy.to_string())], 1);
        page.single(
            self.soft_polling,
            Gauge,
            "Threads that poll softly at present.",
            report.soft_polling,
        );
        let counts = &report.counts;
        page.by(
            self.looks,
            "Looks for arrivals and completions, by their result: some were found, or none.",
            "result",
            [
                ("found", counts.found),
                ("empty", counts.looks - counts.found),
            ],
        );
        let help = "Arrivals that looks found.";
        page.single(self.found, Counter, help, counts.packets);
        if let Some(name) = self.completions {
            let help = "Completions of transmissions that looks found.";
            page.single(name, Counter, help, counts.completions);
        }
        page.single(
            self.interrupts,
            Counter,
            "Arrivals that were reported to a thread without a look.",
            counts.interrupts,
        );
        page.by(
            self.waits,
            "Waits of the threads: with interrupts, which end at an arrival, or masked, up to the time of a look.",
            "interrupts",
            [
                ("enabled", counts.waits - counts.masked_waits),
                ("masked", counts.masked_waits),
            ],
        );
        let help = "Time of the threads, by whether arrivals interrupted them, in seconds.";
        page.family(self.seconds, Counter, help);
        let seconds = |ns: u64| ns as f64 / 1e9;
        let enabled_ns = counts.elapsed_ns - counts.masked_ns;
        for (interrupts, ns) in [("enabled", enabled_ns), ("masked", counts.masked_ns)] {
            page.labelled(&[("interrupts", interrupts)], seconds(ns));
        }
    }
}
