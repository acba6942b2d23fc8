//! UDP sockets of the kernel.

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::task::{Context, Poll};

use softclock_core::TriggerState;
use softclock_linux::socket;
use softclock_linux::socket::udp::{self, BindOptions, RecvBatch, Transmit};

use super::Kernel;
use crate::net::options::UdpOption;
use crate::runtime::sources::Direction;

impl Kernel {
    pub(crate) fn bind(address: SocketAddr, options: &BindOptions) -> io::Result<Self> {
        Self::datagrams(udp::bind(address, options)?)
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

    pub(crate) fn try_recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let recv = |fd: BorrowedFd<'_>| udp::recv_from(fd, buffer);
        self.try_call(Direction::Read, TriggerState::Receive, recv)
    }

    pub(crate) fn try_recv_datagram(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let recv = |fd: BorrowedFd<'_>| udp::recv(fd, buffer);
        self.try_call(Direction::Read, TriggerState::Receive, recv)
    }

    pub(crate) fn poll_recv_batch(
        &self,
        cx: &Context<'_>,
        batch: &mut RecvBatch,
    ) -> Poll<io::Result<usize>> {
        let recv = |fd: BorrowedFd<'_>| self.recv_batch(fd, batch);
        self.poll_call(cx, Direction::Read, TriggerState::Receive, recv)
    }

    pub(crate) fn try_recv_batch(&self, batch: &mut RecvBatch) -> io::Result<usize> {
        let recv = |fd: BorrowedFd<'_>| self.recv_batch(fd, batch);
        self.try_call(Direction::Read, TriggerState::Receive, recv)
    }

    fn recv_batch(&self, fd: BorrowedFd<'_>, batch: &mut RecvBatch) -> io::Result<usize> {
        let received = udp::recv_batch(fd, batch, &self.runtime().clock)?;
        // The kernel had no more, or has an error, which makes the socket ready again.
        if received < batch.slots() {
            self.on_short(Direction::Read);
        }
        Ok(received)
    }

    pub(crate) fn set_udp(&self, option: UdpOption) -> io::Result<()> {
        self.call(|fd| match option {
            UdpOption::Ecn(ecn) => udp::set_ecn(fd, ecn),
            UdpOption::Dscp(dscp) => socket::set_dscp(fd, dscp),
            UdpOption::HopLimit(hops) => socket::set_hop_limit(fd, hops),
            UdpOption::SendBuffer(bytes) => socket::set_send_buffer_bytes(fd, bytes),
            UdpOption::RecvBuffer(bytes) => socket::set_recv_buffer_bytes(fd, bytes),
            UdpOption::Broadcast(on) => udp::set_broadcast(fd, on),
            UdpOption::Join(group, interface) => udp::join_multicast(fd, group, interface),
            UdpOption::Leave(group, interface) => udp::leave_multicast(fd, group, interface),
            UdpOption::MulticastLoop(on) => udp::set_multicast_loop(fd, on),
            UdpOption::MulticastHops(hops) => udp::set_multicast_hops(fd, hops),
            UdpOption::MulticastInterface(interface) => udp::set_multicast_interface(fd, interface),
        })
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

    pub(crate) fn try_send_datagram(
        &self,
        bytes: &[u8],
        peer: Option<SocketAddr>,
    ) -> io::Result<usize> {
        let send = |fd: BorrowedFd<'_>| send_datagrams(fd, bytes, None, peer);
        self.try_call(Direction::Write, TriggerState::Send, send)
    }

    /// Sends the first datagrams of `batch` when there is room, joined while `joins` is set.
    pub(crate) fn poll_send_batch(
        &self,
        cx: &Context<'_>,
        batch: &[Transmit<'_>],
        dscp: u8,
        joins: &Cell<bool>,
    ) -> Poll<io::Result<usize>> {
        let send = |fd: BorrowedFd<'_>| udp::send_batch(fd, batch, dscp, joins);
        self.poll_call(cx, Direction::Write, TriggerState::Send, send)
    }

    /// Like [`poll_send_batch`](Self::poll_send_batch), without waiting.
    pub(crate) fn try_send_batch(
        &self,
        batch: &[Transmit<'_>],
        dscp: u8,
        joins: &Cell<bool>,
    ) -> io::Result<usize> {
        let send = |fd: BorrowedFd<'_>| udp::send_batch(fd, batch, dscp, joins);
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
