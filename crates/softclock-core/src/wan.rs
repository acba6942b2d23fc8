//! A model of a wide-area link: for each packet that arrives, it computes whether and when the packet leaves.
//!
//! A packet may be lost at random. Otherwise it waits in the queue of a bottleneck, is sent at the bottleneck's rate,
//! and travels for the delay plus or minus a random jitter. Packets stay in order, unless
//! [`reorder`](WanOptions::reorder) selects one. Packets may also be duplicated, and one bit may be flipped. The terms
//! are those of Linux's netem (tc-netem(8)).
//!
//! The deviations of packets that are farther apart than twice the jitter are independent and uniformly distributed.
//! Otherwise the deviation changes gradually: a new one is drawn after twice the jitter, and those in between are
//! interpolated. So no packet would overtake another, and the mean travel time is the delay at any packet rate.
//! Independent deviations of packets that are closer would have to be raised to keep the order, to a mean well above the
//! delay.
//!
//! The same seed and arrivals always give the same result. Each packet draws the same number of random numbers,
//! whether or not an option is used, so that changing the jitter, for example, does not change which packets are
//! lost.
//!
//! # Cost
//! O(1) per packet, and 8 bytes of memory for each packet in the bottleneck's queue.

use alloc::collections::VecDeque;
use core::time::Duration;

use crate::Instant;
use crate::time::saturating_ns;
use crate::units::Rate;

/// The properties of a link. The default changes nothing and loses nothing.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct WanOptions {
    /// Travel time of a packet.
    pub delay: Duration,
    /// Largest deviation of the travel time from `delay`, in either direction; see the [module](self).
    pub jitter: Duration,
    /// Rate of the bottleneck; `None` for no bottleneck.
    pub rate: Option<Rate>,
    /// Capacity of the bottleneck in packets, including the one being sent. Further packets are dropped.
    pub queue_packets: usize,
    /// Share of packets lost at random.
    pub loss: Chance,
    /// Share of packets that travel without the delay, and so overtake others.
    pub reorder: Chance,
    /// Share of packets that arrive twice.
    pub duplicate: Chance,
    /// Share of packets in which one bit is flipped.
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

/// The probability of an effect on a packet, independent for each packet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Chance(u64);

impl Chance {
    /// Probability 0.
    pub const NEVER: Self = Self(0);

    /// Returns the probability `share`, clamped to 0 to 1. A value that is not a number counts as 0.
    pub fn of_share(share: f64) -> Self {
        // The conversion saturates at 2^64 - 1, which `happens` treats as probability 1.
        Self((share * 18_446_744_073_709_551_616.0) as u64)
    }

    const fn happens(self, draw: u64) -> bool {
        draw < self.0 || self.0 == u64::MAX
    }
}

/// The result for one packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// The packet was lost at random.
    Lost,
    /// The packet was dropped, since the bottleneck's queue was full.
    QueueFull,
    /// The packet leaves the link.
    Leaves {
        /// Time at which it leaves.
        at: Instant,
        /// Whether it leaves twice.
        doubled: bool,
        /// A random number that selects the bit to flip, if one is to be flipped.
        corrupted: Option<u64>,
    },
}

/// One direction of a link; see the [module](self).
///
/// # Example
/// ```
/// use softclock_core::Instant;
/// use softclock_core::wan::{Fate, Wan, WanOptions};
/// use std::time::Duration;
///
/// let options = WanOptions {
///     delay: Duration::from_millis(20),
///     rate: Some("12mbit".parse()?),
///     ..WanOptions::default()
/// };
/// let mut link = Wan::new(options, 7);
/// // 1500 bytes take 1 ms at 12 Mbit/s, and then travel for 20 ms.
/// let Fate::Leaves { at, .. } = link.on_arrival(1500, Instant::ORIGIN) else {
///     panic!("nothing is lost by default");
/// };
/// assert_eq!(at.since(Instant::ORIGIN), Duration::from_millis(21));
/// # Ok::<(), softclock_core::units::UnitError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Wan {
    options: WanOptions,
    random: SplitMix,
    /// Times at which the packets in the bottleneck will have been sent, earliest first.
    bottleneck: VecDeque<Instant>,
    /// The deviation of the travel time.
    deviation: Deviation,
    /// Latest departure of the packets that keep their order.
    latest: Instant,
}

impl Wan {
    /// Creates a link with no packets under way.
    pub const fn new(options: WanOptions, seed: u64) -> Self {
        Self {
            options,
            random: SplitMix(seed),
            bottleneck: VecDeque::new(),
            deviation: Deviation::new(options.jitter),
            latest: Instant::ORIGIN,
        }
    }

    /// Computes the result for a packet of `wire_bytes` that arrives at `now`. Call it in the order of arrivals.
    pub fn on_arrival(&mut self, wire_bytes: u64, now: Instant) -> Fate {
        // All numbers are drawn first, so that each packet uses the same number of them.
        let [loss, reorder, duplicate, corrupt, jitter, bit] = self.random.draws();
        while self.bottleneck.front().is_some_and(|&sent| sent <= now) {
            self.bottleneck.pop_front();
        }
        if self.options.loss.happens(loss) {
            return Fate::Lost;
        }
        let Some(sent) = self.pass_bottleneck(wire_bytes, now) else {
            return Fate::QueueFull;
        };
        let at = match self.options.reorder.happens(reorder) {
            // A reordered packet skips the delay, and does not hold up those behind it.
            true => sent,
            false => {
                self.latest = self.latest.max(sent + self.travel_time(sent, jitter));
                self.latest
            }
        };
        Fate::Leaves {
            at,
            doubled: self.options.duplicate.happens(duplicate),
            corrupted: self.options.corrupt.happens(corrupt).then_some(bit),
        }
    }

    /// Returns the number of packets in the bottleneck at `now`. O(n) in the queued packets.
    pub fn queued_packets(&self, now: Instant) -> usize {
        self.bottleneck.iter().filter(|&&sent| sent > now).count()
    }

    /// Returns the number of packets in the bottleneck when the latest packet arrived, including that packet if it
    /// was queued. O(1).
    pub fn last_queued_packets(&self) -> usize {
        self.bottleneck.len()
    }

    /// Returns the time at which the bottleneck will have sent the packet, or `None` if its queue is full.
    fn pass_bottleneck(&mut self, wire_bytes: u64, now: Instant) -> Option<Instant> {
        let Some(rate) = self.options.rate else {
            return Some(now);
        };
        if self.bottleneck.len() >= self.options.queue_packets {
            return None;
        }
        // Transmission begins when the packet before it has been sent.
        let begins = self.bottleneck.back().map_or(now, |&last| last.max(now));
        let sent = begins + rate.time_of(wire_bytes);
        self.bottleneck.push_back(sent);
        Some(sent)
    }

    /// Returns the travel time of a packet, between delay minus jitter and delay plus jitter, and not below zero.
    fn travel_time(&mut self, sent: Instant, draw: u64) -> Duration {
        let delay = saturating_ns(self.options.delay);
        let jitter = saturating_ns(self.options.jitter);
        let offset = self.deviation.offset_ns(sent, draw);
        Duration::from_nanos(delay.saturating_add(offset).saturating_sub(jitter))
    }
}

/// The deviation of the travel time over time: straight lines between random values, or a value of its own for a packet
/// that is far behind the one before it.
///
/// A line lasts for twice the jitter, so its slope is at least -1, and no packet overtakes another.
#[derive(Clone, Debug)]
struct Deviation {
    /// Range of the deviation, and length of a line: twice the jitter.
    span_ns: u64,
    line: Option<Line>,
    /// The time of the latest packet.
    latest: Instant,
}

/// A line of the deviation. Offsets count from the smallest deviation.
#[derive(Clone, Copy, Debug)]
struct Line {
    ends: Instant,
    /// Offset at the beginning.
    from_ns: u64,
    /// Offset at the end.
    to_ns: u64,
}

impl Deviation {
    const fn new(jitter: Duration) -> Self {
        Self {
            span_ns: saturating_ns(jitter).saturating_mul(2),
            line: None,
            latest: Instant::ORIGIN,
        }
    }

    /// Returns the offset of a packet that the bottleneck has sent at `sent`. Uses `draw` if a line must be drawn.
    fn offset_ns(&mut self, sent: Instant, draw: u64) -> u64 {
        let drawn_ns = ((u128::from(draw) * (u128::from(self.span_ns) + 1)) >> 64) as u64;
        // The line may end behind a packet that is far behind the latest.
        let is_near = sent.ns_since(self.latest) <= self.span_ns;
        let line = match self.line.filter(|_| is_near) {
            Some(line) if sent <= line.ends => line,
            Some(line) => Line {
                ends: line.ends.add_ns(self.span_ns),
                from_ns: line.to_ns,
                to_ns: drawn_ns,
            },
            _ => Line {
                ends: sent,
                from_ns: drawn_ns,
                to_ns: drawn_ns,
            },
        };
        self.line = Some(line);
        self.latest = sent;
        line.offset_ns(sent, self.span_ns)
    }
}

impl Line {
    /// Returns the offset at a time before the end.
    fn offset_ns(self, at: Instant, span_ns: u64) -> u64 {
        let left = i128::from(self.ends.ns_since(at).min(span_ns));
        let change = i128::from(self.from_ns) - i128::from(self.to_ns);
        // The division is not by zero, and the result lies between both offsets.
        let offset = i128::from(self.to_ns) + change * left / i128::from(span_ns.max(1));
        offset as u64
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
