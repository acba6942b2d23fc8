//! Busy polling by an epoll descriptor (EPIOCSPARAMS, ioctl_eventpoll(2), Linux 6.9).
//!
//! A wait polls the device of the socket that was ready last. With [`BusyPoll::is_preferred`], a wait that returns
//! events suspends the device's interrupts up to its suspension time, and one that finds none enables them (Linux
//! 6.13).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::BusyPoll;

/// Sets how waits of an epoll descriptor poll.
///
/// # Errors
/// `Unsupported` for kernels before 6.9; `PermissionDenied` for a budget above the usual one, without CAP_NET_ADMIN.
pub(crate) fn set(epoll: BorrowedFd<'_>, to: BusyPoll) -> io::Result<()> {
    let mut parameters = Parameters {
        busy_poll_us: to.microseconds(),
        budget: to.budget,
        prefers_busy_poll: to.is_preferred.into(),
        padding: 0,
    };
    ask(epoll, SET, &mut parameters)
}

fn ask(epoll: BorrowedFd<'_>, request: libc::Ioctl, parameters: &mut Parameters) -> io::Result<()> {
    // SAFETY: both requests use one structure of this layout, which outlives the call.
    match unsafe { libc::ioctl(epoll.as_raw_fd(), request, std::ptr::from_mut(parameters)) } {
        0 => Ok(()),
        _ => Err(explain(io::Error::last_os_error())),
    }
}

/// Kernels that lack the requests return ENOTTY, or EINVAL before 6.9; those without busy polling EOPNOTSUPP.
fn explain(error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(libc::ENOTTY | libc::EINVAL | libc::EOPNOTSUPP) => io::ErrorKind::Unsupported.into(),
        _ => error,
    }
}

/// `struct epoll_params` (include/uapi/linux/eventpoll.h).
#[repr(C)]
#[derive(Default)]
struct Parameters {
    busy_poll_us: u32,
    budget: u16,
    prefers_busy_poll: u8,
    padding: u8,
}

const SET: libc::Ioctl = 0x4008_8a01;

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::time::Duration;

    use rustix::event::epoll::{CreateFlags, create};

    use super::*;

    fn read(epoll: BorrowedFd<'_>) -> io::Result<BusyPoll> {
        let mut parameters = Parameters::default();
        ask(epoll, GET, &mut parameters)?;
        Ok(BusyPoll {
            time: Duration::from_micros(parameters.busy_poll_us.into()),
            budget: parameters.budget,
            is_preferred: parameters.prefers_busy_poll != 0,
        })
    }

    const GET: libc::Ioctl = 0x8008_8a02u32 as libc::Ioctl;

    #[test]
    fn settings_are_read_as_they_were_set() {
        let epoll = create(CreateFlags::CLOEXEC).unwrap();
        match read(epoll.as_fd()) {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                softclock_testing::skip!("epoll has no busy polling here")
            }
            before => assert_eq!(before.unwrap(), BusyPoll::OFF),
        }
        let changed = BusyPoll {
            is_preferred: true,
            ..BusyPoll::of(Duration::from_micros(50))
        };
        set(epoll.as_fd(), changed).unwrap();
        assert_eq!(read(epoll.as_fd()).unwrap(), changed);
        set(epoll.as_fd(), BusyPoll::OFF).unwrap();
        assert_eq!(read(epoll.as_fd()).unwrap(), BusyPoll::OFF);
    }

    #[test]
    fn a_file_that_is_no_epoll_is_refused() {
        let file = tempfile::tempfile().unwrap();
        let error = set(file.as_fd(), BusyPoll::OFF).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
    }
}
