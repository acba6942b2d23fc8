//! TCP connections.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use softclock_linux::socket;
use softclock_net::tcp::settings::Settings;

use crate::net::kernel::Kernel;
#[cfg(feature = "memory-net")]
use crate::net::memory::MemoryTcp;
use crate::net::options::TcpOption;
use crate::net::registration::Registration;
use crate::net::stack::StackTcp;
use crate::runtime::inner::Inner;

/// A TCP connection. Dropping it closes it.
pub(crate) enum TcpIo {
    /// A socket of the kernel.
    Kernel(Kernel),
    /// A connection of the runtime's stack.
    Stack(StackTcp),
    #[cfg(feature = "memory-net")]
    Memory(MemoryTcp),
}

impl TcpIo {
    /// Begins to connect; [`poll_connected`](Self::poll_connected) returns the result.
    pub(crate) fn connect(peer: SocketAddr) -> io::Result<Self> {
        #[cfg(feature = "memory-net")]
        if Inner::current()?.is_in_memory {
            return Ok(Self::Memory(MemoryTcp::connect(peer)?));
        }
        match StackTcp::connect(peer) {
            Some(stack) => Ok(Self::Stack(stack?)),
            None => Ok(Self::Kernel(Kernel::connect(peer)?)),
        }
    }

    /// Takes over a connection that was opened elsewhere.
    pub(crate) fn from_std(stream: std::net::TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self::Kernel(Kernel::duplicated(stream.into())?))
    }

    /// Returns the kernel's socket, if it is one.
    pub(crate) fn as_kernel(&self) -> Option<&Kernel> {
        match self {
            Self::Kernel(kernel) => Some(kernel),
            _ => None,
        }
    }

    pub(crate) fn runtime(&self) -> &Rc<Inner> {
        self.registration().runtime()
    }

    /// Returns the entry in the runtime's table of sources, for conditions that are known without a call.
    pub(crate) fn registration(&self) -> &Registration {
        match self {
            Self::Kernel(kernel) => kernel.registration(),
            Self::Stack(stack) => stack.registration(),
            #[cfg(feature = "memory-net")]
            Self::Memory(memory) => memory.registration(),
        }
    }

    /// Ready when the connection is known to be lost. Until then `cx` is woken by the loss and by data to read.
    pub(crate) fn poll_lost(&self, cx: &Context<'_>) -> Poll<()> {
        match self {
            Self::Stack(stack) => stack.poll_lost(cx),
            other => other.registration().poll_lost(cx),
        }
    }

    /// Like [`poll_lost`](Self::poll_lost), and also ready when the peer is known to have ended its direction.
    pub(crate) fn poll_ended(&self, cx: &Context<'_>) -> Poll<()> {
        match self {
            Self::Stack(stack) => stack.poll_ended(cx),
            other => other.registration().poll_ended(cx),
        }
    }

    /// Whether the carrier paces each connection's segments itself.
    pub(crate) const fn paces_itself(&self) -> bool {
        matches!(self, Self::Stack(_))
    }

    /// Ready when the connection is established or has failed.
    pub(crate) fn poll_connected(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Kernel(kernel) => kernel.poll_connected(cx),
            Self::Stack(stack) => stack.poll_connected(cx),
            #[cfg(feature = "memory-net")]
            Self::Memory(memory) => memory.poll_connected(cx),
        }
    }

    /// Receives up to the size of `buffer`. Returns 0 at the end of the stream.
    pub(crate) fn poll_recv(&self, cx: &Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Kernel(kernel) => kernel.poll_recv(cx, buffer),
            Self::Stack(stack) => stack.poll_recv(cx, buffer),
            #[cfg(feature = "memory-net")]
            Self::Memory(memory) => memory.poll_recv(cx, buffer),
        }
    }

    /// Like [`poll_recv`](Self::poll_recv), but leaves the bytes to be received again.
    pub(crate) fn poll_peek(&self, cx: &Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Kernel(kernel) => kernel.poll_peek(cx, buffer),
            Self::Stack(stack) => stack.poll_peek(cx, buffer),
            #[cfg(feature = "memory-net")]
            Self::Memory(memory) => memory.poll_peek(cx, buffer),
        }
    }

    /// Sends as many bytes as there is room for.
    pub(crate) fn poll_send(&self, cx: &Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Kernel(kernel) => kernel.poll_send(cx, bytes),
            Self::Stack(stack) => stack.poll_send(cx, bytes),
            #[cfg(feature = "memory-net")]
            Self::Memory(memory) => memory.poll_send(cx, bytes),
        }
    }

    /// Like [`poll_send`](Self::poll_send), from several buffers.
    pub(crate) fn poll_send_vectored(
        &self,
        cx: &Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Kernel(kernel) => kernel.poll_send_vectored(cx, buffers),
            Self::Stack(stack) => stack.poll_send_vectored(cx, buffers),
            #[cfg(feature = "memory-net")]
            Self::Memory(memory) => memory.poll_send_vectored(cx, buffers),
        }
    }

    /// Like [`poll_send_vectored`](Self::poll_send_vectored). A stack of this process refers to a long buffer within
    /// `shared` instead of copying it.
    pub(crate) fn poll_send_shared(
        &self,
        cx: &Context<'_>,
        buffers: &[IoSlice<'_>],
        shared: &Bytes,
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Stack(stack) => stack.poll_send_shared(cx, buffers, shared),
            _ => self.poll_send_vectored(cx, buffers),
        }
    }

    /// Sends up to `len` bytes of `file` from `offset` on.
    pub(crate) fn poll_send_file(
        &self,
        cx: &Context<'_>,
        file: BorrowedFd<'_>,
        offset: u64,
        len: usize,
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Kernel(kernel) => kernel.poll_send_file(cx, file, offset, len),
            Self::Stack(stack) => stack.poll_send_file(cx, file, offset, len),
            #[cfg(feature = "memory-net")]
            Self::Memory(memory) => memory.poll_send_file(cx, file, offset, len),
        }
    }

    /// Receives what has arrived, up to the size of `buffer`, without waiting.
    pub(crate) fn try_recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Kernel(kernel) => kernel.try_recv(buffer),
            Self::Stack(stack) => stack.try_recv(buffer),
            #[cfg(feature = "memory-net")]
            Self::Memory(memory) => memory.try_recv(buffer),
        }
    }

    /// Like [`try_recv`](Self::try_recv), into several buffers, or into the first of them.
    pub(crate) fn try_recv_vectored(&self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        if let Self::Kernel(kernel) = self {
            return kernel.try_recv_vectored(buffers);
        }
        let mut buffers = buffers.iter_mut();
        match buffers.find(|buffer| !buffer.is_empty()) {
            Some(buffer) => self.try_recv(buffer),
            None => self.try_recv(&mut []),
        }
    }

    /// Sends as many bytes as there is room for, without waiting.
    pub(crate) fn try_send_vectored(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        match (self, parts) {
            (Self::Kernel(kernel), [part]) => kernel.try_send(part),
            (Self::Kernel(kernel), _) => kernel.try_send_vectored(parts),
            _ => self.try_send_piece(parts),
        }
    }

    /// Sends a piece of a paced stream when there is room. A partial transfer is left to the pacing to handle.
    pub(crate) fn poll_send_piece(
        &self,
        cx: &Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Kernel(kernel) => kernel.poll_send_piece(cx, parts),
            Self::Stack(stack) => stack.poll_send_piece(cx, parts),
            #[cfg(feature = "memory-net")]
            Self::Memory(memory) => memory.poll_send_piece(cx, parts),
        }
    }

    /// Like [`poll_send_piece`](Self::poll_send_piece), without waiting.
    pub(crate) fn try_send_piece(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Kernel(kernel) => kernel.try_send_piece(parts),
            Self::Stack(stack) => stack.try_send_piece(parts),
            #[cfg(feature = "memory-net")]
            Self::Memory(memory) => memory.try_send_piece(parts),
        }
    }

    /// Sends without waiting and without a trigger state, for use within one.
    pub(crate) fn send_quietly(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Kernel(kernel) => kernel.send_quietly(bytes),
            Self::Stack(stack) => stack.send_quietly(bytes),
            #[cfg(feature = "memory-net")]
            Self::Memory(memory) => memory.send_quietly(bytes),
        }
    }

    /// Ends the direction of writing without a trigger state, for use within one.
    pub(crate) fn end_quietly(&self) -> io::Result<()> {
        match self {
            Self::Kernel(kernel) => kernel.end_quietly(),
            Self::Stack(stack) => stack.end_quietly(),
            #[cfg(feature = "memory-net")]
            Self::Memory(memory) => memory.end_quietly(),
        }
    }

    /// Ends one direction or both.
    pub(crate) fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        match self {
            Self::Kernel(kernel) => kernel.shutdown(how),
            Self::Stack(stack) => stack.shutdown(how),
            #[cfg(feature = "memory-net")]
            Self::Memory(memory) => memory.shutdown(how),
        }
    }

    /// Sets the rate of the carrier's own pacing, counted in packets' bytes; `None` for no rate.
    pub(crate) fn set_max_pacing_rate(&self, bytes_per_second: Option<u64>) -> io::Result<()> {
        match self {
            Self::Kernel(kernel) => kernel.set_max_pacing_rate(bytes_per_second),
            Self::Stack(stack) => stack.set_max_pacing_rate(bytes_per_second),
            #[cfg(feature = "memory-net")]
            Self::Memory(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Bytes sent that wait in the carrier for this rate. Makes no system call; 0 with the kernel, which does not say.
    pub(crate) fn held_back(&self) -> usize {
        match self {
            Self::Stack(stack) => stack.held_back(),
            _ => 0,
        }
    }

    pub(crate) fn set(&self, option: TcpOption) -> io::Result<()> {
        match self {
            Self::Kernel(kernel) => kernel.set_tcp(option),
            Self::Stack(stack) => stack.set(option),
            #[cfg(feature = "memory-net")]
            Self::Memory(memory) => memory.set(option),
        }
    }

    /// Reads an option: of the kernel's socket by `read`, and of others by `own` from their settings.
    pub(crate) fn option<T>(
        &self,
        read: impl FnOnce(BorrowedFd<'_>) -> io::Result<T>,
        own: impl FnOnce(&Settings) -> T,
    ) -> io::Result<T> {
        match self {
            Self::Kernel(kernel) => kernel.call(read),
            Self::Stack(stack) => stack.setting(own),
            #[cfg(feature = "memory-net")]
            Self::Memory(memory) => Ok(memory.setting(own)),
        }
    }

    /// Whether small segments are sent at once.
    pub(crate) fn nodelay(&self) -> io::Result<bool> {
        match self {
            Self::Kernel(kernel) => kernel.call(socket::tcp::nodelay),
            Self::Stack(stack) => stack.nodelay(),
            #[cfg(feature = "memory-net")]
            Self::Memory(memory) => Ok(memory.setting(|settings| !settings.send.has_nagle)),
        }
    }

    /// The time for which closing tries to deliver data; `None`: as long as the carrier does by itself.
    pub(crate) fn linger(&self) -> io::Result<Option<Duration>> {
        let resets = match self {
            Self::Kernel(kernel) => return kernel.call(socket::tcp::linger),
            Self::Stack(stack) => stack.resets(),
            #[cfg(feature = "memory-net")]
            Self::Memory(memory) => memory.resets(),
        };
        Ok(resets.then_some(Duration::ZERO))
    }

    /// Bytes sent that the peer has not acknowledged.
    pub(crate) fn unacknowledged(&self) -> io::Result<u64> {
        match self {
            Self::Kernel(kernel) => kernel.unacknowledged(),
            Self::Stack(stack) => stack.unacknowledged(),
            #[cfg(feature = "memory-net")]
            Self::Memory(memory) => memory.unacknowledged(),
        }
    }

    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Kernel(kernel) => kernel.local_addr(),
            Self::Stack(stack) => stack.local_addr(),
            #[cfg(feature = "memory-net")]
            Self::Memory(memory) => memory.local_addr(),
        }
    }

    pub(crate) fn peer_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Kernel(kernel) => kernel.peer_addr(),
            Self::Stack(stack) => stack.peer_addr(),
            #[cfg(feature = "memory-net")]
            Self::Memory(memory) => memory.peer_addr(),
        }
    }

    /// Receives up to `max` bytes into the runtime's buffer and passes them to `take`.
    #[cfg(feature = "hyper")]
    pub(crate) fn poll_recv_with(
        &self,
        cx: &Context<'_>,
        max: usize,
        take: impl FnOnce(&[u8]),
    ) -> Poll<io::Result<()>> {
        match self {
            Self::Kernel(kernel) => kernel.poll_recv_with(cx, max, take),
            Self::Stack(stack) => stack.poll_recv_with(cx, max, take),
            #[cfg(feature = "memory-net")]
            Self::Memory(memory) => memory.poll_recv_with(cx, max, take),
        }
    }
}
