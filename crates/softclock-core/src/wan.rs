//! A wide-area link as a model: given a packet's arrival, what becomes of it.
//!
//! A packet may be lost; else it waits in the queue of a bottleneck, is sent at the bottleneck's rate, and travels for the
//! delay, varied uniformly by the jitter to both sides. Packets stay in order unless [`reorder`](WanOptions::reorder) says
//! otherwise: a packet that would overtake another leaves with it. On the way a packet may be doubled, and one bit of it
//! changed. The terms are those of Linux' netem (tc-netem(8)).
//!
//! The same seed and arrivals give the same fates. Each packet draws the same number of random numbers, whatever the options,
//! so that which packets are lost does not depend on, say, the jitter.
//!
//! # Cost
//! O(1) a packet, and 8 bytes for each that may wait in the bottleneck's queue.

use alloc::collections::VecDeque;
use core::time::Duration;

use crate::Instant;
use crate::time::saturating_ns;
use crate::units::Rate;

/// What a link does to packets. By default, nothing.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct WanOptions {
    /// How long a packet travels.
    pub delay: Duration,
    /// By how much more or less, at most.
    pub jitter: Duration,
    /// The bottleneck's rate; `None` for no bottleneck.
    pub rate: Option<Rate>,
    /// Packets in the bottleneck at most, the one that is being sent included.
    pub queue_packets: usize,
    /// Packets that are lost at random.
    pub loss: Chance,
    /// Packets that travel without the delay, and so overtake others.
    pub reorder: Chance,
    /// Packets that arrive twice.
    pub duplicate: Chance,
    /// Packets in which a bit changes.
    pub corrupt: Chance,
}

impl Default for WanOptions {
    fn default() -> Self {
        Self {
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            rate: None,
            queue_packets: 1000,
            loss: Chance::NEVER,
            reorder: Chance::NEVER,
            duplicate: Chance::NEVER,
            corrupt: Chance::NEVER,
        }
    }
}

/// How often something happens to packets, each by itself.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Chance(u64);

impl Chance {
    /// To no packet.
    pub const NEVER: Self = Self(0);

    /// To this share of the packets, 0 to 1. What is outside, and not a number, is brought inside.
    pub fn of_share(share: f64) -> Self {
        // The conversion saturates: the whole is 2^64 - 1, which is all but one number.
        Self((share * 18_446_744_073_709_551_616.0) as u64)
    }

    const fn happens(self, draw: u64) -> bool {
        draw < self.0 || self.0 == u64::MAX
    }
}

/// What becomes of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It was lost at random.
    Lost,
    /// The bottleneck's queue was full.
    QueueFull,
    /// It leaves the link.
    Leaves {
        /// When.
        at: Instant,
        /// Twice.
        doubled: bool,
        /// With a bit changed, chosen by this number.
        corrupted: Option<u64>,
    },
}

/// One direction of a link; see the [module](self).
#[derive(Clone, Debug)]
pub struct Wan {
    options: WanOptions,
    random: SplitMix,
    /// When those in the bottleneck will have been sent, earliest first.
    bottleneck: VecDeque<Instant>,
    /// When the latest of those that keep their order leaves.
    latest: Instant,
}

impl Wan {
    /// A link without packets.
    pub const fn new(options: WanOptions, seed: u64) -> Self {
        Self {
            options,
            random: SplitMix(seed),
            bottleneck: VecDeque::new(),
            latest: Instant::ORIGIN,
        }
    }

    /// What becomes of a packet of so many bytes on the wire that arrives at `now`. Arrivals come in order.
    pub fn on_arrival(&mut self, wire_bytes: u64, now: Instant) -> Fate {
        let [loss, reorder, duplicate, corrupt, jitter, bit] = self.random.draws();
        if self.options.loss.happens(loss) {
            return Fate::Lost;
        }
        let Some(sent) = self.pass_bottleneck(wire_bytes, now) else {
            return Fate::QueueFull;
        };
        let at = match self.options.reorder.happens(reorder) {
            true => sent,
            false => {
                self.latest = self.latest.max(sent + self.travel_time(jitter));
                self.latest
            }
        };
        Fate::Leaves {
            at,
            doubled: self.options.duplicate.happens(duplicate),
            corrupted: self.options.corrupt.happens(corrupt).then_some(bit),
        }
    }

    /// Packets in the bottleneck at `now`.
    pub fn queued_packets(&self, now: Instant) -> usize {
        self.bottleneck.iter().filter(|&&sent| sent > now).count()
    }

    /// Packets that the bottleneck had behind the last one that arrived. O(1).
    pub fn last_queued_packets(&self) -> usize {
        self.bottleneck.len()
    }

    /// When the bottleneck will have sent the packet; `None` if it has no room for it.
    fn pass_bottleneck(&mut self, wire_bytes: u64, now: Instant) -> Option<Instant> {
        let Some(rate) = self.options.rate else {
            return Some(now);
        };
        while self.bottleneck.front().is_some_and(|&sent| sent <= now) {
            self.bottleneck.pop_front();
        }
        if self.bottleneck.len() >= self.options.queue_packets {
            return None;
        }
        let begins = self.bottleneck.back().map_or(now, |&last| last.max(now));
        let sent = begins + rate.time_of(wire_bytes);
        self.bottleneck.push_back(sent);
        Some(sent)
    }

    /// Uniform between the delay less and plus the jitter, not below zero.
    fn travel_time(&self, draw: u64) -> Duration {
        let delay = saturating_ns(self.options.delay);
        let jitter = saturating_ns(self.options.jitter);
        let span = u128::from(jitter) * 2 + 1;
        let offset = ((u128::from(draw) * span) >> 64) as u64;
        Duration::from_nanos(delay.saturating_add(offset).saturating_sub(jitter))
    }
}

/// SplitMix64 (Steele, Lea, Flood: *Fast Splittable Pseudorandom Number Generators*, 2014).
#[derive(Clone, Debug)]
struct SplitMix(u64);

impl SplitMix {
    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn draws<const N: usize>(&mut self) -> [u64; N] {
        core::array::from_fn(|_| self.draw())
    }
}

#[cfg(test)]
mod tests;
