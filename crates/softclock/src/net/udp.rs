//! UDP sockets.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};

use softclock_linux::socket;
use softclock_linux::socket::udp::BindOptions;

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
    ///
    /// # Errors
    /// As for [`bind`](Self::bind).
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
