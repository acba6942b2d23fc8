//! UDP sockets.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll, ready};

use softclock_linux::socket;
use softclock_linux::socket::udp::{BindOptions, Datagram, Ecn, RecvBatch};

use super::carrier::UdpIo;
use super::pacing::{DatagramPacing, Pacing};
use crate::runtime::inner::allowance;

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
        Ok(Self {
            io: UdpIo::bind(address.into(), options)?,
            pacing: DatagramPacing::new(),
        })
    }

    /// Limits the socket to sending to and receiving from `peer`.
    ///
    /// # Errors
    /// Those of `connect(2)`.
    pub fn connect(&self, peer: impl Into<SocketAddr>) -> io::Result<()> {
        self.io.connect_to(peer.into())
    }

    /// Receives a datagram. Bytes that do not fit into `buffer` are lost.
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

    /// Waits for datagrams and receives those that are there by one system call (`recvmmsg(2)`), as many as `batch` has
    /// slots. Returns the number of slots filled, at least 1. The former datagrams of `batch` are removed, also if the
    /// future is dropped; a dropped future has received nothing.
    ///
    /// [`RecvBatch::datagrams`] iterates over what was received, with the sender of each datagram and whether it was
    /// too long for its slot. [`BindOptions::receive`] adds the destination, the ECN field and the time of arrival, and
    /// lets the kernel join the datagrams of a flow in one slot (UDP_GRO).
    ///
    /// The time of arrival is on the clock of [`softclock::now`](crate::now). The kernel stamps by CLOCK_REALTIME, and
    /// both clocks are read once after the call to convert the stamps, which is precise to about 1 us.
    ///
    /// The kernel does more for each slot than for [`recv_from`](Self::recv_from), so that a batch of single datagrams
    /// may cost more where system calls are cheap. Joined datagrams share the cost of their slot.
    ///
    /// Beside the call itself, every 2 KiB or four short datagrams count as one of the calls that a task may make in
    /// one poll.
    ///
    /// # Errors
    /// Those of `recvmmsg(2)`. `ECONNREFUSED` means that an earlier datagram found no receiver.
    ///
    /// # Example
    /// ```
    /// use softclock::net::{BindOptions, Ecn, RecvBatch, RecvOptions, UdpSocket};
    ///
    /// # fn main() -> std::io::Result<()> {
    /// softclock::Runtime::new()?.block_on(async {
    ///     let receive = RecvOptions { ecn: true, ..RecvOptions::default() };
    ///     let options = BindOptions { receive, ..BindOptions::default() };
    ///     let server = UdpSocket::bind_with(([127, 0, 0, 1], 0), &options)?;
    ///     let client = UdpSocket::bind(([127, 0, 0, 1], 0))?;
    ///     client.set_ecn(Ecn::Ect0)?;
    ///     for payload in [&b"one"[..], b"two"] {
    ///         client.send_to(payload, server.local_addr()?).await?;
    ///     }
    ///
    ///     // To be reused: receiving allocates nothing.
    ///     let mut batch = RecvBatch::new(32, 1500);
    ///     let mut received = 0;
    ///     while received < 2 {
    ///         server.recv_batch(&mut batch).await?;
    ///         for datagram in batch.datagrams() {
    ///             assert_eq!(datagram.source, client.local_addr()?);
    ///             assert_eq!(datagram.payload.len(), 3);
    ///             assert_eq!(datagram.ecn, Some(Ecn::Ect0));
    ///             received += 1;
    ///         }
    ///     }
    ///     std::io::Result::Ok(())
    /// })
    /// # }
    /// ```
    pub async fn recv_batch(&self, batch: &mut RecvBatch) -> io::Result<usize> {
        poll_fn(|cx| self.poll_recv_batch(cx, batch)).await
    }

    /// Like [`recv_batch`](Self::recv_batch), for hand-written futures.
    ///
    /// # Errors
    /// As for [`recv_batch`](Self::recv_batch).
    pub fn poll_recv_batch(
        &self,
        cx: &Context<'_>,
        batch: &mut RecvBatch,
    ) -> Poll<io::Result<usize>> {
        // While the call waits, the batch must not offer datagrams of an earlier one.
        batch.clear();
        let received = ready!(self.io.poll_recv_batch(cx, batch))?;
        let bytes = |datagram: Datagram<'_>| datagram.payload.len().max(LEAST_CHARGED_BYTES);
        self.io.runtime().take_bytes(batch.iter().map(bytes).sum());
        Poll::Ready(Ok(received))
    }

    /// Sets the ECN field of the datagrams that this socket sends. The default is [`Ecn::NotEct`].
    ///
    /// # Errors
    /// Those of `setsockopt(2)`.
    pub fn set_ecn(&self, ecn: Ecn) -> io::Result<()> {
        self.io.set_ecn(ecn)
    }

    /// Sends a datagram to `peer` when the send buffer has room.
    ///
    /// # Errors
    /// Those of `sendto(2)`.
    pub async fn send_to(&self, bytes: &[u8], peer: impl Into<SocketAddr>) -> io::Result<usize> {
        let peer = Some(peer.into());
        poll_fn(|cx| self.io.poll_send_datagrams(cx, bytes, None, peer)).await
    }

    /// Sends a datagram without waiting. May be called from the handler of a soft event.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if the send buffer is full; otherwise those of `sendto(2)`.
    pub fn try_send_to(&self, bytes: &[u8], peer: impl Into<SocketAddr>) -> io::Result<usize> {
        self.io.try_send_to(bytes, peer.into())
    }

    /// Sends a datagram to the connected peer when the send buffer has room.
    ///
    /// # Errors
    /// Those of `send(2)`.
    pub async fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        poll_fn(|cx| self.io.poll_send_datagrams(cx, bytes, None, None)).await
    }

    /// Receives a datagram from the connected peer. Bytes that do not fit into `buffer` are lost.
    ///
    /// # Errors
    /// Those of `recv(2)`.
    pub async fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        poll_fn(|cx| self.io.poll_recv_datagram(cx, buffer)).await
    }

    /// Paces the trains of [`send_train`](Self::send_train) from the next batch on, by soft events that wake the
    /// sender. With `None` they are sent as fast as the send buffer accepts them. Other datagrams are not paced.
    /// [`Pacing::by`] and [`Pacing::buffer_bytes`] have no effect here.
    pub fn set_pacing(&self, pacing: Option<Pacing>) {
        self.pacing.set(pacing);
    }

    /// Sends `bytes` as datagrams of `segment_bytes`, of which the last may be shorter, to `peer` or to the connected
    /// one.
    ///
    /// Datagrams are sent in batches that the kernel segments (UDP_SEGMENT), or one by one if it cannot. A batch
    /// holds as much as the rate allows in the median time between trigger states: larger batches would be bursts,
    /// smaller ones would only take more system calls. Send one train at a time: two concurrent ones share the rate,
    /// in no defined order.
    ///
    /// # Errors
    /// Those of `sendmsg(2)`, after which a part of the train may have been sent. [`io::ErrorKind::InvalidInput`] if
    /// `segment_bytes` is 0.
    pub async fn send_train(
        &self,
        bytes: &[u8],
        segment_bytes: u16,
        peer: Option<SocketAddr>,
    ) -> io::Result<()> {
        if segment_bytes == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        if bytes.is_empty() {
            allowance().await;
        }
        let runtime = self.io.runtime();
        let mut rest = bytes;
        while !rest.is_empty() {
            let batch = loop {
                let (batch, at) = self.pacing.next_batch(runtime, segment_bytes.into());
                if at <= crate::now() {
                    break batch;
                }
                // Compute the time again after the sleep, since the pacing may have changed meanwhile.
                crate::sleep_until(at).await;
            };
            // If the train is late by more than a batch, several batches are sent together.
            let due = self.pacing.due(runtime, batch, segment_bytes.into());
            let now = &rest[..rest.len().min(due)];
            let segment = Some(segment_bytes);
            match poll_fn(|cx| self.io.poll_send_datagrams(cx, now, segment, peer)).await {
                Ok(sent) => {
                    self.pacing.on_sent(runtime, sent, batch);
                    rest = &rest[sent..];
                }
                // A device without segmentation fails the call before anything is sent: repeat it one datagram at a
                // time.
                Err(error)
                    if now.len() > segment_bytes.into()
                        && socket::udp::is_without_segments(&error) =>
                {
                    self.pacing.on_uncut();
                }
                Err(error) => return Err(error),
            }
        }
        self.pacing.end();
        Ok(())
    }

    /// Returns the local address.
    ///
    /// # Errors
    /// Those of `getsockname(2)`.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.io.local_addr()
    }
}

impl fmt::Debug for UdpSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UdpSocket")
            .field("local_addr", &self.local_addr().ok())
            .finish()
    }
}

/// The bytes for which a datagram of a batch counts at least, since short ones take time, too: a quarter of a call.
const LEAST_CHARGED_BYTES: usize = 512;
