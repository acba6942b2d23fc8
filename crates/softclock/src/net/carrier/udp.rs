//! UDP sockets.

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::task::{Context, Poll};

use softclock_core::TriggerState;
use softclock_linux::socket::udp::{BindOptions, RecvBatch, Transmit};
use softclock_net::stack::DatagramOptions;

use crate::net::kernel::Kernel;
#[cfg(feature = "memory-net")]
use crate::net::memory::MemoryUdp;
use crate::net::options::UdpOption;
use crate::net::stack::{MemberUdp, StackUdp};
use crate::runtime::inner::Inner;
use crate::runtime::sources::Direction;

/// A UDP socket. Dropping it closes it.
pub(crate) enum UdpIo {
    /// A socket of the kernel.
    Kernel(Kernel),
    /// An endpoint of the runtime's own stack.
    Stack(StackUdp),
    /// An endpoint of the stack of another thread's runtime.
    Member(MemberUdp),
    #[cfg(feature = "memory-net")]
    Memory(MemoryUdp),
}

impl UdpIo {
    pub(crate) fn bind(address: SocketAddr, options: &BindOptions) -> io::Result<Self> {
        #[cfg(feature = "memory-net")]
        if Inner::current()?.is_in_memory {
            return Ok(Self::Memory(MemoryUdp::bind(address, options)?));
        }
        if let Some(stack) = StackUdp::bind(address, options) {
            return stack.map(Self::Stack);
        }
        if let Some(member) = MemberUdp::bind(address, options) {
            return member.map(Self::Member);
        }
        Ok(Self::Kernel(Kernel::bind(address, options)?))
    }

    /// Takes over a socket that was bound elsewhere.
    pub(crate) fn from_std(socket: std::net::UdpSocket) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self::Kernel(Kernel::duplicated_lazily(socket.into())?))
    }

    /// Returns the kernel's socket, if it is one.
    pub(crate) fn as_kernel(&self) -> Option<&Kernel> {
        match self {
            Self::Kernel(kernel) => Some(kernel),
            _ => None,
        }
    }

    /// Returns the kernel's socket, if it is one.
    pub(crate) fn into_kernel(self) -> Option<Kernel> {
        match self {
            Self::Kernel(kernel) => Some(kernel),
            _ => None,
        }
    }

    pub(crate) fn runtime(&self) -> &Rc<Inner> {
        match self {
            Self::Kernel(kernel) => kernel.runtime(),
            Self::Stack(stack) => stack.runtime(),
            Self::Member(member) => member.runtime(),
            #[cfg(feature = "memory-net")]
            Self::Memory(memory) => memory.runtime(),
        }
    }

    /// Limits the socket to sending to and receiving from `peer`.
    pub(crate) fn connect_to(&self, peer: SocketAddr) -> io::Result<()> {
        match self {
            Self::Kernel(kernel) => kernel.connect_to(peer),
            Self::Stack(stack) => stack.connect_to(peer),
            Self::Member(member) => member.connect_to(peer),
            #[cfg(feature = "memory-net")]
            Self::Memory(memory) => memory.connect_to(peer),
        }
    }

    /// Ready when a call in this direction may succeed. Until then `cx` is woken when it may.
    pub(crate) fn poll_ready(&self, cx: &Context<'_>, direction: Direction) -> Poll<()> {
        match self {
            Self::Kernel(kernel) => kernel.registration().poll_ready(cx, direction),
            Self::Stack(stack) => stack.poll_ready(cx, direction),
            Self::Member(member) => member.poll_ready(cx, direction),
            #[cfg(feature = "memory-net")]
            Self::Memory(memory) => memory.poll_ready(cx, direction),
        }
    }

    /// Receives a datagram; bytes that do not fit into `buffer` are lost.
    pub(crate) fn poll_recv_from(
        &self,
        cx: &Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<(usize, SocketAddr)>> {
        match self {
            Self::Kernel(kernel) => kernel.poll_recv_from(cx, buffer),
            Self::Stack(stack) => stack.poll_recv_from(cx, buffer),
            Self::Member(member) => member.poll_recv_from(cx, buffer),
            #[cfg(feature = "memory-net")]
            Self::Memory(memory) => memory.poll_recv_from(cx, buffer),
        }
    }

    /// Like [`poll_recv_from`](Self::poll_recv_from), from the connected peer.
    pub(crate) fn poll_recv_datagram(
        &self,
        cx: &Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Kernel(kernel) => kernel.poll_recv_datagram(cx, buffer),
            Self::Stack(stack) => stack.poll_recv_datagram(cx, buffer),
            Self::Member(member) => member.poll_recv_datagram(cx, buffer),
            #[cfg(feature = "memory-net")]
            Self::Memory(memory) => memory.poll_recv_datagram(cx, buffer),
        }
    }

    /// Receives the datagrams that wait, as many as `batch` has slots, and replaces those of `batch`.
    pub(crate) fn poll_recv_batch(
        &self,
        cx: &Context<'_>,
        batch: &mut RecvBatch,
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Kernel(kernel) => kernel.poll_recv_batch(cx, batch),
            Self::Stack(stack) => stack.poll_recv_batch(cx, batch),
            Self::Member(member) => member.poll_recv_batch(cx, batch),
            #[cfg(feature = "memory-net")]
            Self::Memory(memory) => memory.poll_recv_batch(cx, batch),
        }
    }

    /// Receives a datagram, without waiting.
    pub(crate) fn try_recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        match self {
            Self::Kernel(kernel) => kernel.try_recv_from(buffer),
            Self::Stack(stack) => stack.try_recv_from(buffer),
            Self::Member(member) => member.try_recv_from(buffer),
            #[cfg(feature = "memory-net")]
            Self::Memory(memory) => memory.try_recv_from(buffer),
        }
    }

    /// Like [`try_recv_from`](Self::try_recv_from), from the connected peer.
    pub(crate) fn try_recv_datagram(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Kernel(kernel) => kernel.try_recv_datagram(buffer),
            other => other.try_recv_from(buffer).map(|(count, _)| count),
        }
    }

    /// Like [`poll_recv_batch`](Self::poll_recv_batch), without waiting.
    pub(crate) fn try_recv_batch(&self, batch: &mut RecvBatch) -> io::Result<usize> {
        match self {
            Self::Kernel(kernel) => kernel.try_recv_batch(batch),
            Self::Stack(stack) => stack.try_recv_batch(batch),
            Self::Member(member) => member.try_recv_batch(batch),
            #[cfg(feature = "memory-net")]
            Self::Memory(memory) => memory.try_recv_batch(batch),
        }
    }

    pub(crate) fn set(&self, option: UdpOption) -> io::Result<()> {
        match self {
            Self::Kernel(kernel) => kernel.set_udp(option),
            Self::Stack(stack) => stack.set(option),
            Self::Member(member) => member.set(option),
            #[cfg(feature = "memory-net")]
            Self::Memory(memory) => memory.set(option),
        }
    }

    /// Reads an option: of the kernel's socket by `read`, and of others by `own` from those that they keep.
    pub(crate) fn option<T>(
        &self,
        read: impl FnOnce(BorrowedFd<'_>) -> io::Result<T>,
        own: impl FnOnce(DatagramOptions) -> T,
    ) -> io::Result<T> {
        let options = match self {
            Self::Kernel(kernel) => return kernel.call(read),
            Self::Stack(stack) => stack.options(),
            Self::Member(member) => member.options(),
            #[cfg(feature = "memory-net")]
            Self::Memory(memory) => memory.options(),
        };
        self.runtime().trigger(TriggerState::SystemCall);
        Ok(own(options))
    }

    /// Sends `bytes` as one datagram, or as datagrams of `segment_bytes` each, to `peer` or the connected one.
    pub(crate) fn poll_send_datagrams(
        &self,
        cx: &Context<'_>,
        bytes: &[u8],
        segment_bytes: Option<u16>,
        peer: Option<SocketAddr>,
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Kernel(kernel) => kernel.poll_send_datagrams(cx, bytes, segment_bytes, peer),
            Self::Stack(stack) => stack.poll_send_datagrams(cx, bytes, segment_bytes, peer),
            Self::Member(member) => member.poll_send_datagrams(cx, bytes, segment_bytes, peer),
            #[cfg(feature = "memory-net")]
            Self::Memory(memory) => memory.poll_send_datagrams(cx, bytes, segment_bytes, peer),
        }
    }

    /// Sends a datagram to `peer` or the connected one, without waiting.
    pub(crate) fn try_send_datagram(
        &self,
        bytes: &[u8],
        peer: Option<SocketAddr>,
    ) -> io::Result<usize> {
        match self {
            Self::Kernel(kernel) => kernel.try_send_datagram(bytes, peer),
            Self::Stack(stack) => stack.try_send_datagram(bytes, peer),
            Self::Member(member) => member.try_send_datagram(bytes, peer),
            #[cfg(feature = "memory-net")]
            Self::Memory(memory) => memory.try_send_datagram(bytes, peer),
        }
    }

    /// Sends the first datagrams of `batch`. `dscp` and `joins` are for the kernel.
    pub(crate) fn poll_send_batch(
        &self,
        cx: &Context<'_>,
        batch: &[Transmit<'_>],
        dscp: u8,
        joins: &Cell<bool>,
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Kernel(kernel) => kernel.poll_send_batch(cx, batch, dscp, joins),
            Self::Stack(stack) => stack.poll_send_batch(cx, batch),
            Self::Member(member) => member.poll_send_batch(cx, batch),
            #[cfg(feature = "memory-net")]
            Self::Memory(memory) => memory.poll_send_batch(cx, batch),
        }
    }

    /// Like [`poll_send_batch`](Self::poll_send_batch), without waiting.
    pub(crate) fn try_send_batch(
        &self,
        batch: &[Transmit<'_>],
        dscp: u8,
        joins: &Cell<bool>,
    ) -> io::Result<usize> {
        match self {
            Self::Kernel(kernel) => kernel.try_send_batch(batch, dscp, joins),
            Self::Stack(stack) => stack.try_send_batch(batch),
            Self::Member(member) => member.try_send_batch(batch),
            #[cfg(feature = "memory-net")]
            Self::Memory(memory) => memory.try_send_batch(batch),
        }
    }

    pub(crate) fn peer_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Kernel(kernel) => kernel.peer_addr(),
            Self::Stack(stack) => stack.peer_addr(),
            Self::Member(member) => member.peer_addr(),
            #[cfg(feature = "memory-net")]
            Self::Memory(memory) => memory.peer_addr(),
        }
    }

    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Kernel(kernel) => kernel.local_addr(),
            Self::Stack(stack) => stack.local_addr(),
            Self::Member(member) => member.local_addr(),
            #[cfg(feature = "memory-net")]
            Self::Memory(memory) => memory.local_addr(),
        }
    }
}
