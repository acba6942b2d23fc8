//! The numbers of packets and bytes, and the duration of a stream.

use core::time::Duration;

use softclock_core::{Instant, Rate};

/// Counts packets and bytes, and measures the time from the first packet to the last.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Volume {
    packets: u64,
    bytes: u64,
    reversals: u64,
    span: Option<(Instant, Instant)>,
}

impl Volume {
    /// Adds a packet, and returns the nanoseconds since the previous one, or `None` for the first. If time goes
    /// backwards, the result is 0, and the packet counts as a reversal.
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

    /// The number of packets.
    pub const fn packets(&self) -> u64 {
        self.packets
    }

    /// The sum of the packets' lengths.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The number of packets whose time was before the latest time of the packets before them.
    pub const fn reversals(&self) -> u64 {
        self.reversals
    }

    /// The time of the first packet.
    pub fn first(&self) -> Option<Instant> {
        self.span.map(|(first, _)| first)
    }

    /// The latest time of a packet.
    pub fn last(&self) -> Option<Instant> {
        self.span.map(|(_, last)| last)
    }

    /// The time from the first packet to the last.
    pub fn duration(&self) -> Duration {
        self.span
            .map_or(Duration::ZERO, |(first, last)| last.since(first))
    }

    /// The mean rate: all bytes over the duration, rounded up to whole bits per second. `None` if the duration or the
    /// number of bytes is zero.
    pub fn mean_rate(&self) -> Option<Rate> {
        let ns = self.duration().as_nanos();
        let bps = (u128::from(self.bytes) * 8_000_000_000).checked_div(ns)?;
        let whole = bps * ns == u128::from(self.bytes) * 8_000_000_000;
        let bps = bps + u128::from(!whole);
        Rate::from_bps(u64::try_from(bps).unwrap_or(u64::MAX))
    }
}
