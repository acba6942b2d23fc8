//! Datagrams.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::task::{Context, Poll};

use softclock_core::TriggerState;
use softclock_linux::socket;
use softclock_linux::socket::udp::BindOptions;

use super::source::Source;
use crate::runtime::sources::Direction;

/// A UDP socket. Its methods take `&self`, so that tasks may share it.
pub struct UdpSocket {
    carrier: Carrier,
}

enum Carrier {
    Kernel(Source),
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
        let fd = socket::udp::bind(address.into(), options)?;
        Ok(Self {
            carrier: Carrier::Kernel(Source::new(fd)?),
        })
    }

    /// Sends to and receives from `peer` only.
    ///
    /// # Errors
    /// Those of `connect(2)`.
    pub fn connect(&self, peer: impl Into<SocketAddr>) -> io::Result<()> {
        let Carrier::Kernel(source) = &self.carrier;
        source.call(|fd| socket::udp::connect(fd, peer.into()))
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
        let Carrier::Kernel(source) = &self.carrier;
        let recv = |fd: BorrowedFd<'_>| socket::udp::recv_from(fd, buffer);
        source.poll_call(cx, Direction::Read, TriggerState::IpInput, recv)
    }

    /// Sends a datagram to `peer`, when the send buffer has room.
    ///
    /// # Errors
    /// Those of `sendto(2)`.
    pub async fn send_to(&self, bytes: &[u8], peer: impl Into<SocketAddr>) -> io::Result<usize> {
        let peer = peer.into();
        let Carrier::Kernel(source) = &self.carrier;
        let send = |fd: BorrowedFd<'_>| socket::udp::send_to(fd, bytes, peer);
        poll_fn(|cx| source.poll_call(cx, Direction::Write, TriggerState::IpOutput, send)).await
    }

    /// Sends a datagram now, from within a soft event's handler too.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if the send buffer is full; else those of `sendto(2)`.
    pub fn try_send_to(&self, bytes: &[u8], peer: impl Into<SocketAddr>) -> io::Result<usize> {
        let peer = peer.into();
        let Carrier::Kernel(source) = &self.carrier;
        let send = |fd: BorrowedFd<'_>| socket::udp::send_to(fd, bytes, peer);
        source.try_call(Direction::Write, TriggerState::IpOutput, send)
    }

    /// Sends a datagram to the connected peer, when the send buffer has room.
    ///
    /// # Errors
    /// Those of `send(2)`.
    pub async fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        let Carrier::Kernel(source) = &self.carrier;
        let send = |fd: BorrowedFd<'_>| socket::udp::send(fd, bytes);
        poll_fn(|cx| source.poll_call(cx, Direction::Write, TriggerState::IpOutput, send)).await
    }

    /// Receives a datagram from the connected peer; what does not fit into `buffer` is lost.
    ///
    /// # Errors
    /// Those of `recv(2)`.
    pub async fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let Carrier::Kernel(source) = &self.carrier;
        poll_fn(|cx| {
            let recv = |fd: BorrowedFd<'_>| socket::udp::recv(fd, buffer);
            source.poll_call(cx, Direction::Read, TriggerState::IpInput, recv)
        })
        .await
    }

    /// The socket's own address.
    ///
    /// # Errors
    /// Those of `getsockname(2)`.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        let Carrier::Kernel(source) = &self.carrier;
        source.call(socket::local_addr)
    }
}

impl fmt::Debug for UdpSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UdpSocket")
            .field("local_addr", &self.local_addr().ok())
            .finish()
    }
}
