//! Packets that follow each other closely.

use core::time::Duration;

use softclock_core::Histogram;
use softclock_core::time::saturating_ns;

/// Trains: packets whose gaps are below a threshold. A packet alone is a train of one.
#[derive(Clone, Debug)]
pub struct Trains {
    gap_ns: u64,
    ended: Histogram,
    /// Packets of the train that goes on.
    current: u64,
    longest: u64,
}

impl Trains {
    /// No train yet; gaps below `gap` do not end one.
    pub fn new(gap: Duration) -> Self {
        Self {
            gap_ns: saturating_ns(gap),
            ended: Histogram::new(),
            current: 0,
            longest: 0,
        }
    }

    /// A packet came `gap_ns` after the one before, if there was one.
    #[inline]
    pub fn on_packet(&mut self, gap_ns: Option<u64>) {
        if gap_ns.is_some_and(|gap_ns| gap_ns >= self.gap_ns) {
            self.ended.record(self.current);
            self.current = 0;
        }
        self.current += 1;
        self.longest = self.longest.max(self.current);
    }

    /// How many trains there were.
    pub fn count(&self) -> u64 {
        self.ended.count() + u64::from(self.current > 0)
    }

    /// Packets of the longest.
    pub const fn longest(&self) -> u64 {
        self.longest
    }

    /// Packets a train, as a distribution: each length below 32 has a bucket of its own.
    pub fn lengths(&self) -> Histogram {
        let mut lengths = self.ended.clone();
        if self.current > 0 {
            lengths.record(self.current);
        }
        lengths
    }
}
