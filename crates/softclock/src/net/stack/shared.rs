//! The part of a stack that other threads reach: the packets for their sockets, and those that they send.
//!
//! The thread with the device demultiplexes all frames, and copies those for sockets of other threads into bounded
//! queues. Everything else is done by the thread of the socket.

use std::collections::{HashMap, VecDeque};
use std::mem;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use softclock_net::channel::Limits;
use softclock_net::drops::{DropReason, Drops};
use softclock_net::routes::Routes;
use softclock_net::stack::{Architecture, NetworkError, Pending, Settings};

/// What the threads of a stack have in common. Locks are held for a few instructions, and never two at a time.
pub(super) struct Shared {
    /// The addresses and routes of the stack.
    pub(super) routes: Routes,
    /// The limits of a socket's channel.
    pub(super) limits: Limits,
    /// Whether no other thread can have sockets.
    pub(super) is_of_one_thread: bool,
    ports: Mutex<Ports>,
    outgoing: Mutex<Outgoing>,
    /// Packets that other threads than the stack's have dropped.
    drops: Mutex<Drops>,
    /// Wakes the task of the driver.
    driver: Mutex<Option<Waker>>,
    is_closed: AtomicBool,
    identification: AtomicU32,
}

/// The ports of the stack, and the changes that the driver has not made yet.
struct Ports {
    /// All bound addresses and ports, of all threads.
    bound: HashMap<SocketAddr, ()>,
    /// In order. Bounded by the number of sockets, since the end of a socket cancels what waits for it.
    changes: Vec<Change>,
    next: u16,
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
    packets: VecDeque<Vec<u8>>,
    blocked: Vec<Waker>,
}

/// A packet cannot be sent now, or at all.
pub(super) enum NotSent {
    /// The queue is full; the task is woken when there is room.
    Full,
    /// The stack has ended.
    Closed,
}

impl Shared {
    /// `seed` begins the identifications of packets and the dynamic ports.
    pub(super) fn new(routes: Routes, settings: &Settings, seed: u64) -> Self {
        let ports = Ports {
            bound: HashMap::new(),
            changes: Vec::new(),
            next: FIRST_PORT + (seed % u64::from(u16::MAX - FIRST_PORT)) as u16,
        };
        Self {
            routes,
            limits: settings.channel,
            is_of_one_thread: settings.architecture == Architecture::NiLrp,
            ports: Mutex::new(ports),
            outgoing: Mutex::default(),
            drops: Mutex::default(),
            driver: Mutex::default(),
            is_closed: AtomicBool::new(false),
            identification: AtomicU32::new((seed >> 32) as u32),
        }
    }

    /// Reserves an address and port; port 0 stands for any free one. `None` if it is in use.
    pub(super) fn reserve(&self, local: SocketAddr) -> Option<SocketAddr> {
        let mut ports = lock(&self.ports);
        if local.port() != 0 {
            let is_new = ports.bound.insert(local, ()).is_none();
            return is_new.then_some(local);
        }
        for _ in FIRST_PORT..=u16::MAX {
            let local = SocketAddr::new(local.ip(), ports.next);
            ports.next = ports.next.checked_add(1).unwrap_or(FIRST_PORT);
            if ports.bound.insert(local, ()).is_none() {
                return Some(local);
            }
        }
        None
    }

    /// Gives an address and port back.
    pub(super) fn release(&self, local: SocketAddr) {
        lock(&self.ports).bound.remove(&local);
    }

    /// Asks the driver for a change.
    pub(super) fn ask(&self, change: Change) {
        let mut ports = lock(&self.ports);
        if let Change::Close(local) = change {
            let waiting =
                |change: &Change| matches!(change, Change::Bind(_)) && change.local() == local;
            let is_unknown = ports.changes.iter().any(waiting);
            ports.changes.retain(|change| change.local() != local);
            ports.bound.remove(&local);
            if is_unknown {
                return;
            }
        }
        ports.changes.push(change);
        drop(ports);
        self.wake_driver();
    }

    /// Takes the changes that the driver has to make.
    pub(super) fn take_changes(&self) -> Vec<Change> {
        mem::take(&mut lock(&self.ports).changes)
    }

    /// Queues a packet for the link, as far as there is room.
    pub(super) fn send(&self, packet: Vec<u8>, cx: Option<&Context<'_>>) -> Result<(), NotSent> {
        if self.is_closed.load(Ordering::Acquire) {
            return Err(NotSent::Closed);
        }
        let mut outgoing = lock(&self.outgoing);
        if outgoing.packets.len() >= MOST_OUTGOING {
            if let Some(cx) = cx {
                outgoing.blocked.push(cx.waker().clone());
            }
            return Err(NotSent::Full);
        }
        outgoing.packets.push_back(packet);
        let is_first = outgoing.packets.len() == 1;
        drop(outgoing);
        if is_first {
            self.wake_driver();
        }
        Ok(())
    }

    /// Takes the packets that wait, for [`send_all`](Self::send_all).
    pub(super) fn take_packets(&self) -> VecDeque<Vec<u8>> {
        mem::take(&mut lock(&self.outgoing).packets)
    }

    /// Passes packets to `send`, which returns those that must wait longer.
    pub(super) fn send_all(
        &self,
        mut packets: VecDeque<Vec<u8>>,
        mut send: impl FnMut(Vec<u8>) -> Result<(), Vec<u8>>,
    ) {
        while let Some(packet) = packets.pop_front() {
            if let Err(packet) = send(packet) {
                packets.push_front(packet);
                break;
            }
        }
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
    }

    /// The identification of the next packet.
    pub(super) fn next_identification(&self) -> u32 {
        self.identification.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn count_drop(&self, reason: DropReason) {
        lock(&self.drops).count(reason);
    }

    /// Packets that other threads than the stack's have dropped.
    pub(super) fn drops(&self) -> Drops {
        lock(&self.drops).clone()
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

    /// Notes that the stack has ended.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        *lock(&self.driver) = None;
        let mut outgoing = lock(&self.outgoing);
        outgoing.packets.clear();
        let blocked = mem::take(&mut outgoing.blocked);
        drop(outgoing);
        blocked.into_iter().for_each(Waker::wake);
    }
}

/// The channel of a socket of another thread.
pub(super) struct SharedSocket {
    /// The address and port that it is bound to.
    pub(super) local: SocketAddr,
    limits: Limits,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    packets: VecDeque<Pending<Vec<u8>>>,
    bytes: usize,
    receivers: Vec<Waker>,
    error: Option<NetworkError>,
}

impl SharedSocket {
    pub(super) fn new(local: SocketAddr, limits: Limits) -> Self {
        Self {
            local,
            limits,
            state: Mutex::default(),
        }
    }

    /// Whether a packet of `bytes` bytes has no room.
    pub(super) fn is_full(&self, bytes: usize) -> bool {
        let state = lock(&self.state);
        state.packets.len() >= self.limits.packets || bytes > self.limits.bytes - state.bytes
    }

    /// Queues a packet for which there is room, and wakes the tasks that wait for it.
    pub(super) fn push(&self, packet: Pending<Vec<u8>>) {
        let mut state = lock(&self.state);
        state.bytes += packet.bytes();
        state.packets.push_back(packet);
        let receivers = mem::take(&mut state.receivers);
        drop(state);
        receivers.into_iter().for_each(Waker::wake);
    }

    /// Notes an error that the network has reported.
    pub(super) fn fail(&self, error: NetworkError) {
        let mut state = lock(&self.state);
        state.error = Some(error);
        let receivers = mem::take(&mut state.receivers);
        drop(state);
        receivers.into_iter().for_each(Waker::wake);
    }

    /// Takes the next packet, or else the task is woken when there is one. An error comes first.
    pub(super) fn poll_next(
        &self,
        cx: &Context<'_>,
    ) -> Poll<Result<Pending<Vec<u8>>, NetworkError>> {
        let mut state = lock(&self.state);
        if let Some(error) = state.error.take() {
            return Poll::Ready(Err(error));
        }
        match state.pop() {
            Some(packet) => Poll::Ready(Ok(packet)),
            None => {
                if !state.receivers.iter().any(|old| old.will_wake(cx.waker())) {
                    state.receivers.push(cx.waker().clone());
                }
                Poll::Pending
            }
        }
    }

    /// Takes the next packet, if there is one.
    pub(super) fn next(&self) -> Option<Pending<Vec<u8>>> {
        lock(&self.state).pop()
    }
}

impl State {
    fn pop(&mut self) -> Option<Pending<Vec<u8>>> {
        let packet = self.packets.pop_front()?;
        self.bytes -= packet.bytes();
        Some(packet)
    }
}

/// A thread that panicked has left the data whole, as no code of the user runs under a lock.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The first of the dynamic ports (RFC 6335, 6).
const FIRST_PORT: u16 = 49_152;

/// The most packets of other threads that wait for the driver.
const MOST_OUTGOING: usize = 1024;
