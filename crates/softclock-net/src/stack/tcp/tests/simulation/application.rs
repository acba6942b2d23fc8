//! The owner of one end of a connection: writes a stream, reads another, closes; often late.

use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use bytes::Bytes;
use softclock_core::Instant;

use super::super::{Host, Interest, TcpError, TcpId};
use super::random::Random;
use crate::tcp::connection::Error;
use crate::tcp::state::State;

/// How an owner behaves.
#[derive(Clone, Debug)]
pub(super) struct ApplicationPlan {
    /// The bytes to send.
    pub(super) length: u64,
    /// The most bytes of one write, and of one read.
    pub(super) most_written: u64,
    pub(super) most_read: u64,
    /// The most calls before it does something else.
    pub(super) calls: u64,
    /// The longest time from a wake-up to its calls, and between rounds of calls.
    pub(super) latency: Duration,
    /// The chance of 1000 that it rests for up to two seconds instead.
    pub(super) rests: u64,
    pub(super) end: End,
    /// Whether connections of its host compete for memory. Then another may take what this one was woken for.
    pub(super) competes: bool,
    /// The rate that it sets, in bytes a second.
    pub(super) pace: Option<u64>,
}

/// How an owner ends its connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// Closes its half after its last byte, reads all, waits until the connection is over.
    Patient,
    /// Closes its half after its last byte, and leaves when it has read all.
    Leaves,
    /// Leaves after its last byte: nothing will arrive.
    LeavesAtOnce,
    /// Closes its half only when it has read the peer's end.
    Second,
    /// Resets the connection after as many bytes, sent and read.
    Aborts(u64),
}

impl ApplicationPlan {
    pub(super) fn random(random: &mut Random, length: u64) -> Self {
        Self {
            length,
            most_written: random.magnitude(1..=100_000),
            most_read: random.magnitude(1..=100_000),
            calls: random.within(1..=20),
            latency: match random.chance(500) {
                true => Duration::from_micros(random.magnitude(1..=300_000)),
                false => Duration::ZERO,
            },
            rests: match random.chance(200) {
                true => random.within(1..=20),
                false => 0,
            },
            end: End::Patient,
            competes: false,
            pace: random
                .chance(100)
                .then(|| random.magnitude(10_000..=10_000_000)),
        }
    }
}

/// The byte of a stream at a place: each stream has its own.
pub(super) fn byte_at(stream: u64, place: u64) -> u8 {
    let z = (place + 1).wrapping_mul(stream | 1);
    (z >> 29) as u8 ^ (z >> 43) as u8 ^ place as u8
}

pub(super) struct Application {
    pub(super) plan: ApplicationPlan,
    pub(super) id: TcpId,
    /// The number of the stream that it writes, and of that which it reads.
    streams: [u64; 2],
    random: Random,
    pub(super) written: u64,
    pub(super) read: u64,
    pub(super) has_end: bool,
    has_shut: bool,
    /// It has left, or the connection is over.
    pub(super) is_done: bool,
    pub(super) error: Option<Error>,
    /// When it runs again. `None`: when it is woken.
    pub(super) runs_at: Option<Instant>,
    /// It was told that the connection is ready, and has not used that yet.
    was_ready: bool,
    /// The calls so far.
    pub(super) calls: u64,
}

impl Application {
    pub(super) fn new(
        plan: ApplicationPlan,
        id: TcpId,
        streams: [u64; 2],
        random: Random,
        now: Instant,
    ) -> Self {
        Self {
            plan,
            id,
            streams,
            random,
            written: 0,
            read: 0,
            has_end: false,
            has_shut: false,
            is_done: false,
            error: None,
            runs_at: Some(now),
            was_ready: false,
            calls: 0,
        }
    }

    /// It waits no more.
    pub(super) fn on_woken(&mut self, now: Instant) {
        if self.runs_at.is_none() {
            self.runs_at = Some(now + self.pause());
        }
    }

    fn pause(&mut self) -> Duration {
        match self.random.chance(self.plan.rests) {
            true => self
                .random
                .duration(Duration::ZERO..=Duration::from_secs(2)),
            false => self.random.duration(Duration::ZERO..=self.plan.latency),
        }
    }

    /// A round of calls.
    pub(super) fn run(&mut self, now: Instant, host: &mut Host) {
        self.runs_at = None;
        if self.calls == 0 {
            host.tcp_set_pace(self.id, self.plan.pace);
        }
        let mut blocked = Interest::default();
        let mut has_moved = false;
        for _ in 0..self.random.within(1..=self.plan.calls) {
            self.calls += 1;
            if self.try_end(now, host) {
                return;
            }
            let wants = self.wants();
            let may_write = wants.writable && !blocked.writable;
            let may_read = wants.readable && !blocked.readable;
            if !may_write && !may_read {
                break;
            }
            let reads = may_read && (!may_write || self.random.chance(500));
            let result = match reads {
                true => self.read(now, host),
                false => self.write(now, host),
            };
            match result {
                Ok(()) => has_moved = true,
                Err(TcpError::WouldBlock) if reads => blocked.readable = true,
                Err(TcpError::WouldBlock) => blocked.writable = true,
                Err(TcpError::Failed(error)) => return self.fail(now, host, Some(error)),
                Err(TcpError::Closed) => return self.fail(now, host, None),
            }
        }
        let wants = self.wants();
        assert!(
            has_moved || !self.was_ready || blocked != wants || self.plan.competes,
            "ready, but neither reads nor writes: {wants:?}"
        );
        self.was_ready = false;
        self.go_on(now, host, wants, blocked == wants);
    }

    /// Waits if there is nothing to do, else pauses.
    fn go_on(&mut self, now: Instant, host: &mut Host, wants: Interest, is_blocked: bool) {
        if wants == Interest::default() {
            // Waits for the end of the connection, of which no wake-up tells.
            self.runs_at = Some(now + Duration::from_millis(200));
        } else if is_blocked && self.random.chance(950) {
            if !host.tcp_wait(now, self.id, wants) {
                self.was_ready = true;
                self.runs_at = Some(now);
            }
        } else {
            let least = Duration::from_micros(1);
            self.runs_at = Some(now + self.pause().max(least));
        }
    }

    fn wants(&self) -> Interest {
        let waits_for_end = self.plan.end == End::Second && !self.has_end;
        Interest {
            readable: !self.has_end,
            writable: self.written < self.plan.length || (!self.has_shut && !waits_for_end),
        }
    }

    fn read(&mut self, now: Instant, host: &mut Host) -> Result<(), TcpError> {
        let most = self.random.magnitude(1..=self.plan.most_read) as usize;
        let mut bytes = vec![0; most];
        let read = match self.random.chance(200) {
            true => match host.tcp_take(now, self.id)? {
                Some(payload) => {
                    bytes = payload.to_vec();
                    assert!(!bytes.is_empty(), "an empty payload is no end");
                    bytes.len()
                }
                None => 0,
            },
            false => {
                if self.random.chance(50) {
                    let peeked = host.tcp_peek(now, self.id, &mut bytes)?;
                    self.check(&bytes[..peeked]);
                }
                host.tcp_read(now, self.id, &mut bytes)?
            }
        };
        self.check(&bytes[..read]);
        self.read += read as u64;
        self.has_end = read == 0;
        Ok(())
    }

    fn check(&self, bytes: &[u8]) {
        let [_, stream] = self.streams;
        for (place, &byte) in (self.read..).zip(bytes) {
            assert_eq!(byte, byte_at(stream, place), "the byte at {place}");
        }
    }

    /// Writes a piece, or closes this half behind the last.
    fn write(&mut self, now: Instant, host: &mut Host) -> Result<(), TcpError> {
        let rest = self.plan.length - self.written;
        if rest == 0 {
            self.has_shut = true;
            return host.tcp_shutdown_write(now, self.id);
        }
        let length = self.random.magnitude(1..=self.plan.most_written).min(rest);
        let places = self.written..self.written + length;
        let bytes: Vec<u8> = places
            .map(|place| byte_at(self.streams[0], place))
            .collect();
        self.written += host.tcp_write(now, self.id, Bytes::from(bytes))? as u64;
        Ok(())
    }

    /// Ends the connection if it is time. Returns whether it has.
    fn try_end(&mut self, now: Instant, host: &mut Host) -> bool {
        let has_written = self.written == self.plan.length;
        let is_over = || {
            let state = host.tcp_state(self.id);
            matches!(state, None | Some(State::Closed | State::TimeWait))
        };
        let ends = match self.plan.end {
            End::Aborts(bytes) => {
                if self.written + self.read >= bytes {
                    host.tcp_abort(now, self.id);
                    self.is_done = true;
                    return true;
                }
                false
            }
            End::LeavesAtOnce => has_written && host.tcp_state(self.id) != Some(State::SynSent),
            End::Leaves => self.has_shut && self.has_end,
            End::Patient | End::Second => self.has_shut && self.has_end && is_over(),
        };
        if ends {
            if let Some(error) = host.tcp_take_error(self.id) {
                self.error = Some(error);
            }
            host.tcp_close(now, self.id);
            self.is_done = true;
        }
        ends
    }

    fn fail(&mut self, now: Instant, host: &mut Host, error: Option<Error>) {
        self.error = error.or(self.error);
        assert!(self.error.is_some(), "closed without an error");
        host.tcp_close(now, self.id);
        self.is_done = true;
    }
}
