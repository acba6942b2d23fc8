//! The owner of one end of a connection: writes a stream, reads another, ends.

use core::time::Duration;

use softclock_core::Instant;

use crate::random::Random;
use crate::world::{End, Read, Scale};

/// How an owner behaves.
#[derive(Clone, Debug)]
pub(crate) struct OwnerPlan {
    /// The bytes to send.
    pub(crate) length: u64,
    /// The most bytes of one write, and of one read.
    most_written: u64,
    most_read: u64,
    /// The most calls before it does something else.
    calls: u64,
    /// The longest time between rounds of calls, in microseconds.
    latency_us: u64,
    pub(crate) ending: Ending,
}

/// How an owner ends its connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ending {
    /// Closes its half after its last byte, and leaves when it has read all.
    First,
    /// Closes its half only when it has read the peer's end.
    Second,
    /// Resets the connection after as many bytes, sent and read.
    Aborts(u64),
}

impl OwnerPlan {
    pub(crate) fn random(random: &mut Random, scale: &Scale) -> Self {
        let most_written = random.magnitude(1..=30_000);
        let length = match random.chance(150) {
            true => 0,
            false => random.magnitude(1..=scale.bytes),
        };
        Self {
            // A byte at a time takes a round trip each, by Nagle's rule.
            length: length.min(most_written * scale.writes),
            most_written,
            most_read: random.magnitude(100..=30_000),
            calls: random.within(1..=12),
            latency_us: random.magnitude(1000..=scale.latency_us),
            ending: Ending::First,
        }
    }

    /// Chooses the ends of both owners. Not both wait for the other.
    pub(crate) fn choose_endings(plans: &mut [Self; 2], random: &mut Random) {
        let all = plans[0].length + plans[1].length;
        let second = random.within(0..=3) as usize;
        let aborts = random.within(0..=9) as usize;
        for (number, plan) in plans.iter_mut().enumerate() {
            if number == second {
                plan.ending = Ending::Second;
            }
            if number == aborts {
                plan.ending = Ending::Aborts(random.within(0..=all));
            }
        }
    }
}

pub(crate) struct Owner {
    pub(crate) plan: OwnerPlan,
    /// The number of the stream that it writes, and of that which it reads.
    streams: [u64; 2],
    /// The bytes that the peer sends.
    expected: u64,
    random: Random,
    pub(crate) written: u64,
    pub(crate) read: u64,
    has_shut: bool,
    pub(crate) has_end: bool,
    pub(crate) is_done: bool,
    pub(crate) was_reset: bool,
    pub(crate) runs_at: Instant,
    pub(crate) calls: u64,
}

impl Owner {
    pub(crate) fn new(
        plan: OwnerPlan,
        streams: [u64; 2],
        expected: u64,
        random: Random,
        now: Instant,
    ) -> Self {
        Self {
            plan,
            streams,
            expected,
            random,
            written: 0,
            read: 0,
            has_shut: false,
            has_end: false,
            is_done: false,
            was_reset: false,
            runs_at: now,
            calls: 0,
        }
    }

    /// A round of calls.
    pub(crate) fn run(&mut self, now: Instant, end: &mut dyn End, number: usize) {
        let rest = self.random.micros(self.plan.latency_us);
        self.runs_at = now + rest.max(Duration::from_micros(100));
        for _ in 0..self.random.within(1..=self.plan.calls) {
            self.calls += 1;
            if let Ending::Aborts(bytes) = self.plan.ending
                && self.written + self.read >= bytes
            {
                end.abort(now, number);
                self.is_done = true;
                return;
            }
            if self.has_shut && self.has_end {
                end.leave(now, number);
                self.is_done = true;
                return;
            }
            match !self.has_end && self.random.chance(500) {
                true => self.read(now, end, number),
                false => self.write(now, end, number),
            }
            if self.was_reset {
                end.leave(now, number);
                self.is_done = true;
                return;
            }
        }
    }

    fn read(&mut self, now: Instant, end: &mut dyn End, number: usize) {
        let mut bytes = vec![0; self.random.magnitude(1..=self.plan.most_read) as usize];
        match end.read(now, number, &mut bytes) {
            Read::Bytes(read) => {
                for (place, &byte) in (self.read..).zip(&bytes[..read]) {
                    assert_eq!(byte, byte_at(self.streams[1], place), "the byte at {place}");
                }
                self.read += read as u64;
                assert!(self.read <= self.expected);
            }
            Read::End => self.has_end = true,
            Read::Nothing => {}
            Read::Reset => self.was_reset = true,
        }
    }

    /// Writes a piece, or closes this half behind the last.
    fn write(&mut self, now: Instant, end: &mut dyn End, number: usize) {
        if self.has_shut {
            return;
        }
        let rest = self.plan.length - self.written;
        if rest == 0 {
            let may_shut = self.plan.ending != Ending::Second || self.has_end;
            self.has_shut = may_shut && end.shut(now, number);
            return;
        }
        let length = self.random.magnitude(1..=self.plan.most_written).min(rest);
        let places = self.written..self.written + length;
        let bytes: Vec<u8> = places
            .map(|place| byte_at(self.streams[0], place))
            .collect();
        match end.write(now, number, &bytes) {
            Some(written) => self.written += written as u64,
            None => self.was_reset = true,
        }
    }
}

/// The byte of a stream at a place: each stream has its own.
fn byte_at(stream: u64, place: u64) -> u8 {
    let z = (place + 1).wrapping_mul(stream | 1);
    (z >> 29) as u8 ^ (z >> 43) as u8 ^ place as u8
}
