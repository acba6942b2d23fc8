//! How much, over how long.

use core::time::Duration;

use softclock_core::{Instant, Rate};

/// Packets, bytes, and the time from the first packet to the last.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Volume {
    packets: u64,
    bytes: u64,
    reversals: u64,
    span: Option<(Instant, Instant)>,
}

impl Volume {
    /// A packet was seen; returns nanoseconds since the one before. Time that goes backwards stands still, and is counted.
    #[inline]
    pub fn on_packet(&mut self, at: Instant, bytes: u32) -> Option<u64> {
        self.packets += 1;
        self.bytes = self.bytes.saturating_add(bytes.into());
        let Some((_, last)) = &mut self.span else {
            self.span = Some((at, at));
            return None;
        };
        if at < *last {
            self.reversals += 1;
            return Some(0);
        }
        let gap_ns = at.ns_since(*last);
        *last = at;
        Some(gap_ns)
    }

    /// Packets seen.
    pub const fn packets(&self) -> u64 {
        self.packets
    }

    /// Their bytes.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Packets whose time was before that of one before them.
    pub const fn reversals(&self) -> u64 {
        self.reversals
    }

    /// When the first packet was seen.
    pub fn first(&self) -> Option<Instant> {
        self.span.map(|(first, _)| first)
    }

    /// When the last packet was seen.
    pub fn last(&self) -> Option<Instant> {
        self.span.map(|(_, last)| last)
    }

    /// From the first packet to the last.
    pub fn duration(&self) -> Duration {
        self.span
            .map_or(Duration::ZERO, |(first, last)| last.since(first))
    }

    /// All bytes over the duration, rounded up to a bit a second; `None` if no time passed or there were no bytes.
    pub fn mean_rate(&self) -> Option<Rate> {
        let ns = self.duration().as_nanos();
        let bps = (u128::from(self.bytes) * 8_000_000_000).checked_div(ns)?;
        let whole = bps * ns == u128::from(self.bytes) * 8_000_000_000;
        let bps = bps + u128::from(!whole);
        Rate::from_bps(u64::try_from(bps).unwrap_or(u64::MAX))
    }
}
