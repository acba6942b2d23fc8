//! The metrics of a server of HTTP.

use std::collections::BTreeMap;

use softclock::Histogram;

use super::text::MetricType::{self, Counter, Gauge};
use super::text::MetricsPage;
use crate::observe::access_log::LogCounts;
use crate::observe::limit::Limit;
use crate::observe::telemetry::{CLASSES, Counts, METHODS, Report, UpstreamReport};

/// Returns the page of a server. `reports` has one report for each thread.
pub(crate) fn page(reports: &[Report], log: Option<LogCounts>) -> MetricsPage {
    let mut page = MetricsPage::new();
    server(&mut page, reports, log);
    upstreams(&mut page, reports);
    page.runtimes(reports.iter().map(|report| &report.statistics));
    page
}

fn server(page: &mut MetricsPage, reports: &[Report], log: Option<LogCounts>) {
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
        // One for all threads.
        reports.iter().map(|report| report.limit).max().unwrap_or(0),
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
fn upstreams(page: &mut MetricsPage, reports: &[Report]) {
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
