//! The metrics on the page.

use std::collections::BTreeMap;

use softclock::net::PacingStatistics;
use softclock::{Histogram, TriggerState};

use super::text::MetricType::{self, Counter, Gauge};
use super::text::{Page, seconds};
use crate::observe::access_log::LogCounts;
use crate::observe::limit::Limit;
use crate::observe::telemetry::{CLASSES, Counts, METHODS, Report, UpstreamReport};

/// Returns the page of metrics. `reports` has one report for each thread.
pub(super) fn page(reports: &[Report], log: Option<LogCounts>) -> String {
    let mut page = Page::default();
    page.family(
        "softclock_build_info",
        Gauge,
        "The program's version; always 1.",
    );
    page.labelled(&[("version", env!("CARGO_PKG_VERSION"))], 1);
    page.single(
        "softclock_threads",
        Gauge,
        "Threads that serve and have answered in time.",
        reports.len(),
    );
    server(&mut page, reports, log);
    upstreams(&mut page, reports);
    timers(&mut page, reports);
    pacing(&mut page, reports);
    triggers(&mut page, reports);
    threads(&mut page, reports);
    page.into_text()
}

fn server(page: &mut Page, reports: &[Report], log: Option<LogCounts>) {
    let mut counts = Counts::default();
    reports.iter().for_each(|report| counts.add(&report.counts));
    let help = "Responses by method and by class of status; class 4xx includes clients that left before a response.";
    page.family("softclock_http_responses_total", Counter, help);
    for (method, classes) in METHODS.iter().zip(&counts.responses) {
        for (class, &count) in CLASSES.iter().zip(classes) {
            // GET has all classes, so that rates start at zero; other methods only those that occurred.
            if count > 0 || *method == "GET" {
                page.labelled(&[("method", method), ("class", class)], count);
            }
        }
    }
    page.single(
        "softclock_http_body_bytes_total",
        Counter,
        "Bytes of response bodies handed to connections.",
        counts.body_bytes,
    );
    page.single(
        "softclock_connections_accepted_total",
        Counter,
        "Connections accepted.",
        counts.accepted,
    );
    let sum = |of: fn(&Report) -> usize| reports.iter().map(of).sum::<usize>();
    page.single(
        "softclock_connections_open",
        Gauge,
        "Connections open now.",
        sum(|report| report.open),
    );
    page.single(
        "softclock_connections_limit",
        Gauge,
        "Connections that may be open at a time; more wait in the kernel.",
        sum(|report| report.limit),
    );
    page.single(
        "softclock_tls_handshakes_failed_total",
        Counter,
        "TLS handshakes that failed or took too long.",
        counts.handshakes_failed,
    );
    let help = "Times a limit was reached, by its name in docs/limits.md.";
    page.family("softclock_limits_reached_total", Counter, help);
    for limit in Limit::ALL {
        page.labelled(&[("limit", limit.name())], limit.count());
    }
    if let Some(log) = log {
        let help = "Lines of the access log: written, dropped as the buffer was full, failed to be written.";
        page.family("softclock_access_log_lines_total", Counter, help);
        page.labelled(&[("outcome", "written")], log.written);
        page.labelled(&[("outcome", "dropped")], log.dropped);
        page.labelled(&[("outcome", "failed")], log.failed);
    }
}

/// Adds the metrics of upstreams by name, summed over all threads.
fn upstreams(page: &mut Page, reports: &[Report]) {
    // Each thread has its own connections and counts; sorting by name keeps the page stable.
    let mut all: BTreeMap<&str, Vec<&UpstreamReport>> = BTreeMap::new();
    for upstream in reports.iter().flat_map(|report| &report.upstreams) {
        all.entry(&upstream.name).or_default().push(upstream);
    }
    if all.is_empty() {
        return;
    }
    let mut family = |name, metric_type, help, of: fn(&UpstreamReport) -> u64| {
        page.family(name, metric_type, help);
        for (upstream, reports) in &all {
            let sum = reports.iter().map(|report| of(report)).sum::<u64>();
            page.labelled(&[("upstream", upstream)], sum);
        }
    };
    family(
        "softclock_upstream_requests_total",
        Counter,
        "Requests sent to an upstream, each try counted.",
        |report| report.counts.requests,
    );
    family(
        "softclock_upstream_failures_total",
        Counter,
        "Requests that an upstream failed to answer, or to answer to the end.",
        |report| report.counts.failures,
    );
    family(
        "softclock_upstream_retries_total",
        Counter,
        "Requests tried again, elsewhere or on a fresh connection.",
        |report| report.counts.retries,
    );
    family(
        "softclock_upstream_connections_total",
        Counter,
        "Connections made to an upstream.",
        |report| report.counts.connections,
    );
    family(
        "softclock_upstream_active",
        Gauge,
        "Requests and tunnels in progress at an upstream.",
        |report| report.active as u64,
    );
    family(
        "softclock_upstream_idle_connections",
        Gauge,
        "Connections kept for the next request.",
        |report| report.idle as u64,
    );
    family(
        "softclock_upstream_up_threads",
        Gauge,
        "Threads that send requests to an upstream; the others avoid it for a while after failures.",
        |report| u64::from(report.is_up),
    );
    let help = "Time from sending a request to an upstream to the head of its response, connecting included.";
    page.family(
        "softclock_upstream_response_seconds",
        MetricType::Histogram,
        help,
    );
    for (upstream, reports) in &all {
        let mut times = Histogram::new();
        let of_threads = reports.iter().map(|report| &report.response_times);
        of_threads.for_each(|of_thread| times.merge(of_thread));
        page.distribution(&[("upstream", upstream)], &times);
    }
}

fn timers(page: &mut Page, reports: &[Report]) {
    let sum = |of: fn(&Report) -> u64| reports.iter().map(of).sum::<u64>();
    page.single(
        "softclock_events_pending",
        Gauge,
        "Soft events pending now, sleeping tasks included.",
        sum(|report| report.statistics.pending as u64),
    );
    page.single(
        "softclock_events_scheduled_total",
        Counter,
        "Soft events scheduled, rescheduling included.",
        sum(|report| report.statistics.events.scheduled),
    );
    page.single(
        "softclock_events_cancelled_total",
        Counter,
        "Soft events cancelled before they fired.",
        sum(|report| report.statistics.events.cancelled),
    );
}

fn pacing(page: &mut Page, reports: &[Report]) {
    let sum = |of: fn(&PacingStatistics) -> u64| {
        let pacing = reports.iter().map(|report| &report.statistics.pacing);
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

fn triggers(page: &mut Page, reports: &[Report]) {
    let of_source = |state, of: fn(&Report, TriggerState) -> u64| {
        reports.iter().map(|report| of(report, state)).sum::<u64>()
    };
    let help = "Trigger states (moments at which due events are fired) by source.";
    page.family("softclock_trigger_states_total", Counter, help);
    for state in TriggerState::ALL {
        let count = of_source(state, |report, state| {
            report.statistics.triggers.of(state).count()
        });
        page.labelled(&[("source", state.name())], count);
    }
    let help = "Soft events fired, by the source of the trigger state that fired them.";
    page.family("softclock_events_fired_total", Counter, help);
    for state in TriggerState::ALL {
        let fired = of_source(state, |report, state| {
            report.statistics.triggers.of(state).fired()
        });
        page.labelled(&[("source", state.name())], fired);
    }
    let merged = |of: fn(&Report) -> Histogram| {
        let mut all = Histogram::new();
        reports.iter().for_each(|report| all.merge(&of(report)));
        all
    };
    let help = "Time between trigger states of a thread; long intervals are those of idle threads.";
    page.family(
        "softclock_trigger_interval_seconds",
        MetricType::Histogram,
        help,
    );
    let intervals = merged(|report| report.statistics.triggers.intervals());
    page.distribution(&[], &intervals);
    let help = "Time by which soft events fired after they were due.";
    page.family(
        "softclock_event_lateness_seconds",
        MetricType::Histogram,
        help,
    );
    let lateness = merged(|report| report.statistics.triggers.lateness());
    page.distribution(&[], &lateness);
}

fn threads(page: &mut Page, reports: &[Report]) {
    let sum = |of: fn(&Report) -> u64| reports.iter().map(of).sum::<u64>();
    let time = |of: fn(&Report) -> std::time::Duration| {
        let total: std::time::Duration = reports.iter().map(of).sum();
        seconds(u64::try_from(total.as_nanos()).unwrap_or(u64::MAX))
    };
    page.single(
        "softclock_turns_total",
        Counter,
        "Turns of the threads' loops.",
        sum(|report| report.statistics.turns),
    );
    page.single(
        "softclock_task_polls_total",
        Counter,
        "Polls of tasks.",
        sum(|report| report.statistics.tasks),
    );
    page.single(
        "softclock_blocks_total",
        Counter,
        "Times a thread had no work and blocked.",
        sum(|report| report.statistics.blocks),
    );
    page.single(
        "softclock_blocked_seconds_total",
        Counter,
        "Time that threads had no work and were blocked.",
        time(|report| report.statistics.blocked),
    );
    page.single(
        "softclock_spun_seconds_total",
        Counter,
        "Time that threads spun before an event, to fire it on time.",
        time(|report| report.statistics.spun),
    );
    page.single(
        "softclock_not_running_seconds_total",
        Counter,
        "Time in which threads were runnable but did not run: preempted, or steal time.",
        time(|report| report.statistics.not_running),
    );
    // All threads use the same clock and mechanism.
    if let Some(report) = reports.first() {
        let help = "The clock in use, and its counter's rate or the reason for not using a counter; always 1.";
        page.family("softclock_clock_info", Gauge, help);
        page.labelled(&[("source", &report.statistics.clock.to_string())], 1);
        let help = "The mechanism that reports which sockets are ready; always 1.";
        page.family("softclock_readiness_info", Gauge, help);
        page.labelled(&[("mechanism", report.statistics.mechanism.name())], 1);
    }
}
