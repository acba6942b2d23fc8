//! The interrupt level: a real-time thread on the receivers' processor that owns the device and demultiplexes.
//!
//! With [`Architecture::SoftLrp`] it does nothing else: a frame goes into the channel of its endpoint, or is discarded.
//! With the eager architectures it also does all protocol work, by the same [`Stack`], before any receiver runs.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use softclock_core::Instant;
use softclock_linux::clock::monotonic_ns;
use softclock_linux::link::{
    Buffer, Copies, Device, Link as Interface, Received, Refused, XdpMemory,
};
use softclock_linux::priority::Priority;
use softclock_net::channel::Limits;
use softclock_net::checksum::Verify;
use softclock_net::demux::{HashKey, Protocol, Table, Verdict};
use softclock_net::drops::DropReason;
use softclock_net::link::Header;
use softclock_net::routes::Routes;
use softclock_net::stack::{Architecture, EndpointId, Settings, Stack};

use super::network::Link;
use super::ring::{Content, RingSender};
use super::stopping::Stop;
use crate::measure::processors::pin;

/// The counters of the interrupt level.
#[derive(Debug, Default)]
pub(super) struct InterruptCounts {
    /// Frames taken from the device.
    pub(super) frames: AtomicU64,
    /// Frames discarded before any protocol work, since the channel or the socket's queue was full.
    pub(super) early: AtomicU64,
    /// Frames dropped since the shared queue was full.
    pub(super) shared: AtomicU64,
    /// Datagrams dropped after all protocol work, since the socket's queue was full.
    pub(super) late: AtomicU64,
    /// Frames dropped for other reasons.
    pub(super) other: AtomicU64,
    /// Frames that found no room in the device's receive ring.
    pub(super) device: AtomicU64,
    /// Packets that each endpoint refused, early or late.
    pub(super) refused: Vec<AtomicU64>,
    /// Rounds: the times that the thread found frames.
    pub(super) rounds: AtomicU64,
}

/// The parameters of the thread.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) architecture: Architecture,
    pub(super) interface: String,
    pub(super) processor: Option<usize>,
    /// The pause after a round that has emptied the device: the interrupt moderation of a network interface, where the
    /// driver's thread has none.
    pub(super) pause: Option<Duration>,
    /// The ports with their rings.
    pub(super) endpoints: Vec<(u16, RingSender)>,
    pub(super) counts: Arc<InterruptCounts>,
}

/// Opens the device, reports on `opened`, and serves it until `stop`. Call it in a thread in the server's namespace.
pub(super) fn run(plan: Plan, stop: &Stop, opened: &mpsc::Sender<io::Result<()>>) {
    pin(plan.processor);
    let begun = open(&plan.interface).and_then(|device| {
        Priority::Fifo(PRIORITY).apply()?;
        Ok((
            device,
            Demultiplexer::new(plan.architecture, plan.endpoints)?,
        ))
    });
    // The starter waits for this message.
    match begun {
        Ok((device, mut demultiplexer)) => {
            let _ = opened.send(Ok(()));
            while stop.goes_on() {
                round(&device, &mut demultiplexer, &plan.counts, plan.pause);
            }
        }
        Err(error) => {
            let _ = opened.send(Err(error));
        }
    }
}

fn open(interface: &str) -> io::Result<Device> {
    let memory = XdpMemory::new(1)?;
    let link = Interface::named(interface)?;
    Device::open_xdp(&memory, &link, Copies::Allowed).map_err(io::Error::other)
}

/// Takes what the device has, at most a budget; or waits for an interrupt.
fn round(
    device: &Device,
    demultiplexer: &mut Demultiplexer,
    counts: &InterruptCounts,
    pause: Option<Duration>,
) {
    let now = Instant::from_ns(monotonic_ns());
    let mut taken = 0;
    let mut is_drained = false;
    while taken < BUDGET && !is_drained {
        let received = device.receive(|frame| demultiplexer.on_frame(now, frame, counts));
        taken += *received.as_ref().unwrap_or(&0);
        is_drained = received.is_err();
    }
    demultiplexer.process(now, counts);
    if taken > 0 {
        counts.frames.fetch_add(taken as u64, Relaxed);
        counts.rounds.fetch_add(1, Relaxed);
        counts
            .device
            .fetch_add(device.take_lost().unwrap_or(0), Relaxed);
    }
    match (is_drained, taken) {
        (false, _) => {}
        (true, 0) => {
            let wait = match demultiplexer.has_more() {
                true => Duration::from_millis(1),
                false => LOOK_UP,
            };
            let wait = Timespec::try_from(wait).unwrap_or_default();
            let _ = poll(&mut [PollFd::new(device, PollFlags::IN)], Some(&wait));
        }
        (true, _) => {
            if let Some(pause) = pause {
                thread::sleep(pause);
            }
        }
    }
}

/// The work of the interrupt level for a frame.
enum Demultiplexer {
    Lazy {
        table: Box<Table<u32>>,
        channels: Vec<RingSender>,
    },
    Eager {
        stack: Box<Stack<Buffer>>,
        sockets: Vec<(EndpointId, RingSender)>,
    },
}

impl Demultiplexer {
    fn new(architecture: Architecture, endpoints: Vec<(u16, RingSender)>) -> io::Result<Self> {
        match architecture {
            Architecture::SoftLrp => Self::lazy(endpoints),
            Architecture::Bsd | Architecture::EarlyDemux => Self::eager(architecture, endpoints),
        }
    }

    fn lazy(endpoints: Vec<(u16, RingSender)>) -> io::Result<Self> {
        let mut table = Box::new(Table::new(KEY));
        let mut channels = Vec::new();
        for (port, ring) in endpoints {
            let local = (IpAddr::from(Link::Server.address()), port);
            let number = channels.len() as u32;
            table
                .bind(Protocol::Udp, local, number)
                .map_err(|_| io::ErrorKind::AddrInUse)?;
            channels.push(ring);
        }
        Ok(Self::Lazy { table, channels })
    }

    fn eager(architecture: Architecture, endpoints: Vec<(u16, RingSender)>) -> io::Result<Self> {
        let prefix = format!("{}/24", Link::Server.address());
        let prefix = prefix.parse().map_err(io::Error::other)?;
        let routes = Routes::new(vec![prefix], vec![]).map_err(io::Error::other)?;
        let mut settings = Settings::new(Link::Server.link_address(), 1500);
        settings.architecture = architecture;
        settings.channel = Limits {
            packets: STACK_PACKETS,
            bytes: 1 << 20,
        };
        let mut stack = Box::new(Stack::new(settings, routes, KEY));
        let mut sockets = Vec::new();
        for (port, ring) in endpoints {
            let bound = stack.bind(Link::Server.port(port));
            sockets.push((bound.map_err(io::Error::other)?, ring));
        }
        Ok(Self::Eager { stack, sockets })
    }

    fn on_frame(
        &mut self,
        now: Instant,
        frame: Result<Received, Refused>,
        counts: &InterruptCounts,
    ) {
        let Ok(frame) = frame else {
            counts.other.fetch_add(1, Relaxed);
            return;
        };
        let arrived = now - frame.age;
        // The clients' kernel leaves checksums to the link, which has no wire.
        let verify = match frame.offload.checksum {
            Some(_) => Verify::Trusted,
            None => Verify::Yes,
        };
        match self {
            Self::Eager { stack, sockets } => {
                stack.on_frame(now, arrived, frame.bytes, verify);
                if stack.settings().architecture == Architecture::EarlyDemux {
                    // At once, so that the next frame finds out whether its socket is full.
                    process_all(stack, now, sockets);
                }
            }
            Self::Lazy { table, channels } => {
                let verdict = verdict(table, &frame.bytes);
                let Some((number, channel)) = verdict.and_then(|number| {
                    let number = number as usize;
                    Some((number, channels.get_mut(number)?))
                }) else {
                    counts.other.fetch_add(1, Relaxed);
                    return;
                };
                let content = Content::Frame(verify);
                if !channel.push(&frame.bytes, content, arrived.as_ns()) {
                    counts.early.fetch_add(1, Relaxed);
                    counts.refused[number].fetch_add(1, Relaxed);
                }
            }
        }
    }

    /// Does all protocol work of the eager architectures, and wakes the receivers that wait and have got something.
    fn process(&mut self, now: Instant, counts: &InterruptCounts) {
        match self {
            Self::Lazy { channels, .. } => channels.iter_mut().for_each(RingSender::ring_bell),
            Self::Eager { stack, sockets } => {
                process_all(stack, now, sockets);
                for ((id, ring), refused) in sockets.iter_mut().zip(&counts.refused) {
                    ring.ring_bell();
                    let of = stack.endpoint_counts(*id);
                    refused.store(of.map_or(0, |of| of.drops.total()), Relaxed);
                }
                // No client expects errors; this frees their memory.
                while stack.next_frame().is_some() {}
                let drops = stack.drops();
                counts
                    .early
                    .store(drops.of(DropReason::ChannelFull), Relaxed);
                counts
                    .shared
                    .store(drops.of(DropReason::IpQueueFull), Relaxed);
                counts.late.store(drops.of(DropReason::SocketFull), Relaxed);
            }
        }
    }

    /// Whether datagrams wait that did not fit into the receivers' rings.
    fn has_more(&self) -> bool {
        match self {
            Self::Lazy { .. } => false,
            Self::Eager { sockets, .. } => sockets.iter().any(|(_, ring)| ring.is_full()),
        }
    }
}

/// Does all protocol work, packet by packet, so that a burst does not fill the channel of a socket whose ring has room.
fn process_all(stack: &mut Stack<Buffer>, now: Instant, sockets: &mut [(EndpointId, RingSender)]) {
    loop {
        // First, since receivers may have made room since the last packet.
        for (id, ring) in &mut *sockets {
            fill(stack, now, *id, ring);
        }
        if stack.process(now, 1) == 0 {
            return;
        }
    }
}

/// Moves the datagrams of an endpoint into its ring, as many as fit.
fn fill(stack: &mut Stack<Buffer>, now: Instant, id: EndpointId, ring: &mut RingSender) {
    while !ring.is_full()
        && let Some(datagram) = stack.receive(now, id)
    {
        let content = Content::Datagram(datagram.source);
        ring.push(datagram.payload(), content, datagram.arrived.as_ns());
    }
}

/// The channel of a frame.
fn verdict(table: &Table<u32>, frame: &[u8]) -> Option<u32> {
    let (header, _) = Header::parse(frame).ok()?;
    if header.destination != Link::Server.link_address() {
        return None;
    }
    match Verdict::of(table, frame) {
        Verdict::Channel(number) => Some(number),
        Verdict::Control(_) | Verdict::Fragment | Verdict::Drop(_) => None,
    }
}

/// Above all receivers, and below the driver.
const PRIORITY: u8 = 10;

/// The most frames between two looks at the protocols, as with NAPI.
const BUDGET: usize = 64;

/// The datagrams that wait in the stack besides those in the ring of a receiver.
pub(super) const STACK_PACKETS: usize = 32;

/// The clients are not attackers that choose colliding flows.
const KEY: HashKey = HashKey([0x6c72, 0x7021]);

const LOOK_UP: Duration = Duration::from_millis(20);
