//! UDP sockets of the kernel.

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::task::{Context, Poll};

use softclock_core::TriggerState;
use softclock_linux::socket::udp::{self, BindOptions, Ecn, RecvBatch};

use super::Kernel;
use crate::runtime::sources::Direction;

impl Kernel {
    pub(crate) fn bind(address: SocketAddr, options: &BindOptions) -> io::Result<Self> {
        Self::new(udp::bind(address, options)?)
    }

    pub(crate) fn connect_to(&self, peer: SocketAddr) -> io::Result<()> {
        self.call(|fd| udp::connect(fd, peer))
    }

    pub(crate) fn poll_recv_from(
        &self,
        cx: &Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<(usize, SocketAddr)>> {
        let recv = |fd: BorrowedFd<'_>| udp::recv_from(fd, buffer);
        self.poll_call(cx, Direction::Read, TriggerState::Receive, recv)
    }

    pub(crate) fn poll_recv_datagram(
        &self,
        cx: &Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let recv = |fd: BorrowedFd<'_>| udp::recv(fd, buffer);
        self.poll_call(cx, Direction::Read, TriggerState::Receive, recv)
    }

    pub(crate) fn poll_recv_batch(
        &self,
        cx: &Context<'_>,
        batch: &mut RecvBatch,
    ) -> Poll<io::Result<usize>> {
        let recv = |fd: BorrowedFd<'_>| {
            let received = udp::recv_batch(fd, batch, &self.runtime().clock)?;
            // The kernel had no more, or has an error, which makes the socket ready again.
            if received < batch.slots() {
                self.on_short(Direction::Read);
            }
            Ok(received)
        };
        self.poll_call(cx, Direction::Read, TriggerState::Receive, recv)
    }

    pub(crate) fn set_ecn(&self, ecn: Ecn) -> io::Result<()> {
        self.call(|fd| udp::set_ecn(fd, ecn))
    }

    /// Sends `bytes` as one datagram, or as datagrams of `segment_bytes` each, which the kernel segments.
    pub(crate) fn poll_send_datagrams(
        &self,
        cx: &Context<'_>,
        bytes: &[u8],
        segment_bytes: Option<u16>,
        peer: Option<SocketAddr>,
    ) -> Poll<io::Result<usize>> {
        let send = |fd: BorrowedFd<'_>| send_datagrams(fd, bytes, segment_bytes, peer);
        self.poll_call(cx, Direction::Write, TriggerState::Send, send)
    }

    pub(crate) fn try_send_to(&self, bytes: &[u8], peer: SocketAddr) -> io::Result<usize> {
        let send = |fd: BorrowedFd<'_>| udp::send_to(fd, bytes, peer);
        self.try_call(Direction::Write, TriggerState::Send, send)
    }
}

fn send_datagrams(
    fd: BorrowedFd<'_>,
    bytes: &[u8],
    segment_bytes: Option<u16>,
    peer: Option<SocketAddr>,
) -> io::Result<usize> {
    match (segment_bytes, peer) {
        (Some(segment), peer) if bytes.len() > segment.into() => {
            udp::send_segments(fd, bytes, segment, peer)
        }
        (_, Some(peer)) => udp::send_to(fd, bytes, peer),
        (_, None) => udp::send(fd, bytes),
    }
}
