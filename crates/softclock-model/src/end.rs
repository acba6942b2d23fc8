//! The ends of a connection between two implementations, by one set of calls, and the path between them.

use core::time::Duration;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

use bytes::Bytes;
use smoltcp::socket::tcp::{RecvError, State as SmoltcpState};
use softclock_core::Instant;
use softclock_net::checksum::Verify;
use softclock_net::stack::{TcpError, TcpId, TcpListenerId};

use crate::host::Host;
use crate::random::Random;
use crate::smoltcp_peer::SmoltcpHost;

/// The result of a read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Read {
    /// As many bytes.
    Bytes(usize),
    /// The peer has closed its half, and all its bytes were read.
    End,
    /// Nothing has arrived.
    Blocked,
    /// The connection has failed.
    Failed(String),
}

/// One end of the connection: an implementation with its owner's calls.
pub trait End {
    /// Takes a frame.
    fn on_frame(&mut self, now: Instant, frame: Vec<u8>);
    /// Processes what has arrived and what is due.
    fn poll(&mut self, now: Instant);
    /// The next frame for the link.
    fn next_frame(&mut self) -> Option<Vec<u8>>;
    /// The time at which [`poll`](Self::poll) has work.
    fn next_timeout(&mut self, now: Instant) -> Option<Instant>;
    /// Writes bytes, and returns the number of those that were taken.
    fn write(&mut self, now: Instant, bytes: &[u8]) -> usize;
    /// Reads bytes.
    fn read(&mut self, now: Instant, into: &mut [u8]) -> Read;
    /// Closes this half. Returns false if it cannot be closed yet.
    fn shutdown(&mut self, now: Instant) -> bool;
    /// The owner has seen the end of both streams.
    fn leave(&mut self, now: Instant);
    /// Whether nothing is left of the connection.
    fn is_over(&mut self) -> bool;
}

/// An end of softclock.
pub struct Softclock {
    /// The stack.
    pub host: Host,
    /// The connection, once it is opened or accepted.
    pub id: Option<TcpId>,
    /// The listener of the end that does not connect.
    pub listener: Option<TcpListenerId>,
}

impl End for Softclock {
    fn on_frame(&mut self, now: Instant, frame: Vec<u8>) {
        self.host.on_frame(now, now, frame, Verify::Yes);
    }

    fn poll(&mut self, now: Instant) {
        while self.host.process(now, 64) > 0 {}
        if self.host.next_timeout().is_some_and(|due| due <= now) {
            self.host.on_timer(now);
        }
        if let Some(listener) = self.listener.filter(|_| self.id.is_none()) {
            self.id = self.host.tcp_accept(now, listener).map(|(id, _)| id);
        }
    }

    fn next_frame(&mut self) -> Option<Vec<u8>> {
        self.host.next_frame()
    }

    fn next_timeout(&mut self, _now: Instant) -> Option<Instant> {
        self.host.next_timeout()
    }

    fn write(&mut self, now: Instant, bytes: &[u8]) -> usize {
        let bytes = Bytes::copy_from_slice(bytes);
        let id = self.id;
        id.map_or(0, |id| self.host.tcp_write(now, id, bytes).unwrap_or(0))
    }

    fn read(&mut self, now: Instant, into: &mut [u8]) -> Read {
        let Some(id) = self.id else {
            return Read::Blocked;
        };
        match self.host.tcp_read(now, id, into) {
            Ok(0) => Read::End,
            Ok(bytes) => Read::Bytes(bytes),
            Err(TcpError::WouldBlock) => Read::Blocked,
            Err(error) => Read::Failed(error.to_string()),
        }
    }

    fn shutdown(&mut self, now: Instant) -> bool {
        self.id
            .is_some_and(|id| self.host.tcp_shutdown_write(now, id).is_ok())
    }

    fn leave(&mut self, now: Instant) {
        if let Some(id) = self.id {
            self.host.tcp_close(now, id);
        }
    }

    fn is_over(&mut self) -> bool {
        self.host.tcp_states().all(|(_, count)| count == 0)
    }
}

impl End for SmoltcpHost {
    fn on_frame(&mut self, _now: Instant, frame: Vec<u8>) {
        self.on_frame(frame);
    }

    fn poll(&mut self, now: Instant) {
        self.poll(now);
    }

    fn next_frame(&mut self) -> Option<Vec<u8>> {
        self.next_frame()
    }

    fn next_timeout(&mut self, now: Instant) -> Option<Instant> {
        self.next_timeout(now)
    }

    fn write(&mut self, _now: Instant, bytes: &[u8]) -> usize {
        let socket = self.connection();
        match socket.can_send() {
            true => socket.send_slice(bytes).unwrap_or(0),
            false => 0,
        }
    }

    fn read(&mut self, _now: Instant, into: &mut [u8]) -> Read {
        let socket = self.connection();
        let is_opening = matches!(
            socket.state(),
            SmoltcpState::Listen | SmoltcpState::SynSent | SmoltcpState::SynReceived
        );
        match socket.recv_slice(into) {
            Ok(0) => Read::Blocked,
            Ok(bytes) => Read::Bytes(bytes),
            Err(RecvError::Finished) => Read::End,
            Err(RecvError::InvalidState) if is_opening => Read::Blocked,
            Err(error) => Read::Failed(format!("{error} in {}", socket.state())),
        }
    }

    fn shutdown(&mut self, _now: Instant) -> bool {
        let socket = self.connection();
        let may_close = socket.may_send();
        if may_close {
            socket.close();
        }
        may_close
    }

    fn leave(&mut self, _now: Instant) {}

    fn is_over(&mut self) -> bool {
        self.connection().state() == SmoltcpState::Closed
    }
}

/// The faults of a path, in both directions. Chances are out of 1000.
#[derive(Clone, Debug)]
pub struct Faults {
    /// The delay of each packet.
    pub delay: Duration,
    /// The chance of a loss.
    pub loss: u64,
    /// The chance of a second copy.
    pub duplication: u64,
    /// The chance of a delay of up to three times the common one.
    pub reordering: u64,
    /// The chance of a wrong bit.
    pub corruption: u64,
}

impl Faults {
    /// Faults that a random number decides.
    pub fn random(random: &mut Random) -> Self {
        let mut often = |most: u64| match random.chance(400) {
            true => random.magnitude(1..=most),
            false => 0,
        };
        let (loss, duplication) = (often(100), often(150));
        let (reordering, corruption) = (often(200), often(60));
        Self {
            delay: Duration::from_micros(random.magnitude(500..=100_000)),
            loss,
            duplication,
            reordering,
            corruption,
        }
    }
}

/// A packet on its way: its arrival, a running number, its receiver.
type Flying = Reverse<(Instant, u64, usize, Vec<u8>)>;

/// Two ends and the path between them, in virtual time.
pub struct Pair {
    /// The time.
    pub now: Instant,
    ends: [Box<dyn End>; 2],
    faults: Faults,
    random: Random,
    flying: BinaryHeap<Flying>,
    /// The packets that were sent.
    pub packets: u64,
    owners: [Owner; 2],
}

/// An owner: the bytes to send, and how far it is.
#[derive(Clone, Debug, Default)]
struct Owner {
    bytes: Vec<u8>,
    written: usize,
    read: usize,
    most: u64,
    /// It reads and writes in this part of 1000 of all steps.
    activity: u64,
    has_shut: bool,
    has_end: bool,
    has_left: bool,
}

impl Pair {
    /// Two ends, and the numbers of bytes that they send.
    pub fn new(
        ends: [Box<dyn End>; 2],
        lengths: [usize; 2],
        now: Instant,
        mut random: Random,
    ) -> Self {
        let faults = Faults::random(&mut random);
        let mut number = 0;
        let owners = lengths.map(|length| {
            number += 1;
            Owner {
                bytes: (0..length as u64).map(|at| byte_at(number, at)).collect(),
                most: random.magnitude(1..=30_000),
                activity: if random.chance(300) {
                    random.within(20..=999)
                } else {
                    1000
                },
                ..Owner::default()
            }
        });
        Self {
            now,
            ends,
            faults,
            random,
            flying: BinaryHeap::new(),
            packets: 0,
            owners,
        }
    }

    /// Runs until both ends have sent and read all, and nothing is left of the connection.
    ///
    /// # Errors
    /// The reason why that is not so within two hours of virtual time.
    ///
    /// # Panics
    /// If a byte is wrong.
    pub fn run(&mut self) -> Result<(), String> {
        let end = self.now + Duration::from_secs(7200);
        while !self.is_over() {
            self.settle()?;
            let arrival = self.flying.peek().map(|Reverse((at, ..))| *at);
            let mut next = arrival;
            for end in &mut self.ends {
                next = next.into_iter().chain(end.next_timeout(self.now)).min();
            }
            // Owners come at least each 50 ms while they have something to do.
            if self.owners.iter().any(|owner| !owner.has_left) {
                let soon = self.now + Duration::from_millis(50);
                next = next.into_iter().chain([soon]).min();
            }
            match next.filter(|&next| next <= end) {
                Some(next) => self.now = next.max(self.now + Duration::from_nanos(1)),
                None => return Err(format!("it does not end: {}", self.report())),
            }
            while self
                .flying
                .peek()
                .is_some_and(|Reverse((at, ..))| *at <= self.now)
            {
                if let Some(Reverse((_, _, to, frame))) = self.flying.pop() {
                    self.ends[to].on_frame(self.now, frame);
                }
            }
        }
        Ok(())
    }

    fn is_over(&mut self) -> bool {
        self.owners.iter().all(|owner| owner.has_left)
            && self.ends.iter_mut().all(|end| end.is_over())
    }

    fn settle(&mut self) -> Result<(), String> {
        for number in 0..2 {
            self.ends[number].poll(self.now);
            if self.random.chance(self.owners[number].activity) {
                self.run_owner(number)?;
            }
            self.ends[number].poll(self.now);
            while let Some(frame) = self.ends[number].next_frame() {
                self.send(number, frame);
            }
        }
        Ok(())
    }

    fn run_owner(&mut self, number: usize) -> Result<(), String> {
        let most = self.random.magnitude(1..=self.owners[number].most) as usize;
        let (owner, end) = (&mut self.owners[number], &mut self.ends[number]);
        let rest = owner.bytes.len() - owner.written;
        if rest > 0 {
            let piece = &owner.bytes[owner.written..][..rest.min(most)];
            owner.written += end.write(self.now, piece);
        } else if !owner.has_shut {
            owner.has_shut = end.shutdown(self.now);
        }
        let mut into = vec![0; most];
        while !owner.has_end {
            match end.read(self.now, &mut into) {
                Read::Bytes(read) => {
                    for (at, &byte) in (owner.read as u64..).zip(&into[..read]) {
                        assert_eq!(byte, byte_at(2 - number as u64, at), "the byte at {at}");
                    }
                    owner.read += read;
                    if self.random.chance(200) {
                        break;
                    }
                }
                Read::End => owner.has_end = true,
                Read::Blocked => break,
                Read::Failed(error) => {
                    return Err(format!("end {number}: {error}: {}", self.report()));
                }
            }
        }
        let owner = &self.owners[number];
        if owner.has_end && owner.read != self.owners[1 - number].bytes.len() {
            return Err(format!("the end {number} comes early: {}", self.report()));
        }
        let owner = &mut self.owners[number];
        if owner.has_end && owner.has_shut && !owner.has_left {
            owner.has_left = true;
            self.ends[number].leave(self.now);
        }
        Ok(())
    }

    fn send(&mut self, from: usize, frame: Vec<u8>) {
        self.packets += 1;
        let is_ip = frame[12..14] == [0x08, 0x00];
        let Faults {
            delay,
            loss,
            duplication,
            reordering,
            corruption,
        } = self.faults;
        if is_ip && self.random.chance(loss) {
            return;
        }
        for _ in 0..1 + u64::from(is_ip && self.random.chance(duplication)) {
            let mut frame = frame.clone();
            let mut at = self.now + delay;
            if is_ip && self.random.chance(reordering) {
                at += delay * self.random.within(1..=20) as u32 / 10;
            }
            if is_ip && self.random.chance(corruption) {
                // One bit behind the Ethernet header, which the checksums find.
                let bits = 8 * (frame.len() as u64 - 14);
                let bit = 8 * 14 + self.random.within(0..=bits - 1) as usize;
                frame[bit / 8] ^= 1 << (bit % 8);
            }
            self.flying
                .push(Reverse((at, self.packets, 1 - from, frame)));
        }
    }

    fn report(&self) -> String {
        let owners = self.owners.each_ref().map(|owner| {
            format!(
                "written {} of {}, read {}, shut {}, end {}",
                owner.written,
                owner.bytes.len(),
                owner.read,
                owner.has_shut,
                owner.has_end
            )
        });
        format!(
            "{owners:#?} at {:?}, {} packets, {:?}",
            self.now, self.packets, self.faults
        )
    }
}

/// The byte of a stream at a place.
const fn byte_at(stream: u64, place: u64) -> u8 {
    let z = (place + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(stream) | 1);
    (z >> 29) as u8 ^ (z >> 43) as u8 ^ place as u8
}
