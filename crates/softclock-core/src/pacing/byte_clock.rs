//! Classes of packets on one link, scheduled by bytes (*PSPacer/HT*, section II-B).
//!
//! The global clock counts the bytes that the link could have sent by now, and runs ahead of time while packets are being
//! sent at the link's rate. Each class has a clock of its own, the global clock's value at which its next packet may go.
//! Sending a packet of s bytes moves the global clock by s and the class's by s * link rate / class rate. A class whose
//! clock lies ahead of the global one waits until then. Of those that may go, the class goes first whose clock will be
//! the least after its packet, so that each is served within the time of one of its own packets, whatever the others
//! send. The paper serves the least clock first; among classes that may go, the least finish time is WF2Q (Bennett and
//! Zhang).
//!
//! While the classes that have packets were promised more than the link has, each gets its share: its clock moves by
//! s * (sum of their rates) / class rate. Classes without packets do not count, so a link may be promised several times
//! over to classes that seldom send together. [`ByteClock::least_rate`] is what a class gets when all send.
//!
//! # Lateness
//! The caller is late as a rule: it waits for an instant and wakes up some time after it. Clocks therefore count from
//! when a packet was due, not from when it left, and the average rate comes out right. So that lateness never becomes a
//! burst, they count from a bounded time ago at most, and forget the rest ([`ClassStatistics::forgotten_bytes`]). A
//! class makes up for
//!
//! - normally seven of its packets, so that at most eight wait at a bottleneck of its rate, whatever the lateness;
//! - no more than a millisecond of them or two, so that no second has more than its rate and a thousandth of it, or
//!   three packets at low rates;
//! - at least 50 us, which a blocking wait is late by as long as nothing else delays it, or two packets of the link, by
//!   which another class may hold it up. That is the larger one where packets take less than 7 us at the class's rate;
//! - the tolerance (see below) beside that.
//!
//! "Packets" are the longest that the class has sent of late. [`ClassOptions::most_behind`] and
//! [`ClassOptions::burst_bytes`] replace this limit, for a class whose packets wait, and for one that was idle. What is
//! made up for leaves at the class's peak rate if it has one, else at the link's. The link itself and peak rates have
//! due times of their own, which lateness moves by the same rules: only what a wait may be late by, or two packets, for
//! peak rates.
//!
//! The arithmetic is exact. Clocks count whole bytes, and each class keeps the remainder of its divisions, so that no
//! rounding adds up: after any number of bytes in a row, a class is where one division of the sum would have put it.
//!
//! Many classes due at about the same time can be served together: with a tolerance, [`Dequeued::Wait`] names the first
//! multiple of it that is not before the next packet's time, so that all that is due in between goes out in one batch, late
//! by less than the tolerance and at the same average rates (the open issue of section IV-D): what clocks make up for
//! is more by the tolerance. The packets of a batch are given out at once, though the link will need up to the
//! tolerance to send them, and a bottleneck of a class's rate holds what the class gathered in it.
//!
//! # Cost
//! O(log n) a packet with n classes that have packets; others cost nothing. Queues are bounded by packets and by bytes.

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

/// Why a packet was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DropReason {
    /// As many packets wait as may.
    Packets,
    /// As many bytes wait as may.
    Bytes,
}

/// What is to be done now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Dequeued<P> {
    /// Send this packet of this class.
    Send(ClassId, P),
    /// Nothing before this instant.
    Wait(Instant),
    /// No packet waits.
    Empty,
}

/// The global clock, the classes and their packets: packets of classes on one link, scheduled by bytes.
#[derive(Debug)]
pub struct ByteClock<P> {
    link: Rate,
    /// Where the clocks began.
    start: Instant,
    tolerance_ns: u64,
    /// The same in bytes of the link.
    tolerance: u64,
    /// Bytes that the link could have sent.
    present: u64,
    /// When the link has sent what it was given.
    busy_until: u64,
    /// The longest packet of late.
    longest: u64,
    classes: Vec<Class<P>>,
    /// The rates of all classes, in sum.
    all_bps: u128,
    /// The rates of the classes that have packets, in sum.
    active_bps: u128,
    /// Classes that have packets: by clock, then by turn, until the global clock has come so far ...
    waiting: BinaryHeap<Reverse<(u64, u64, u32)>>,
    /// ... and from then on by where the clock will be after the next packet.
    eligible: BinaryHeap<Reverse<(u64, u64, u32)>>,
    turn: u64,
}

impl<P> ByteClock<P> {
    /// No class, on a link of this rate, from `start` on.
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

    /// Packets may go out later by up to this much, so that those of many classes go together.
    pub fn set_tolerance(&mut self, tolerance: Duration) {
        self.tolerance_ns = saturating_ns(tolerance);
        self.tolerance = self.link.bytes_in(tolerance);
    }

    /// Adds a class. A rate above the link's is the link's, and a peak below the rate is the rate.
    pub fn add_class(&mut self, options: ClassOptions) -> ClassId {
        let index = u32::try_from(self.classes.len()).expect("fewer than 2^32 classes");
        let options = self.within_link(options);
        self.all_bps += u128::from(options.rate.bps());
        self.classes.push(Class::new(options));
        ClassId(index)
    }

    /// Changes how a class is treated from its next packet on. What waits, stays.
    pub fn set_options(&mut self, class: ClassId, options: ClassOptions) {
        let options = self.within_link(options);
        let class = &mut self.classes[class.index()];
        let (before, after) = (class.options.rate.bps(), options.rate.bps());
        let changed = |sum: u128| sum - u128::from(before) + u128::from(after);
        self.all_bps = changed(self.all_bps);
        if !class.queue.is_empty() {
            self.active_bps = changed(self.active_bps);
        }
        class.set_options(options);
    }

    /// The rate that a class keeps when all classes have packets: less than its own if the link does not have the sum
    /// of their rates.
    pub fn least_rate(&self, class: ClassId) -> Rate {
        let rate = self.classes[class.index()].options.rate;
        let sum = self.all_bps.max(self.link.bps().into());
        let share = u128::from(rate.bps()) * u128::from(self.link.bps()) / sum;
        // Not above the rate, as the sum is not below the link's.
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

    /// What a class did so far.
    pub fn statistics(&self, class: ClassId) -> ClassStatistics {
        let class = &self.classes[class.index()];
        ClassStatistics {
            queued_packets: class.queue.len(),
            ..class.statistics
        }
    }

    /// Puts a packet that takes `bytes` on the wire behind those of its class, or gives it back.
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
        statistics.queued_bytes += bytes;
        class.queue.push_back((packet, bytes));
        if class.queue.len() == 1 {
            class.not_before = class.not_before.max(self.present);
            self.active_bps += u128::from(class.options.rate.bps());
            let allowed = self.after_idleness(id.0, bytes);
            let (present, scale) = (self.present, self.scale());
            self.classes[id.index()].move_up(present, allowed, scale);
            self.activate(id.0);
        }
        Ok(())
    }

    /// The next packet that may go at `now`, or when that will be.
    pub fn dequeue(&mut self, now: Instant) -> Dequeued<P> {
        self.follow(now);
        self.admit();
        let Some(&Reverse((_, _, index))) = self.eligible.peek() else {
            return match self.waiting.peek() {
                Some(&Reverse((clock, ..))) => Dequeued::Wait(self.round_up(self.time_of(clock))),
                None => Dequeued::Empty,
            };
        };
        if self.busy_until > self.present.saturating_add(self.tolerance) {
            return Dequeued::Wait(self.time_of(self.busy_until - self.tolerance));
        }
        self.eligible.pop();
        Dequeued::Send(ClassId(index), self.send(index))
    }

    /// The next packet of a class goes. The clocks count from when it was due, or as far back as they may.
    fn send(&mut self, index: u32) -> P {
        let (link, scale, present) = (self.link, self.scale(), self.present);
        let class = &mut self.classes[index as usize];
        let (packet, bytes) = class.take();
        class.longest = longest(class.longest, bytes);
        self.longest = longest(self.longest, bytes);
        let allowed = self.after_lateness(index);
        let (of_link, of_wait) = (self.made_up(self.longest), self.of_wait());
        let class = &mut self.classes[index as usize];
        let forgotten = class.move_up(present, allowed, scale);
        class.statistics.forgotten_bytes += forgotten;
        let due = class.due().max(present.saturating_sub(of_link));
        self.busy_until = self.busy_until.max(due).saturating_add(bytes);
        class.advance(bytes, scale);
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

    /// Takes all waiting packets of a class out, for a program that ends.
    pub fn drain(&mut self, id: ClassId) -> impl Iterator<Item = P> {
        for heap in [&mut self.waiting, &mut self.eligible] {
            heap.retain(|Reverse((_, _, index))| *index != id.0);
        }
        let class = &mut self.classes[id.index()];
        if !class.queue.is_empty() {
            self.active_bps -= u128::from(class.options.rate.bps());
        }
        class.statistics.queued_bytes = 0;
        core::mem::take(&mut class.queue)
            .into_iter()
            .map(|(packet, _)| packet)
    }

    /// Puts a class that has packets where its clock says.
    fn activate(&mut self, index: u32) {
        let due = self.classes[index as usize].due();
        self.turn += 1;
        self.waiting.push(Reverse((due, self.turn, index)));
    }

    /// How far a class that was idle may be behind, with its next packet of so many bytes.
    fn after_idleness(&self, index: u32, bytes: u64) -> u64 {
        let (class, scale) = (&self.classes[index as usize], self.scale());
        match class.options.burst_bytes {
            Some(burst) => class.time_of(burst, scale),
            None => self.made_up(class.time_of(class.longest.max(bytes), scale)),
        }
    }

    /// How far a class may be behind when its packet goes; not less than after it was idle.
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

    /// How far a clock may be behind that moves by so much for each packet.
    fn made_up(&self, packet: u64) -> u64 {
        let packets = |count| packet.saturating_mul(count);
        let late = packets(LEAST_PACKETS).max(self.link.bytes_in(LONGEST_MADE_UP));
        let least = self.link.bytes_in(WAIT).max(self.of_others());
        let most = packets(MOST_PACKETS).saturating_sub(self.rounding());
        let late = late.min(most).max(least);
        late.saturating_add(self.tolerance)
    }

    /// How long packets of other classes may hold one up.
    const fn of_others(&self) -> u64 {
        self.longest.saturating_mul(LEAST_PACKETS)
    }

    /// What instants and whole bytes may add to the lateness of a packet: a nanosecond and a byte each.
    const fn rounding(&self) -> u64 {
        self.link.bytes_in(Duration::from_nanos(2)) + 2
    }

    /// What a wait may be late by.
    fn of_wait(&self) -> u64 {
        self.link.bytes_in(WAIT).saturating_add(self.tolerance)
    }

    /// Classes whose time has come are eligible from now on.
    fn admit(&mut self) {
        let scale = self.scale();
        while let Some(&Reverse((due, turn, index))) = self.waiting.peek()
            && due <= self.present
        {
            self.waiting.pop();
            let class = &self.classes[index as usize];
            let bytes = class.queue.front().map_or(0, |&(_, bytes)| bytes);
            let after = due.saturating_add(class.time_of(bytes, scale));
            self.eligible.push(Reverse((after, turn, index)));
        }
    }

    /// What a class's clock moves by for a byte, times the class's rate: the rate of the link, or the sum of the rates
    /// of classes that have packets, if that is more.
    fn scale(&self) -> u64 {
        let active = u64::try_from(self.active_bps).unwrap_or(u64::MAX);
        active.max(self.link.bps())
    }

    /// Lets the clock follow time.
    fn follow(&mut self, now: Instant) {
        let time = now.since(self.start);
        self.present = self.present.max(self.link.bytes_in(time));
    }

    /// The first instant at which the link could have sent so many bytes.
    fn time_of(&self, bytes: u64) -> Instant {
        self.start + self.link.time_of(bytes)
    }

    /// The next multiple of the tolerance.
    fn round_up(&self, at: Instant) -> Instant {
        match self.tolerance_ns {
            0 => at,
            tolerance => {
                let ns = at.ns_since(self.start).div_ceil(tolerance);
                self.start.add_ns(ns.saturating_mul(tolerance))
            }
        }
    }
}

/// What a blocking wait is late by, at most, as long as nothing else delays it.
const WAIT: Duration = Duration::from_micros(50);

/// Packets that a class makes up for at most: with the one that is due, eight may leave at once.
const MOST_PACKETS: u64 = 7;

/// A packet that is late by about the time from one to the next is not to cost any rate.
const LEAST_PACKETS: u64 = 2;

/// More would show in the rate of a second.
const LONGEST_MADE_UP: Duration = Duration::from_millis(1);

const ONE_BIT: Rate = Rate::from_bps(1).expect("not zero");

#[cfg(test)]
mod lateness;
#[cfg(test)]
mod tests;
