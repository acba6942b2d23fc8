//! Sockets that the service manager opened for us (sd_listen_fds(3)).

use std::env;
use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{AddressFamily, SocketType, sockopt};

/// A listening stream socket that was open when the program started.
#[derive(Debug)]
pub struct Inherited {
    /// Its name. From a service manager that of `FileDescriptorName=`, by default the name of the socket unit.
    pub name: String,
    /// What it accepts.
    pub family: Family,
    /// The socket, nonblocking and closed on exec.
    pub fd: OwnedFd,
}

/// The kind of a socket's addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    /// IPv4 or IPv6.
    Internet,
    /// Paths.
    Unix,
}

/// Takes the sockets over; none at the second call.
///
/// Fails with [`io::ErrorKind::InvalidInput`] where one is no listening stream socket, and with what fcntl(2) says of
/// descriptors that are not open.
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
            // SAFETY: the service manager passed it to this process (LISTEN_PID) for us to own, and this is done once.
            let fd = unsafe { OwnedFd::from_raw_fd(fd) };
            inherit(fd, name.unwrap_or("unknown"))
        })
        .collect()
}

/// Prepares a socket that was open when the program started.
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
    let message = format!("the socket {name} that was passed is no listening stream socket");
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

/// How many descriptors were passed to the process `own`; those of another are none.
fn count(variable: impl Fn(&str) -> Option<String>, own: u32) -> RawFd {
    let number = |name| variable(name)?.parse::<u32>().ok();
    match (number("LISTEN_PID"), number("LISTEN_FDS")) {
        (Some(pid), Some(count @ 0..=MOST)) if pid == own => count as RawFd,
        _ => 0,
    }
}

/// SD_LISTEN_FDS_START.
const FIRST: RawFd = 3;

/// More than anybody passes.
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
