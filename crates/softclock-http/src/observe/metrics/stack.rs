//! The metrics of a network stack of the program's own.

use softclock::net::stack::{
    DropReason, RetransmissionCause, SendEvent, Stack, StackReport, TcpReport, TcpState,
};

use super::signalling;
use super::text::MetricType::{Counter, Gauge};
use super::text::MetricsPage;

impl MetricsPage {
    /// Adds the metrics of a [stack](softclock::net::stack): its interface, frames, datagrams and drops, and TCP. Their
    /// names and meanings are in `docs/stack.md` and `docs/tcp.md`.
    pub fn stack(&mut self, stack: &Stack) {
        let help = "The stack's interface, the mechanism that carries its frames, and its architecture; always 1.";
        self.family("softclock_stack_info", Gauge, help);
        let labels = [
            ("interface", stack.interface()),
            ("mechanism", stack.mechanism()),
            ("architecture", stack.architecture().name()),
        ];
        self.labelled(&labels, 1);
        let report = stack.report();
        packets(self, &report);
        if let Some(report) = &report.signalling {
            signalling::OF_FRAMES.add(self, report);
        }
        drops(self, &report);
        connections(self, &report.tcp);
        segments(self, &report.tcp);
        repairs(self, &report.tcp);
        handshakes(self, &report.tcp);
    }

    /// Adds a family of counters whose values differ by one label.
    pub(super) fn by<'a>(
        &mut self,
        name: &'static str,
        help: &str,
        label: &str,
        values: impl IntoIterator<Item = (&'a str, u64)>,
    ) {
        self.family(name, Counter, help);
        for (value, count) in values {
            self.labelled(&[(label, value)], count);
        }
    }
}

fn packets(page: &mut MetricsPage, report: &StackReport) {
    let counts = &report.counts;
    page.by(
        "softclock_stack_frames_total",
        "Frames that the device delivered, and frames for the link.",
        "direction",
        [
            ("received", counts.frames_received),
            ("sent", counts.frames_sent),
        ],
    );
    let help = "Frames that each thread received and sent by the device, or by queues of its own.";
    page.family("softclock_stack_thread_frames_total", Counter, help);
    for (number, frames) in report.threads.iter().enumerate() {
        let number = number.to_string();
        for (direction, frames) in [("received", frames.received), ("sent", frames.sent)] {
            page.labelled(&[("thread", &number), ("direction", direction)], frames);
        }
    }
    page.by(
        "softclock_stack_verdicts_total",
        "Frames that the device delivered, by the verdict of the demultiplexer: to the channel of a socket, to that of \
         the stack's own packets, to that of fragments, or dropped.",
        "verdict",
        counts.verdicts(),
    );
    page.by(
        "softclock_stack_datagrams_total",
        "UDP datagrams that sockets of the stack took, and those that they sent.",
        "direction",
        [
            ("received", counts.datagrams_received),
            ("sent", counts.datagrams_sent),
        ],
    );
    page.single(
        "softclock_stack_echoes_total",
        Counter,
        "Echo requests of ICMP and ICMPv6 that were answered.",
        counts.echoes_answered,
    );
}

fn drops(page: &mut MetricsPage, report: &StackReport) {
    // All reasons, so that rates start at zero.
    page.by(
        "softclock_stack_drops_total",
        "Packets that the stack dropped, by reason; channel_full is early discard.",
        "reason",
        DropReason::ALL.map(|reason| (reason.name(), report.drops.of(reason))),
    );
    if let Some(lost) = report.lost {
        let help = "Frames lost in the device's receive buffer, which was full, before the stack saw them.";
        page.single("softclock_stack_lost_total", Counter, help, lost);
    }
    page.single(
        "softclock_stack_refused_total",
        Counter,
        "Frames that the link refused to send.",
        report.refused,
    );
    page.single(
        "softclock_stack_address_conflicts_total",
        Counter,
        "Messages in which another host uses an address of the stack.",
        report.counts.address_conflicts,
    );
}

fn connections(page: &mut MetricsPage, tcp: &TcpReport) {
    let help = "Connections by state. Those that are half open are in syn_received; closed ones are over, but their owners \
                hold them.";
    page.family("softclock_tcp_connections", Gauge, help);
    for state in TcpState::ALL {
        page.labelled(&[("state", state.name())], tcp.in_state(state));
    }
    page.single(
        "softclock_tcp_waiting_connections",
        Gauge,
        "Connections that wait to be accepted.",
        tcp.waiting,
    );
    page.single(
        "softclock_tcp_orphaned_connections",
        Gauge,
        "Connections without an owner, which send their rest.",
        tcp.orphans,
    );
    page.single(
        "softclock_tcp_memory_bytes",
        Gauge,
        "Bytes that have arrived and are not read, or wait to be sent or acknowledged, with their packets.",
        tcp.memory,
    );
    let counts = &tcp.counts;
    page.by(
        "softclock_tcp_opened_total",
        "Connections that this end began to open, and handshakes that listeners completed.",
        "side",
        [("active", counts.opened), ("passive", counts.accepted)],
    );
    page.single(
        "softclock_tcp_failed_total",
        Counter,
        "Connections that ended by an error which their owner was to learn.",
        counts.failed,
    );
    page.single(
        "softclock_tcp_orphans_reset_total",
        Counter,
        "Connections that were reset on closing, since too many were without owners.",
        counts.orphans_reset,
    );
    page.single(
        "softclock_tcp_late_owners_total",
        Counter,
        "Times a timer did the work for segments whose owner did not come.",
        counts.late_owners,
    );
}

fn segments(page: &mut MetricsPage, tcp: &TcpReport) {
    let counts = &tcp.counts;
    page.by(
        "softclock_tcp_segments_total",
        "Segments that connections received, and all that were sent, retransmissions included.",
        "direction",
        [
            ("received", counts.segments_received),
            ("sent", counts.segments_sent),
        ],
    );
    page.single(
        "softclock_tcp_resets_sent_total",
        Counter,
        "Resets that were sent.",
        counts.resets_sent,
    );
    page.by(
        "softclock_tcp_challenge_acks_total",
        "Answers to segments that may be forged, or of peers out of step: sent, or withheld by their limits.",
        "outcome",
        [
            ("sent", tcp.challenges.sent),
            ("withheld", tcp.challenges.withheld),
        ],
    );
}

fn repairs(page: &mut MetricsPage, tcp: &TcpReport) {
    let counts = &tcp.counts;
    page.by(
        "softclock_tcp_retransmitted_segments_total",
        "Segments sent again, by cause.",
        "cause",
        RetransmissionCause::ALL.map(|cause| (cause.name(), counts.retransmitted(cause))),
    );
    page.by(
        "softclock_tcp_events_total",
        "Events of loss recovery and congestion control, by name in docs/tcp.md.",
        "event",
        SendEvent::ALL.map(|event| (event.name(), counts.of(event))),
    );
    page.single(
        "softclock_tcp_sack_blocks_total",
        Counter,
        "Ranges of selective acknowledgments received.",
        counts.sack_blocks,
    );
}

fn handshakes(page: &mut MetricsPage, tcp: &TcpReport) {
    let stats = &tcp.listeners;
    page.by(
        "softclock_tcp_cookies_total",
        "SYN cookies that were sent, those that completed a handshake, acknowledgments without a valid one, and SYNs \
         that came while others waited for the limit on cookies.",
        "outcome",
        [
            ("sent", stats.cookies_sent),
            ("accepted", stats.cookies_accepted),
            ("refused", stats.cookies_refused),
            ("withheld", tcp.counts.cookies_withheld),
        ],
    );
    page.by(
        "softclock_tcp_queue_overflows_total",
        "Segments that found a queue of their listener full: of its channels, of half-open connections (the oldest \
         gives way, or the SYN is dropped), of connections to accept.",
        "queue",
        [
            ("channel", tcp.counts.handshakes_discarded),
            ("syn", stats.displaced + stats.syn_queue_full),
            ("accept", stats.accept_queue_full),
        ],
    );
    page.single(
        "softclock_tcp_syn_acks_retransmitted_total",
        Counter,
        "SYN-ACKs that were sent again.",
        stats.retransmitted,
    );
    page.single(
        "softclock_tcp_handshakes_timed_out_total",
        Counter,
        "Half-open connections whose SYN-ACK was never acknowledged.",
        stats.timed_out,
    );
}
