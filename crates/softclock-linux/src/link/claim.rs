//! Exclusive claims: a link belongs to at most one bridge or stack at a time, and so does the delay of its interrupts.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};

use super::Link;

/// The process that delays a link's interrupts by [`DelayedInterrupts`](super::DelayedInterrupts).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DelayHolder {
    /// No process does.
    None,
    /// The process with this id.
    Process(u32),
    /// A process whose id is unknown.
    Unknown,
}

/// An advisory claim to a link. It ends on drop, or when the process ends.
///
/// It is a listening Unix socket with an abstract name that contains the link's index. Like links, abstract names
/// belong to a network namespace. A process that fails to bind the name connects to the socket and so learns the
/// holder's id.
#[derive(Debug)]
pub struct Claim(OwnedFd);

/// Why a link cannot be claimed.
#[derive(Debug)]
#[non_exhaustive]
pub enum ClaimError {
    /// Another process has the claim: its id, or `None` if it is in another process namespace.
    Held(Option<u32>),
    /// The socket cannot be created.
    Io(io::Error),
}

impl fmt::Display for ClaimError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held(Some(process)) => write!(f, "the link is in use by process {process}"),
            Self::Held(None) => f.write_str("the link is in use by another process"),
            Self::Io(error) => write!(f, "cannot claim the link: {error}"),
        }
    }
}

impl std::error::Error for ClaimError {}

impl Claim {
    /// Claims a link for this process.
    ///
    /// # Errors
    /// [`ClaimError::Held`] if the link is claimed, also if by this process; [`ClaimError::Io`] if the socket cannot be
    /// created.
    pub fn to(link: &Link) -> Result<Self, ClaimError> {
        Self::named("bridge", link)
    }

    /// Claims the delay of a link's interrupts, which another process than that of the bridge or stack may set.
    pub(super) fn to_interrupts(link: &Link) -> Result<Self, ClaimError> {
        Self::named(INTERRUPTS, link)
    }

    /// The process that has claimed the delay of a link's interrupts.
    pub(super) fn holder_of_interrupts(link: &Link) -> DelayHolder {
        let (Ok(address), Ok(socket)) = (address(INTERRUPTS, link), new_socket()) else {
            return DelayHolder::None;
        };
        match connect(&socket, &address) {
            Err(Errno::CONNREFUSED) => DelayHolder::None,
            Ok(()) => peer_of(&socket).map_or(DelayHolder::Unknown, DelayHolder::Process),
            // The queue of connections is full.
            Err(_) => DelayHolder::Unknown,
        }
    }

    fn named(purpose: &str, link: &Link) -> Result<Self, ClaimError> {
        let failed = |error: Errno| ClaimError::Io(error.into());
        let address = address(purpose, link).map_err(failed)?;
        let socket = new_socket().map_err(failed)?;
        match bind(&socket, &address) {
            Err(Errno::ADDRINUSE) => Err(ClaimError::Held(holder(&address))),
            Err(error) => Err(failed(error)),
            Ok(()) => {
                // Others must be able to connect: the kernel gives the holder's id only for a connection.
                listen(&socket, MOST_ASKING).map_err(failed)?;
                Ok(Self(socket))
            }
        }
    }
}

impl AsFd for Claim {
    /// The socket: the claim lasts until all duplicates of it are closed, those that a child process inherits included.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn address(purpose: &str, link: &Link) -> Result<SocketAddrUnix, Errno> {
    let name = format!("softclock/{purpose}/{}", link.index());
    SocketAddrUnix::new_abstract_name(name.as_bytes())
}

/// Creates the socket. It is nonblocking, since the holder accepts no connections and the queue may be full.
fn new_socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

/// The id of the process that listens at `address`. `None` if it is in another process namespace, or if the queue of
/// connections is full.
fn holder(address: &SocketAddrUnix) -> Option<u32> {
    let socket = new_socket().ok()?;
    connect(&socket, address).ok()?;
    peer_of(&socket)
}

/// The id of the process that listens at the other end of a connection (SO_PEERCRED, unix(7)). `None` if it is in
/// another process namespace.
fn peer_of(socket: &OwnedFd) -> Option<u32> {
    let mut peer = libc::ucred {
        pid: 0,
        uid: 0,
        gid: 0,
    };
    let mut length = size_of_val(&peer) as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes of a structure of integers, which outlives the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut length,
        )
    };
    let pid = u32::try_from(peer.pid).ok().filter(|&pid| pid > 0);
    pid.filter(|_| result == 0)
}

/// The purpose of claims to the delay of interrupts.
const INTERRUPTS: &str = "interrupts";

/// The length of the queue of connections. Each failed claim leaves one in it until the claim ends; beyond that, failed
/// claims do not learn the holder's id.
const MOST_ASKING: i32 = 1024;

#[cfg(test)]
mod tests {
    use super::super::cable::cable;
    use super::*;

    #[test]
    fn a_link_has_one_owner() {
        let cable = cable!();
        let [link, other] = cable.links();
        let claim = Claim::to(&link).unwrap();
        for _ in 0..5 {
            let error = Claim::to(&link).unwrap_err();
            let own = std::process::id();
            let is_named = matches!(error, ClaimError::Held(Some(pid)) if pid == own);
            assert!(is_named, "{error:?}");
        }
        Claim::to(&other).unwrap();
        drop(claim);
        Claim::to(&link).unwrap();
    }
}
