//! A flood of datagrams at a stated rate, by AF_XDP from the clients' namespace.

use std::hint::spin_loop;
use std::io;
use std::net::SocketAddrV4;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use softclock_linux::clock::monotonic_ns;
use softclock_linux::link::{BATCH, Buffer, Copies, Device, Link as Interface, Pool, XdpFilter};
use softclock_linux::priority::{Priority, set_realtime_priority};
use softclock_net::link::LinkAddress;
use softclock_wire::packet::Offload;

use super::Network;
use super::network::{Level, Link};
use super::stopping::{Stop, Threads};
use crate::lab::frames::{Ends, datagram};
use crate::measure::processors::pin;

/// A thread that sends datagrams of 14 bytes, as the paper's, at a rate that may be changed. It ends when this is
/// dropped.
#[derive(Debug)]
pub struct Flood {
    _threads: Threads,
    orders: Arc<Orders>,
}

/// The destination of a flood.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// The server.
    Server,
    /// The reference, for the cost of the same flood without the server's.
    Reference,
}

#[derive(Debug, Default)]
struct Orders {
    /// Datagrams a second.
    rate: AtomicU64,
    into_reference: AtomicBool,
    /// Whether the thread goes before the clients.
    is_ahead: AtomicBool,
    /// Datagrams that the links accepted.
    sent: AtomicU64,
}

impl Flood {
    /// Starts the thread, which sends nothing yet. It takes the link's XDP program, and makes a kernel thread receive
    /// on the clients' end of the link to the server, so that answers are processed on the clients' processor.
    ///
    /// # Errors
    /// The devices cannot be opened.
    pub fn start(network: &Arc<Network>, port: u16) -> io::Result<Self> {
        Self::of_frames(
            network,
            [
                vec![frame(Link::Clients, Link::Server, port)?],
                vec![frame(Link::ToReference, Link::Reference, port)?],
            ],
        )
    }

    /// Like [`start`](Self::start), with these frames in turn to the server, of which there is one at least.
    ///
    /// # Errors
    /// The devices cannot be opened.
    pub fn with(network: &Arc<Network>, frames: Vec<Vec<u8>>) -> io::Result<Self> {
        let mut to_reference = frames.clone();
        for frame in &mut to_reference {
            frame[..6].copy_from_slice(&NOBODY.0);
        }
        Self::of_frames(network, [frames, to_reference])
    }

    fn of_frames(network: &Arc<Network>, frames: [Vec<Vec<u8>>; 2]) -> io::Result<Self> {
        let mut flood = Self {
            _threads: Threads::default(),
            orders: Arc::default(),
        };
        let (opened, result) = mpsc::channel();
        let (of_thread, orders) = (network.clone(), flood.orders.clone());
        flood._threads.start("flood", move |stop| {
            pin(of_thread.processors.clients);
            let inside = || match Generator::open(&of_thread, &frames) {
                Ok(mut generator) => {
                    let _ = opened.send(Ok(()));
                    generator.run(&orders, &stop);
                }
                Err(error) => {
                    let _ = opened.send(Err(error));
                }
            };
            // The first result is that of `open`: the starter no longer listens to another.
            if let Err(error) = of_thread.clients.inside(inside) {
                let _ = opened.send(Err(error));
            }
        })?;
        result.recv().map_err(io::Error::other)??;
        let level = Level::RealTime(DRIVER_PRIORITY);
        network.thread_napi(Link::Clients, network.processors.clients, level)?;
        Ok(flood)
    }

    /// Sets the rate, in datagrams a second, and the destination. The flood gets the time of the processor that real-time
    /// threads leave.
    pub fn set(&self, rate: u64, target: Target) {
        self.orders.is_ahead.store(false, Relaxed);
        self.order(rate, target);
    }

    /// Like [`set`](Self::set), before real-time threads of a priority up to 9, so that they cannot lower the rate, and
    /// asleep between bursts.
    pub fn set_ahead(&self, rate: u64, target: Target) {
        self.orders.is_ahead.store(true, Relaxed);
        self.order(rate, target);
    }

    fn order(&self, rate: u64, target: Target) {
        let into_reference = target == Target::Reference;
        self.orders.into_reference.store(into_reference, Relaxed);
        self.orders.rate.store(rate, Relaxed);
    }

    /// The datagrams that the links have accepted so far.
    pub fn sent(&self) -> u64 {
        self.orders.sent.load(Relaxed)
    }
}

/// The thread's own.
struct Generator {
    server: Outlet,
    reference: Outlet,
}

impl Generator {
    fn open(network: &Network, [server, reference]: &[Vec<Vec<u8>>; 2]) -> io::Result<Self> {
        Ok(Self {
            server: Outlet::open(network, [Link::Clients, Link::Server], server)?,
            reference: Outlet::open(network, [Link::ToReference, Link::Reference], reference)?,
        })
    }

    fn run(&mut self, orders: &Orders, stop: &Stop) {
        // Before ordinary threads, but not before the kernel's.
        let _ = Priority::Nice(-15).apply();
        let (mut credit_ns, mut before) = (0, monotonic_ns());
        let mut is_ahead = false;
        while stop.goes_on() {
            if is_ahead != orders.is_ahead.load(Relaxed) {
                is_ahead = !is_ahead;
                let _ = set_realtime_priority(if is_ahead { AHEAD } else { 0 });
            }
            let rate = orders.rate.load(Relaxed);
            if rate == 0 {
                thread::sleep(Duration::from_millis(1));
                (credit_ns, before) = (0, monotonic_ns());
                continue;
            }
            let gap_ns = 1e9 / rate as f64;
            let burst_ns = if is_ahead { AHEAD_BURST_NS } else { BURST_NS };
            let now = monotonic_ns();
            // After an interruption the flood does not catch up in one long burst.
            credit_ns = (credit_ns + now - before).min(2 * burst_ns);
            before = now;
            let due = (credit_ns as f64 / gap_ns) as usize;
            if due == 0 || credit_ns < burst_ns {
                match is_ahead {
                    true => thread::sleep(Duration::from_nanos(burst_ns - credit_ns)),
                    false => spin_loop(),
                }
                continue;
            }
            let outlet = match orders.into_reference.load(Relaxed) {
                true => &mut self.reference,
                false => &mut self.server,
            };
            let sent = outlet.send(due);
            credit_ns = credit_ns.saturating_sub((due as f64 * gap_ns) as u64);
            orders.sent.fetch_add(sent, Relaxed);
        }
    }
}

/// One of the links to send on.
struct Outlet {
    device: Device,
    /// A multiple of a batch.
    frames: Vec<Buffer>,
    /// The place of the next batch.
    next: usize,
}

impl Outlet {
    fn open(network: &Network, [from, to]: [Link; 2], frames: &[Vec<u8>]) -> io::Result<Self> {
        let link = Interface::named(&network.name(from))?;
        // The socket receives nothing: the host keeps all that is sent to its own address.
        let filter = XdpFilter::Addresses(vec![to.address().into()]);
        let device = Device::share_xdp(&link, Copies::Allowed, filter).map_err(io::Error::other)?;
        let pool = Pool::new();
        let in_turn = frames
            .iter()
            .cycle()
            .take(frames.len().next_multiple_of(BATCH));
        Ok(Self {
            device,
            frames: in_turn.map(|frame| pool.copy_of(frame)).collect(),
            next: 0,
        })
    }

    /// Sends frames; returns the number that the link accepted.
    fn send(&mut self, frames: usize) -> u64 {
        let mut sent = 0;
        for begin in (0..frames).step_by(BATCH) {
            self.device.flush();
            let place = self.next;
            self.next = (place + BATCH) % self.frames.len();
            let batch = self.frames[place..].iter_mut();
            let batch = batch.take(BATCH.min(frames - begin));
            sent += self
                .device
                .send(batch.map(|frame| (frame, &NO_OFFLOAD)))
                .unwrap_or(0) as u64;
        }
        sent.saturating_sub(self.device.take_refused())
    }
}

/// A datagram to a port of the other end.
fn frame(from: Link, to: Link, port: u16) -> io::Result<Vec<u8>> {
    let ends = Ends {
        source: from.link_address(),
        destination: match to {
            Link::Reference => NOBODY,
            _ => to.link_address(),
        },
    };
    let source = SocketAddrV4::new(from.address(), SOURCE_PORT);
    datagram(ends, source, SocketAddrV4::new(to.address(), port))
}

/// The link address of none: the reference's kernel drops a frame to it at once.
const NOBODY: LinkAddress = LinkAddress([2, 0, 0, 0, 0, 0xff]);
const NO_OFFLOAD: Offload = Offload::NONE;
const SOURCE_PORT: u16 = 9;
/// The interval of bursts: 5000 interrupts a second, as network interfaces moderate them. On a virtual machine, a
/// wake-up across processors takes 20 us of the receiver's, so one for each frame would be all that is measured.
const BURST_NS: u64 = 200_000;
/// The interval of bursts before clients on the same processor, which each wake-up costs some of their time.
const AHEAD_BURST_NS: u64 = 500_000;
const DRIVER_PRIORITY: u8 = 20;
/// Before clients, but not before the kernel's threads.
const AHEAD: u8 = 10;
