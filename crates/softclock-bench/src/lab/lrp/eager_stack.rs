//! The work of the interrupt level: a stack, and a ring to the receiver of each endpoint.
//!
//! With [`Architecture::SoftLrp`] a frame goes into the channel of its endpoint, or is discarded. With the eager
//! architectures the protocols also do all their work for it. All use the same [`Stack`].

use std::io;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use softclock_core::Instant;
use softclock_linux::link::Received;
use softclock_net::channel::ChannelLimits;
use softclock_net::checksum::Verify;
use softclock_net::demux::HashKey;
use softclock_net::drops::DropReason;
use softclock_net::routes::Routes;
use softclock_net::stack::{Architecture, EndpointId, Pending, Settings, Stack};

use super::network::Link;
use super::receiver::Outbox;

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
    /// Frames that found no room in the device's receive ring.
    pub(super) device: AtomicU64,
    /// Packets that each endpoint refused, early or late.
    pub(super) refused: Vec<AtomicU64>,
}

/// A stack that works for packets as they arrive, as far as its architecture does, and gives them to receivers in other
/// threads. `B` is the memory of a frame.
pub(super) struct EagerStack<B> {
    stack: Stack<B>,
    rings: Vec<(EndpointId, Outbox)>,
    /// Makes a packet independent of the device.
    detach: fn(Pending<B>) -> Pending<Vec<u8>>,
}

impl<B: Deref<Target = [u8]>> EagerStack<B> {
    /// Creates the stack of the server, with these ports and their rings.
    pub(super) fn new(
        architecture: Architecture,
        endpoints: Vec<(u16, Outbox)>,
        detach: fn(Pending<B>) -> Pending<Vec<u8>>,
    ) -> io::Result<Self> {
        let mut stack = stack(architecture)?;
        let mut rings = Vec::new();
        for (port, ring) in endpoints {
            let bound = stack.bind(Link::Server.port(port));
            rings.push((bound.map_err(io::Error::other)?, ring));
        }
        Ok(Self {
            stack,
            rings,
            detach,
        })
    }

    pub(super) fn on_frame(&mut self, now: Instant, frame: Received<B>) {
        self.stack
            .on_frame(now, now - frame.age, frame.bytes, verify(&frame.offload));
        match self.stack.settings().architecture {
            Architecture::Bsd => {}
            // At once, so that the next frame finds out whether its socket is full.
            Architecture::EarlyDemux => self.process_all(now),
            Architecture::SoftLrp | Architecture::NiLrp => self.fill(),
        }
    }

    /// Does all work of the stack's own, and wakes the receivers that wait and have got something. Returns their
    /// number.
    pub(super) fn process(&mut self, now: Instant, counts: &InterruptCounts) -> usize {
        self.process_all(now);
        let mut woken = 0;
        for ((id, ring), refused) in self.rings.iter_mut().zip(&counts.refused) {
            woken += usize::from(ring.ring_bell());
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
        woken
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
                ring.push((self.detach)(packet));
            }
        }
    }

    /// Whether packets may wait that did not fit into a ring.
    pub(super) fn has_more(&self) -> bool {
        self.rings.iter().any(|(_, ring)| ring.is_full())
    }
}

/// A stack with the server's address.
pub(super) fn stack<B: Deref<Target = [u8]>>(architecture: Architecture) -> io::Result<Stack<B>> {
    let mut settings = Settings::new(Link::Server.link_address(), 1500);
    settings.architecture = architecture;
    settings.channel = ChannelLimits {
        packets: STACK_PACKETS,
        bytes: 1 << 20,
    };
    Ok(Stack::new(settings, routes()?, KEY))
}

/// The addresses of the server's stack.
pub(super) fn routes() -> io::Result<Routes> {
    let prefix = format!("{}/24", Link::Server.address());
    let prefix = prefix.parse().map_err(io::Error::other)?;
    Routes::new(vec![prefix], vec![]).map_err(io::Error::other)
}

/// The clients' kernel leaves checksums to the link, which has no wire.
pub(super) fn verify(offload: &softclock_wire::packet::Offload) -> Verify {
    match offload.checksum {
        Some(_) => Verify::Trusted,
        None => Verify::Yes,
    }
}

/// The packets of a channel of the stack, besides those in the ring of its receiver.
pub(super) const STACK_PACKETS: usize = 32;

/// The clients are not attackers that choose colliding flows.
const KEY: HashKey = HashKey([0x6c72, 0x7021]);
