//! The part of a stack that other threads reach: the packets for their sockets, and those that they send.
//!
//! The thread with the device demultiplexes all frames, and copies those for sockets of other threads into bounded
//! queues. With NI-LRP the XDP program demultiplexes, and such a socket has a ring of its own. Everything else is done
//! by the thread of the socket.

mod lanes;
mod socket;

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::{io, mem};

use softclock_core::Instant;
use softclock_core::signalling::Policy;
use softclock_linux::link::{Chunk, Link, Transport, XdpChannels};
use softclock_net::channel::ChannelLimits;
use softclock_net::drops::DropReason;
use softclock_net::ip::Identifications;
use softclock_net::ports::DynamicPorts;
use softclock_net::rate_limit::TokenBucket;
use softclock_net::routes::Routes;
use softclock_net::stack::{
    Datagram, Frame, ReceiverCounts, RingEndpoint, RingFrame, RingReceived, Settings,
};

use super::capture::Capture;
use super::lane::{Lanes, Leaving};
use super::random::random;
use super::ring::{Closed, SocketRing};
pub(super) use socket::SharedSocket;

/// The state that the threads of a stack share. Locks are held for a few instructions; that of a lane also while the
/// frames of a thread that ends are dropped. A thread that holds the counters of a socket may take one other lock, and
/// one that holds the lanes those of a lane; no other thread takes two.
pub(super) struct Shared {
    pub(super) link: Link,
    /// The addresses and routes of the stack.
    pub(super) routes: Routes,
    /// The limits of a socket's channel.
    pub(super) limits: ChannelLimits,
    /// The ports of a stack that shares the host's addresses; `None` for all.
    pub(super) ports: Option<Vec<(Transport, u16)>>,
    settings: Settings,
    /// The channels of NI-LRP, to which each socket adds its own, while the stack is open.
    channels: Mutex<Option<Arc<XdpChannels>>>,
    pub(super) capture: Option<Arc<Capture>>,
    /// How threads learn of frames.
    pub(super) signalling: Policy,
    bindings: Mutex<Bindings>,
    outgoing: Mutex<Outgoing>,
    returned: Mutex<Returned>,
    counts: Mutex<MemberCounts>,
    lanes: Mutex<Lanes>,
    /// Counts the changes of `lanes`.
    changes: AtomicU32,
    /// Counts the looks that threads have asked others for.
    looks: AtomicU32,
    /// Wakes the task of the driver.
    driver: Mutex<Option<Waker>>,
    is_closed: AtomicBool,
    pub(super) identifications: Arc<Identifications>,
}

/// What the threads of a stack have in common from its start.
pub(super) struct SharedParts {
    pub(super) link: Link,
    /// The addresses and routes of the stack.
    pub(super) routes: Routes,
    pub(super) settings: Settings,
    /// The ports of a stack that shares the host's addresses; `None` for all.
    pub(super) ports: Option<Vec<(Transport, u16)>>,
    /// The channels of NI-LRP, to which each socket adds its own.
    pub(super) channels: Option<Arc<XdpChannels>>,
    pub(super) capture: Option<Arc<Capture>>,
    pub(super) signalling: Policy,
    /// Those of the opening thread's stack, as packets between the same addresses must not repeat them.
    pub(super) identifications: Arc<Identifications>,
}

/// The ports of the stack, and the changes that the driver has not made yet.
struct Bindings {
    /// All bound addresses and ports, of all threads.
    bound: HashMap<SocketAddr, ()>,
    /// In order. Bounded by the number of sockets, since the end of a socket cancels what waits for it.
    changes: Vec<Change>,
}

/// A change that a socket of another thread asks the driver for.
pub(super) enum Change {
    /// Demultiplex packets to this socket.
    Bind(Arc<SharedSocket>),
    /// Demultiplex packets from this remote endpoint only.
    Connect(SocketAddr, SocketAddr),
    /// The socket at this address is closed.
    Close(SocketAddr),
}

impl Change {
    fn local(&self) -> SocketAddr {
        match self {
            Self::Bind(socket) => socket.local,
            Self::Connect(local, _) | Self::Close(local) => *local,
        }
    }
}

/// Packets for the link, and the tasks that wait for room.
#[derive(Default)]
struct Outgoing {
    packets: VecDeque<Leaving>,
    blocked: Vec<Waker>,
}

impl Outgoing {
    /// Adds a task that waits for room, unless it waits already.
    fn register(&mut self, waker: &Waker) {
        if !self.blocked.iter().any(|known| known.will_wake(waker)) {
            self.blocked.push(waker.clone());
        }
    }
}

/// Frames in the rings of other threads that the stack has to handle, such as those from strangers to a connected
/// socket.
struct Returned {
    frames: Vec<RingFrame<Vec<u8>>>,
    /// Most of them are answered by errors, so they have the limit of errors: a flood of them is dropped by the thread
    /// with the ring, and does not wake the driver.
    rate: TokenBucket,
}

/// What other threads have done, and the driver has not counted yet.
#[derive(Clone, Default)]
pub(super) struct MemberCounts {
    pub(super) received: ReceiverCounts,
    /// Frames that the kernel has lost in the rings of closed sockets.
    pub(super) lost: u64,
}

/// A packet cannot be sent now, or at all.
pub(super) enum NotSent {
    /// The queue is full; the task is woken when there is room.
    Full,
    /// The stack has ended.
    Closed,
}

impl Shared {
    pub(super) fn new(parts: SharedParts) -> Self {
        let settings = parts.settings;
        let bindings = Bindings {
            bound: HashMap::new(),
            changes: Vec::new(),
        };
        let rate = TokenBucket::new(settings.errors_per_second, MOST_RETURNED as u32);
        let stacks = settings.steering.map_or(1, |steering| steering.stacks());
        Self {
            link: parts.link,
            routes: parts.routes,
            limits: settings.channel,
            ports: parts.ports,
            settings,
            channels: Mutex::new(parts.channels),
            capture: parts.capture,
            signalling: parts.signalling,
            bindings: Mutex::new(bindings),
            outgoing: Mutex::default(),
            returned: Mutex::new(Returned {
                frames: Vec::new(),
                rate,
            }),
            counts: Mutex::default(),
            lanes: Mutex::new(Lanes::new(stacks)),
            changes: AtomicU32::new(0),
            looks: AtomicU32::new(0),
            driver: Mutex::default(),
            is_closed: AtomicBool::new(false),
            identifications: parts.identifications,
        }
    }

    /// Whether the stack has this port.
    pub(super) fn has_port(&self, transport: Transport, port: u16) -> bool {
        let ports = self.ports.as_ref();
        ports.is_none_or(|ports| ports.contains(&(transport, port)))
    }

    /// Reserves an address and port; port 0 stands for any free one. Returns them without scope and flow label, which
    /// frames do not have. `None` if they are in use.
    pub(super) fn reserve(&self, local: SocketAddr) -> Option<SocketAddr> {
        let local = SocketAddr::new(local.ip(), local.port());
        let mut bindings = lock(&self.bindings);
        if local.port() != 0 {
            let is_new = bindings.bound.insert(local, ()).is_none();
            return is_new.then_some(local);
        }
        DynamicPorts::new(random()).find(|port| {
            let local = SocketAddr::new(local.ip(), port);
            let is_new = bindings.bound.insert(local, ()).is_none();
            is_new.then_some(local)
        })
    }

    /// Gives an address and port back.
    pub(super) fn release(&self, local: SocketAddr) {
        lock(&self.bindings).bound.remove(&local);
    }

    /// Asks the driver for a change.
    pub(super) fn ask(&self, change: Change) {
        let mut bindings = lock(&self.bindings);
        if let Change::Close(local) = change {
            let waiting =
                |change: &Change| matches!(change, Change::Bind(_)) && change.local() == local;
            // Changes before that are those of an earlier socket with the address.
            let unknown = bindings.changes.iter().rposition(waiting);
            let own = bindings.changes.split_off(unknown.unwrap_or(0));
            let others = own.into_iter().filter(|change| change.local() != local);
            bindings.changes.extend(others);
            bindings.bound.remove(&local);
            if unknown.is_some() {
                return;
            }
        }
        // Looked at under the lock: the end of the stack takes the changes later than it is noted.
        if self.is_closed() {
            return;
        }
        bindings.changes.push(change);
        drop(bindings);
        self.wake_driver();
    }

    /// Takes the changes that the driver has to make.
    pub(super) fn take_changes(&self) -> Vec<Change> {
        mem::take(&mut lock(&self.bindings).changes)
    }

    /// Queues a packet for the link, as far as there is room.
    pub(super) fn send(&self, packet: Vec<u8>, cx: Option<&Context<'_>>) -> Result<(), NotSent> {
        let mut outgoing = lock(&self.outgoing);
        // Under the lock, as the end of the stack wakes the waiting tasks later than it is noted.
        if self.is_closed() {
            return Err(NotSent::Closed);
        }
        if outgoing.packets.len() >= MOST_OUTGOING {
            if let Some(cx) = cx {
                outgoing.register(cx.waker());
            }
            return Err(NotSent::Full);
        }
        outgoing.packets.push_back(Leaving::Datagram(packet));
        let is_first = outgoing.packets.len() == 1;
        drop(outgoing);
        if is_first {
            self.wake_driver();
        }
        Ok(())
    }

    /// Queues packets of a thread's stack, as far as there is room; returns their number.
    ///
    /// # Errors
    /// `WouldBlock` if there is none, and `NetworkDown` if the stack has ended.
    pub(super) fn send_batch(&self, packets: impl Iterator<Item = Frame>) -> io::Result<usize> {
        self.check_open()?;
        let mut outgoing = lock(&self.outgoing);
        let before = outgoing.packets.len();
        let room = MOST_OUTGOING.saturating_sub(before);
        if room == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        outgoing
            .packets
            .extend(packets.take(room).map(Leaving::Packet));
        let sent = outgoing.packets.len() - before;
        drop(outgoing);
        if before == 0 {
            self.wake_driver();
        }
        Ok(sent)
    }

    /// Ready if there is room for packets, or the stack has ended. Else the task is woken when this holds.
    pub(super) fn poll_room(&self, cx: &Context<'_>) -> Poll<()> {
        let mut outgoing = lock(&self.outgoing);
        if outgoing.packets.len() < MOST_OUTGOING || self.is_closed() {
            return Poll::Ready(());
        }
        outgoing.register(cx.waker());
        Poll::Pending
    }

    /// Whether the stack has ended.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// # Errors
    /// [`io::ErrorKind::NetworkDown`] if the stack has ended.
    pub(super) fn check_open(&self) -> io::Result<()> {
        match self.is_closed() {
            true => Err(io::ErrorKind::NetworkDown.into()),
            false => Ok(()),
        }
    }

    /// Takes the packets that wait, for [`send_all`](Self::send_all).
    pub(super) fn take_packets(&self) -> VecDeque<Leaving> {
        mem::take(&mut lock(&self.outgoing).packets)
    }

    /// Passes packets to `send`, which returns those that must wait longer. Returns whether some must.
    pub(super) fn send_all(
        &self,
        mut packets: VecDeque<Leaving>,
        mut send: impl FnMut(Leaving) -> Result<(), Leaving>,
    ) -> bool {
        while let Some(packet) = packets.pop_front() {
            if let Err(packet) = send(packet) {
                packets.push_front(packet);
                break;
            }
        }
        let must_wait = !packets.is_empty();
        let mut outgoing = lock(&self.outgoing);
        // Those that came meanwhile are later ones.
        packets.append(&mut outgoing.packets);
        outgoing.packets = packets;
        let blocked = match outgoing.packets.len() < MOST_OUTGOING {
            true => mem::take(&mut outgoing.blocked),
            false => Vec::new(),
        };
        drop(outgoing);
        blocked.into_iter().for_each(Waker::wake);
        must_wait
    }

    /// Opens the ring of a socket, if the interface has rings and the socket is bound to an address of the stack.
    pub(super) fn open_ring(&self, local: SocketAddr) -> io::Result<Option<SocketRing>> {
        let channels = lock(&self.channels).clone();
        match channels {
            Some(channels) => SocketRing::open(&channels, &self.routes, local, self.limits.packets),
            None => Ok(None),
        }
    }

    /// Does the protocols' work for a frame from the ring of a socket. Frames that the socket does not receive go to
    /// the stack, as far as there is room.
    pub(super) fn receive(
        &self,
        now: Instant,
        socket: &SharedSocket,
        remote: Option<SocketAddr>,
        frame: RingFrame<Chunk>,
    ) -> Option<Datagram<Chunk>> {
        let endpoint = RingEndpoint {
            routes: &self.routes,
            link_address: self.settings.link_address,
            local: socket.local,
            remote,
        };
        let mut counts = lock(&socket.counts);
        let capture = self.capture.as_ref();
        let copied = capture
            .filter(|capture| capture.is_running())
            .map(|capture| (capture, capture.copy(frame.arrived, &frame.bytes)));
        let before = copied.as_ref().map(|_| counts.drops.clone());
        let received = endpoint.receive(frame, &mut counts);
        if let RingReceived::Elsewhere(frame) = received {
            // The driver captures it.
            self.give_back(now, frame, &mut counts);
            return None;
        }
        if let (Some((capture, copied)), Some(before)) = (copied, before) {
            capture.on_received(&copied, &before, &counts.drops);
        }
        match received {
            RingReceived::Datagram(datagram) => Some(datagram),
            _ => None,
        }
    }

    fn give_back(&self, now: Instant, frame: RingFrame<Chunk>, counts: &mut ReceiverCounts) {
        let mut returned = lock(&self.returned);
        if returned.frames.len() >= MOST_RETURNED || !returned.rate.take(now) {
            drop(returned);
            counts.frames += 1;
            counts.demux_drops += 1;
            counts.drops.count(DropReason::PortUnreachable);
            return;
        }
        returned.frames.push(RingFrame {
            bytes: frame.bytes.to_vec(),
            arrived: frame.arrived,
            verify: frame.verify,
        });
        let is_first = returned.frames.len() == 1;
        drop(returned);
        if is_first {
            self.wake_driver();
        }
    }

    /// Takes the frames that the stack has to handle.
    pub(super) fn take_returned(&self) -> Vec<RingFrame<Vec<u8>>> {
        mem::take(&mut lock(&self.returned).frames)
    }

    pub(super) fn count_drop(&self, reason: DropReason) {
        lock(&self.counts).received.drops.count(reason);
    }

    /// Takes the counters of a socket that is closed.
    fn count_closed(&self, socket: &SharedSocket) {
        let more = socket.take_counts();
        let ring = socket.ring.as_ref().and_then(Weak::upgrade);
        let Closed {
            lost,
            discarded,
            waiting,
        } = ring.map(|ring| ring.close()).unwrap_or_default();
        let mut counts = lock(&self.counts);
        counts.received.add(&more);
        counts.received.frames += discarded + waiting;
        counts.received.to_channels += discarded + waiting;
        let drops = &mut counts.received.drops;
        drops.count_many(DropReason::ChannelFull, discarded);
        drops.count_many(DropReason::Closed, waiting);
        counts.lost += lost;
    }

    /// Takes the counts of what other threads have done, without those of open sockets.
    pub(super) fn take_counts(&self) -> MemberCounts {
        mem::take(&mut lock(&self.counts))
    }

    /// Closes a socket of another thread.
    pub(super) fn close_socket(&self, socket: &SharedSocket) {
        self.count_closed(socket);
        self.ask(Change::Close(socket.local));
    }

    /// Notes how to wake the driver's task.
    pub(super) fn set_driver(&self, waker: &Waker) {
        let mut driver = lock(&self.driver);
        if driver.as_ref().is_none_or(|old| !old.will_wake(waker)) {
            *driver = Some(waker.clone());
        }
    }

    fn wake_driver(&self) {
        let driver = lock(&self.driver).clone();
        if let Some(driver) = driver {
            driver.wake();
        }
    }

    /// Notes that the stack has ended, and wakes the tasks that wait for it, except those of the sockets that the driver
    /// knows.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        *lock(&self.driver) = None;
        *lock(&self.channels) = None;
        for change in self.take_changes() {
            if let Change::Bind(socket) = change {
                socket.wake();
            }
        }
        let mut outgoing = lock(&self.outgoing);
        outgoing.packets.clear();
        let blocked = mem::take(&mut outgoing.blocked);
        drop(outgoing);
        blocked.into_iter().for_each(Waker::wake);
        let mut lanes = lock(&self.lanes);
        lanes.close_queues();
        let present: Vec<_> = lanes.present().cloned().collect();
        drop(lanes);
        present.iter().for_each(|lane| lane.close());
    }
}

/// A thread that panicked has left the data whole, as no code of the user runs under a lock.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The most packets of other threads that wait for the driver.
const MOST_OUTGOING: usize = 1024;

/// The most frames that wait for the driver to handle them.
const MOST_RETURNED: usize = 64;
