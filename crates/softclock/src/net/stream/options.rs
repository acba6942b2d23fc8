//! Socket options of connections.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use softclock_linux::socket;

use super::TcpStream;
use crate::net::carrier::{BUFFER, kernel_option};
use crate::net::options::TcpOption;
use crate::net::stack::KeepAlive;

/// Socket options. Those that a connection of a [stack](crate::net::stack) does not have fail there with
/// [`io::ErrorKind::Unsupported`]; [`as_kernel_fd`](Self::as_kernel_fd) gives access to further ones of the kernel.
impl TcpStream {
    /// Sets whether small segments are sent at once (`TCP_NODELAY`).
    ///
    /// # Errors
    /// Those of `setsockopt(2)`.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.io.set(TcpOption::NoDelay(nodelay))
    }

    /// Returns whether small segments are sent at once.
    ///
    /// # Errors
    /// Those of `getsockopt(2)`; [`io::ErrorKind::NotConnected`] from a [stack](crate::net::stack) that has given the
    /// connection up.
    pub fn nodelay(&self) -> io::Result<bool> {
        self.io.nodelay()
    }

    /// Sets how many bytes may wait in the kernel for the peer's window before it accepts no more
    /// (`TCP_NOTSENT_LOWAT`, at most 4 GiB; 0 for the system's default, which usually is no limit).
    ///
    /// Without a limit the kernel copies megabytes at once for a peer that hardly reads, and the thread's other
    /// connections wait meanwhile. Bytes in flight do not count, so a limit that covers a few turns of the loop does
    /// not reduce the throughput.
    ///
    /// # Errors
    /// Those of `setsockopt(2)`.
    pub fn set_notsent_lowat(&self, bytes: u32) -> io::Result<()> {
        self.io.set(TcpOption::NotsentLowat(bytes))
    }

    /// Returns how many bytes may wait in the kernel before it accepts no more; 0 for the system's default.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] with a [stack](crate::net::stack); otherwise those of `getsockopt(2)`.
    pub fn notsent_lowat(&self) -> io::Result<u32> {
        let what = "limit of unsent bytes";
        kernel_option(self.io.as_kernel(), what, socket::tcp::notsent_lowat)
    }

    /// Sets how closing treats undelivered data (`SO_LINGER`). With `None`, the kernel keeps delivering it in the
    /// background, for a time that the system defines. Zero discards it and resets the connection. Other values would
    /// make closing block the thread, and are rejected.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] for a duration other than zero; otherwise those of `setsockopt(2)`.
    pub fn set_linger(&self, linger: Option<Duration>) -> io::Result<()> {
        if linger.is_some_and(|time| !time.is_zero()) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a lingering close would block the runtime's thread",
            ));
        }
        // Pending paced data must be discarded too when closing resets the connection.
        self.pacing.set_resets(linger.is_some());
        self.io.set(TcpOption::Linger(linger))
    }

    /// Returns how closing treats undelivered data; see [`set_linger`](Self::set_linger).
    ///
    /// # Errors
    /// Those of `getsockopt(2)`; [`io::ErrorKind::NotConnected`] from a [stack](crate::net::stack) that has given the
    /// connection up.
    pub fn linger(&self) -> io::Result<Option<Duration>> {
        self.io.linger()
    }

    /// Sets whether and when the connection is probed while it is idle, so that one with a lost peer ends
    /// (`SO_KEEPALIVE`, `TCP_KEEPIDLE`, `TCP_KEEPINTVL`, `TCP_KEEPCNT`). Off by default. The kernel rounds the times up
    /// to whole seconds.
    ///
    /// # Example
    /// ```no_run
    /// # fn keep_alive(stream: softclock::net::TcpStream) -> std::io::Result<()> {
    /// use softclock::net::KeepAlive;
    /// use std::time::Duration;
    ///
    /// // A peer that has vanished is noticed after 60 + 3 * 10 seconds.
    /// stream.set_keep_alive(KeepAlive {
    ///     is_on: true,
    ///     idle: Duration::from_secs(60),
    ///     interval: Duration::from_secs(10),
    ///     probes: 3,
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] if a time is above 32767 s or the number of probes is not 1 to 127, with the
    /// kernel; otherwise those of `setsockopt(2)`.
    pub fn set_keep_alive(&self, keep_alive: KeepAlive) -> io::Result<()> {
        self.io.set(TcpOption::KeepAlive(keep_alive))
    }

    /// Returns whether and when the connection is probed while it is idle.
    ///
    /// # Errors
    /// Those of `getsockopt(2)`; [`io::ErrorKind::NotConnected`] from a [stack](crate::net::stack) that has given the
    /// connection up.
    pub fn keep_alive(&self) -> io::Result<KeepAlive> {
        self.io
            .option(keep_alive_of_kernel, |settings| settings.keep_alive)
    }

    /// Sets how long written data may wait for the peer's acknowledgment, or for its window to open, before the
    /// connection ends with [`io::ErrorKind::TimedOut`] (`TCP_USER_TIMEOUT`). With `None`, the number of
    /// retransmissions decides. Rounded up: by the kernel to 1 ms, by a [stack](crate::net::stack) to 100 ms.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] for more than 24 days; otherwise those of `setsockopt(2)`.
    pub fn set_user_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.io.set(TcpOption::UserTimeout(timeout))
    }

    /// Returns how long written data may wait for the peer's acknowledgment; `None` if the number of retransmissions
    /// decides.
    ///
    /// # Errors
    /// Those of `getsockopt(2)`; [`io::ErrorKind::NotConnected`] from a [stack](crate::net::stack) that has given the
    /// connection up.
    pub fn user_timeout(&self) -> io::Result<Option<Duration>> {
        self.io.option(socket::tcp::user_timeout, |settings| {
            settings.send.user_timeout
        })
    }

    /// Sets the differentiated services code point of the packets, 0 to 63 (`IP_TOS`, `IPV6_TCLASS`; RFC 2474).
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] for a value above 63; otherwise those of `setsockopt(2)`.
    pub fn set_dscp(&self, dscp: u8) -> io::Result<()> {
        self.io.set(TcpOption::Dscp(dscp))
    }

    /// Returns the differentiated services code point of the packets.
    ///
    /// # Errors
    /// Those of `getsockopt(2)`; [`io::ErrorKind::NotConnected`] from a [stack](crate::net::stack) that has given the
    /// connection up.
    pub fn dscp(&self) -> io::Result<u8> {
        self.io.option(socket::dscp, |settings| settings.dscp)
    }

    /// Sets the hop limit of the packets, at least 1 (`IP_TTL`, `IPV6_UNICAST_HOPS`).
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] for 0; otherwise those of `setsockopt(2)`.
    pub fn set_hop_limit(&self, hops: u8) -> io::Result<()> {
        self.io.set(TcpOption::HopLimit(hops))
    }

    /// Returns the hop limit of the packets.
    ///
    /// # Errors
    /// Those of `getsockopt(2)`; [`io::ErrorKind::NotConnected`] from a [stack](crate::net::stack) that has given the
    /// connection up.
    pub fn hop_limit(&self) -> io::Result<u8> {
        self.io
            .option(socket::hop_limit, |settings| settings.hop_limit)
    }

    /// Requests a send buffer of about `bytes` (`SO_SNDBUF`), which turns off its automatic size. The kernel doubles
    /// the value, for its bookkeeping, and limits it to net.core.wmem_max.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] with a [stack](crate::net::stack); otherwise those of `setsockopt(2)`.
    pub fn set_send_buffer_bytes(&self, bytes: usize) -> io::Result<()> {
        self.io.set(TcpOption::SendBuffer(bytes))
    }

    /// Requests a receive buffer of about `bytes` (`SO_RCVBUF`), which turns off its automatic size. The kernel doubles
    /// the value, for its bookkeeping, and limits it to net.core.rmem_max. A window of more than 64 KiB needs a size
    /// that was set before the connection was opened, as on a [listener](crate::net::TcpListener::as_kernel_fd).
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] with a [stack](crate::net::stack); otherwise those of `setsockopt(2)`.
    pub fn set_recv_buffer_bytes(&self, bytes: usize) -> io::Result<()> {
        self.io.set(TcpOption::RecvBuffer(bytes))
    }

    /// Returns the size of the send buffer with the kernel's bookkeeping (`SO_SNDBUF`).
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] with a [stack](crate::net::stack); otherwise those of `getsockopt(2)`.
    pub fn send_buffer_bytes(&self) -> io::Result<usize> {
        kernel_option(self.io.as_kernel(), BUFFER, socket::send_buffer_bytes)
    }

    /// Returns the size of the receive buffer with the kernel's bookkeeping (`SO_RCVBUF`).
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] with a [stack](crate::net::stack); otherwise those of `getsockopt(2)`.
    pub fn recv_buffer_bytes(&self) -> io::Result<usize> {
        kernel_option(self.io.as_kernel(), BUFFER, socket::recv_buffer_bytes)
    }
}

fn keep_alive_of_kernel(fd: BorrowedFd<'_>) -> io::Result<KeepAlive> {
    let (idle, interval, probes) = socket::tcp::keep_alive_times(fd)?;
    Ok(KeepAlive {
        is_on: socket::tcp::keep_alive(fd)?,
        idle,
        interval,
        probes,
    })
}
