//! TCP sockets of the kernel.

use std::io::{self, IoSlice};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::BorrowedFd;
use std::task::{Context, Poll};

use softclock_core::TriggerState;
use softclock_linux::socket;
use softclock_linux::socket::tcp::ListenOptions;
use softclock_net::tcp::keepalive::KeepAlive;

use super::Kernel;
use crate::net::options::TcpOption;
use crate::runtime::sources::Direction;

impl Kernel {
    pub(crate) fn listen(address: SocketAddr, options: &ListenOptions) -> io::Result<Self> {
        Self::duplicated(socket::tcp::listen(address, options)?)
    }

    pub(crate) fn poll_accept(&self, cx: &Context<'_>) -> Poll<io::Result<(Self, SocketAddr)>> {
        let accept = socket::tcp::accept;
        let accepted = self.poll_call(cx, Direction::Read, TriggerState::Receive, accept);
        accepted.map(|accepted| {
            let (fd, peer) = accepted?;
            Ok((Self::new(fd)?, peer))
        })
    }

    /// Begins to connect; [`poll_connected`](Self::poll_connected) returns the result.
    pub(crate) fn connect(peer: SocketAddr) -> io::Result<Self> {
        Self::new(socket::tcp::connect_start(peer)?)
    }

    pub(crate) fn poll_connected(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        let finish = socket::tcp::connect_finish;
        self.poll_call(cx, Direction::Write, TriggerState::Send, finish)
    }

    /// Sends a piece of a paced stream when the send buffer has room. A partial transfer does not consume readiness,
    /// since the writer does not continue at once.
    pub(crate) fn poll_send_piece(
        &self,
        cx: &Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let send = |fd: BorrowedFd<'_>| send_parts(fd, parts);
        self.poll_call(cx, Direction::Write, TriggerState::Send, send)
    }

    /// Like [`poll_send_piece`](Self::poll_send_piece), without waiting.
    pub(crate) fn try_send_piece(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let send = |fd: BorrowedFd<'_>| send_parts(fd, parts);
        self.try_call(Direction::Write, TriggerState::Send, send)
    }

    /// Sends without waiting and without a trigger state, for use within one.
    pub(crate) fn send_quietly(&self, bytes: &[u8]) -> io::Result<usize> {
        self.quiet_call(Direction::Write, |fd| socket::tcp::send(fd, bytes))
    }

    /// Ends the direction of writing without a trigger state, for use within one.
    pub(crate) fn end_quietly(&self) -> io::Result<()> {
        let end = |fd: BorrowedFd<'_>| socket::tcp::shutdown(fd, Shutdown::Write);
        self.quiet_call(Direction::Write, end)
    }

    pub(crate) fn set_max_pacing_rate(&self, bytes_per_second: Option<u64>) -> io::Result<()> {
        self.quiet_call(Direction::Write, |fd| {
            socket::tcp::set_max_pacing_rate(fd, bytes_per_second)
        })
    }

    pub(crate) fn set_tcp(&self, option: TcpOption) -> io::Result<()> {
        self.call(|fd| match option {
            TcpOption::NoDelay(on) => socket::tcp::set_nodelay(fd, on),
            TcpOption::NotsentLowat(bytes) => socket::tcp::set_notsent_lowat(fd, bytes),
            TcpOption::Linger(linger) => socket::tcp::set_linger(fd, linger),
            TcpOption::KeepAlive(keep_alive) => set_keep_alive(fd, &keep_alive),
            TcpOption::UserTimeout(timeout) => socket::tcp::set_user_timeout(fd, timeout),
            TcpOption::Dscp(dscp) => socket::set_dscp(fd, dscp),
            TcpOption::HopLimit(hops) => socket::set_hop_limit(fd, hops),
            TcpOption::SendBuffer(bytes) => socket::set_send_buffer_bytes(fd, bytes),
            TcpOption::RecvBuffer(bytes) => socket::set_recv_buffer_bytes(fd, bytes),
        })
    }

    pub(crate) fn unacknowledged(&self) -> io::Result<u64> {
        self.call(socket::tcp::unacknowledged)
    }

    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.call(socket::local_addr)
    }

    pub(crate) fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.call(socket::peer_addr)
    }
}

fn set_keep_alive(fd: BorrowedFd<'_>, keep_alive: &KeepAlive) -> io::Result<()> {
    if keep_alive.is_on {
        let KeepAlive {
            idle,
            interval,
            probes,
            ..
        } = *keep_alive;
        socket::tcp::set_keep_alive_times(fd, idle, interval, probes)?;
    }
    socket::tcp::set_keep_alive(fd, keep_alive.is_on)
}

fn send_parts(fd: BorrowedFd<'_>, parts: &[IoSlice<'_>]) -> io::Result<usize> {
    match parts {
        [part] => socket::tcp::send(fd, part),
        _ => socket::tcp::send_vectored(fd, parts),
    }
}
