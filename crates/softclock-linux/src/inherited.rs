//! Takes over listening sockets that the service manager opened for this process (socket activation, sd_listen_fds(3)).
//!
//! # Example
//! ```
//! use softclock_linux::inherited::{Family, take};
//!
//! # fn main() -> std::io::Result<()> {
//! for socket in take()? {
//!     match socket.family {
//!         Family::Internet => println!("{} accepts TCP connections", socket.name),
//!         Family::Unix => println!("{} has a path", socket.name),
//!     }
//! }
//! // A second call returns none.
//! assert!(take()?.is_empty());
//! # Ok(())
//! # }
//! ```

use std::env;
use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{AddressFamily, SocketType, sockopt};

/// A listening stream socket that was open when the program started.
#[derive(Debug)]
pub struct Inherited {
    /// The socket's name: `FileDescriptorName=` of the socket unit, which defaults to the unit's name; `unknown` if the
    /// service manager passed none.
    pub name: String,
    /// The family of the addresses that the socket accepts connections from.
    pub family: Family,
    /// The socket, set to nonblocking and close-on-exec.
    pub fd: OwnedFd,
}

/// The address family of a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    /// IPv4 or IPv6.
    Internet,
    /// Unix domain sockets, named by paths.
    Unix,
}

/// Takes over the sockets that the service manager passed to this process, in the order of their descriptors.
///
/// Returns an empty list if it passed none, and at every call but the first.
///
/// # Errors
/// Returns [`io::ErrorKind::InvalidInput`] if a descriptor is not a listening stream socket, and the errors of
/// `fcntl(2)` if one is not open.
pub fn take() -> io::Result<Vec<Inherited>> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    let count = count(|name| env::var(name).ok(), std::process::id());
    if count == 0 || TAKEN.swap(true, Ordering::SeqCst) {
        return Ok(Vec::new());
    }
    let names = env::var("LISTEN_FDNAMES").unwrap_or_default();
    let mut names = names.split(':');
    (FIRST..FIRST + count)
        .map(|fd| {
            let name = names.next().filter(|name| !name.is_empty());
            // SAFETY: the service manager passed this descriptor to this process (LISTEN_PID) to own, and `TAKEN` lets
            // this line run only once.
            let fd = unsafe { OwnedFd::from_raw_fd(fd) };
            inherit(fd, name.unwrap_or("unknown"))
        })
        .collect()
}

/// Checks that `fd` is a listening stream socket, and makes it nonblocking and close-on-exec.
pub(crate) fn inherit(fd: OwnedFd, name: &str) -> io::Result<Inherited> {
    fcntl_setfd(&fd, FdFlags::CLOEXEC)?;
    let family = match sockopt::socket_domain(&fd)? {
        AddressFamily::INET | AddressFamily::INET6 => Family::Internet,
        AddressFamily::UNIX => Family::Unix,
        _ => return Err(no_listener(name)),
    };
    let listening = sockopt::socket_acceptconn(fd.as_fd())?;
    if !listening || sockopt::socket_type(&fd)? != SocketType::STREAM {
        return Err(no_listener(name));
    }
    rustix::io::ioctl_fionbio(&fd, true)?;
    Ok(Inherited {
        name: name.into(),
        family,
        fd,
    })
}

fn no_listener(name: &str) -> io::Error {
    let message = format!("the inherited socket {name} is not a listening stream socket");
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

/// Returns the number of descriptors passed to the process `own`; 0 if the variables are for another process.
fn count(variable: impl Fn(&str) -> Option<String>, own: u32) -> RawFd {
    let number = |name| variable(name)?.parse::<u32>().ok();
    match (number("LISTEN_PID"), number("LISTEN_FDS")) {
        (Some(pid), Some(count @ 0..=MOST)) if pid == own => count as RawFd,
        _ => 0,
    }
}

/// The first passed descriptor (SD_LISTEN_FDS_START).
const FIRST: RawFd = 3;

/// The most descriptors that are accepted. Larger numbers in LISTEN_FDS are taken for garbage.
const MOST: u32 = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_for_this_process() {
        let with = |pid: &str, fds: &str| {
            let (pid, fds) = (pid.to_owned(), fds.to_owned());
            count(
                move |name| match name {
                    "LISTEN_PID" => Some(pid.clone()),
                    "LISTEN_FDS" => Some(fds.clone()),
                    _ => None,
                },
                7,
            )
        };
        assert_eq!(with("7", "2"), 2);
        assert_eq!(with("8", "2"), 0);
        assert_eq!(with("7", "-1"), 0);
        assert_eq!(with("7", "4000000000"), 0);
        assert_eq!(count(|_| None, 7), 0);
    }
}
