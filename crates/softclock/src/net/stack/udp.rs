//! UDP sockets of a stack.

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use softclock_core::TriggerState;
use softclock_linux::link::{BATCH, Buffer, Transport};
use softclock_linux::readiness::Readiness;
use softclock_linux::socket::udp::{BindOptions, RecvBatch, RecvOptions, Transmit};
use softclock_net::stack::{
    self, BindError, DatagramOptions, EndpointId, GroupError, NetworkError, SendError, Taken,
};

use super::driver::Driver;
use super::ring::SocketRing;
use crate::net::options::{UdpOption, with_ecn};
use crate::net::receiving::{copy_into, fill};
use crate::net::registration::Registration;
use crate::net::sending::{send_each, send_segments};
use crate::runtime::inner::Inner;
use crate::runtime::sources::Direction;

/// A UDP socket of the runtime's stack. Dropping it closes its endpoint.
pub(crate) struct StackUdp {
    registration: Registration,
    driver: Rc<Driver>,
    id: EndpointId,
    /// The frames that the network interface has demultiplexed to this socket (NI-LRP).
    ring: Option<SocketRing>,
    /// The address and port as they were bound.
    bound: SocketAddr,
    receive: RecvOptions,
    /// The options of the datagrams to send.
    options: Cell<DatagramOptions>,
}

impl StackUdp {
    /// Binds a socket to `address`, if the runtime has a stack and the address is one of the stack's or unspecified.
    /// An unspecified address of IPv6 receives no packets of IPv4.
    pub(crate) fn bind(address: SocketAddr, options: &BindOptions) -> Option<io::Result<Self>> {
        let driver = Driver::current().filter(|driver| !driver.is_without_device())?;
        let is_group =
            || driver.ports().is_none() && driver.stack.borrow().is_own_or_group(address.ip());
        let is_own = driver.owns(Transport::Udp, address) || is_group();
        is_own.then(|| Self::bind_to(driver, address, options))
    }

    fn bind_to(driver: Rc<Driver>, address: SocketAddr, options: &BindOptions) -> io::Result<Self> {
        if options.reuse_port {
            return Err(reuse_error());
        }
        let registration = Registration::new(Readiness::WRITABLE | Readiness::READABLE)?;
        let (id, ring) = driver.bind(address)?;
        driver.add_socket(id, registration.id());
        Ok(Self {
            registration,
            driver,
            id,
            ring,
            bound: address,
            receive: options.receive,
            options: Cell::default(),
        })
    }

    pub(crate) fn runtime(&self) -> &Rc<Inner> {
        self.registration.runtime()
    }

    pub(crate) fn connect_to(&self, peer: SocketAddr) -> io::Result<()> {
        let connected = self.driver.stack.borrow_mut().connect(self.id, peer);
        self.runtime().trigger(TriggerState::SystemCall);
        connected.map_err(bind_error)
    }

    pub(crate) fn poll_recv_from(
        &self,
        cx: &Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<(usize, SocketAddr)>> {
        self.poll_receive(cx, || self.recv_from(buffer))
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
        self.poll_receive(cx, || self.recv_batch(batch))
    }

    pub(crate) fn try_recv_batch(&self, batch: &mut RecvBatch) -> io::Result<usize> {
        let received = self.recv_batch(batch);
        self.runtime().trigger(TriggerState::Receive);
        received
    }

    fn recv_batch(&self, batch: &mut RecvBatch) -> io::Result<usize> {
        batch.clear();
        let facts = (&self.receive, self.bound.ip());
        fill(batch, facts, self.take()?, || self.next())
    }

    /// Ready when a call in this direction may succeed. Until then the task is woken when it may.
    pub(crate) fn poll_ready(&self, cx: &Context<'_>, direction: Direction) -> Poll<()> {
        match (self.registration.poll_ready(cx, direction), &self.ring) {
            (Poll::Pending, Some(ring)) if direction == Direction::Read => ring.poll_ready(cx),
            (ready, _) => ready,
        }
    }

    /// Takes the next datagram: the protocols run now. An error that the network reported comes first, and the end of
    /// the interface last.
    fn take(&self) -> io::Result<stack::Datagram<Buffer>> {
        let error = self.driver.stack.borrow_mut().take_error(self.id);
        if let Some(error) = error {
            return Err(network_error(error));
        }
        if let Some(datagram) = self.next() {
            return Ok(datagram);
        }
        self.driver.check_present()?;
        Err(io::ErrorKind::WouldBlock.into())
    }

    /// Notes that nothing has arrived. After the end of the interface the socket stays ready, to report it.
    fn on_nothing(&self) {
        if self.driver.check_present().is_ok() {
            self.registration.on_would_block(Direction::Read);
        }
    }

    /// Makes `call` as [`Registration::poll_call`] does when something may have arrived, in the stack or in the ring.
    /// With a ring at most once: while packets that are no datagrams arrive, other tasks run in between.
    fn poll_receive<R>(
        &self,
        cx: &Context<'_>,
        mut call: impl FnMut() -> io::Result<R>,
    ) -> Poll<io::Result<R>> {
        let (direction, state) = (Direction::Read, TriggerState::Receive);
        if self.ring.is_none() {
            return self.registration.poll_call(cx, direction, state, call);
        }
        ready!(self.poll_ready(cx, direction));
        let result = call();
        self.runtime().trigger(state);
        match result {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                // Either nothing has arrived, and both wake the task when something does; or there is more.
                ready!(self.poll_ready(cx, direction));
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            result => Poll::Ready(result),
        }
    }

    /// Takes the next datagram. If nothing has arrived, the stack is asked to say when something does.
    fn next(&self) -> Option<stack::Datagram<Buffer>> {
        if let Some(ring) = &self.ring {
            return self.next_with(ring);
        }
        self.driver.with_stack(|stack, _| {
            loop {
                if let Some(datagram) = stack.receive(self.id) {
                    return Some(datagram);
                }
                if stack.wait(self.id) {
                    self.on_nothing();
                    return None;
                }
                if stack.has_error(self.id) {
                    return None;
                }
            }
        })
    }

    /// Takes the next datagram, which may be in the ring. `None` also after a batch of packets that are none, so that
    /// other tasks get their turn; the socket stays ready then.
    fn next_with(&self, ring: &SocketRing) -> Option<stack::Datagram<Buffer>> {
        self.driver.with_stack(|stack, now| {
            for _ in 0..BATCH {
                match self.driver.receive_next(stack, now, self.id, ring) {
                    Taken::Datagram(datagram) => return Some(datagram),
                    Taken::Other => {}
                    Taken::Nothing => {
                        if stack.wait(self.id) {
                            self.on_nothing();
                        }
                        return None;
                    }
                }
            }
            None
        })
    }

    pub(crate) fn set(&self, option: UdpOption) -> io::Result<()> {
        let stack = || self.driver.stack.borrow_mut();
        let set = match option {
            UdpOption::Join(_, interface) | UdpOption::Leave(_, interface)
                if !self.driver.takes_groups_at(interface) =>
            {
                Err(option.unsupported())
            }
            UdpOption::Join(group, _) => stack().join(self.id, group).map_err(group_error),
            UdpOption::Leave(group, _) => stack().leave(self.id, group).map_err(group_error),
            _ => option.applied(self.options.get()).map(|options| {
                self.options.set(options);
                stack().set_datagram_options(self.id, options);
            }),
        };
        self.runtime().trigger(TriggerState::SystemCall);
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
        let send = || {
            self.driver.check_present()?;
            let sent = send_segments(bytes, segment_bytes, |segment| self.send(segment, peer));
            sent.map_err(|error| self.not_sent(error))
        };
        (self.registration).poll_call(cx, Direction::Write, TriggerState::Send, send)
    }

    pub(crate) fn try_send_datagram(
        &self,
        bytes: &[u8],
        peer: Option<SocketAddr>,
    ) -> io::Result<usize> {
        let sent = match self.driver.check_present() {
            Ok(()) => (self.send(bytes, peer)).map_err(|error| self.not_sent(error)),
            Err(error) => Err(error),
        };
        self.runtime().trigger(TriggerState::Send);
        sent.map(|()| bytes.len())
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
        self.driver.check_present()?;
        let sent = send_each(batch, |datagram| self.transmit(datagram));
        sent.map_err(|error| self.not_sent(error))
    }

    fn transmit(&self, datagram: &Transmit<'_>) -> Result<(), SendError> {
        self.driver.with_stack(|stack, now| {
            let own = self.options.get();
            if let Some(ecn) = datagram.ecn {
                let traffic_class = with_ecn(own.traffic_class, ecn);
                let options = DatagramOptions {
                    traffic_class,
                    ..own
                };
                stack.set_datagram_options(self.id, options);
            }
            let peer = datagram.destination.or_else(|| stack.remote(self.id));
            let sent = match (peer, datagram.source) {
                (None, _) => Err(SendError::NotConnected),
                (Some(peer), Some(source)) => {
                    stack.send_from(now, self.id, source, peer, datagram.payload)
                }
                (Some(peer), None) => stack.send_to(now, self.id, peer, datagram.payload),
            };
            if datagram.ecn.is_some() {
                stack.set_datagram_options(self.id, own);
            }
            sent
        })
    }

    fn send(&self, bytes: &[u8], peer: Option<SocketAddr>) -> Result<(), SendError> {
        self.driver.with_stack(|stack, now| match peer {
            Some(peer) => stack.send_to(now, self.id, peer, bytes),
            None => stack.send(now, self.id, bytes),
        })
    }

    /// Returns the error of a datagram that was not sent. Without room, the next turn of the loop with room makes the
    /// socket ready.
    fn not_sent(&self, error: SendError) -> io::Error {
        if matches!(error, SendError::Full) && self.registration.is_ready(Direction::Write) {
            self.registration.on_would_block(Direction::Write);
            self.driver.on_blocked(self.registration.id());
        }
        send_error(error)
    }

    pub(crate) fn peer_addr(&self) -> io::Result<SocketAddr> {
        let peer = self.driver.stack.borrow().remote(self.id);
        self.runtime().trigger(TriggerState::SystemCall);
        peer.ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        let local = self.driver.stack.borrow().local(self.id);
        self.runtime().trigger(TriggerState::SystemCall);
        local.ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl Drop for StackUdp {
    fn drop(&mut self) {
        self.driver.remove_socket(self.id, self.registration.id());
    }
}

pub(super) fn reuse_error() -> io::Error {
    let reason = "sockets of a stack cannot share a port";
    io::Error::new(io::ErrorKind::Unsupported, reason)
}

fn group_error(error: GroupError) -> io::Error {
    let kind = match error {
        GroupError::Member => io::ErrorKind::AddrInUse,
        GroupError::NotMember => io::ErrorKind::AddrNotAvailable,
        GroupError::TooMany => io::ErrorKind::QuotaExceeded,
        _ => io::ErrorKind::InvalidInput,
    };
    io::Error::new(kind, error)
}

pub(super) fn bind_error(error: BindError) -> io::Error {
    let kind = match error {
        BindError::InUse => io::ErrorKind::AddrInUse,
        BindError::NotOurAddress => io::ErrorKind::AddrNotAvailable,
        BindError::NoRoute => io::ErrorKind::NetworkUnreachable,
        BindError::Closed => io::ErrorKind::NotConnected,
        _ => io::ErrorKind::InvalidInput,
    };
    io::Error::new(kind, error)
}

pub(super) fn send_error(error: SendError) -> io::Error {
    let kind = match error {
        SendError::Full => io::ErrorKind::WouldBlock,
        SendError::NoRoute => io::ErrorKind::NetworkUnreachable,
        SendError::NotConnected | SendError::Closed => io::ErrorKind::NotConnected,
        _ => io::ErrorKind::InvalidInput,
    };
    io::Error::new(kind, error)
}

pub(super) fn network_error(error: NetworkError) -> io::Error {
    let kind = match error {
        NetworkError::Refused => io::ErrorKind::ConnectionRefused,
        NetworkError::HostUnreachable => io::ErrorKind::HostUnreachable,
        NetworkError::TooLong => io::ErrorKind::InvalidInput,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}
