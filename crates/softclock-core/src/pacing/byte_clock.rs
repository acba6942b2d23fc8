//! Classes of packets on one link, scheduled by bytes (*PSPacer/HT*, section II-B).
//!
//! The global clock counts the bytes that the link could have sent so far. Each class has its own clock: the value of
//! the global clock at which its next packet may be sent. Sending a packet of s bytes occupies the link for s bytes
//! and advances the class's clock by s * link rate / class rate. A class whose clock is ahead of the global one
//! waits. Among the classes that may send, the one with the least finish time, its clock after the packet, goes
//! first. Each class is thus served within the time of one of its packets, independent of the other classes. The
//! paper serves the least clock first; serving the least finish time among eligible classes is WF2Q (Bennett and
//! Zhang).
//!
//! If the rates of the classes that have packets add up to more than the link's rate, each gets its proportional
//! share: its clock advances by s * (sum of their rates) / class rate. Classes without packets do not count, so a
//! link may be overbooked with classes that seldom send together. [`ByteClock::least_rate`] is the rate of a class
//! when all classes send.
//!
//! # Lateness
//! Callers are usually late: they wait for an instant and wake up some time after it. Clocks therefore count from the
//! time at which a packet was due, not from when it was sent, which keeps the average rate exact. To keep lateness
//! from becoming a burst, they count back a bounded time at most and forget the rest
//! ([`ClassStatistics::forgotten_bytes`]). A class makes up for
//!
//! - normally at most seven of its packets, so that at most eight queue up at a bottleneck of its rate;
//! - at most one millisecond or two packets, so that no second exceeds the rate by more than a thousandth, or two
//!   packets if that is more, and one packet;
//! - at least 50 us, the usual lateness of a blocking wait, or two packets of the link, for which other classes may
//!   delay it. This exceeds seven packets where a packet takes less than 7 us at the class's rate;
//! - and the tolerance (see below) in addition.
//!
//! These packets are of the longest size that the class has sent recently. [`ClassOptions::most_behind`] replaces
//! this limit for a class whose packets wait, and [`ClassOptions::burst_bytes`] for one that was idle. A class
//! catches up at its peak rate if it has one, else at the link's rate. The link and peak rates have due times of
//! their own, with the same rules for lateness, except that peak rates make up only for the lateness of a wait or two
//! packets.
//!
//! The arithmetic is exact. Clocks count whole bytes, and each class keeps the remainder of its divisions, so that
//! rounding errors do not accumulate: after any number of bytes in a row, a class's clock equals a single division of
//! their sum.
//!
//! Classes that are due at about the same time can be served together. With a tolerance, [`Dequeued::Wait`] is the
//! first due time plus the tolerance. All packets due in between are sent in one batch, late by at most the tolerance,
//! and at the same average rates (the open issue of section IV-D), since clocks make up for the tolerance too. Packets
//! of a single class whose distance exceeds the tolerance keep that distance. The packets of a batch are returned at
//! once, although the link needs up to the tolerance to send them, and a bottleneck of a class's rate has to queue the
//! packets that the class collected in that time.
//!
//! # Cost
//! O(log n) per packet with n classes that have packets; classes without packets cost nothing. Queues are bounded in
//! packets and in bytes.

mod class;

use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::time::Duration;

use crate::Instant;
use crate::time::saturating_ns;
use crate::units::Rate;

use class::{Class, longest, time_of};
pub use class::{ClassId, ClassOptions, ClassStatistics};

/// The reason why a packet was rejected.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum DropReason {
    /// The queue of the class holds its maximum number of packets.
    Packets,
    /// The packet would exceed the maximum number of bytes in the queue of the class.
    Bytes,
}

/// The result of [`ByteClock::dequeue`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Dequeued<P> {
    /// The caller sends this packet of this class.
    Send(ClassId, P),
    /// No packet may be sent before this instant.
    Wait(Instant),
    /// No packet is queued.
    Empty,
}

/// A scheduler for packets of several classes on one link; see the [module](self).
///
/// # Example
/// ```
/// use softclock_core::Instant;
/// use softclock_core::pacing::{ByteClock, ClassOptions, Dequeued};
/// use std::time::Duration;
///
/// let start = Instant::ORIGIN;
/// let mut link = ByteClock::new("100mbit".parse()?, start);
/// let class = link.add_class(ClassOptions::of_rate("50mbit".parse()?));
/// link.enqueue(class, "first", 1250, start).expect("the queue has room");
/// link.enqueue(class, "second", 1250, start).expect("the queue has room");
///
/// assert_eq!(link.dequeue(start), Dequeued::Send(class, "first"));
/// // 1250 bytes take 200 us at the rate of the class.
/// let next = start + Duration::from_micros(200);
/// assert_eq!(link.dequeue(start), Dequeued::Wait(next));
/// assert_eq!(link.dequeue(next), Dequeued::Send(class, "second"));
/// assert_eq!(link.dequeue(next), Dequeued::Empty);
/// # Ok::<(), softclock_core::units::UnitError>(())
/// ```
#[derive(Debug)]
pub struct ByteClock<P> {
    link: Rate,
    /// Time at which all clocks began at 0.
    start: Instant,
    tolerance_ns: u64,
    /// The tolerance in bytes of the link.
    tolerance: u64,
    /// The global clock: bytes that the link could have sent so far.
    present: u64,
    /// Value of the global clock at which the link has sent all packets handed out.
    busy_until: u64,
    /// Size of the longest recent packet.
    longest: u64,
    classes: Vec<Class<P>>,
    /// Sum of the rates of all classes.
    all_bps: u128,
    /// Sum of the rates of the classes that have packets.
    active_bps: u128,
    /// Classes with packets whose due time has not come, ordered by due time, then by turn.
    waiting: BinaryHeap<Reverse<(u64, u64, u32)>>,
    /// Classes with packets whose due time has come, ordered by finish time, then by turn.
    eligible: BinaryHeap<Reverse<(u64, u64, u32)>>,
    turn: u64,
}

impl<P> ByteClock<P> {
    /// Creates a scheduler without classes, for a link of this rate, with clocks starting at `start`.
    pub const fn new(link: Rate, start: Instant) -> Self {
        Self {
            link,
            start,
            tolerance_ns: 0,
            tolerance: 0,
            longest: 0,
            present: 0,
            busy_until: 0,
            classes: Vec::new(),
            all_bps: 0,
            active_bps: 0,
            waiting: BinaryHeap::new(),
            eligible: BinaryHeap::new(),
            turn: 0,
        }
    }

    /// Delays packets by up to `tolerance` after the first due time, so that all that are due by then leave in one
    /// batch. Zero, the default, delays none.
    pub fn set_tolerance(&mut self, tolerance: Duration) {
        self.tolerance_ns = saturating_ns(tolerance);
        self.tolerance = self.link.bytes_in(tolerance);
    }

    /// Adds a class. Its rate is limited to the link's, and its peak rate is raised to its rate.
    pub fn add_class(&mut self, options: ClassOptions) -> ClassId {
        let index = u32::try_from(self.classes.len()).expect("fewer than 2^32 classes");
        let options = self.within_link(options);
        self.all_bps += u128::from(options.rate.bps());
        self.classes.push(Class::new(options));
        ClassId(index)
    }

    /// Changes the options of a class from its next packet on. Queued packets stay queued. The wait for the next packet
    /// is rescaled to the new rates, as of the last call of another method. Takes time in proportion to the classes that
    /// wait.
    pub fn set_options(&mut self, id: ClassId, options: ClassOptions) {
        let options = self.within_link(options);
        let (link, present) = (self.link, self.present);
        let class = &mut self.classes[id.index()];
        let (before, after) = (class.options.rate.bps(), options.rate.bps());
        let changed = |sum: u128| sum - u128::from(before) + u128::from(after);
        self.all_bps = changed(self.all_bps);
        // The sum of active rates contains this class only while it has packets.
        if !class.queue.is_empty() {
            self.active_bps = changed(self.active_bps);
        }
        class.set_options(options, link, present);
        // An eligible class is due at any rate, and keeps its turn.
        let waiting = self.waiting.len();
        self.waiting.retain(|Reverse((_, _, index))| *index != id.0);
        if self.waiting.len() < waiting {
            self.activate(id.0);
        }
    }

    /// Returns the rate that a class keeps when all classes send: less than its own rate if the link is overbooked.
    pub fn least_rate(&self, class: ClassId) -> Rate {
        let rate = self.classes[class.index()].options.rate;
        let sum = self.all_bps.max(self.link.bps().into());
        let share = u128::from(rate.bps()) * u128::from(self.link.bps()) / sum;
        // Not above the class's rate, since `sum` is not below the link's.
        Rate::from_bps(share as u64).unwrap_or(ONE_BIT)
    }

    fn within_link(&self, options: ClassOptions) -> ClassOptions {
        let rate = options.rate.min(self.link);
        ClassOptions {
            rate,
            peak: options.peak.map(|peak| peak.max(rate)),
            ..options
        }
    }

    /// Returns the statistics of a class.
    pub fn statistics(&self, class: ClassId) -> ClassStatistics {
        let class = &self.classes[class.index()];
        ClassStatistics {
            queued_packets: class.queue.len(),
            ..class.statistics
        }
    }

    /// Queues a packet that takes `bytes` on the wire, or returns it with the reason if the queue of the class is
    /// full.
    pub fn enqueue(
        &mut self,
        id: ClassId,
        packet: P,
        bytes: u64,
        now: Instant,
    ) -> Result<(), (P, DropReason)> {
        self.follow(now);
        let class = &mut self.classes[id.index()];
        let statistics = &mut class.statistics;
        if class.queue.len() >= class.options.most_packets {
            statistics.dropped_for_packets += 1;
            return Err((packet, DropReason::Packets));
        }
        if bytes
            > class
                .options
                .most_bytes
                .saturating_sub(statistics.queued_bytes)
        {
            statistics.dropped_for_bytes += 1;
            return Err((packet, DropReason::Bytes));
        }
        // Both limits are checked before the queue changes.
        statistics.queued_bytes += bytes;
        class.queue.push_back((packet, bytes));
        if class.queue.len() == 1 {
            // The class was idle. It is due now, or as far in the past as its burst allows, not since its last
            // packet.
            class.not_before = class.not_before.max(self.present);
            self.active_bps += u128::from(class.options.rate.bps());
            let allowed = self.after_idleness(id.0, bytes);
            let (present, scale) = (self.present, self.scale());
            self.classes[id.index()].move_up(present, allowed, scale);
            self.activate(id.0);
        }
        Ok(())
    }

    /// Returns the next packet that may be sent at `now`, or the time to wait for.
    pub fn dequeue(&mut self, now: Instant) -> Dequeued<P> {
        self.follow(now);
        self.admit();
        let Some(&Reverse((_, _, index))) = self.eligible.peek() else {
            return match self.waiting.peek() {
                Some(&Reverse((clock, ..))) => {
                    Dequeued::Wait(self.time_of(clock).add_ns(self.tolerance_ns))
                }
                None => Dequeued::Empty,
            };
        };
        // A class is due, but the link may still be busy with earlier packets, beyond the tolerance.
        if self.busy_until > self.present.saturating_add(self.tolerance) {
            return Dequeued::Wait(self.time_of(self.busy_until - self.tolerance));
        }
        self.eligible.pop();
        Dequeued::Send(ClassId(index), self.send(index))
    }

    /// Takes the next packet of a class and advances its clocks from the time at which the packet was due, as far
    /// back as allowed.
    fn send(&mut self, index: u32) -> P {
        let (link, scale, present) = (self.link, self.scale(), self.present);
        let class = &mut self.classes[index as usize];
        let (packet, bytes) = class.take();
        class.longest = longest(class.longest, bytes);
        self.longest = longest(self.longest, bytes);
        let allowed = self.after_lateness(index);
        let (of_link, of_wait) = (self.made_up(self.longest), self.of_wait());
        // Give up the part of the lateness that the class does not make up for.
        let class = &mut self.classes[index as usize];
        let forgotten = class.move_up(present, allowed, scale);
        class.statistics.forgotten_bytes += forgotten;
        // The link counts from the due time as well, so that lateness costs it no capacity.
        let due = class.due().max(present.saturating_sub(of_link));
        self.busy_until = self.busy_until.max(due).saturating_add(bytes);
        class.advance(bytes, scale);
        // At a peak rate, the class's next packet keeps its distance even while the class is behind.
        if let Some(peak) = class.options.peak {
            let apart = time_of(bytes, link.bps(), peak);
            let of_peak = of_wait.max(apart.saturating_mul(LEAST_PACKETS));
            class.keep_apart(apart, present.saturating_sub(of_peak));
        }
        match class.queue.is_empty() {
            true => self.active_bps -= u128::from(class.options.rate.bps()),
            false => self.activate(index),
        }
        packet
    }

    /// Takes all queued packets of a class, for a program that ends.
    pub fn drain(&mut self, id: ClassId) -> impl Iterator<Item = P> {
        // Stale entries in the heaps would refer to a class without packets.
        for heap in [&mut self.waiting, &mut self.eligible] {
            heap.retain(|Reverse((_, _, index))| *index != id.0);
        }
        let class = &mut self.classes[id.index()];
        if !class.queue.is_empty() {
            self.active_bps -= u128::from(class.options.rate.bps());
        }
        class.statistics.queued_bytes = 0;
        // Not taken: the memory stays for the next packets.
        class.queue.drain(..).map(|(packet, _)| packet)
    }

    /// Queues a class that has packets by its due time.
    fn activate(&mut self, index: u32) {
        let due = self.classes[index as usize].due();
        self.turn += 1;
        self.waiting.push(Reverse((due, self.turn, index)));
    }

    /// Returns how far an idle class's clock may be behind when a packet of `bytes` arrives.
    fn after_idleness(&self, index: u32, bytes: u64) -> u64 {
        let (class, scale) = (&self.classes[index as usize], self.scale());
        match class.options.burst_bytes {
            Some(burst) => class.time_of(burst, scale),
            None => self.made_up(class.time_of(class.longest.max(bytes), scale)),
        }
    }

    /// Returns how far a class's clock may be behind when its packet is sent, at least as far as after idleness.
    fn after_lateness(&self, index: u32) -> u64 {
        let (class, scale) = (&self.classes[index as usize], self.scale());
        let late = match class.options.most_behind {
            Some(most) => {
                let most = self.link.bytes_in(most).max(self.of_others());
                most.saturating_add(self.tolerance)
            }
            None => self.made_up(class.time_of(class.longest, scale)),
        };
        let burst = class.options.burst_bytes;
        burst.map_or(late, |burst| late.max(class.time_of(burst, scale)))
    }

    /// Returns how far a clock may be behind that advances by `packet` per packet.
    fn made_up(&self, packet: u64) -> u64 {
        let packets = |count| packet.saturating_mul(count);
        let late = packets(LEAST_PACKETS).max(self.link.bytes_in(LONGEST_MADE_UP));
        let least = self.link.bytes_in(WAIT).max(self.of_others());
        // Rounding may add to the lateness, and the limit of eight packets must still hold.
        let most = packets(MOST_PACKETS).saturating_sub(self.rounding());
        let late = late.min(most).max(least);
        late.saturating_add(self.tolerance)
    }

    /// Returns for how long packets of other classes may delay one.
    const fn of_others(&self) -> u64 {
        self.longest.saturating_mul(LEAST_PACKETS)
    }

    /// Returns the lateness that rounding may add to a packet: a nanosecond and a byte, twice.
    const fn rounding(&self) -> u64 {
        self.link.bytes_in(Duration::from_nanos(2)) + 2
    }

    /// Returns the usual lateness of a wait.
    fn of_wait(&self) -> u64 {
        self.link.bytes_in(WAIT).saturating_add(self.tolerance)
    }

    /// Moves the classes whose due time has come to the eligible ones.
    fn admit(&mut self) {
        let scale = self.scale();
        while let Some(&Reverse((due, turn, index))) = self.waiting.peek()
            && due <= self.present
        {
            self.waiting.pop();
            let class = &self.classes[index as usize];
            let bytes = class.queue.front().map_or(0, |&(_, bytes)| bytes);
            let after = due.saturating_add(class.time_of(bytes, scale));
            // Ordered by finish time from now on, no longer by due time.
            self.eligible.push(Reverse((after, turn, index)));
        }
    }

    /// Returns by how much a class's clock advances per byte, times the class's rate: the link's rate, or the sum of
    /// the rates of classes that have packets if that is larger.
    fn scale(&self) -> u64 {
        let active = u64::try_from(self.active_bps).unwrap_or(u64::MAX);
        active.max(self.link.bps())
    }

    /// Advances the global clock to `now`.
    fn follow(&mut self, now: Instant) {
        let time = now.since(self.start);
        self.present = self.present.max(self.link.bytes_in(time));
    }

    /// Returns the first instant at which the link could have sent `bytes`.
    fn time_of(&self, bytes: u64) -> Instant {
        self.start + self.link.time_of(bytes)
    }
}

/// Usual upper bound of the lateness of a blocking wait.
const WAIT: Duration = Duration::from_micros(50);

/// Most packets that a class makes up for: with the one that is due, eight may be sent at once.
const MOST_PACKETS: u64 = 7;

/// Fewest packets to make up for: being late by about one packet must not reduce the rate.
const LEAST_PACKETS: u64 = 2;

/// Longest time to make up for: more would visibly exceed the rate within a second.
const LONGEST_MADE_UP: Duration = Duration::from_millis(1);

const ONE_BIT: Rate = Rate::from_bps(1).expect("not zero");

#[cfg(test)]
mod lateness;
#[cfg(test)]
mod tests;
