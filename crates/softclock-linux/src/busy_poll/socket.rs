//! Busy polling by calls on a socket (SO_BUSY_POLL, SO_PREFER_BUSY_POLL and SO_BUSY_POLL_BUDGET of socket(7)).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::BusyPoll;

/// Sets how calls on a socket poll its device.
///
/// # Errors
/// `Unsupported` for kernels before 5.11; `PermissionDenied` without CAP_NET_ADMIN, except to turn all off.
pub(crate) fn set(socket: BorrowedFd<'_>, to: BusyPoll) -> io::Result<()> {
    // The preference first: to set it needs privileges, and so nothing is changed without them.
    set_option(socket, libc::SO_PREFER_BUSY_POLL, to.is_preferred.into())?;
    set_option(socket, libc::SO_BUSY_POLL, to.microseconds() as libc::c_int)?;
    set_option(socket, libc::SO_BUSY_POLL_BUDGET, to.budget.into())
}

fn set_option(socket: BorrowedFd<'_>, option: libc::c_int, value: libc::c_int) -> io::Result<()> {
    // SAFETY: the kernel reads one integer behind the pointer, which outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    match (result, io::Error::last_os_error()) {
        (0, _) => Ok(()),
        (_, error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => {
            Err(io::ErrorKind::Unsupported.into())
        }
        (_, error) => Err(error),
    }
}
