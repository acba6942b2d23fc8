//! The state that all listeners of a stack share.

use softclock_core::Instant;

use super::{FlowSecrets, SharedSettings};
use crate::demux::{Flow, HashKey};
use crate::tcp::challenge::{ChallengeCounts, ChallengeLimiter};

/// The state that all listeners of a stack share: secrets and limits.
pub struct Shared {
    pub(super) settings: SharedSettings,
    pub(super) secrets: FlowSecrets,
    table_key: HashKey,
    pub(super) challenges: ChallengeLimiter,
    pub(super) half_open: usize,
}

impl Shared {
    /// Creates the state. The key must be random, secret, and used for nothing else.
    pub fn new(settings: SharedSettings, key: HashKey) -> Self {
        let derive = |name: &[u8]| HashKey([key.mac(name), key.mac(&[name, b"'"].concat())]);
        Self {
            settings,
            secrets: FlowSecrets::new(derive(b"flows")),
            table_key: derive(b"tables"),
            challenges: ChallengeLimiter::new(settings.challenges, derive(b"challenges")),
            half_open: 0,
        }
    }

    /// The secrets of sequence numbers and time stamps, for active opens.
    pub const fn secrets(&self) -> &FlowSecrets {
        &self.secrets
    }

    /// The limit on challenge ACKs, which connections share.
    pub const fn challenges(&mut self) -> &mut ChallengeLimiter {
        &mut self.challenges
    }

    /// The challenge ACKs of connections, listeners and TIME-WAIT so far.
    pub const fn challenge_counts(&self) -> ChallengeCounts {
        self.challenges.counts()
    }

    /// The number of half-open connections of all listeners.
    pub const fn half_open(&self) -> usize {
        self.half_open
    }

    /// The clock of a flow's time stamps.
    pub fn timestamp(&self, flow: &Flow, now: Instant) -> u32 {
        let reading = self.settings.timestamps.reading(now);
        reading.wrapping_add(self.secrets.timestamp_offset(flow))
    }

    /// A key for tables of flows.
    pub(in crate::tcp) const fn table_key(&self) -> HashKey {
        self.table_key
    }

    pub(super) const fn is_full(&self) -> bool {
        self.half_open >= self.settings.half_open
    }
}
