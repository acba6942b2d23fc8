//! The metrics of the server.

use softclock::Statistics;
use softclock::net::stack::Stack;
use softclock_http::MetricType::Counter;
use softclock_http::MetricsPage;

use super::report::Report;

/// Returns the page of metrics.
pub(super) fn page(stack: &Stack, report: &Report, statistics: &Statistics) -> MetricsPage {
    let mut page = MetricsPage::new();
    page.stack(stack);
    services(&mut page, report);
    page.runtimes([statistics]);
    page
}

fn services(page: &mut MetricsPage, report: &Report) {
    let mut by_service = |name, help, echo, discard| {
        page.family(name, Counter, help);
        page.labelled(&[("service", "echo")], echo);
        page.labelled(&[("service", "discard")], discard);
    };
    by_service(
        "softclock_echo_datagrams_total",
        "Datagrams that a service received.",
        report.echo.datagrams,
        report.discard.datagrams,
    );
    by_service(
        "softclock_echo_bytes_total",
        "Bytes of these datagrams, without headers.",
        report.echo.bytes,
        report.discard.bytes,
    );
}
