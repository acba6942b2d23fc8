//! Datagrams.

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
pub struct UdpSocket {
    io: UdpIo,
    pacing: DatagramPacing,
}

impl UdpSocket {
    /// A socket at `address`; port 0 lets the kernel choose.
    ///
    /// # Errors
    /// Those of `socket(2)` and `bind(2)`; outside a runtime.
    pub fn bind(address: impl Into<SocketAddr>) -> io::Result<Self> {
        Self::bind_with(address, &BindOptions::default())
    }

    /// A socket at `address`, which several may share with [`BindOptions::reuse_port`].
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    pub fn bind_with(address: impl Into<SocketAddr>, options: &BindOptions) -> io::Result<Self> {
        Ok(Self {
            io: UdpIo::bind(address.into(), options)?,
            pacing: DatagramPacing::new(),
        })
    }

    /// Sends to and receives from `peer` only.
    ///
    /// # Errors
    /// Those of `connect(2)`.
    pub fn connect(&self, peer: impl Into<SocketAddr>) -> io::Result<()> {
        self.io.connect_to(peer.into())
    }

    /// Receives a datagram; what does not fit into `buffer` is lost.
    ///
    /// # Errors
    /// Those of `recvfrom(2)`; `ECONNREFUSED` tells that a datagram sent before found no receiver.
    pub async fn recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        poll_fn(|cx| self.poll_recv_from(cx, buffer)).await
    }

    /// As [`recv_from`](Self::recv_from), for futures written by hand.
    ///
    /// # Errors
    /// As [`recv_from`](Self::recv_from).
    pub fn poll_recv_from(
        &self,
        cx: &Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<(usize, SocketAddr)>> {
        self.io.poll_recv_from(cx, buffer)
    }

    /// Sends a datagram to `peer`, when the send buffer has room.
    ///
    /// # Errors
    /// Those of `sendto(2)`.
    pub async fn send_to(&self, bytes: &[u8], peer: impl Into<SocketAddr>) -> io::Result<usize> {
        let peer = Some(peer.into());
        poll_fn(|cx| self.io.poll_send_datagrams(cx, bytes, None, peer)).await
    }

    /// Sends a datagram now, from within a soft event's handler too.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if the send buffer is full; else those of `sendto(2)`.
    pub fn try_send_to(&self, bytes: &[u8], peer: impl Into<SocketAddr>) -> io::Result<usize> {
        self.io.try_send_to(bytes, peer.into())
    }

    /// Sends a datagram to the connected peer, when the send buffer has room.
    ///
    /// # Errors
    /// Those of `send(2)`.
    pub async fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        poll_fn(|cx| self.io.poll_send_datagrams(cx, bytes, None, None)).await
    }

    /// Receives a datagram from the connected peer; what does not fit into `buffer` is lost.
    ///
    /// # Errors
    /// Those of `recv(2)`.
    pub async fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        poll_fn(|cx| self.io.poll_recv_datagram(cx, buffer)).await
    }

    /// Paces the trains of [`send_train`](Self::send_train) from the next batch on, by soft events that wake the sender;
    /// `None` sends them as fast as the send buffer takes them. Other datagrams go at once. [`Pacing::by`] and
    /// [`Pacing::buffer_bytes`] have no meaning here.
    pub fn set_pacing(&self, pacing: Option<Pacing>) {
        self.pacing.set(pacing);
    }

    /// Sends `bytes` as datagrams of `segment_bytes`, the last of what is left, to `peer`, or to the connected one.
    ///
    /// They go in batches that the kernel cuts (UDP_SEGMENT), or one by one where it cannot. A batch is as large as what
    /// the rate gives in the median time between trigger states: more would be a burst, less another walk through the
    /// kernel for nothing. One train at a time: two at once share the rate, and their order is open.
    ///
    /// # Errors
    /// Those of `sendmsg(2)`, where some of the train has been sent; [`io::ErrorKind::InvalidInput`] for segments of no
    /// bytes.
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
                // The pacing may change meanwhile.
                crate::sleep_until(at).await;
            };
            let due = self.pacing.due(runtime, batch, segment_bytes.into());
            let now = &rest[..rest.len().min(due)];
            let segment = Some(segment_bytes);
            match poll_fn(|cx| self.io.poll_send_datagrams(cx, now, segment, peer)).await {
                Ok(sent) => {
                    self.pacing.on_sent(runtime, sent, batch);
                    rest = &rest[sent..];
                }
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

    /// The socket's own address.
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
