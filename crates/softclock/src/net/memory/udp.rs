//! UDP sockets in memory.

use std::cell::Cell;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU16;
use std::rc::Rc;
use std::task::{Context, Poll};

use softclock_core::{Clock, Instant, TriggerState};
use softclock_linux::readiness::Readiness;
use softclock_linux::socket::udp::{BindOptions, Datagram, Ecn, RecvBatch, RecvOptions, Transmit};
use softclock_net::stack::DatagramOptions;

use super::{Network, Queue};
use crate::net::options::UdpOption;
use crate::net::receiving::{Received, copy_into, fill};
use crate::net::registration::Registration;
use crate::net::sending::send_each;
use crate::runtime::inner::Inner;
use crate::runtime::sources::Direction;

/// A datagram that waits at its receiver, or several joined ones.
pub(super) struct Waiting {
    payload: Vec<u8>,
    source: SocketAddr,
    destination: IpAddr,
    ecn: Ecn,
    received: Instant,
    /// The length of each joined datagram.
    segment_bytes: Option<NonZeroU16>,
}

impl Received for Waiting {
    fn datagram(&self) -> Datagram<'_> {
        let mut datagram = Datagram::new(&self.payload, self.source);
        datagram.destination = Some(self.destination);
        datagram.ecn = Some(self.ecn);
        datagram.received = Some(self.received);
        datagram.segment_bytes = self.segment_bytes;
        datagram
    }
}

/// A UDP socket in memory.
pub(crate) struct MemoryUdp {
    registration: Registration,
    address: SocketAddr,
    queue: Rc<Queue<Waiting>>,
    receive: RecvOptions,
    options: Cell<DatagramOptions>,
    peer: Cell<Option<SocketAddr>>,
    /// Whether a datagram to the connected peer had no receiver.
    is_refused: Cell<bool>,
}

impl MemoryUdp {
    pub(crate) fn bind(address: SocketAddr, options: &BindOptions) -> io::Result<Self> {
        let registration = Registration::new(Readiness::WRITABLE)?;
        let network = Network::of(registration.runtime());
        let address = network.named(address);
        let queue = network
            .datagrams
            .open(&registration, address, options.reuse_port)?;
        queue.joins.set(options.receive.gro);
        Ok(Self {
            registration,
            address,
            queue,
            receive: options.receive,
            options: Cell::default(),
            peer: Cell::new(None),
            is_refused: Cell::new(false),
        })
    }

    pub(crate) fn runtime(&self) -> &Rc<Inner> {
        self.registration.runtime()
    }

    pub(crate) fn connect_to(&self, peer: SocketAddr) -> io::Result<()> {
        self.peer.set(Some(peer));
        self.runtime().trigger(TriggerState::SystemCall);
        Ok(())
    }

    pub(crate) fn poll_recv_from(
        &self,
        cx: &Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<(usize, SocketAddr)>> {
        let receive = || self.recv_from(buffer);
        (self.registration).poll_call(cx, Direction::Read, TriggerState::Receive, receive)
    }

    pub(crate) fn try_recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let received = self.recv_from(buffer);
        self.runtime().trigger(TriggerState::Receive);
        received
    }

    fn recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        Ok(copy_into(buffer, &self.take()?))
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
        let receive = || self.recv_batch(batch);
        (self.registration).poll_call(cx, Direction::Read, TriggerState::Receive, receive)
    }

    pub(crate) fn try_recv_batch(&self, batch: &mut RecvBatch) -> io::Result<usize> {
        let received = self.recv_batch(batch);
        self.runtime().trigger(TriggerState::Receive);
        received
    }

    fn recv_batch(&self, batch: &mut RecvBatch) -> io::Result<usize> {
        batch.clear();
        let facts = (&self.receive, self.address.ip());
        let count = fill(batch, facts, self.take()?, || self.next())?;
        if count < batch.slots() {
            self.registration.on_short(Direction::Read);
        }
        Ok(count)
    }

    pub(crate) fn poll_ready(&self, cx: &Context<'_>, direction: Direction) -> Poll<()> {
        self.registration.poll_ready(cx, direction)
    }

    /// Takes the next datagram. A refused datagram is an error, which comes first.
    fn take(&self) -> io::Result<Waiting> {
        if self.is_refused.take() {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        self.next().ok_or_else(|| {
            self.registration.on_would_block(Direction::Read);
            io::ErrorKind::WouldBlock.into()
        })
    }

    /// Takes the next datagram, and drops those of others than the connected peer.
    fn next(&self) -> Option<Waiting> {
        let mut waiting = self.queue.waiting.borrow_mut();
        let is_peer = |next: &Waiting| self.peer.get().is_none_or(|peer| peer == next.source);
        std::iter::from_fn(|| waiting.pop_front()).find(is_peer)
    }

    /// Sets an option, most of which have no effect in memory.
    pub(crate) fn set(&self, option: UdpOption) -> io::Result<()> {
        self.runtime().trigger(TriggerState::SystemCall);
        match option {
            UdpOption::SendBuffer(_)
            | UdpOption::RecvBuffer(_)
            | UdpOption::Broadcast(_)
            | UdpOption::MulticastInterface(_) => {}
            _ => self.options.set(option.applied(self.options.get())?),
        }
        Ok(())
    }

    /// The options of the datagrams to send.
    pub(crate) fn options(&self) -> DatagramOptions {
        self.options.get()
    }

    pub(crate) fn poll_send_datagrams(
        &self,
        cx: &Context<'_>,
        bytes: &[u8],
        segment_bytes: Option<u16>,
        peer: Option<SocketAddr>,
    ) -> Poll<io::Result<usize>> {
        let send = || {
            let peer = self.receiver(peer)?;
            self.put(&Transmit::to(peer, bytes), segment_bytes, peer);
            Ok(bytes.len())
        };
        (self.registration).poll_call(cx, Direction::Write, TriggerState::Send, send)
    }

    pub(crate) fn try_send_datagram(
        &self,
        bytes: &[u8],
        peer: Option<SocketAddr>,
    ) -> io::Result<usize> {
        let peer = self.receiver(peer)?;
        self.put(&Transmit::to(peer, bytes), None, peer);
        self.runtime().trigger(TriggerState::Send);
        Ok(bytes.len())
    }

    pub(crate) fn poll_send_batch(
        &self,
        cx: &Context<'_>,
        batch: &[Transmit<'_>],
    ) -> Poll<io::Result<usize>> {
        let send = || self.send_batch(batch);
        (self.registration).poll_call(cx, Direction::Write, TriggerState::Send, send)
    }

    pub(crate) fn try_send_batch(&self, batch: &[Transmit<'_>]) -> io::Result<usize> {
        let sent = self.send_batch(batch);
        self.runtime().trigger(TriggerState::Send);
        sent
    }

    fn send_batch(&self, batch: &[Transmit<'_>]) -> io::Result<usize> {
        send_each(batch, |datagram| {
            let peer = self.receiver(datagram.destination)?;
            self.put(datagram, None, peer);
            Ok(())
        })
    }

    fn receiver(&self, peer: Option<SocketAddr>) -> io::Result<SocketAddr> {
        let not_connected = || io::ErrorKind::NotConnected.into();
        peer.or(self.peer.get()).ok_or_else(not_connected)
    }

    /// Queues a datagram for its receiver, or datagrams of `segment_bytes`, which stay joined if the receiver accepts
    /// that. They are lost if there is no receiver or its queue is full.
    fn put(&self, datagram: &Transmit<'_>, segment_bytes: Option<u16>, peer: SocketAddr) {
        let bytes = datagram.payload;
        let names = &Network::of(self.runtime()).datagrams;
        let found = names.find(peer).or_else(|| names.find(wildcard(peer)));
        let Some(receiver) = found else {
            if self.peer.get() == Some(peer) {
                self.is_refused.set(true);
                let readiness = Readiness::READABLE | Readiness::ERROR;
                Network::of(self.runtime()).post(self.registration.id(), readiness);
            }
            return;
        };
        let segment = segment_bytes.and_then(NonZeroU16::new);
        let segment = segment.filter(|segment| usize::from(segment.get()) < bytes.len());
        match segment {
            Some(segment) if !receiver.joins.get() => {
                let segments = bytes.chunks(usize::from(segment.get()));
                segments.for_each(|one| self.put_one(&receiver, one, None, (datagram, peer)));
            }
            joined => self.put_one(&receiver, bytes, joined, (datagram, peer)),
        }
    }

    fn put_one(
        &self,
        receiver: &Queue<Waiting>,
        payload: &[u8],
        segment_bytes: Option<NonZeroU16>,
        (datagram, peer): (&Transmit<'_>, SocketAddr),
    ) {
        let mut source = self.address;
        source.set_ip(datagram.source.unwrap_or(source.ip()));
        let mut waiting = receiver.waiting.borrow_mut();
        if waiting.len() < QUEUED {
            waiting.push_back(Waiting {
                payload: payload.to_vec(),
                source,
                destination: peer.ip(),
                ecn: datagram
                    .ecn
                    .unwrap_or_else(|| Ecn::of_traffic_class(self.options.get().traffic_class)),
                received: self.runtime().clock.now(),
                segment_bytes,
            });
            drop(waiting);
            Network::of(self.runtime()).post(receiver.source, Readiness::READABLE);
        }
    }

    pub(crate) fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.runtime().trigger(TriggerState::SystemCall);
        self.receiver(None)
    }

    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.runtime().trigger(TriggerState::SystemCall);
        Ok(self.address)
    }
}

/// Returns the address of a socket that receives at all addresses of the host.
fn wildcard(address: SocketAddr) -> SocketAddr {
    let any = match address {
        SocketAddr::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    (any, address.port()).into()
}

/// Capacity of a socket's queue in datagrams; further ones are lost.
const QUEUED: usize = 256;
