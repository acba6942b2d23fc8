//! Trains: packets that follow each other closely.

use core::time::Duration;

use softclock_core::Histogram;
use softclock_core::time::saturating_ns;

/// Counts trains: sequences of packets whose gaps are below a threshold. A single packet is a train of one.
///
/// ```
/// use std::time::Duration;
///
/// use softclock_wire::burstiness::Trains;
///
/// let mut trains = Trains::new(Duration::from_micros(10));
/// for gap_ns in [None, Some(2_000), Some(2_000), Some(500_000), Some(500_000)] {
///     trains.on_packet(gap_ns);
/// }
/// assert_eq!((trains.count(), trains.longest()), (3, 3));
/// ```
#[derive(Clone, Debug)]
pub struct Trains {
    gap_ns: u64,
    ended: Histogram,
    /// The packets of the train that has not ended.
    current: u64,
    longest: u64,
}

impl Trains {
    /// Creates a counter without packets. Gaps below `gap` do not end a train.
    pub fn new(gap: Duration) -> Self {
        Self {
            gap_ns: saturating_ns(gap),
            ended: Histogram::new(),
            current: 0,
            longest: 0,
        }
    }

    /// Adds a packet that came `gap_ns` after the previous one; `None` for the first packet.
    #[inline]
    pub fn on_packet(&mut self, gap_ns: Option<u64>) {
        if gap_ns.is_some_and(|gap_ns| gap_ns >= self.gap_ns) {
            self.ended.record(self.current);
            self.current = 0;
        }
        self.current += 1;
        self.longest = self.longest.max(self.current);
    }

    /// The number of trains, including the one that has not ended.
    pub fn count(&self) -> u64 {
        self.ended.count() + u64::from(self.current > 0)
    }

    /// The number of packets of the longest train.
    pub const fn longest(&self) -> u64 {
        self.longest
    }

    /// The distribution of the number of packets per train. Exact for lengths below 32.
    pub fn lengths(&self) -> Histogram {
        let mut lengths = self.ended.clone();
        if self.current > 0 {
            lengths.record(self.current);
        }
        lengths
    }
}
