//! UDP sockets.
//!
//! - `batches`: many datagrams by one call; `train`: paced trains of datagrams.
//! - `options`: socket options.

mod batches;
mod options;
mod train;

use std::cell::Cell;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::task::{Context, Poll};

use softclock_linux::socket::udp::BindOptions;

use super::IntoStdError;
use super::carrier::UdpIo;
use super::kernel::Kernel;
use super::pacing::DatagramPacing;
use crate::runtime::sources::Direction;

/// A UDP socket. Its methods take `&self`, so that tasks may share it.
///
/// # Example
/// ```
/// use softclock::net::UdpSocket;
///
/// # fn main() -> std::io::Result<()> {
/// softclock::Runtime::new()?.block_on(async {
///     let server = UdpSocket::bind(([127, 0, 0, 1], 0))?;
///     let client = UdpSocket::bind(([127, 0, 0, 1], 0))?;
///     client.send_to(b"ping", server.local_addr()?).await?;
///
///     let mut buffer = [0; 1500];
///     let (length, peer) = server.recv_from(&mut buffer).await?;
///     assert_eq!(&buffer[..length], b"ping");
///     assert_eq!(peer, client.local_addr()?);
///     std::io::Result::Ok(())
/// })
/// # }
/// ```
pub struct UdpSocket {
    io: UdpIo,
    pacing: DatagramPacing,
    /// The differentiated services code point, once it is known.
    dscp: Cell<Option<u8>>,
}

impl UdpSocket {
    /// Creates a socket at `address`. With port 0 the kernel selects a port.
    ///
    /// # Errors
    /// Those of `socket(2)` and `bind(2)`. Fails outside a runtime.
    pub fn bind(address: impl Into<SocketAddr>) -> io::Result<Self> {
        Self::bind_with(address, &BindOptions::default())
    }

    /// Creates a socket at `address`, which several sockets may share with [`BindOptions::reuse_port`].
    /// [`BindOptions::receive`] selects the facts about datagrams that [`recv_batch`](Self::recv_batch) returns.
    ///
    /// # Errors
    /// As for [`bind`](Self::bind). [`io::ErrorKind::Unsupported`] if the kernel lacks one of the facts.
    pub fn bind_with(address: impl Into<SocketAddr>, options: &BindOptions) -> io::Result<Self> {
        Ok(Self::new(UdpIo::bind(address.into(), options)?))
    }

    /// Takes over a socket that was bound elsewhere, and makes its descriptor nonblocking. It is one of the kernel also
    /// in a runtime with a [stack](crate::net::stack).
    ///
    /// [`recv_batch`](Self::recv_batch) returns the facts that the socket was asked to record, such as by
    /// [`bind_with`](Self::bind_with).
    ///
    /// # Errors
    /// If the runtime cannot watch the descriptor. Fails outside a runtime.
    pub fn from_std(socket: std::net::UdpSocket) -> io::Result<Self> {
        Ok(Self::new(UdpIo::from_std(socket)?))
    }

    fn new(io: UdpIo) -> Self {
        Self {
            io,
            pacing: DatagramPacing::new(),
            dscp: Cell::new(None),
        }
    }

    /// Returns the socket as one of the standard library. Its descriptor stays nonblocking:
    /// [`set_nonblocking`](std::net::UdpSocket::set_nonblocking) changes that.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] for a socket of a [stack](crate::net::stack). The error has the socket.
    pub fn into_std(self) -> Result<std::net::UdpSocket, IntoStdError<Self>> {
        if self.io.as_kernel().is_none() {
            return Err(IntoStdError::not_kernel(self));
        }
        let kernel = self.io.into_kernel().expect("it is one, as was just seen");
        Ok(kernel.into_descriptor().into())
    }

    /// Returns the kernel's descriptor, such as for options that this type does not have; `None` for a socket of a
    /// [stack](crate::net::stack).
    ///
    /// Do not receive or send by it, or make it blocking: the runtime does not see that.
    pub fn as_kernel_fd(&self) -> Option<BorrowedFd<'_>> {
        self.io.as_kernel().map(Kernel::lend)
    }

    /// Limits the socket to sending to and receiving from `peer`. Datagrams of others that have arrived before may
    /// still be received.
    ///
    /// # Errors
    /// Those of `connect(2)`.
    pub fn connect(&self, peer: impl Into<SocketAddr>) -> io::Result<()> {
        self.io.connect_to(peer.into())
    }

    /// Receives a datagram. Bytes that do not fit into `buffer` are lost.
    ///
    /// # Cancel safety
    /// Cancel-safe: a dropped future has received nothing.
    ///
    /// # Errors
    /// Those of `recvfrom(2)`. `ECONNREFUSED` means that an earlier datagram found no receiver.
    pub async fn recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        poll_fn(|cx| self.poll_recv_from(cx, buffer)).await
    }

    /// Like [`recv_from`](Self::recv_from), for hand-written futures.
    ///
    /// # Errors
    /// As for [`recv_from`](Self::recv_from).
    pub fn poll_recv_from(
        &self,
        cx: &Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<(usize, SocketAddr)>> {
        self.io.poll_recv_from(cx, buffer)
    }

    /// Like [`recv_from`](Self::recv_from), without waiting. Makes the call also if no datagram is known to be there.
    /// May be called from the handler of a soft event.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if no datagram has arrived; otherwise as for [`recv_from`](Self::recv_from).
    pub fn try_recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.io.try_recv_from(buffer)
    }

    /// Receives a datagram from the connected peer. Bytes that do not fit into `buffer` are lost.
    ///
    /// # Cancel safety
    /// Cancel-safe: a dropped future has received nothing.
    ///
    /// # Errors
    /// Those of `recv(2)`. `ECONNREFUSED` means that an earlier datagram found no receiver.
    pub async fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        poll_fn(|cx| self.poll_recv(cx, buffer)).await
    }

    /// Like [`recv`](Self::recv), for hand-written futures.
    ///
    /// # Errors
    /// As for [`recv`](Self::recv).
    pub fn poll_recv(&self, cx: &Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        self.io.poll_recv_datagram(cx, buffer)
    }

    /// Like [`recv`](Self::recv), without waiting. May be called from the handler of a soft event.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if no datagram has arrived; otherwise as for [`recv`](Self::recv).
    pub fn try_recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.io.try_recv_datagram(buffer)
    }

    /// Sends a datagram to `peer` when the send buffer has room.
    ///
    /// # Cancel safety
    /// Cancel-safe: a dropped future has sent nothing.
    ///
    /// # Errors
    /// Those of `sendto(2)`.
    pub async fn send_to(&self, bytes: &[u8], peer: impl Into<SocketAddr>) -> io::Result<usize> {
        let peer = peer.into();
        poll_fn(|cx| self.poll_send_to(cx, bytes, peer)).await
    }

    /// Like [`send_to`](Self::send_to), for hand-written futures.
    ///
    /// # Errors
    /// As for [`send_to`](Self::send_to).
    pub fn poll_send_to(
        &self,
        cx: &Context<'_>,
        bytes: &[u8],
        peer: SocketAddr,
    ) -> Poll<io::Result<usize>> {
        self.io.poll_send_datagrams(cx, bytes, None, Some(peer))
    }

    /// Sends a datagram without waiting. May be called from the handler of a soft event.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if the send buffer has no room; otherwise those of `sendto(2)`.
    pub fn try_send_to(&self, bytes: &[u8], peer: impl Into<SocketAddr>) -> io::Result<usize> {
        self.io.try_send_datagram(bytes, Some(peer.into()))
    }

    /// Sends a datagram to the connected peer when the send buffer has room.
    ///
    /// # Cancel safety
    /// Cancel-safe: a dropped future has sent nothing.
    ///
    /// # Errors
    /// Those of `send(2)`.
    pub async fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        poll_fn(|cx| self.poll_send(cx, bytes)).await
    }

    /// Like [`send`](Self::send), for hand-written futures.
    ///
    /// # Errors
    /// As for [`send`](Self::send).
    pub fn poll_send(&self, cx: &Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.io.poll_send_datagrams(cx, bytes, None, None)
    }

    /// Like [`send`](Self::send), without waiting. May be called from the handler of a soft event.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if the send buffer has no room; otherwise those of `send(2)`.
    pub fn try_send(&self, bytes: &[u8]) -> io::Result<usize> {
        self.io.try_send_datagram(bytes, None)
    }

    /// Ready when a datagram may have arrived; a receive may still have to wait. Until then `cx` is woken when one
    /// arrives. Makes no system call.
    pub fn poll_read_ready(&self, cx: &Context<'_>) -> Poll<()> {
        self.io.poll_ready(cx, Direction::Read)
    }

    /// Ready when the send buffer may have room; a send may still have to wait. Until then `cx` is woken when it may.
    /// Makes no system call.
    pub fn poll_write_ready(&self, cx: &Context<'_>) -> Poll<()> {
        self.io.poll_ready(cx, Direction::Write)
    }

    /// Waits until a datagram may have arrived. A [`try_recv_from`](Self::try_recv_from) may still fail with
    /// [`io::ErrorKind::WouldBlock`]; then wait again.
    ///
    /// # Cancel safety
    /// Cancel-safe: it takes nothing.
    pub async fn readable(&self) {
        poll_fn(|cx| self.poll_read_ready(cx)).await;
    }

    /// Waits until the send buffer may have room. A [`try_send_to`](Self::try_send_to) may still fail with
    /// [`io::ErrorKind::WouldBlock`]; then wait again.
    ///
    /// # Cancel safety
    /// Cancel-safe: it takes nothing.
    pub async fn writable(&self) {
        poll_fn(|cx| self.poll_write_ready(cx)).await;
    }

    /// Returns the local address.
    ///
    /// # Errors
    /// Those of `getsockname(2)`.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.io.local_addr()
    }

    /// Returns the address of the connected peer.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotConnected`] for a socket that is not connected; otherwise those of `getpeername(2)`.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.io.peer_addr()
    }
}

impl fmt::Debug for UdpSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UdpSocket")
            .field("local_addr", &self.local_addr().ok())
            .finish()
    }
}
