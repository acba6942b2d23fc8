//! Unix datagram sockets.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net as std_unix;
use std::os::unix::net::SocketAddr;
use std::path::Path;
use std::task::{Context, Poll};
use std::time::Duration;

use softclock_core::TriggerState;
use softclock_linux::socket;

use crate::net::kernel::Kernel;
use crate::runtime::sources::Direction;

/// A Unix socket for datagrams, which arrive in order and are not lost. Its methods take `&self`, so that tasks may
/// share it. Dropping it does not remove its path.
///
/// Addresses are paths, or [`SocketAddr`]s, which may have abstract names
/// ([`from_abstract_name`](std::os::linux::net::SocketAddrExt::from_abstract_name)).
///
/// # Example
/// ```
/// use softclock::net::UnixDatagram;
///
/// # fn main() -> std::io::Result<()> {
/// softclock::Runtime::new()?.block_on(async {
///     let (one, two) = UnixDatagram::pair()?;
///     one.send(b"hello").await?;
///     let mut buffer = [0; 100];
///     let length = two.recv(&mut buffer).await?;
///     assert_eq!(&buffer[..length], b"hello");
///     std::io::Result::Ok(())
/// })
/// # }
/// ```
pub struct UnixDatagram {
    socket: Kernel<std_unix::UnixDatagram>,
}

impl UnixDatagram {
    /// Creates a socket at `path`, which must not exist.
    ///
    /// # Errors
    /// Those of `bind(2)`: [`io::ErrorKind::AddrInUse`] if the path exists, even if no process uses it. Fails outside a
    /// runtime.
    pub fn bind(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::from_std(std_unix::UnixDatagram::bind(path)?)
    }

    /// Creates a socket at `address`, such as one with an abstract name.
    ///
    /// # Errors
    /// Those of `bind(2)`. Fails outside a runtime.
    pub fn bind_addr(address: &SocketAddr) -> io::Result<Self> {
        Self::from_std(std_unix::UnixDatagram::bind_addr(address)?)
    }

    /// Creates a socket without an address. It can send; receivers cannot answer it.
    ///
    /// # Errors
    /// Those of `socket(2)`. Fails outside a runtime.
    pub fn unbound() -> io::Result<Self> {
        Self::from_std(std_unix::UnixDatagram::unbound()?)
    }

    /// Creates two sockets without addresses that are connected to each other.
    ///
    /// # Errors
    /// Those of `socketpair(2)`. Fails outside a runtime.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (one, two) = std_unix::UnixDatagram::pair()?;
        Ok((Self::from_std(one)?, Self::from_std(two)?))
    }

    /// Takes over a socket that was created elsewhere. Makes its descriptor nonblocking.
    ///
    /// # Errors
    /// If the runtime cannot watch the descriptor. Fails outside a runtime.
    pub fn from_std(socket: std_unix::UnixDatagram) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket: Kernel::duplicated_lazily(socket)?,
        })
    }

    /// Returns the socket as one of the standard library. Its descriptor stays nonblocking:
    /// [`set_nonblocking`](std_unix::UnixDatagram::set_nonblocking) changes that.
    pub fn into_std(self) -> std_unix::UnixDatagram {
        self.socket.into_descriptor()
    }

    /// Limits the socket to sending to and receiving from the one at `path`.
    ///
    /// # Errors
    /// Those of `connect(2)`: no such path, no socket there, no permission.
    pub fn connect(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let socket = self.socket.descriptor();
        self.socket.call(|_| socket.connect(path))
    }

    /// Like [`connect`](Self::connect), for an address such as one with an abstract name.
    ///
    /// # Errors
    /// As for [`connect`](Self::connect).
    pub fn connect_addr(&self, address: &SocketAddr) -> io::Result<()> {
        let socket = self.socket.descriptor();
        self.socket.call(|_| socket.connect_addr(address))
    }

    /// Receives a datagram. Bytes that do not fit into `buffer` are lost.
    ///
    /// # Cancel safety
    /// Cancel-safe: a dropped future has received nothing.
    ///
    /// # Errors
    /// Those of `recv(2)`.
    pub async fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        poll_fn(|cx| self.poll_recv(cx, buffer)).await
    }

    /// Like [`recv`](Self::recv), for hand-written futures.
    ///
    /// # Errors
    /// As for [`recv`](Self::recv).
    pub fn poll_recv(&self, cx: &Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let recv = |fd: BorrowedFd<'_>| socket::udp::recv(fd, buffer);
        (self.socket).poll_call(cx, Direction::Read, TriggerState::Receive, recv)
    }

    /// Like [`recv`](Self::recv), without waiting. May be called from the handler of a soft event.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if no datagram has arrived; otherwise those of `recv(2)`.
    pub fn try_recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let recv = |fd: BorrowedFd<'_>| socket::udp::recv(fd, buffer);
        (self.socket).try_call(Direction::Read, TriggerState::Receive, recv)
    }

    /// Receives a datagram, and returns its length and its sender, which may have no name. Bytes that do not fit into
    /// `buffer` are lost.
    ///
    /// # Cancel safety
    /// Cancel-safe: a dropped future has received nothing.
    ///
    /// # Errors
    /// Those of `recvfrom(2)`.
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
        let socket = self.socket.descriptor();
        let recv = |_: BorrowedFd<'_>| socket.recv_from(buffer);
        (self.socket).poll_call(cx, Direction::Read, TriggerState::Receive, recv)
    }

    /// Like [`recv_from`](Self::recv_from), without waiting. May be called from the handler of a soft event.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if no datagram has arrived; otherwise those of `recvfrom(2)`.
    pub fn try_recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let socket = self.socket.descriptor();
        let recv = |_: BorrowedFd<'_>| socket.recv_from(buffer);
        (self.socket).try_call(Direction::Read, TriggerState::Receive, recv)
    }

    /// Sends a datagram to the connected socket when its queue has room.
    ///
    /// # Cancel safety
    /// Cancel-safe: a dropped future has sent nothing.
    ///
    /// # Errors
    /// Those of `send(2)`: [`io::ErrorKind::ConnectionRefused`] if the receiver has been closed.
    pub async fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        poll_fn(|cx| self.poll_send(cx, bytes)).await
    }

    /// Like [`send`](Self::send), for hand-written futures.
    ///
    /// # Errors
    /// As for [`send`](Self::send).
    pub fn poll_send(&self, cx: &Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let send = |fd: BorrowedFd<'_>| socket::udp::send(fd, bytes);
        (self.socket).poll_call(cx, Direction::Write, TriggerState::Send, send)
    }

    /// Like [`send`](Self::send), without waiting. May be called from the handler of a soft event.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if there is no room; otherwise those of `send(2)`.
    pub fn try_send(&self, bytes: &[u8]) -> io::Result<usize> {
        let send = |fd: BorrowedFd<'_>| socket::udp::send(fd, bytes);
        (self.socket).try_call(Direction::Write, TriggerState::Send, send)
    }

    /// Sends a datagram to the socket at `path` when its queue has room.
    ///
    /// The kernel does not report room in the queue of a socket that this one is not connected to, so that the call is
    /// repeated each millisecond until there is some. To be woken, [connect](Self::connect).
    ///
    /// # Cancel safety
    /// Cancel-safe: a dropped future has sent nothing.
    ///
    /// # Errors
    /// Those of `sendto(2)`.
    pub async fn send_to(&self, bytes: &[u8], path: impl AsRef<Path>) -> io::Result<usize> {
        let path = path.as_ref();
        self.repeated(|| self.try_send_to(bytes, path)).await
    }

    /// Like [`send_to`](Self::send_to), to an address such as one with an abstract name.
    ///
    /// # Cancel safety
    /// Cancel-safe: a dropped future has sent nothing.
    ///
    /// # Errors
    /// As for [`send_to`](Self::send_to).
    pub async fn send_to_addr(&self, bytes: &[u8], address: &SocketAddr) -> io::Result<usize> {
        self.repeated(|| self.try_send_to_addr(bytes, address))
            .await
    }

    /// Like [`send_to`](Self::send_to), without waiting. May be called from the handler of a soft event.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if there is no room; otherwise those of `sendto(2)`.
    pub fn try_send_to(&self, bytes: &[u8], path: impl AsRef<Path>) -> io::Result<usize> {
        let (socket, path) = (self.socket.descriptor(), path.as_ref());
        self.try_unreported(|| socket.send_to(bytes, path))
    }

    /// Like [`try_send_to`](Self::try_send_to), to an address such as one with an abstract name.
    ///
    /// # Errors
    /// As for [`try_send_to`](Self::try_send_to).
    pub fn try_send_to_addr(&self, bytes: &[u8], address: &SocketAddr) -> io::Result<usize> {
        let socket = self.socket.descriptor();
        self.try_unreported(|| socket.send_to_addr(bytes, address))
    }

    /// Makes a call whose readiness the poller does not report, and passes a trigger state. `WouldBlock` says nothing
    /// about other receivers, so that it does not make the socket wait.
    fn try_unreported<R>(&self, mut call: impl FnMut() -> io::Result<R>) -> io::Result<R> {
        let sent = loop {
            match call() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                sent => break sent,
            }
        };
        self.socket.runtime().trigger(TriggerState::Send);
        sent
    }

    /// Repeats a call until there is room.
    async fn repeated(&self, mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
        poll_fn(|cx| self.socket.runtime().poll_allowance(cx)).await;
        loop {
            match call() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    crate::sleep(LOOK_AGAIN).await;
                }
                sent => return sent,
            }
        }
    }

    /// Ready when a datagram may have arrived. Until then `cx` is woken when one does. Makes no system call.
    pub fn poll_read_ready(&self, cx: &Context<'_>) -> Poll<()> {
        self.socket.registration().poll_ready(cx, Direction::Read)
    }

    /// Ready when a [`send`](Self::send) to the connected socket may have room. Until then `cx` is woken when it may.
    /// Makes no system call.
    pub fn poll_write_ready(&self, cx: &Context<'_>) -> Poll<()> {
        self.socket.registration().poll_ready(cx, Direction::Write)
    }

    /// Waits until a datagram may have arrived.
    ///
    /// # Cancel safety
    /// Cancel-safe: it takes nothing.
    pub async fn readable(&self) {
        poll_fn(|cx| self.poll_read_ready(cx)).await;
    }

    /// Waits until a [`try_send`](Self::try_send) to the connected socket may have room.
    ///
    /// # Cancel safety
    /// Cancel-safe: it takes nothing.
    pub async fn writable(&self) {
        poll_fn(|cx| self.poll_write_ready(cx)).await;
    }

    /// Ends one direction or both. A receiver of an ended direction reads datagrams of no bytes.
    ///
    /// # Errors
    /// Those of `shutdown(2)`: [`io::ErrorKind::NotConnected`] for a socket that is not connected.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.socket.call(|fd| socket::tcp::shutdown(fd, how))
    }

    /// Returns the address of the socket, which may be unnamed.
    ///
    /// # Errors
    /// Those of `getsockname(2)`.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        let socket = self.socket.descriptor();
        self.socket.call(|_| socket.local_addr())
    }

    /// Returns the address of the connected socket, which may be unnamed.
    ///
    /// # Errors
    /// Those of `getpeername(2)`: [`io::ErrorKind::NotConnected`] for a socket that is not connected.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        let socket = self.socket.descriptor();
        self.socket.call(|_| socket.peer_addr())
    }
}

/// Do not receive or send by the descriptor, or make it blocking: the runtime does not see that.
impl AsFd for UnixDatagram {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.lend()
    }
}

impl fmt::Debug for UnixDatagram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnixDatagram")
            .field("local_addr", &self.local_addr().ok())
            .field("peer_addr", &self.peer_addr().ok())
            .finish()
    }
}

/// The time between two attempts to send to a full queue.
const LOOK_AGAIN: Duration = Duration::from_millis(1);
