//! The interrupt level: a real-time thread on the receivers' processor that owns the device and demultiplexes.
//!
//! With [`Architecture::SoftLrp`] it does nothing else: a frame goes into the channel of its endpoint, or is discarded.
//! With the eager architectures it also does all protocol work before any receiver runs. All use the same [`Stack`].

use std::io;
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
use softclock_net::demux::HashKey;
use softclock_net::drops::DropReason;
use softclock_net::routes::Routes;
use softclock_net::stack::{Architecture, EndpointId, Settings, Stack};

use super::network::Link;
use super::receiver::Outbox;
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
    pub(super) endpoints: Vec<(u16, Outbox)>,
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

/// The work of the interrupt level: a stack, and a ring to the receiver of each endpoint.
struct Demultiplexer {
    stack: Stack<Buffer>,
    rings: Vec<(EndpointId, Outbox)>,
}

impl Demultiplexer {
    fn new(architecture: Architecture, endpoints: Vec<(u16, Outbox)>) -> io::Result<Self> {
        let mut settings = Settings::new(Link::Server.link_address(), 1500);
        settings.architecture = architecture;
        settings.channel = Limits {
            packets: STACK_PACKETS,
            bytes: 1 << 20,
        };
        let mut stack = Stack::new(settings, routes()?, KEY);
        let mut rings = Vec::new();
        for (port, ring) in endpoints {
            let bound = stack.bind(Link::Server.port(port));
            rings.push((bound.map_err(io::Error::other)?, ring));
        }
        Ok(Self { stack, rings })
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
        // The clients' kernel leaves checksums to the link, which has no wire.
        let verify = match frame.offload.checksum {
            Some(_) => Verify::Trusted,
            None => Verify::Yes,
        };
        self.stack
            .on_frame(now, now - frame.age, frame.bytes, verify);
        match self.stack.settings().architecture {
            Architecture::Bsd => {}
            // At once, so that the next frame finds out whether its socket is full.
            Architecture::EarlyDemux => self.process_all(now),
            Architecture::SoftLrp | Architecture::NiLrp => self.fill(),
        }
    }

    /// Does all work of the stack's own, and wakes the receivers that wait and have got something.
    fn process(&mut self, now: Instant, counts: &InterruptCounts) {
        self.process_all(now);
        for ((id, ring), refused) in self.rings.iter_mut().zip(&counts.refused) {
            ring.ring_bell();
            ring.free();
            let of = self.stack.endpoint_counts(*id);
            refused.store(of.map_or(0, |of| of.drops.total()), Relaxed);
        }
        // No client expects errors; this frees their memory.
        while self.stack.next_frame().is_some() {}
        let drops = self.stack.drops();
        let by_place = [
            (&counts.early, DropReason::ChannelFull),
            (&counts.shared, DropReason::IpQueueFull),
            (&counts.late, DropReason::SocketFull),
        ];
        for (count, reason) in by_place {
            count.store(drops.of(reason), Relaxed);
        }
    }

    /// Does all work of the stack's own, packet by packet, so that a burst does not fill the channel of a socket whose
    /// ring has room.
    fn process_all(&mut self, now: Instant) {
        loop {
            // First, since receivers may have made room since the last packet.
            self.fill();
            if self.stack.process(now, 1) == 0 {
                return;
            }
        }
    }

    /// Moves packets from the channels to the rings, as many as fit: frames if the stack is lazy, or else datagrams.
    fn fill(&mut self) {
        for (id, ring) in &mut self.rings {
            while !ring.is_full()
                && let Some(packet) = self.stack.take_pending(*id)
            {
                // The device's memory stays on this thread.
                ring.push(packet.copied());
            }
        }
    }

    /// Whether packets may wait that did not fit into a ring.
    fn has_more(&self) -> bool {
        self.rings.iter().any(|(_, ring)| ring.is_full())
    }
}

/// The addresses of the server's stack.
pub(super) fn routes() -> io::Result<Routes> {
    let prefix = format!("{}/24", Link::Server.address());
    let prefix = prefix.parse().map_err(io::Error::other)?;
    Routes::new(vec![prefix], vec![]).map_err(io::Error::other)
}

/// Above all receivers, and below the driver.
const PRIORITY: u8 = 10;

/// The most frames between two looks at the protocols, as with NAPI.
const BUDGET: usize = 64;

/// The packets of a channel of the stack, besides those in the ring of its receiver.
pub(super) const STACK_PACKETS: usize = 32;

/// The clients are not attackers that choose colliding flows.
const KEY: HashKey = HashKey([0x6c72, 0x7021]);

const LOOK_UP: Duration = Duration::from_millis(20);
