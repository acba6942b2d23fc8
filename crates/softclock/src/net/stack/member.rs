//! UDP sockets of threads that share the stack of another.

use std::cell::Cell;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use softclock_core::{Clock, TriggerState};
use softclock_linux::link::{BATCH, Chunk, Transport};
use softclock_linux::socket::udp::{BindOptions, RecvBatch, RecvOptions, Transmit};
use softclock_net::checksum::Addresses;
use softclock_net::drops::DropReason;
use softclock_net::routes::{Destination, Routes};
use softclock_net::stack::{
    self, DatagramOptions, Pending, Ports, SendError, Taken, datagram_packet,
};

use super::ring::SocketRing;
use super::share::StackShare;
use super::shared::{Change, NotSent, Shared, SharedSocket};
use super::udp::{network_error, reuse_error, send_error};
use crate::net::options::{UdpOption, with_ecn};
use crate::net::receiving::{copy_into, fill};
use crate::net::sending::{send_each, send_segments};
use crate::runtime::inner::Inner;
use crate::runtime::sources::Direction;

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
    /// The options of the datagrams to send.
    options: Cell<DatagramOptions>,
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
        shared.check_open()?;
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
            options: Cell::default(),
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
        // Frames have neither scope nor flow label.
        let peer = SocketAddr::new(ip, peer.port());
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
        let received = self.poll_next(Some(cx));
        self.runtime.trigger(TriggerState::Receive);
        received.map_ok(|datagram| copy_into(buffer, &datagram))
    }

    pub(crate) fn try_recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let received = self.poll_next(None);
        self.runtime.trigger(TriggerState::Receive);
        at_once(received).map(|datagram| copy_into(buffer, &datagram))
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
        let received = self.poll_fill(Some(cx), batch);
        self.runtime.trigger(TriggerState::Receive);
        received
    }

    pub(crate) fn try_recv_batch(&self, batch: &mut RecvBatch) -> io::Result<usize> {
        let received = self.poll_fill(None, batch);
        self.runtime.trigger(TriggerState::Receive);
        at_once(received)
    }

    fn poll_fill(
        &self,
        cx: Option<&Context<'_>>,
        batch: &mut RecvBatch,
    ) -> Poll<io::Result<usize>> {
        batch.clear();
        let first = ready!(self.poll_next(cx))?;
        let next = || match self.take() {
            Taken::Datagram(datagram) => Some(datagram),
            // The rest waits for the next call.
            Taken::Other | Taken::Nothing => None,
        };
        let facts = (&self.receive, self.socket.local.ip());
        Poll::Ready(fill(batch, facts, first, next))
    }

    /// Returns the next datagram: the protocols run now, in this thread. After a batch of packets that are no datagrams
    /// other tasks get their turn. If nothing has arrived, the task, if there is one, is woken when something does.
    fn poll_next(&self, cx: Option<&Context<'_>>) -> Poll<io::Result<stack::Datagram<Chunk>>> {
        for _ in 0..BATCH {
            if let Some(error) = self.socket.take_error() {
                return Poll::Ready(Err(network_error(error)));
            }
            match (self.take(), cx) {
                (Taken::Datagram(datagram), _) => return Poll::Ready(Ok(datagram)),
                (Taken::Other, _) => {}
                (Taken::Nothing, cx) => {
                    self.shared.check_open()?;
                    match cx {
                        Some(cx) => ready!(self.poll_arrived(cx)),
                        None => return Poll::Pending,
                    }
                }
            }
        }
        if let Some(cx) = cx {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// Ready when a call in this direction may succeed. Until then the task is woken when it may.
    pub(crate) fn poll_ready(&self, cx: &Context<'_>, direction: Direction) -> Poll<()> {
        let is_ready = match direction {
            Direction::Read => self.poll_arrived(cx),
            Direction::Write => self.shared.poll_room(cx),
        };
        ready!(is_ready);
        self.runtime.poll_allowance(cx)
    }

    /// Ready if something may have arrived, in the channel or in the ring, or the stack has ended. Else all of them wake
    /// the task.
    fn poll_arrived(&self, cx: &Context<'_>) -> Poll<()> {
        let ring = self.ring.as_ref();
        let is_waiting = self.socket.poll_ready(cx).is_pending()
            && ring.is_none_or(|ring| ring.poll_ready(cx).is_pending());
        // Looked at when the task can be woken.
        match is_waiting && !self.shared.is_closed() {
            true => Poll::Pending,
            false => Poll::Ready(()),
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

    pub(crate) fn set(&self, option: UdpOption) -> io::Result<()> {
        let set = match option {
            // The thread with the stack does it, for all packets of others.
            UdpOption::MulticastLoop(false) => Err(option.unsupported()),
            _ => option.applied(self.options.get()),
        };
        let set = set.map(|options| self.options.set(options));
        self.runtime.trigger(TriggerState::SystemCall);
        set
    }

    /// The options of the datagrams to send.
    pub(crate) const fn options(&self) -> DatagramOptions {
        self.options.get()
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
        // Only a call that sends nothing waits for room.
        let mut cx = Some(cx);
        let sent = send_segments(bytes, segment_bytes, |segment| {
            let mut datagram = Transmit::to_peer(segment);
            datagram.destination = peer;
            self.send(&datagram, cx.take())
        });
        self.runtime.trigger(TriggerState::Send);
        Self::sent(sent)
    }

    pub(crate) fn try_send_datagram(
        &self,
        bytes: &[u8],
        peer: Option<SocketAddr>,
    ) -> io::Result<usize> {
        let mut datagram = Transmit::to_peer(bytes);
        datagram.destination = peer;
        let sent = self.send(&datagram, None);
        self.runtime.trigger(TriggerState::Send);
        sent.map(|()| bytes.len()).map_err(not_sent)
    }

    pub(crate) fn poll_send_batch(
        &self,
        cx: &Context<'_>,
        batch: &[Transmit<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.runtime.poll_allowance(cx));
        let mut cx = Some(cx);
        let sent = send_each(batch, |datagram| self.send(datagram, cx.take()));
        self.runtime.trigger(TriggerState::Send);
        Self::sent(sent)
    }

    pub(crate) fn try_send_batch(&self, batch: &[Transmit<'_>]) -> io::Result<usize> {
        let sent = send_each(batch, |datagram| self.send(datagram, None));
        self.runtime.trigger(TriggerState::Send);
        sent.map_err(not_sent)
    }

    /// The result of a call that waits for room.
    fn sent(result: Result<usize, SendError>) -> Poll<io::Result<usize>> {
        match result {
            Err(SendError::Full) => Poll::Pending,
            result => Poll::Ready(result.map_err(not_sent)),
        }
    }

    fn send(&self, datagram: &Transmit<'_>, cx: Option<&Context<'_>>) -> Result<(), SendError> {
        let peer = datagram.destination.or(self.remote.get());
        let peer = peer.ok_or(SendError::NotConnected)?;
        let destination = peer.ip();
        if peer.port() == 0 || destination.is_unspecified() {
            return Err(SendError::Remote);
        }
        let source = match datagram.source {
            Some(source) if !self.is_own(source, destination) => return Err(SendError::Remote),
            stated => stated.or_else(|| self.source(destination)),
        };
        let addresses = Addresses {
            source: source.ok_or(SendError::NoRoute)?,
            destination,
        };
        let ports = Ports {
            source: self.socket.local.port(),
            destination: peer.port(),
        };
        let mut options = self.options.get();
        if let Some(ecn) = datagram.ecn {
            options.traffic_class = with_ecn(options.traffic_class, ecn);
        }
        let payload = datagram.payload;
        let identifications = &self.shared.identifications;
        let packet = datagram_packet(addresses, ports, &options, identifications, payload)?;
        self.shared.send(packet, cx).map_err(|error| match error {
            NotSent::Full => SendError::Full,
            NotSent::Closed => SendError::Closed,
        })
    }

    /// Whether datagrams to this destination can have this source: one of the stack's addresses.
    fn is_own(&self, source: IpAddr, destination: IpAddr) -> bool {
        let is_ours = self.shared.routes.classify(source) == Destination::Ours;
        is_ours && source.is_ipv4() == destination.is_ipv4()
    }

    /// The address that datagrams to this destination are sent from.
    fn source(&self, destination: IpAddr) -> Option<IpAddr> {
        let bound = self.socket.local.ip();
        let is_source = !bound.is_unspecified() && !bound.is_multicast();
        is_source
            .then_some(bound)
            .or_else(|| self.shared.routes.source_for(destination))
    }

    pub(crate) fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.runtime.trigger(TriggerState::SystemCall);
        let peer = self.remote.get();
        peer.ok_or_else(|| io::ErrorKind::NotConnected.into())
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

/// The error of a datagram that was not sent. The only reason for which a socket is closed is the end of the stack.
fn not_sent(error: SendError) -> io::Error {
    match error {
        SendError::Closed => io::ErrorKind::NetworkDown.into(),
        error => send_error(error),
    }
}

/// The result of a call that does not wait.
fn at_once<R>(polled: Poll<io::Result<R>>) -> io::Result<R> {
    match polled {
        Poll::Ready(result) => result,
        Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
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
