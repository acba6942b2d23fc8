//! Options of connections, and the bytes that a connection has in flight.

use std::ffi::c_int;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::ioctl;
use rustix::net::sockopt;

use super::super::common::{option, set_option};

/// Turns TCP_NODELAY on or off: whether the kernel sends small pieces at once, or collects them while data is
/// unacknowledged.
pub fn set_nodelay(fd: BorrowedFd<'_>, on: bool) -> io::Result<()> {
    Ok(sockopt::set_tcp_nodelay(fd, on)?)
}

/// Returns whether TCP_NODELAY is on.
pub fn nodelay(fd: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(sockopt::tcp_nodelay(fd)?)
}

/// Limits the rate at which the kernel paces the connection's segments, in bytes per second (SO_MAX_PACING_RATE).
/// `None` removes the limit.
pub fn set_max_pacing_rate(fd: BorrowedFd<'_>, bytes_per_second: Option<u64>) -> io::Result<()> {
    // The kernel accepts 8 bytes since 4.20; before, it would use the first 4.
    let rate = bytes_per_second.unwrap_or(u64::MAX);
    set_option(fd, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, rate)
}

/// Limits the unsent data in the socket's buffer: while more than `bytes` wait to be sent, the socket is not writable
/// and accepts no more (TCP_NOTSENT_LOWAT).
pub fn set_notsent_lowat(fd: BorrowedFd<'_>, bytes: u32) -> io::Result<()> {
    set_option(fd, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, bytes)
}

/// Returns the limit of unsent data in the socket's buffer (TCP_NOTSENT_LOWAT); 0 for the system's default.
pub fn notsent_lowat(fd: BorrowedFd<'_>) -> io::Result<u32> {
    option(fd, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT)
}

/// Sets the effect of closing the socket on unsent data (SO_LINGER).
///
/// `None` sends the data in the background. Zero drops the data and resets the connection. A longer time, in whole
/// seconds, blocks the closing thread until the data is sent or the time has passed.
pub fn set_linger(fd: BorrowedFd<'_>, linger: Option<Duration>) -> io::Result<()> {
    Ok(sockopt::set_socket_linger(fd, linger)?)
}

/// Returns the effect of closing the socket on unsent data, as in [`set_linger`].
pub fn linger(fd: BorrowedFd<'_>) -> io::Result<Option<Duration>> {
    Ok(sockopt::socket_linger(fd)?)
}

/// Turns probes of an idle connection on or off (SO_KEEPALIVE). An unanswered series ends the connection.
pub fn set_keep_alive(fd: BorrowedFd<'_>, on: bool) -> io::Result<()> {
    Ok(sockopt::set_socket_keepalive(fd, on)?)
}

/// Returns whether an idle connection is probed.
pub fn keep_alive(fd: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(sockopt::socket_keepalive(fd)?)
}

/// Sets when an idle connection is probed: first after `idle`, then each `interval`, `probes` times in all
/// (TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_KEEPCNT). Makes three system calls.
///
/// The times are in whole seconds, 1 to 32767, and rounded up. Fails with `InvalidInput` for longer ones, and unless
/// `probes` is 1 to 127.
pub fn set_keep_alive_times(
    fd: BorrowedFd<'_>,
    idle: Duration,
    interval: Duration,
    probes: u8,
) -> io::Result<()> {
    sockopt::set_tcp_keepidle(fd, whole_seconds(idle))?;
    sockopt::set_tcp_keepintvl(fd, whole_seconds(interval))?;
    Ok(sockopt::set_tcp_keepcnt(fd, probes.into())?)
}

/// Returns when an idle connection is probed: the time before the first probe, the time between probes, and their
/// number. Makes three system calls.
pub fn keep_alive_times(fd: BorrowedFd<'_>) -> io::Result<(Duration, Duration, u8)> {
    let probes = sockopt::tcp_keepcnt(fd)?;
    Ok((
        sockopt::tcp_keepidle(fd)?,
        sockopt::tcp_keepintvl(fd)?,
        // At most 127.
        u8::try_from(probes).unwrap_or(u8::MAX),
    ))
}

fn whole_seconds(time: Duration) -> Duration {
    let is_more = time.subsec_nanos() > 0;
    Duration::from_secs(time.as_secs().saturating_add(is_more.into()).max(1))
}

/// Sets how long sent data may be unacknowledged before the connection ends with `TimedOut` (TCP_USER_TIMEOUT), in
/// milliseconds, rounded up. `None` leaves that to the number of retransmissions.
pub fn set_user_timeout(fd: BorrowedFd<'_>, timeout: Option<Duration>) -> io::Result<()> {
    let ms = timeout.map_or(0, |timeout| timeout.as_nanos().div_ceil(1_000_000).max(1));
    // The kernel refuses more, as a negative number.
    let ms = u32::try_from(ms).unwrap_or(u32::MAX);
    Ok(sockopt::set_tcp_user_timeout(fd, ms)?)
}

/// Returns how long sent data may be unacknowledged; `None` if that is left to the number of retransmissions.
pub fn user_timeout(fd: BorrowedFd<'_>) -> io::Result<Option<Duration>> {
    let ms = sockopt::tcp_user_timeout(fd)?;
    Ok((ms > 0).then(|| Duration::from_millis(ms.into())))
}

/// Returns the number of bytes written that the peer's kernel has not acknowledged (SIOCOUTQ of tcp(7)).
pub fn unacknowledged(fd: BorrowedFd<'_>) -> io::Result<u64> {
    // SAFETY: the call writes one int through its pointer, and `Getter` passes a pointer to one.
    let count = unsafe { ioctl::ioctl(fd, ioctl::Getter::<SIOCOUTQ, c_int>::new())? };
    Ok(u64::try_from(count).unwrap_or(0))
}

/// Defined as TIOCOUTQ in `linux/sockios.h`.
const SIOCOUTQ: ioctl::Opcode = libc::TIOCOUTQ as ioctl::Opcode;

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::super::super::common::testing::loopbacks;
    use super::super::pair;
    use super::*;

    #[test]
    fn times_of_keep_alive_are_rounded_up() {
        for address in loopbacks() {
            let (here, _there) = pair(address).unwrap();
            let (idle, interval) = (Duration::from_millis(1_001), Duration::ZERO);
            set_keep_alive_times(here.as_fd(), idle, interval, 3).unwrap();
            set_keep_alive(here.as_fd(), true).unwrap();
            assert!(sockopt::socket_keepalive(&here).unwrap());
            assert_eq!(sockopt::tcp_keepidle(&here).unwrap().as_secs(), 2);
            assert_eq!(sockopt::tcp_keepintvl(&here).unwrap().as_secs(), 1);
            assert_eq!(sockopt::tcp_keepcnt(&here).unwrap(), 3);
            assert!(keep_alive(here.as_fd()).unwrap());
            let [idle, interval] = [2, 1].map(Duration::from_secs);
            let times = keep_alive_times(here.as_fd()).unwrap();
            assert_eq!(times, (idle, interval, 3));
            let error =
                set_keep_alive_times(here.as_fd(), Duration::from_secs(40_000), interval, 3);
            assert_eq!(error.unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
    }

    #[test]
    fn a_user_timeout_is_at_least_a_millisecond() {
        for address in loopbacks() {
            let (here, _there) = pair(address).unwrap();
            for (timeout, ms) in [
                (Some(Duration::from_nanos(1)), 1),
                (Some(Duration::from_micros(2_001)), 3),
                (None, 0),
            ] {
                set_user_timeout(here.as_fd(), timeout).unwrap();
                assert_eq!(sockopt::tcp_user_timeout(&here).unwrap(), ms);
                let expected = (ms > 0).then(|| Duration::from_millis(ms.into()));
                assert_eq!(user_timeout(here.as_fd()).unwrap(), expected);
            }
            let error = set_user_timeout(here.as_fd(), Some(Duration::MAX)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        }
    }

    #[test]
    fn options_are_read_as_they_were_set() {
        for address in loopbacks() {
            let (here, _there) = pair(address).unwrap();
            let fd = here.as_fd();
            assert_eq!(linger(fd).unwrap(), None);
            set_linger(fd, Some(Duration::ZERO)).unwrap();
            assert_eq!(linger(fd).unwrap(), Some(Duration::ZERO));
            set_notsent_lowat(fd, 12_345).unwrap();
            assert_eq!(notsent_lowat(fd).unwrap(), 12_345);
            for on in [true, false] {
                set_nodelay(fd, on).unwrap();
                assert_eq!(nodelay(fd).unwrap(), on);
            }
        }
    }
}
