//! UDP sockets in memory.

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll};

use softclock_core::TriggerState;
use softclock_linux::readiness::Readiness;
use softclock_linux::socket::udp::BindOptions;

use super::{Network, Queue};
use crate::net::registration::Registration;
use crate::runtime::inner::Inner;
use crate::runtime::sources::Direction;

/// The bytes of a datagram, and its sender.
pub(super) type Datagram = (Vec<u8>, SocketAddr);

/// A UDP socket in memory.
pub(crate) struct MemoryUdp {
    registration: Registration,
    address: SocketAddr,
    queue: Rc<Queue<Datagram>>,
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
        Ok(Self {
            registration,
            address,
            queue,
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
        let receive = || {
            if self.is_refused.take() {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            let next = self.queue.waiting.borrow_mut().pop_front();
            let Some((bytes, from)) = next else {
                self.registration.on_would_block(Direction::Read);
                return Err(io::ErrorKind::WouldBlock.into());
            };
            let count = bytes.len().min(buffer.len());
            buffer[..count].copy_from_slice(&bytes[..count]);
            Ok((count, from))
        };
        (self.registration).poll_call(cx, Direction::Read, TriggerState::Receive, receive)
    }

    pub(crate) fn poll_recv_datagram(
        &self,
        cx: &Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_recv_from(cx, buffer).map_ok(|(count, _)| count)
    }

    pub(crate) fn poll_send_datagrams(
        &self,
        cx: &Context<'_>,
        bytes: &[u8],
        segment_bytes: Option<u16>,
        peer: Option<SocketAddr>,
    ) -> Poll<io::Result<usize>> {
        let send = || {
            let not_connected = || io::Error::from(io::ErrorKind::NotConnected);
            let peer = peer.or(self.peer.get()).ok_or_else(not_connected)?;
            match segment_bytes {
                Some(segment) => (bytes.chunks(segment.into())).for_each(|one| self.put(one, peer)),
                None => self.put(bytes, peer),
            }
            Ok(bytes.len())
        };
        (self.registration).poll_call(cx, Direction::Write, TriggerState::Send, send)
    }

    pub(crate) fn try_send_to(&self, bytes: &[u8], peer: SocketAddr) -> io::Result<usize> {
        self.put(bytes, peer);
        self.runtime().trigger(TriggerState::Send);
        Ok(bytes.len())
    }

    /// Queues a datagram for its receiver. It is lost if there is no receiver or its queue is full.
    fn put(&self, bytes: &[u8], peer: SocketAddr) {
        let Some(receiver) = Network::of(self.runtime()).datagrams.find(peer) else {
            if self.peer.get() == Some(peer) {
                self.is_refused.set(true);
                let readiness = Readiness::READABLE | Readiness::ERROR;
                Network::of(self.runtime()).post(self.registration.id(), readiness);
            }
            return;
        };
        let mut waiting = receiver.waiting.borrow_mut();
        if waiting.len() < QUEUED {
            waiting.push_back((bytes.to_vec(), self.address));
            drop(waiting);
            Network::of(self.runtime()).post(receiver.source, Readiness::READABLE);
        }
    }

    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.runtime().trigger(TriggerState::SystemCall);
        Ok(self.address)
    }
}

/// Capacity of a socket's queue in datagrams; further ones are lost.
const QUEUED: usize = 256;
