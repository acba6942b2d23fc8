//! A link belongs to one bridge at a time.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};

use super::Link;

/// The claim to a link, among processes that ask for it. It ends with this, or with the process.
///
/// It is a listening socket of a name in the abstract namespace of Unix sockets, which each network namespace has of its
/// own, as it has links of its own.
#[derive(Debug)]
pub struct Claim(#[expect(dead_code, reason = "held for its end")] OwnedFd);

/// Why a link cannot be claimed.
#[derive(Debug)]
pub enum ClaimError {
    /// Another process has it: this one, if that is known.
    Held(Option<u32>),
    /// The kernel makes no socket.
    Io(io::Error),
}

impl Claim {
    /// Claims a link.
    ///
    /// # Errors
    /// Another process has it, or the kernel makes no socket.
    pub fn to(link: &Link) -> Result<Self, ClaimError> {
        let failed = |error: Errno| ClaimError::Io(error.into());
        let name = format!("softclock/bridge/{}", link.index());
        let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).map_err(failed)?;
        let socket = new_socket().map_err(failed)?;
        match bind(&socket, &address) {
            Err(Errno::ADDRINUSE) => Err(ClaimError::Held(holder(&address))),
            Err(error) => Err(failed(error)),
            Ok(()) => {
                listen(&socket, MOST_ASKING).map_err(failed)?;
                Ok(Self(socket))
            }
        }
    }
}

/// Nonblocking, as nobody takes connections: their queue may be full.
fn new_socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

/// The process that listens there; unix(7), SO_PEERCRED. Those of other process namespaces have no number here.
fn holder(address: &SocketAddrUnix) -> Option<u32> {
    let socket = new_socket().ok()?;
    connect(&socket, address).ok()?;
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

/// Processes that may have asked who has a link, and are told; each is a connection that stays until the claim ends.
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
