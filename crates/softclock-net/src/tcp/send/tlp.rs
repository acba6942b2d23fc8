//! Tail loss probes (RFC 8985, 7): a loss at the end of a flight, behind which nothing arrives, is repaired without a
//! retransmission timeout.

use core::time::Duration;

use super::rtt::RoundTrip;
use super::settings::Limits;
use crate::tcp::seq::Seq;

/// The probe that is not yet accounted for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TailProbe {
    /// SND.NXT after the probe (TLP.end_seq), if there is one.
    end: Seq,
    kind: Kind,
}

/// What was sent as a probe.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Kind {
    #[default]
    None,
    NewData,
    Retransmission,
    /// A retransmission that a recovery has taken over from: the report of its duplicate may still come.
    Superseded,
}

/// How a probe ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ProbeEnd {
    /// It has not ended, or there is none.
    Open,
    /// It repaired nothing: new data, or bytes that had arrived already.
    Harmless,
    /// It repaired a loss, to which congestion control responds (RFC 8985, 7.4).
    Repair,
}

impl TailProbe {
    pub(super) fn is_open(&self) -> bool {
        matches!(self.kind, Kind::NewData | Kind::Retransmission)
    }

    /// Whether a segment that ends at this position is the probe.
    pub(super) fn is_of(&self, end: Seq) -> bool {
        self.kind != Kind::None && self.end == end
    }

    pub(super) fn begin(&mut self, next: Seq, is_retransmission: bool) {
        self.end = next;
        self.kind = match is_retransmission {
            true => Kind::Retransmission,
            false => Kind::NewData,
        };
    }

    /// A recovery takes over.
    pub(super) fn abandon(&mut self) {
        self.kind = match self.kind {
            Kind::Retransmission | Kind::Superseded => Kind::Superseded,
            Kind::None | Kind::NewData => Kind::None,
        };
    }

    /// RFC 8985, 7.4.2. `duplicate_end` is the end of the range that the peer reports to have received twice, and
    /// `is_bare_duplicate` says that the acknowledgment is a duplicate without selective ones.
    pub(super) fn on_ack(
        &mut self,
        acknowledgment: Seq,
        duplicate_end: Option<Seq>,
        is_bare_duplicate: bool,
    ) -> ProbeEnd {
        let end = self.end;
        let verdict = match self.kind {
            Kind::None => ProbeEnd::Open,
            Kind::Superseded if duplicate_end == Some(end) => ProbeEnd::Harmless,
            Kind::Superseded => ProbeEnd::Open,
            _ if acknowledgment.is_before(end) => ProbeEnd::Open,
            Kind::NewData => ProbeEnd::Harmless,
            Kind::Retransmission if duplicate_end == Some(end) => ProbeEnd::Harmless,
            Kind::Retransmission if end.is_before(acknowledgment) => ProbeEnd::Repair,
            Kind::Retransmission if is_bare_duplicate => ProbeEnd::Harmless,
            Kind::Retransmission => ProbeEnd::Open,
        };
        if verdict != ProbeEnd::Open {
            self.kind = Kind::None;
        }
        verdict
    }
}

/// The time from now after which a probe is sent (RFC 8985, 7.2): two round trips, and the delay of the peer's
/// acknowledgments if only one segment is in flight; but not less than the least time.
pub(super) fn probe_timeout(rtt: &RoundTrip, limits: &Limits, is_single: bool) -> Duration {
    let Some(smoothed) = rtt.smoothed() else {
        return Duration::from_secs(1);
    };
    let delay = match is_single {
        true => limits.peer_ack_delay(),
        false => Duration::ZERO,
    };
    (smoothed * 2 + delay).max(limits.least_probe_timeout())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe(is_retransmission: bool) -> TailProbe {
        let mut probe = TailProbe::default();
        probe.begin(Seq(1000), is_retransmission);
        probe
    }

    #[test]
    fn a_probe_of_new_data_does_no_harm() {
        let mut probe = probe(false);
        assert_eq!(probe.on_ack(Seq(999), None, true), ProbeEnd::Open);
        assert_eq!(probe.on_ack(Seq(1000), None, false), ProbeEnd::Harmless);
        assert!(!probe.is_open());
    }

    #[test]
    fn a_probe_that_arrived_twice_does_no_harm() {
        let twice = probe(true).on_ack(Seq(1000), Some(Seq(1000)), false);
        assert_eq!(twice, ProbeEnd::Harmless);
        assert_eq!(
            probe(true).on_ack(Seq(1000), None, true),
            ProbeEnd::Harmless
        );
    }

    #[test]
    fn a_probe_is_known_by_its_duplicate_after_a_recovery_has_taken_over() {
        let mut probe = probe(true);
        probe.abandon();
        assert!(!probe.is_open() && probe.is_of(Seq(1000)));
        let later = probe.on_ack(Seq(2000), None, false);
        assert_eq!(later, ProbeEnd::Open, "it is not accounted for");
        let twice = probe.on_ack(Seq(2000), Some(Seq(1000)), false);
        assert_eq!(twice, ProbeEnd::Harmless);
        assert!(!probe.is_of(Seq(1000)), "its duplicate comes once");
    }

    #[test]
    fn a_probe_without_a_duplicate_has_repaired_a_loss() {
        let mut probe = probe(true);
        assert_eq!(probe.on_ack(Seq(1000), None, false), ProbeEnd::Open);
        assert_eq!(probe.on_ack(Seq(1001), None, false), ProbeEnd::Repair);
    }
}
