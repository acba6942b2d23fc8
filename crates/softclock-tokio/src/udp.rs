//! A paced UDP socket for tokio.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use softclock_linux::socket::udp;
use tokio::net::ToSocketAddrs;

use crate::pacing::{Counts, Outlet, PacedSender, Pacing};
use crate::timers::Timers;

/// A UDP socket of tokio that sends at an even rate.
///
/// `send` and `send_to` put a datagram into a bounded queue, and wait while the queue is full. The
/// [timer thread](Timers) sends those that are due. So a task may hand over a whole frame of video at once, and the
/// datagrams leave evenly.
///
/// Methods take `&self`, so tasks may share the socket in an [`Arc`]. Datagrams in the queue are sent even if the
/// socket is dropped; [`flush`](Self::flush) waits for them.
///
/// # Errors of datagrams
/// The error of a datagram that was sent from the queue is returned by the next call that sends, like an error that
/// the kernel learns later. That call has then sent nothing.
///
/// # Example
/// ```
/// use softclock_tokio::{Pacing, UdpSocket};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// let receiver = tokio::net::UdpSocket::bind("127.0.0.1:0").await?;
/// let pacing = Pacing::of_rate("20mbit".parse().expect("a rate"));
/// let sender = UdpSocket::bind("127.0.0.1:0", pacing).await?;
/// for _ in 0..10 {
///     sender.send_to(&[0; 1200], receiver.local_addr()?).await?;
/// }
/// // At 20 Mbit/s each takes 491 us.
/// let mut buffer = [0; 1500];
/// for _ in 0..10 {
///     assert_eq!(receiver.recv(&mut buffer).await?, 1200);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct UdpSocket {
    sender: Arc<PacedSender<Socket>>,
}

impl UdpSocket {
    /// Binds a socket to `address`.
    ///
    /// # Errors
    /// Those of [`tokio::net::UdpSocket::bind`].
    ///
    /// # Panics
    /// Outside a runtime of tokio, and if the [timer thread](Timers::global) cannot be started.
    ///
    /// # Cancel safety
    /// A future that is dropped leaves no socket.
    pub async fn bind(address: impl ToSocketAddrs, pacing: Pacing) -> io::Result<Self> {
        let socket = tokio::net::UdpSocket::bind(address).await?;
        Ok(Self::new(socket, pacing, Timers::global()))
    }

    /// Paces `socket` by the thread of `timers`.
    pub fn new(socket: tokio::net::UdpSocket, pacing: Pacing, timers: Timers) -> Self {
        let socket = Socket {
            socket,
            joins: AtomicBool::new(true),
        };
        Self {
            sender: PacedSender::new(socket, Some(pacing), pacing.limits(), timers.sender_timer()),
        }
    }

    /// Connects the socket to `peer`: see [`tokio::net::UdpSocket::connect`].
    ///
    /// # Errors
    /// Those of `connect(2)`, and of resolving the address.
    ///
    /// # Cancel safety
    /// A future that is dropped before it is ready may have connected the socket to an address that the name resolves
    /// to.
    pub async fn connect(&self, peer: impl ToSocketAddrs) -> io::Result<()> {
        self.get_ref().connect(peer).await
    }

    /// Queues a datagram to `peer`. Waits while the queue is full. Returns its length.
    ///
    /// # Errors
    /// The error of an earlier datagram: see [the type](Self#errors-of-datagrams).
    ///
    /// # Cancel safety
    /// A future that is dropped before it is ready has queued nothing.
    pub async fn send_to(&self, bytes: &[u8], peer: SocketAddr) -> io::Result<usize> {
        self.queue(bytes, Some(peer)).await
    }

    /// Like [`send_to`](Self::send_to), to the connected peer.
    ///
    /// # Errors
    /// As for `send_to`. A socket that is not connected reports ENOTCONN or EDESTADDRREQ at the next call.
    ///
    /// # Cancel safety
    /// As for `send_to`.
    pub async fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        self.queue(bytes, None).await
    }

    /// Queues a datagram to `peer` without waiting.
    ///
    /// # Errors
    /// `WouldBlock` if the queue is full. Otherwise as for [`send_to`](Self::send_to).
    pub fn try_send_to(&self, bytes: &[u8], peer: SocketAddr) -> io::Result<usize> {
        self.try_queue(bytes, Some(peer))
    }

    /// Waits until all queued datagrams have been sent or dropped, also those that other tasks queue meanwhile.
    ///
    /// # Cancel safety
    /// Dropping the future only ends the wait: the datagrams are still sent.
    pub async fn flush(&self) {
        poll_fn(|cx| self.sender.poll_flushed(cx)).await;
    }

    /// Receives a datagram: see [`tokio::net::UdpSocket::recv_from`].
    ///
    /// # Errors
    /// Those of `recvfrom(2)`.
    ///
    /// # Cancel safety
    /// A future that is dropped before it is ready has received nothing.
    pub async fn recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.get_ref().recv_from(buffer).await
    }

    /// Receives a datagram from the connected peer: see [`tokio::net::UdpSocket::recv`].
    ///
    /// # Errors
    /// Those of `recv(2)`.
    ///
    /// # Cancel safety
    /// As for [`recv_from`](Self::recv_from).
    pub async fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.get_ref().recv(buffer).await
    }

    /// Changes the rate from the next transmission on, also of the datagrams that wait: the next one is due at the new
    /// rate after the last one that was sent. The limits of `pacing` are ignored: those of the socket stay.
    pub fn set_pacing(&self, pacing: Pacing) {
        self.sender.set_pacing(Some(pacing));
    }

    /// Returns the socket of tokio. Datagrams sent by it are not paced.
    pub fn get_ref(&self) -> &tokio::net::UdpSocket {
        &self.sender.outlet().socket
    }

    /// Returns the local address.
    ///
    /// # Errors
    /// Those of `getsockname(2)`.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.get_ref().local_addr()
    }

    /// Returns the numbers of datagrams sent, dropped and waiting.
    pub fn counts(&self) -> Counts {
        self.sender.counts()
    }

    async fn queue(&self, bytes: &[u8], peer: Option<SocketAddr>) -> io::Result<usize> {
        loop {
            poll_fn(|cx| self.sender.poll_room(cx, 1)).await;
            match self.try_queue(bytes, peer) {
                // Another task was faster.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return result,
            }
        }
    }

    fn try_queue(&self, bytes: &[u8], peer: Option<SocketAddr>) -> io::Result<usize> {
        self.sender.try_send(peer, bytes, bytes.len())?;
        Ok(bytes.len())
    }
}

/// A socket, and whether the kernel segments its datagrams.
#[derive(Debug)]
struct Socket {
    socket: tokio::net::UdpSocket,
    joins: AtomicBool,
}

impl Outlet for Socket {
    /// The peer; `None` is the connected one.
    type Flow = Option<SocketAddr>;

    fn send(&self, peer: &Self::Flow, bytes: &[u8], segment_bytes: usize) -> io::Result<usize> {
        let fd = self.socket.as_fd();
        let is_joined = bytes.len() > segment_bytes && self.joins.load(Ordering::Relaxed);
        let Some(size) = u16::try_from(segment_bytes).ok().filter(|_| is_joined) else {
            return send_each(fd, bytes, segment_bytes, *peer);
        };
        match udp::send_segments(fd, bytes, size, *peer) {
            Err(error) if udp::is_without_segments(&error) => {
                // The error may have another cause, which occurs again.
                let sent = send_each(fd, bytes, segment_bytes, *peer)?;
                let joins = udp::exceeds_mtu(&error);
                self.joins.store(joins, Ordering::Relaxed);
                Ok(sent)
            }
            result => result,
        }
    }
}

/// Sends datagrams one by one. Returns the length of those that were sent.
fn send_each(
    fd: BorrowedFd<'_>,
    bytes: &[u8],
    segment_bytes: usize,
    peer: Option<SocketAddr>,
) -> io::Result<usize> {
    let send = |datagram| match peer {
        Some(peer) => udp::send_to(fd, datagram, peer),
        None => udp::send(fd, datagram),
    };
    if bytes.is_empty() {
        return send(bytes);
    }
    let mut sent = 0;
    for datagram in bytes.chunks(segment_bytes) {
        match send(datagram) {
            Ok(_) => sent += datagram.len(),
            Err(error) if sent == 0 => return Err(error),
            // Returned again for the rest.
            Err(_) => break,
        }
    }
    Ok(sent)
}
