//! The properties of a path between a sender and a receiver.

use super::*;

/// The properties of a path. Probabilities are in thousandths.
#[derive(Clone, Debug)]
pub(super) struct Path {
    pub(super) delay: Duration,
    /// In bytes per second, with the queue of the bottleneck in bytes.
    pub(super) rate: u64,
    pub(super) queue: u64,
    pub(super) loss: u32,
    pub(super) ack_loss: u32,
    pub(super) duplication: u32,
    /// A segment is delayed by up to this much more.
    pub(super) reordering: u32,
    pub(super) reordering_by: Duration,
    /// A policer drops what exceeds a token bucket of this rate and burst.
    pub(super) policer: Option<(u64, u64)>,
    /// Transmissions, counted from 0, that are dropped.
    pub(super) drops: Vec<usize>,
    /// What would arrive in this time arrives at its end.
    pub(super) stall: Option<(Instant, Instant)>,
    pub(super) has_sack: bool,
    pub(super) has_times: bool,
    pub(super) has_duplicate_sack: bool,
    /// The receive buffer, and how long the receiver holds acknowledgments back.
    pub(super) window: u32,
    pub(super) ack_delay: Duration,
    /// No window until this time.
    pub(super) closed_until: Instant,
    /// Segments are processed in rounds of this period, as by an owner that comes late.
    pub(super) laziness: Duration,
    pub(super) seed: u64,
    pub(super) start: u32,
    pub(super) bytes: usize,
}

impl Default for Path {
    fn default() -> Self {
        Self {
            delay: ms(20),
            rate: 12_500_000,
            queue: 1 << 20,
            loss: 0,
            ack_loss: 0,
            duplication: 0,
            reordering: 0,
            reordering_by: ms(0),
            policer: None,
            drops: vec![],
            stall: None,
            has_sack: true,
            has_times: true,
            has_duplicate_sack: true,
            window: 4 << 20,
            ack_delay: ms(40),
            closed_until: Instant::ORIGIN,
            laziness: ms(0),
            seed: 1,
            start: 0,
            bytes: 100_000,
        }
    }
}
