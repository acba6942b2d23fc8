//! UDP sockets.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll};

use softclock_linux::socket::udp::{BindOptions, Ecn, RecvBatch};

use crate::net::kernel::Kernel;
#[cfg(feature = "memory-net")]
use crate::net::memory::MemoryUdp;
use crate::net::stack::{MemberUdp, StackUdp};
use crate::runtime::inner::Inner;

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

    /// Sets the ECN field of the datagrams to send.
    pub(crate) fn set_ecn(&self, ecn: Ecn) -> io::Result<()> {
        match self {
            Self::Kernel(kernel) => kernel.set_ecn(ecn),
            Self::Stack(stack) => stack.set_ecn(ecn),
            Self::Member(member) => member.set_ecn(ecn),
            #[cfg(feature = "memory-net")]
            Self::Memory(memory) => memory.set_ecn(ecn),
        }
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

    /// Sends a datagram without waiting.
    pub(crate) fn try_send_to(&self, bytes: &[u8], peer: SocketAddr) -> io::Result<usize> {
        match self {
            Self::Kernel(kernel) => kernel.try_send_to(bytes, peer),
            Self::Stack(stack) => stack.try_send_to(bytes, peer),
            Self::Member(member) => member.try_send_to(bytes, peer),
            #[cfg(feature = "memory-net")]
            Self::Memory(memory) => memory.try_send_to(bytes, peer),
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
