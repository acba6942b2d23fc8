//! The metrics of the server.

use softclock::Statistics;
use softclock::net::stack::DropReason;
use softclock_http::MetricType::{Counter, Gauge};
use softclock_http::MetricsPage;

use super::report::Report;

/// Returns the page of metrics.
pub(super) fn page(report: &Report, statistics: &Statistics) -> MetricsPage {
    let mut page = MetricsPage::new();
    stack(&mut page, report);
    services(&mut page, report);
    page.runtimes([statistics]);
    page
}

fn stack(page: &mut MetricsPage, report: &Report) {
    let help = "The stack's interface, the mechanism that carries its frames, and its architecture; always 1.";
    page.family("softclock_stack_info", Gauge, help);
    let labels = [
        ("interface", report.interface.as_str()),
        ("mechanism", report.mechanism),
        ("architecture", report.architecture.name()),
    ];
    page.labelled(&labels, 1);
    let counts = &report.stack.counts;
    let mut by_direction = |name, help, received, sent| {
        page.family(name, Counter, help);
        page.labelled(&[("direction", "received")], received);
        page.labelled(&[("direction", "sent")], sent);
    };
    by_direction(
        "softclock_stack_frames_total",
        "Frames that the device delivered, and frames for the link.",
        counts.frames_received,
        counts.frames_sent,
    );
    by_direction(
        "softclock_stack_datagrams_total",
        "UDP datagrams that sockets of the stack took, and those that they sent.",
        counts.datagrams_received,
        counts.datagrams_sent,
    );
    page.single(
        "softclock_stack_echoes_total",
        Counter,
        "Echo requests of ICMP and ICMPv6 that were answered.",
        counts.echoes_answered,
    );
    let help = "Packets that the stack dropped, by reason; channel_full is early discard.";
    page.family("softclock_stack_drops_total", Counter, help);
    // All reasons, so that rates start at zero.
    for reason in DropReason::ALL {
        let dropped = report.stack.drops.of(reason);
        page.labelled(&[("reason", reason.name())], dropped);
    }
    if let Some(lost) = report.stack.lost {
        let help = "Frames lost in the device's receive buffer, which was full, before the stack saw them.";
        page.single("softclock_stack_lost_total", Counter, help, lost);
    }
    page.single(
        "softclock_stack_refused_total",
        Counter,
        "Frames that the link refused to send.",
        report.stack.refused,
    );
    page.single(
        "softclock_stack_address_conflicts_total",
        Counter,
        "Messages in which another host uses an address of the stack.",
        counts.address_conflicts,
    );
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
