//! Idle clients: connections that exist at the server only.
//!
//! A thread at the clients' end completes the handshakes of many addresses and ports by frames of its own, and ends.
//! The connections cost the clients no descriptor, no memory and no time. The server cannot tell them from others that
//! are silent.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::time::Timespec;
use softclock_linux::link::{BATCH, Buffer, Device, Link as Interface, Pool};
use softclock_net::tcp::segment::Flags;
use softclock_wire::packet::Offload;

use super::stage::Stage;
use crate::lab::frames::{Ends, Segment};
use crate::lab::lrp::Link;

/// Connections that send nothing.
#[derive(Debug)]
pub struct IdleClients {
    /// The next sequence number of the server on each connection; `None` before the handshake.
    expected: Vec<Option<u32>>,
}

impl IdleClients {
    /// Opens this number of connections to a server.
    ///
    /// # Errors
    /// The link cannot be opened, or not all handshakes are completed in time.
    pub fn connect(stage: &Stage, count: usize) -> io::Result<Self> {
        let mut clients = Self {
            expected: vec![None; count],
        };
        let opened = || {
            let mut wire = Wire::open(stage)?;
            clients.shake_hands(&mut wire)
        };
        stage.network.clients.inside(opened)??;
        Ok(clients)
    }

    /// Returns the share of connections that are still open, by the answers to keep-alive probes of some dozens.
    ///
    /// # Errors
    /// The link cannot be opened.
    pub fn share_open(&self, stage: &Stage) -> io::Result<f64> {
        let probed = || {
            let mut wire = Wire::open(stage)?;
            self.probe(&mut wire)
        };
        stage.network.clients.inside(probed)?
    }

    fn shake_hands(&mut self, wire: &mut Wire) -> io::Result<()> {
        let (begun, mut progress) = (Instant::now(), Instant::now());
        let (mut next, mut done) = (0, 0);
        while done < self.expected.len() {
            let mut window = Vec::new();
            while next < self.expected.len() && next - done < OUTSTANDING {
                window.push(wire.segment(next, INITIAL, 0, Flags::SYN));
                next += 1;
            }
            if progress.elapsed() > REPEAT {
                // A SYN or its answer was lost.
                let missing = (0..next).filter(|&number| self.expected[number].is_none());
                let again = missing.map(|number| wire.segment(number, INITIAL, 0, Flags::SYN));
                window.extend(again.collect::<Vec<_>>());
                progress = Instant::now();
            }
            wire.send(&window)?;
            for segment in wire.receive()? {
                if self.answer(wire, &segment)? {
                    done += 1;
                    progress = Instant::now();
                }
            }
            if begun.elapsed() > PATIENCE {
                let all = self.expected.len();
                return Err(io::Error::other(format!(
                    "only {done} of {all} idle clients connected"
                )));
            }
        }
        // The server repeats its answer if an acknowledgment was lost.
        let begun = Instant::now();
        while begun.elapsed() < SETTLE {
            for segment in wire.receive()? {
                self.answer(wire, &segment)?;
            }
        }
        Ok(())
    }

    /// Acknowledges a SYN of the server; returns whether it is the first on its connection.
    fn answer(&mut self, wire: &mut Wire, segment: &Segment) -> io::Result<bool> {
        let Some(number) = wire.number(segment) else {
            return Ok(false);
        };
        let Some(expected) = self.expected.get_mut(number) else {
            return Ok(false);
        };
        if !segment.flags.contains(Flags::SYN | Flags::ACK) {
            return Ok(false);
        }
        let is_first = expected.is_none();
        let next = segment.sequence.wrapping_add(1);
        *expected = Some(next);
        let acknowledgment = wire.segment(number, INITIAL + 1, next, Flags::ACK);
        wire.send(&[acknowledgment])?;
        Ok(is_first)
    }

    fn probe(&self, wire: &mut Wire) -> io::Result<f64> {
        let step = (self.expected.len() / PROBES).max(1);
        let probed = (0..self.expected.len()).step_by(step);
        let mut missing: Vec<(usize, u32)> = probed
            .filter_map(|number| Some((number, self.expected[number]?)))
            .collect();
        let (all, begun) = (missing.len(), Instant::now());
        let mut open = 0;
        let probe = |&(number, expected)| wire.segment(number, INITIAL, expected, Flags::ACK);
        let probes: Vec<Segment> = missing.iter().map(probe).collect();
        wire.send(&probes)?;
        while !missing.is_empty() && begun.elapsed() < SETTLE {
            for segment in wire.receive()? {
                let number = wire.number(&segment);
                let place = missing.iter().position(|(of, _)| Some(*of) == number);
                if let Some(place) = place {
                    missing.swap_remove(place);
                    open += usize::from(!segment.flags.contains(Flags::RST));
                }
            }
        }
        Ok(open as f64 / all.max(1) as f64)
    }
}

/// The clients' end of the link.
struct Wire {
    device: Device,
    pool: Pool,
    ends: Ends,
    server: SocketAddrV4,
}

impl Wire {
    /// Opens the clients' end. Call it in their namespace.
    fn open(stage: &Stage) -> io::Result<Self> {
        let link = Interface::named(&stage.network.name(Link::Clients))?;
        Ok(Self {
            device: Device::share_packet(&link).map_err(io::Error::other)?,
            pool: Pool::new(),
            ends: stage.ends(),
            server: stage.address(),
        })
    }

    /// A segment of a client.
    fn segment(&self, client: usize, sequence: u32, acknowledgment: u32, flags: Flags) -> Segment {
        let [high, low] = ((client / PORTS) as u16 + 1).to_be_bytes();
        let address = Ipv4Addr::new(10, 80, high, low);
        Segment {
            source: SocketAddrV4::new(address, FIRST_PORT + (client % PORTS) as u16),
            destination: self.server,
            sequence,
            acknowledgment,
            flags,
        }
    }

    /// The client that a segment of the server is for.
    fn number(&self, segment: &Segment) -> Option<usize> {
        let [a, b, high, low] = segment.destination.ip().octets();
        if segment.source != self.server || [a, b] != [10, 80] {
            return None;
        }
        let place = usize::from(segment.destination.port().checked_sub(FIRST_PORT)?);
        let block = usize::from(u16::from_be_bytes([high, low]).checked_sub(1)?);
        Some(block * PORTS + place)
    }

    fn send(&self, segments: &[Segment]) -> io::Result<()> {
        for batch in segments.chunks(BATCH) {
            let frame = |segment: &Segment| self.pool.copy_of(&segment.to_frame(self.ends));
            let mut frames: Vec<Buffer> = batch.iter().map(frame).collect();
            let mut sent = 0;
            while sent < frames.len() {
                let rest = frames[sent..].iter_mut();
                match self.device.send(rest.map(|frame| (frame, &Offload::NONE))) {
                    Ok(some) => sent += some,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        self.wait(PollFlags::OUT);
                    }
                    // The server's end has no room, and is not waited for by poll.
                    Err(error) if error.raw_os_error() == Some(Errno::NOBUFS.raw_os_error()) => {
                        thread::sleep(FULL_PAUSE);
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Takes segments that have arrived; waits a moment for the first.
    fn receive(&self) -> io::Result<Vec<Segment>> {
        let mut segments = Vec::new();
        let mut take = || {
            self.device.receive(|frame| {
                if let Ok(frame) = frame {
                    segments.extend(Segment::of_frame(&frame.bytes));
                }
            })
        };
        match take() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait(PollFlags::IN),
            taken => drop(taken?),
        }
        Ok(segments)
    }

    fn wait(&self, events: PollFlags) {
        let _ = poll(&mut [PollFd::new(&self.device, events)], Some(&LOOK_UP));
    }
}

/// The clients at one address.
const PORTS: usize = 10_000;
const FIRST_PORT: u16 = 10_000;
/// The first sequence number of each client.
const INITIAL: u32 = 1000;
/// Handshakes that are under way: fewer than any queue on the way holds.
const OUTSTANDING: usize = 64;
const PROBES: usize = 40;
const REPEAT: Duration = Duration::from_millis(200);
const SETTLE: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_secs(60);
/// The pause before a link without room is tried again.
const FULL_PAUSE: Duration = Duration::from_micros(200);
const LOOK_UP: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 1_000_000,
};
