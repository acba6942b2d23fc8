//! The state that exists only while segments are in flight.

use alloc::boxed::Box;

use softclock_core::Instant;

use super::prr::Reduction;
use super::rack::{Detection, Rack};
use super::scoreboard::Scoreboard;
use crate::tcp::congestion::RateSampler;
use crate::tcp::seq::Seq;

/// The scoreboard, loss detection and recovery of the segments in flight.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) board: Scoreboard,
    pub(super) rack: Rack,
    pub(super) sampler: RateSampler,
    pub(super) reduction: Reduction,
    /// SND.NXT when the recovery began.
    pub(super) recovery_point: Seq,
    /// Whether a segment behind the recovery point, which was sent during the recovery, is lost, too.
    pub(super) is_lost_beyond: bool,
    /// The earlier timer beside the retransmission timeout, and its purpose.
    pub(super) early: Option<(Instant, Early)>,
    /// Data before this position was sent while the congestion window was full.
    pub(super) limited_until: Seq,
    /// Duplicate acknowledgments, without SACK, and the bytes that they are presumed to have delivered.
    pub(super) duplicates: u32,
    pub(super) presumed: u32,
    /// The state of the search for needless timeouts.
    pub(super) spurious: Spurious,
    /// SND.NXT when the path was last found too narrow for segments of this flight.
    pub(super) narrowed: Option<Seq>,
}

impl Flight {
    pub(super) fn new(una: Seq, has_sack: bool) -> Box<Self> {
        Box::new(Self {
            board: Scoreboard::new(una, has_sack),
            rack: Rack::new(una),
            sampler: RateSampler::default(),
            reduction: Reduction::default(),
            recovery_point: una,
            is_lost_beyond: false,
            early: None,
            limited_until: una,
            duplicates: 0,
            presumed: 0,
            spurious: Spurious::No,
            narrowed: None,
        })
    }

    /// A recovery begins, until all before `next` has arrived.
    pub(super) fn begin_recovery(&mut self, next: Seq) {
        self.recovery_point = next;
        self.is_lost_beyond = false;
    }

    /// Notes whether what the recovery has sent is among the losses.
    pub(super) fn note_losses(&mut self, losses: &Detection) {
        let point = self.recovery_point;
        self.is_lost_beyond |= losses.end.is_some_and(|end| point.is_before(end));
    }

    /// The bytes presumed to be under way.
    pub(super) fn in_flight(&self) -> u32 {
        self.board.in_flight().saturating_sub(self.presumed)
    }
}

/// The state of F-RTO (RFC 5682, 3.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Spurious {
    /// No timeout is in doubt.
    No,
    /// After a timeout, before an acknowledgment.
    Suspected,
    /// After an acknowledgment of the retransmission: new data is sent, and the next acknowledgment decides.
    Testing,
}

/// The purpose of the earlier timer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Early {
    /// Segments that are late become lost ones (RFC 8985, 6.3).
    Reordering,
    /// A tail loss probe is due.
    TailProbe,
}
