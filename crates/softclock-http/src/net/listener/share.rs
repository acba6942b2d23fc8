//! Listening sockets that stay open while any thread has a share of them.
//!
//! Before a thread closes a listener, it accepts the connections in the kernel's queue, which takes a while when the
//! thread is at its limit of connections. If a reload adds the address again meanwhile, the new listener gets a share
//! of the same socket: a new socket could not be bound beside it, and clients in the queue would be reset.

use std::fs::{self, Permissions};
use std::io;
use std::net::TcpListener as StdTcp;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener as StdUnix;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::net::address::Place;

/// A TCP or Unix variant of a listener.
#[derive(Debug)]
pub(super) enum Either<T, U> {
    Tcp(T),
    Unix(U),
}

/// An open listening socket, and its path if it is a Unix socket.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) socket: Either<StdTcp, StdUnix>,
    pub(super) path: Option<SocketPath>,
}

/// A share of a listening socket. Dropping the last share closes the socket.
#[derive(Debug)]
pub(super) struct Share(Arc<Shared>);

/// A reference to a socket that does not keep it open.
#[derive(Debug)]
pub(super) struct WeakShare(Arc<Shared>);

/// The socket with its number of shares. The count of an `Arc` would not suffice: it drops to zero before the socket is
/// closed, and the address can be bound again only after that.
#[derive(Debug)]
struct Shared(Mutex<State>);

#[derive(Debug)]
struct State {
    shares: usize,
    /// `None` when closed.
    open: Option<Open>,
}

impl Open {
    /// Returns the place at which the socket listens, with its real port.
    pub(super) fn place(&self) -> io::Result<Place> {
        Ok(match &self.socket {
            Either::Tcp(listener) => Place::One(listener.local_addr()?),
            Either::Unix(listener) => {
                let address = listener.local_addr()?;
                Place::Unix(address.as_pathname().unwrap_or(Path::new("")).into())
            }
        })
    }

    /// Duplicates the socket's descriptor.
    pub(super) fn duplicate(&self) -> io::Result<OwnedFd> {
        match &self.socket {
            Either::Tcp(listener) => listener.as_fd().try_clone_to_owned(),
            Either::Unix(listener) => listener.as_fd().try_clone_to_owned(),
        }
    }
}

impl Share {
    pub(super) fn new(socket: Either<StdTcp, StdUnix>, path: Option<SocketPath>) -> Self {
        let open = Some(Open { socket, path });
        Self(Arc::new(Shared(Mutex::new(State { shares: 1, open }))))
    }

    /// Returns a reference that does not keep the socket open.
    pub(super) fn downgrade(&self) -> WeakShare {
        WeakShare(Arc::clone(&self.0))
    }

    /// Returns whether both are shares of one socket.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Calls `f` with the socket, which is open while a share exists.
    pub(super) fn with<T>(&self, f: impl FnOnce(&Open) -> T) -> T {
        let state = self.0.lock();
        f(state.open.as_ref().expect("this share keeps it open"))
    }

    /// Sets the file that is removed when the socket closes; returns the previous one.
    pub(super) fn set_path(&self, path: Option<SocketPath>) -> Option<SocketPath> {
        let mut state = self.0.lock();
        let open = state.open.as_mut().expect("this share keeps it open");
        std::mem::replace(&mut open.path, path)
    }
}

impl Clone for Share {
    fn clone(&self) -> Self {
        self.0.lock().shares += 1;
        Self(Arc::clone(&self.0))
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.shares -= 1;
        if state.shares == 0 {
            // The socket must be closed before the lock is released, so that no other thread finds it open without
            // shares.
            state.open = None;
        }
    }
}

impl WeakShare {
    pub(super) fn is_open(&self) -> bool {
        self.0.lock().open.is_some()
    }

    /// Returns a share, unless the socket is closed or its path leads to another file.
    pub(super) fn upgrade(&self) -> Option<Share> {
        let mut state = self.0.lock();
        let is_found = |open: &Open| open.path.as_ref().is_none_or(SocketPath::is_own);
        state.open.as_ref().filter(|open| is_found(open))?;
        state.shares += 1;
        Some(Share(Arc::clone(&self.0)))
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The path of a Unix socket. Dropping it removes the file, unless the path leads to another file by then.
#[derive(Debug)]
pub(super) struct SocketPath {
    path: PathBuf,
    inode: (u64, u64),
}

impl SocketPath {
    pub(super) fn new(path: &Path) -> io::Result<Self> {
        let file = fs::symlink_metadata(path)?;
        Ok(Self {
            path: std::path::absolute(path)?,
            inode: (file.dev(), file.ino()),
        })
    }

    /// Keeps the file when the socket closes.
    pub(super) fn leave(self) {
        std::mem::forget(self);
    }

    /// Sets the permissions of the file, unless the path leads to another file.
    pub(super) fn set_mode(&self, mode: u32) -> io::Result<()> {
        if self.is_own() {
            fs::set_permissions(&self.path, Permissions::from_mode(mode))?;
        }
        Ok(())
    }

    /// Returns whether the path still leads to this socket.
    fn is_own(&self) -> bool {
        let file = fs::symlink_metadata(&self.path);
        file.is_ok_and(|file| (file.dev(), file.ino()) == self.inode)
    }
}

impl Drop for SocketPath {
    fn drop(&mut self) {
        if self.is_own() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_share_closes_the_socket() {
        let listener = StdTcp::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let first = Share::new(Either::Tcp(listener), None);
        let weak = first.downgrade();
        let second = weak.upgrade().unwrap();
        drop((first, second.clone()));
        assert!(weak.is_open() && StdTcp::bind(address).is_err());
        drop(second);
        assert!(!weak.is_open() && weak.upgrade().is_none());
        StdTcp::bind(address).unwrap();
    }

    #[test]
    fn a_path_that_leads_elsewhere_is_no_more_shared() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listener = StdUnix::bind(&path).unwrap();
        let share = Share::new(
            Either::Unix(listener),
            Some(SocketPath::new(&path).unwrap()),
        );
        assert!(share.downgrade().upgrade().is_some());
        fs::remove_file(&path).unwrap();
        assert!(share.downgrade().upgrade().is_none());
    }
}
