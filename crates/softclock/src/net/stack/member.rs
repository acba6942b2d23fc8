//! UDP sockets of threads that share the stack of another.

use std::cell::Cell;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use softclock_core::{Clock, TriggerState};
use softclock_linux::link::{BATCH, Chunk, Transport};
use softclock_linux::socket::udp::{BindOptions, Ecn, RecvBatch, RecvOptions};
use softclock_net::checksum::Addresses;
use softclock_net::drops::DropReason;
use softclock_net::routes::{Destination, Prefix, Routes};
use softclock_net::stack::{self, Pending, Ports, SendError, Taken, datagram_packet};

use super::StackError;
use super::driver::{Driver, Parts};
use super::interface::Opened;
use super::ring::SocketRing;
use super::shared::{Change, NotSent, Shared, SharedSocket};
use super::udp::{network_error, reuse_error, seen, send_error};
use crate::net::common::Common;
use crate::runtime::inner::Inner;

/// A stack that other threads may join. Created by [`Stack::share`](super::Stack::share).
///
/// # Example
/// ```no_run
/// use softclock::net::UdpSocket;
/// use softclock::net::stack::{self, StackOptions};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// softclock::Runtime::new()?.block_on(async {
///     let mut options = StackOptions::new("eth0");
///     options.addresses.push("192.0.2.7/24".parse()?);
///     let share = stack::open(&options)?.share();
///     let worker = std::thread::spawn(move || -> std::io::Result<()> {
///         softclock::Runtime::new()?.block_on(async {
///             share.join().map_err(std::io::Error::other)?;
///             let socket = UdpSocket::bind(([192, 0, 2, 7], 9))?;
///             let (length, peer) = socket.recv_from(&mut [0; 2048]).await?;
///             println!("{length} bytes from {peer}");
///             Ok(())
///         })
///     });
/// #   drop(worker);
///     Ok(())
/// })
/// # }
/// ```
#[derive(Clone)]
pub struct StackShare(pub(super) Arc<Shared>);

impl StackShare {
    /// Lets the current runtime have sockets on the stack: those that are bound to an address of the stack, or to an
    /// unspecified one.
    ///
    /// If the stack has [several threads](super::StackOptions::threads) and one of them is missing, the runtime becomes
    /// that one, and has TCP sockets, too; else it has UDP sockets.
    ///
    /// The runtime that opened the stack demultiplexes datagrams, and copies those for this runtime's sockets into
    /// their channels. With [`NiLrp`](super::Architecture::NiLrp) the XDP program demultiplexes them into a ring for
    /// each socket, which this runtime reads. The work of IP and UDP is done here, by the tasks that receive. With TCP
    /// sockets, by AF_XDP on an interface of several queues, this runtime receives from queues of its own.
    ///
    /// # Errors
    /// [`StackError::Exists`] if the runtime has a stack or shares one, [`StackError::Gone`] if the stack has ended,
    /// and [`StackError::Watch`] outside a runtime.
    pub fn join(&self) -> Result<(), StackError> {
        let runtime = Inner::current().map_err(StackError::Watch)?;
        if Driver::current().is_some() {
            return Err(StackError::Exists);
        }
        if self.0.is_closed() {
            return Err(StackError::Gone(self.0.link.name().into()));
        }
        let mut shared = Common::of(&runtime).shared_stack.borrow_mut();
        if shared.is_some() {
            return Err(StackError::Exists);
        }
        *shared = Some(Rc::new(self.clone()));
        drop(shared);
        if let Some((lane, stack)) = self.0.take_lane(runtime.clone()) {
            let driver = Driver::new(Parts {
                link: self.0.link.clone(),
                opened: Opened::Lane(lane),
                claim: None,
                delayed: None,
                monitor: None,
                stack,
                capture: self.0.capture.clone(),
                host: None,
                signalling: self.0.signalling,
            });
            driver
                .and_then(|driver| driver.start())
                .map_err(StackError::Watch)?;
        }
        Ok(())
    }

    /// Whether the current runtime shares a stack to which a socket at this address belongs.
    pub(super) fn current_owns(transport: Transport, local: SocketAddr) -> bool {
        let ip = local.ip();
        let is_own = |prefix: &Prefix| prefix.address == ip;
        Self::current().is_some_and(|share| {
            let is_own = ip.is_unspecified() || share.0.routes.addresses().iter().any(is_own);
            is_own && share.0.has_port(transport, local.port())
        })
    }

    /// Whether the current runtime shares a stack that opens the connections to this address.
    pub(super) fn current_reaches(remote: IpAddr) -> bool {
        let has_route = |share: Rc<Self>| {
            share.0.ports.is_none() && share.0.routes.source_for(remote).is_some()
        };
        !remote.is_loopback() && Self::current().is_some_and(has_route)
    }

    /// The stack that the current runtime shares.
    fn current() -> Option<Rc<Self>> {
        let runtime = Inner::current().ok()?;
        let shared = Common::of(&runtime).shared_stack.borrow().clone()?;
        shared.downcast().ok()
    }
}

impl std::fmt::Debug for StackShare {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StackShare").finish_non_exhaustive()
    }
}

/// A UDP socket on the stack of another thread's runtime. Dropping it closes it.
pub(crate) struct MemberUdp {
    runtime: Rc<Inner>,
    shared: Arc<Shared>,
    socket: Arc<SharedSocket>,
    /// The frames that the network interface has demultiplexed to this socket (NI-LRP).
    ring: Option<SocketRing>,
    /// Whether the channel goes before the ring when the task asks next, so that neither keeps the other waiting.
    is_channel_next: Cell<bool>,
    receive: RecvOptions,
    remote: Cell<Option<SocketAddr>>,
    ecn: Cell<Ecn>,
}

impl MemberUdp {
    /// Binds a socket to `address`, if the runtime shares a stack and the address is one of the stack's or unspecified.
    pub(crate) fn bind(address: SocketAddr, options: &BindOptions) -> Option<io::Result<Self>> {
        let share = StackShare::current()?;
        let ip = address.ip();
        let is_own = ip.is_unspecified() || is_bindable(&share.0.routes, ip);
        let is_own = is_own && share.0.has_port(Transport::Udp, address.port());
        is_own.then(|| Self::bind_to(share.0.clone(), address, options))
    }

    fn bind_to(
        shared: Arc<Shared>,
        address: SocketAddr,
        options: &BindOptions,
    ) -> io::Result<Self> {
        if options.reuse_port {
            return Err(reuse_error());
        }
        let runtime = Inner::current()?;
        let (local, ring) = reserve(&shared, address)?;
        let socket = Arc::new(SharedSocket::new(local, ring.as_ref(), shared.limits));
        shared.ask(Change::Bind(socket.clone()));
        runtime.trigger(TriggerState::SystemCall);
        Ok(Self {
            runtime,
            shared,
            socket,
            ring,
            is_channel_next: Cell::new(false),
            receive: options.receive,
            remote: Cell::new(None),
            ecn: Cell::default(),
        })
    }

    pub(crate) fn runtime(&self) -> &Rc<Inner> {
        &self.runtime
    }

    pub(crate) fn connect_to(&self, peer: SocketAddr) -> io::Result<()> {
        let ip = peer.ip();
        let is_host = !ip.is_unspecified() && !ip.is_multicast() && peer.port() != 0;
        if !is_host || ip.is_ipv4() != self.socket.local.is_ipv4() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        if self.source(ip).is_none() {
            return Err(io::ErrorKind::NetworkUnreachable.into());
        }
        self.remote.set(Some(peer));
        self.shared.ask(Change::Connect(self.socket.local, peer));
        self.runtime.trigger(TriggerState::SystemCall);
        Ok(())
    }

    pub(crate) fn poll_recv_from(
        &self,
        cx: &Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<(usize, SocketAddr)>> {
        ready!(self.runtime.poll_allowance(cx));
        let received = self.poll_next(cx).map_ok(|datagram| {
            let payload = datagram.payload();
            let count = payload.len().min(buffer.len());
            buffer[..count].copy_from_slice(&payload[..count]);
            (count, datagram.source)
        });
        self.runtime.trigger(TriggerState::Receive);
        received
    }

    pub(crate) fn poll_recv_datagram(
        &self,
        cx: &Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_recv_from(cx, buffer).map_ok(|(count, _)| count)
    }

    pub(crate) fn poll_recv_batch(
        &self,
        cx: &Context<'_>,
        batch: &mut RecvBatch,
    ) -> Poll<io::Result<usize>> {
        ready!(self.runtime.poll_allowance(cx));
        let received = self.poll_fill(cx, batch);
        self.runtime.trigger(TriggerState::Receive);
        received
    }

    fn poll_fill(&self, cx: &Context<'_>, batch: &mut RecvBatch) -> Poll<io::Result<usize>> {
        batch.clear();
        let mut next = ready!(self.poll_next(cx))?;
        loop {
            let seen = seen(&next, &self.receive, self.socket.local.ip());
            batch.put(seen).map_err(io::Error::other)?;
            if batch.len() == batch.slots() {
                break;
            }
            match self.take() {
                Taken::Datagram(another) => next = another,
                // The rest waits for the next call.
                Taken::Other | Taken::Nothing => break,
            }
        }
        Poll::Ready(Ok(batch.len()))
    }

    /// Waits for the next datagram: the protocols run now, in this thread. After a batch of packets that are no
    /// datagrams other tasks get their turn.
    fn poll_next(&self, cx: &Context<'_>) -> Poll<io::Result<stack::Datagram<Chunk>>> {
        for _ in 0..BATCH {
            if let Some(error) = self.socket.take_error() {
                return Poll::Ready(Err(network_error(error)));
            }
            match self.take() {
                Taken::Datagram(datagram) => return Poll::Ready(Ok(datagram)),
                Taken::Other => {}
                Taken::Nothing => ready!(self.poll_ready(cx)),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Ready if something may have arrived, in the channel or in the ring. Else both wake the task.
    fn poll_ready(&self, cx: &Context<'_>) -> Poll<()> {
        match (self.socket.poll_ready(cx), &self.ring) {
            (Poll::Pending, Some(ring)) => ring.poll_ready(cx),
            (ready, _) => ready,
        }
    }

    /// Takes the next packet. Channel and ring take turns while both have packets.
    fn take(&self) -> Taken<Chunk> {
        let Some(ring) = &self.ring else {
            return self.take_from_channel();
        };
        if self.is_channel_next.replace(false) {
            let taken = self.take_from_channel();
            if !matches!(taken, Taken::Nothing) {
                return taken;
            }
        }
        let now = self.runtime.clock.now();
        let Some(frame) = ring.next(now) else {
            return self.take_from_channel();
        };
        self.is_channel_next.set(true);
        let remote = self.remote.get();
        self.shared.receive(now, &self.socket, remote, frame).into()
    }

    fn take_from_channel(&self) -> Taken<Chunk> {
        match self.socket.next() {
            Some(packet) => self.process(packet).into(),
            None => Taken::Nothing,
        }
    }

    /// Does the work of IP and UDP for a packet. Drops and counts a packet that is malformed, and one from a stranger
    /// that arrived before the socket was connected.
    fn process(&self, packet: Pending<Chunk>) -> Option<stack::Datagram<Chunk>> {
        let is_stranger = |source| self.remote.get().is_some_and(|remote| remote != source);
        let reason = match packet.into_datagram(&self.shared.routes) {
            // As for a frame in the ring.
            Ok(datagram) if is_stranger(datagram.source) => DropReason::PortUnreachable,
            Ok(datagram) => {
                self.socket.count_datagram();
                return Some(datagram);
            }
            Err(reason) => reason,
        };
        self.shared.count_drop(reason);
        None
    }

    pub(crate) fn set_ecn(&self, ecn: Ecn) -> io::Result<()> {
        self.ecn.set(ecn);
        self.runtime.trigger(TriggerState::SystemCall);
        Ok(())
    }

    /// Sends a datagram, or datagrams of `segment_bytes` as far as there is room.
    pub(crate) fn poll_send_datagrams(
        &self,
        cx: &Context<'_>,
        bytes: &[u8],
        segment_bytes: Option<u16>,
        peer: Option<SocketAddr>,
    ) -> Poll<io::Result<usize>> {
        ready!(self.runtime.poll_allowance(cx));
        let segment = segment_bytes.map_or(bytes.len(), usize::from).max(1);
        let mut sent = 0;
        let result = loop {
            let end = bytes.len().min(sent + segment);
            match self.send(&bytes[sent..end], peer, Some(cx)) {
                Ok(()) => sent = end,
                Err(SendError::Full) if sent > 0 => break Poll::Ready(Ok(sent)),
                Err(SendError::Full) => break Poll::Pending,
                Err(error) => break Poll::Ready(Err(send_error(error))),
            }
            if sent == bytes.len() {
                break Poll::Ready(Ok(sent));
            }
        };
        self.runtime.trigger(TriggerState::Send);
        result
    }

    pub(crate) fn try_send_to(&self, bytes: &[u8], peer: SocketAddr) -> io::Result<usize> {
        let sent = self.send(bytes, Some(peer), None);
        self.runtime.trigger(TriggerState::Send);
        sent.map(|()| bytes.len()).map_err(send_error)
    }

    fn send(
        &self,
        payload: &[u8],
        peer: Option<SocketAddr>,
        cx: Option<&Context<'_>>,
    ) -> Result<(), SendError> {
        let peer = peer.or(self.remote.get()).ok_or(SendError::NotConnected)?;
        let destination = peer.ip();
        if peer.port() == 0 || destination.is_unspecified() {
            return Err(SendError::Remote);
        }
        let addresses = Addresses {
            source: self.source(destination).ok_or(SendError::NoRoute)?,
            destination,
        };
        let ports = Ports {
            source: self.socket.local.port(),
            destination: peer.port(),
        };
        let identification = self.shared.next_identification();
        let class = self.ecn.get() as u8;
        let packet = datagram_packet(addresses, ports, class, identification, payload)?;
        self.shared.send(packet, cx).map_err(|error| match error {
            NotSent::Full => SendError::Full,
            NotSent::Closed => SendError::Closed,
        })
    }

    /// The address that datagrams to this destination are sent from.
    fn source(&self, destination: IpAddr) -> Option<IpAddr> {
        let bound = self.socket.local.ip();
        let is_source = !bound.is_unspecified() && !bound.is_multicast();
        is_source
            .then_some(bound)
            .or_else(|| self.shared.routes.source_for(destination))
    }

    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.runtime.trigger(TriggerState::SystemCall);
        let mut local = self.socket.local;
        if let Some(source) = self.remote.get().and_then(|peer| self.source(peer.ip())) {
            local.set_ip(source);
        }
        Ok(local)
    }
}

impl Drop for MemberUdp {
    fn drop(&mut self) {
        self.shared.close_socket(&self.socket);
    }
}

/// Reserves an address and port, and opens the ring for it, if the stack has rings.
fn reserve(shared: &Shared, address: SocketAddr) -> io::Result<(SocketAddr, Option<SocketRing>)> {
    loop {
        let local = shared.reserve(address);
        let local = local.ok_or(io::ErrorKind::AddrInUse)?;
        let error = match shared.open_ring(local) {
            Ok(ring) => return Ok((local, ring)),
            Err(error) => error,
        };
        shared.release(local);
        // A socket at all addresses has the port that was chosen for one address, or the reverse. The next port is
        // another.
        let is_chosen = address.port() == 0;
        if !is_chosen || error.kind() != io::ErrorKind::AddrInUse {
            return Err(error);
        }
    }
}

/// Whether a socket may be bound to this address.
fn is_bindable(routes: &Routes, address: IpAddr) -> bool {
    matches!(
        routes.classify(address),
        Destination::Ours | Destination::Group
    )
}
