//! Classes of packets on one link, scheduled by bytes (*PSPacer/HT*, section II-B).
//!
//! The global clock counts the bytes that the link could have sent by now, and runs ahead of time while packets are being
//! sent at the link's rate. Each class has a clock of its own, the global clock's value at which its next packet may go.
//! Sending a packet of s bytes moves the global clock by s and the class's by s * link rate / class rate. A class whose
//! clock lies ahead of the global one waits until then. Of those that may go, the class goes first whose clock will be the
//! least after its packet, so that each is served within the time of one of its own packets, whatever the others send.
//!
//! While the classes that have packets were promised more than the link has, each gets its share: its clock moves by
//! s * (sum of their rates) / class rate. Classes without packets do not count, so a link may be promised several times
//! over to classes that seldom send together. [`ByteClock::least_rate`] is what a class gets when all send.
//!
//! A packet that is sent late does not move its class's clock, so the class catches up: at its peak rate if it has one,
//! else at the link's. Transmissions at the peak rate have due times of their own, which lateness of up to 50 us does not
//! move, so that a sender that is always a little late keeps the peak rate too. A packet that comes when none waits is not
//! late: those behind it are due as if it were sent at once. A class that falls behind further than its burst, because it was
//! idle, or than what it may be late, because nobody sent for it in time, is moved up: what it did not use beyond that is
//! lost to it.
//!
//! The arithmetic is exact. Clocks count whole bytes, and each class keeps the remainder of its divisions, so that no
//! rounding adds up: after any number of bytes in a row, a class is where one division of the sum would have put it.
//!
//! Many classes due at about the same time can be served together: with a tolerance, [`Dequeued::Wait`] names the first
//! multiple of it that is not before the next packet's time, so that all that is due in between goes out in one batch, late
//! by less than the tolerance and at the same average rates (the open issue of section IV-D). The packets of a batch
//! are given out at once, though the link will need up to the tolerance to send them.
//!
//! # Cost
//! O(log n) a packet with n classes that have packets; others cost nothing. Queues are bounded by packets and by bytes.

use alloc::collections::{BinaryHeap, VecDeque};
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::time::Duration;

use crate::Instant;
use crate::time::saturating_ns;
use crate::units::Rate;

/// A class of a [`ByteClock`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ClassId(u32);

impl ClassId {
    /// Classes are numbered from 0 in the order in which they were added.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// How a class is treated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClassOptions {
    /// The rate it keeps on average, of bytes on the wire.
    pub rate: Rate,
    /// The rate at which it catches up after delays; `None` for the link's.
    pub peak: Option<Rate>,
    /// How many bytes it may be behind after it was idle, and still catch up.
    pub burst_bytes: u64,
    /// How many bytes it may be behind because nobody sent for it in time though packets waited, and still catch up.
    pub late_bytes: u64,
    /// Packets that may wait.
    pub most_packets: usize,
    /// Bytes on the wire that may wait.
    pub most_bytes: u64,
}

impl ClassOptions {
    /// This rate, a burst of 64 KiB and as much for lateness, and queues of 1000 packets or 1 MiB.
    pub const fn of_rate(rate: Rate) -> Self {
        Self {
            rate,
            peak: None,
            burst_bytes: 64 << 10,
            late_bytes: 64 << 10,
            most_packets: 1000,
            most_bytes: 1 << 20,
        }
    }
}

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

/// What a class did so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ClassStatistics {
    /// Packets sent.
    pub sent_packets: u64,
    /// Their bytes on the wire.
    pub sent_bytes: u64,
    /// Packets not taken because as many waited as may.
    pub dropped_for_packets: u64,
    /// Packets not taken because as many bytes waited as may.
    pub dropped_for_bytes: u64,
    /// Packets that wait.
    pub queued_packets: usize,
    /// Their bytes on the wire.
    pub queued_bytes: u64,
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
    /// How late a packet may be sent without delaying those behind it at the peak rate, in bytes of the link.
    slack: u64,
    /// Bytes that the link could have sent.
    present: u64,
    /// When the link has sent what it was given.
    busy_until: u64,
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

#[derive(Debug)]
struct Class<P> {
    options: ClassOptions,
    clock: u64,
    /// What the peak rate allows, in bytes of the global clock.
    not_before: u64,
    /// What was left of the last division, in units of a byte times the link's rate over the class's.
    remainder: u64,
    queue: VecDeque<(P, u64)>,
    statistics: ClassStatistics,
}

impl<P> ByteClock<P> {
    /// No class, on a link of this rate, from `start` on.
    pub const fn new(link: Rate, start: Instant) -> Self {
        Self {
            link,
            start,
            tolerance_ns: 0,
            tolerance: 0,
            slack: link.bytes_in(SLACK),
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
        self.slack = self.link.bytes_in(tolerance.max(SLACK));
    }

    /// Adds a class. A rate above the link's is the link's.
    pub fn add_class(&mut self, options: ClassOptions) -> ClassId {
        let index = u32::try_from(self.classes.len()).expect("fewer than 2^32 classes");
        let options = self.within_link(options);
        self.all_bps += u128::from(options.rate.bps());
        self.classes.push(Class {
            options,
            clock: 0,
            not_before: 0,
            remainder: 0,
            queue: VecDeque::new(),
            statistics: ClassStatistics::default(),
        });
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
        class.options = options;
        class.remainder = 0;
    }

    /// The rate that a class keeps when all classes have packets: less than its own if the link does not have the sum of
    /// their rates.
    pub fn least_rate(&self, class: ClassId) -> Rate {
        let rate = self.classes[class.index()].options.rate;
        let sum = self.all_bps.max(self.link.bps().into());
        let share = u128::from(rate.bps()) * u128::from(self.link.bps()) / sum;
        // Not above the rate, as the sum is not below the link's.
        Rate::from_bps(share as u64).unwrap_or(ONE_BIT)
    }

    fn within_link(&self, options: ClassOptions) -> ClassOptions {
        ClassOptions {
            rate: options.rate.min(self.link),
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
        if statistics.queued_bytes + bytes > class.options.most_bytes {
            statistics.dropped_for_bytes += 1;
            return Err((packet, DropReason::Bytes));
        }
        statistics.queued_bytes += bytes;
        class.queue.push_back((packet, bytes));
        if class.queue.len() == 1 {
            if class.options.peak.is_some() {
                class.not_before = class.not_before.max(self.present);
            }
            self.active_bps += u128::from(class.options.rate.bps());
            let burst = class.options.burst_bytes;
            self.activate(id.0, burst);
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

    /// The next packet of a class goes.
    fn send(&mut self, index: u32) -> P {
        let (link, scale) = (self.link, self.scale());
        let class = &mut self.classes[index as usize];
        let clock = class.due();
        let (packet, bytes) = class
            .queue
            .pop_front()
            .expect("active classes have packets");
        class.statistics.queued_bytes -= bytes;
        class.statistics.sent_packets += 1;
        class.statistics.sent_bytes += bytes;
        // What was due within the present nanosecond was sent when it was due.
        let due = clock.max(self.busy_until);
        let begin = if self.present.saturating_sub(due) <= link.bps().div_ceil(8_000_000_000) {
            due
        } else {
            self.present
        };
        class.advance(bytes, link, scale, begin, self.slack);
        let late = (!class.queue.is_empty()).then_some(class.options.late_bytes);
        let rate = class.options.rate;
        self.busy_until = begin + bytes;
        match late {
            Some(late) => self.activate(index, late),
            None => self.active_bps -= u128::from(rate.bps()),
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

    /// Puts a class that has packets where its clock says, behind by so many bytes of its own at most.
    fn activate(&mut self, index: u32, behind: u64) {
        let scale = self.scale();
        let class = &mut self.classes[index as usize];
        class.move_up(scale, self.present, behind);
        self.turn += 1;
        self.waiting.push(Reverse((class.due(), self.turn, index)));
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

    /// What a class's clock moves by for a byte, times the class's rate: the rate of the link, or the sum of the rates of
    /// classes that have packets, if that is more.
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

impl<P> Class<P> {
    /// The value of the global clock at which its next packet may go.
    fn due(&self) -> u64 {
        self.clock.max(self.not_before)
    }

    /// What its clock moves by for so many bytes.
    fn time_of(&self, bytes: u64, scale: u64) -> u64 {
        let time = u128::from(bytes) * u128::from(scale) / u128::from(self.options.rate.bps());
        u64::try_from(time).unwrap_or(u64::MAX)
    }

    /// A packet of so many bytes is sent from this value of the global clock on.
    fn advance(&mut self, bytes: u64, link: Rate, scale: u64, begin: u64, slack: u64) {
        let rate = u128::from(self.options.rate.bps());
        let total = u128::from(bytes) * u128::from(scale) + u128::from(self.remainder);
        self.remainder = (total % rate) as u64;
        self.clock = self.clock.saturating_add((total / rate) as u64);
        if let Some(peak) = self.options.peak {
            let apart = u128::from(bytes) * u128::from(link.bps());
            let apart = apart.div_ceil(u128::from(peak.bps())) as u64;
            let due = self.not_before.max(begin.saturating_sub(slack));
            self.not_before = due.saturating_add(apart);
        }
    }

    /// A class that is behind by more loses the rest.
    fn move_up(&mut self, scale: u64, present: u64, behind: u64) {
        let earliest = present.saturating_sub(self.time_of(behind, scale));
        if self.clock < earliest {
            self.clock = earliest;
            self.remainder = 0;
        }
    }
}

/// What a blocking wait is late by, at most, as long as nothing else delays it.
const SLACK: Duration = Duration::from_micros(50);

const ONE_BIT: Rate = Rate::from_bps(1).expect("not zero");

#[cfg(test)]
mod tests;
