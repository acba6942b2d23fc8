//! The metrics of runtimes, which the pages of all programs have.

use std::time::Duration;

use softclock::net::PacingStatistics;
use softclock::{Histogram, Statistics, TriggerState};

use super::signalling;
use super::text::MetricType::{self, Counter, Gauge};
use super::text::{MetricsPage, seconds};

impl MetricsPage {
    /// Adds the metrics of a program's runtimes, one for each thread that serves: the version of softclock, the number
    /// of threads, soft events, trigger states and their lateness, pacing, and the time in which threads were idle or
    /// spun. Values are sums over the runtimes. `softclock top` shows no page without these metrics.
    ///
    /// ```
    /// use softclock_http::MetricsPage;
    ///
    /// let mut page = MetricsPage::new();
    /// softclock::Runtime::new()?.block_on(async {
    ///     page.runtimes([&softclock::statistics()]);
    /// });
    /// assert!(page.to_string().contains("\nsoftclock_threads 1\n"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn runtimes<'a>(&mut self, statistics: impl IntoIterator<Item = &'a Statistics>) {
        let all: Vec<_> = statistics.into_iter().collect();
        self.family(
            "softclock_build_info",
            Gauge,
            "The program's version; always 1.",
        );
        self.labelled(&[("version", env!("CARGO_PKG_VERSION"))], 1);
        self.single(
            "softclock_threads",
            Gauge,
            "Threads that serve and have answered in time.",
            all.len(),
        );
        timers(self, &all);
        pacing(self, &all);
        triggers(self, &all);
        threads(self, &all);
    }
}

fn timers(page: &mut MetricsPage, all: &[&Statistics]) {
    let sum = |of: fn(&Statistics) -> u64| all.iter().copied().map(of).sum::<u64>();
    page.single(
        "softclock_events_pending",
        Gauge,
        "Soft events pending now, sleeping tasks included.",
        sum(|one| one.pending as u64),
    );
    page.single(
        "softclock_events_scheduled_total",
        Counter,
        "Soft events scheduled, rescheduling included.",
        sum(|one| one.events.scheduled),
    );
    page.single(
        "softclock_events_cancelled_total",
        Counter,
        "Soft events cancelled before they fired.",
        sum(|one| one.events.cancelled),
    );
}

fn pacing(page: &mut MetricsPage, all: &[&Statistics]) {
    let sum = |of: fn(&PacingStatistics) -> u64| {
        let pacing = all.iter().map(|one| &one.pacing);
        pacing.map(of).sum::<u64>()
    };
    page.single(
        "softclock_paced_trains_total",
        Counter,
        "Trains of pieces begun on paced connections: responses, or several in a row.",
        sum(|pacing| pacing.trains),
    );
    page.single(
        "softclock_paced_pieces_total",
        Counter,
        "Pieces that paced connections gave to the kernel.",
        sum(|pacing| pacing.pieces),
    );
    page.single(
        "softclock_paced_bytes_total",
        Counter,
        "Bytes of these pieces.",
        sum(|pacing| pacing.bytes),
    );
    page.single(
        "softclock_paced_blocked_total",
        Counter,
        "Times the kernel had no room for a piece, because the client was slow.",
        sum(|pacing| pacing.blocked),
    );
    page.single(
        "softclock_paced_forgotten_bytes_total",
        Counter,
        "Bytes that the pacing rates allowed, unused because streams were too late to catch up.",
        sum(|pacing| pacing.forgotten_bytes),
    );
    page.single(
        "softclock_paced_pending_bytes",
        Gauge,
        "Bytes that wait for their time to be sent.",
        sum(|pacing| pacing.pending_bytes),
    );
}

fn triggers(page: &mut MetricsPage, all: &[&Statistics]) {
    let of_source = |state, of: fn(&Statistics, TriggerState) -> u64| {
        all.iter().map(|one| of(one, state)).sum::<u64>()
    };
    let help = "Trigger states (moments at which due events are fired) by source.";
    page.family("softclock_trigger_states_total", Counter, help);
    for state in TriggerState::ALL {
        let count = of_source(state, |one, state| one.triggers.of(state).count());
        page.labelled(&[("source", state.name())], count);
    }
    let help = "Soft events fired, by the source of the trigger state that fired them.";
    page.family("softclock_events_fired_total", Counter, help);
    for state in TriggerState::ALL {
        let fired = of_source(state, |one, state| one.triggers.of(state).fired());
        page.labelled(&[("source", state.name())], fired);
    }
    let merged = |of: fn(&Statistics) -> Histogram| {
        let mut sum = Histogram::new();
        all.iter().for_each(|one| sum.merge(&of(one)));
        sum
    };
    let help = "Time between trigger states of a thread; long intervals are those of idle threads.";
    page.family(
        "softclock_trigger_interval_seconds",
        MetricType::Histogram,
        help,
    );
    let intervals = merged(|one| one.triggers.intervals());
    page.distribution(&[], &intervals);
    let help = "Time by which soft events fired after they were due.";
    page.family(
        "softclock_event_lateness_seconds",
        MetricType::Histogram,
        help,
    );
    let lateness = merged(|one| one.triggers.lateness());
    page.distribution(&[], &lateness);
}

fn threads(page: &mut MetricsPage, all: &[&Statistics]) {
    let sum = |of: fn(&Statistics) -> u64| all.iter().copied().map(of).sum::<u64>();
    let time = |of: fn(&Statistics) -> Duration| {
        let total: Duration = all.iter().copied().map(of).sum();
        seconds(u64::try_from(total.as_nanos()).unwrap_or(u64::MAX))
    };
    page.single(
        "softclock_turns_total",
        Counter,
        "Turns of the threads' loops.",
        sum(|one| one.turns),
    );
    page.single(
        "softclock_task_polls_total",
        Counter,
        "Polls of tasks.",
        sum(|one| one.tasks),
    );
    page.single(
        "softclock_blocks_total",
        Counter,
        "Times a thread had no work and blocked.",
        sum(|one| one.blocks),
    );
    page.single(
        "softclock_blocked_seconds_total",
        Counter,
        "Time that threads had no work and were blocked.",
        time(|one| one.blocked),
    );
    page.single(
        "softclock_spun_seconds_total",
        Counter,
        "Time that threads spun before an event, to fire it on time.",
        time(|one| one.spun),
    );
    page.single(
        "softclock_not_running_seconds_total",
        Counter,
        "Time in which threads were runnable but did not run: preempted, or steal time.",
        time(|one| one.not_running),
    );
    let mut signalling = all.iter().filter_map(|one| one.signalling);
    if let Some(mut sum) = signalling.next() {
        signalling.for_each(|one| sum.add(&one));
        signalling::OF_EVENTS.add(page, &sum);
    }
    // All threads use the same clock and mechanism.
    if let Some(one) = all.first() {
        let help = "The clock in use, and its counter's rate or the reason for not using a counter; always 1.";
        page.family("softclock_clock_info", Gauge, help);
        page.labelled(&[("source", &one.clock.to_string())], 1);
        let help = "The mechanism that reports which sockets are ready; always 1.";
        page.family("softclock_readiness_info", Gauge, help);
        page.labelled(&[("mechanism", one.mechanism.name())], 1);
    }
}
