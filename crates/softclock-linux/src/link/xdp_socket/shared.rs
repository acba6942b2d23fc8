//! An AF_XDP socket for receivers in several threads: one lock around everything.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};

use softclock_wire::packet::Offload;

use super::{XdpError, XdpSettings, XdpSocket, XdpStep, lock};
use crate::link::{Link, Received, Refused};

/// An [`XdpSocket`] from which several threads receive, in turn, under a lock. Clones share the socket.
///
/// Frames are lent to the receiver while it holds the lock, so keep the closures short, and call no method of this
/// socket in them: that would block forever.
#[derive(Clone)]
pub struct SharedXdpSocket {
    socket: Arc<Mutex<XdpSocket>>,
    fd: Arc<OwnedFd>,
}

impl SharedXdpSocket {
    /// Opens a link as [`XdpSocket::open`] does.
    ///
    /// # Errors
    /// Those of [`XdpSocket::open`].
    pub fn open(link: &Link, settings: XdpSettings) -> Result<Self, XdpError> {
        let socket = XdpSocket::open(link, settings)?;
        let fd = duplicate(&socket)?;
        Ok(Self {
            socket: Arc::new(Mutex::new(socket)),
            fd,
        })
    }

    /// Passes frames to `on_frame` as [`XdpSocket::receive`] does.
    ///
    /// # Errors
    /// `WouldBlock` if no frame has arrived.
    pub fn receive(
        &self,
        on_frame: impl FnMut(Result<Received<&[u8]>, Refused>),
    ) -> io::Result<usize> {
        lock(&self.socket).receive(on_frame)
    }

    /// Sends frames as [`XdpSocket::send`] does.
    ///
    /// # Errors
    /// Those of [`XdpSocket::send`].
    pub fn send<'a>(
        &self,
        frames: impl IntoIterator<Item = (&'a [u8], &'a Offload)>,
    ) -> io::Result<usize> {
        lock(&self.socket).send(frames)
    }

    /// Counts lost frames as [`XdpSocket::take_lost`] does.
    ///
    /// # Errors
    /// Those of [`XdpSocket::take_lost`].
    pub fn take_lost(&self) -> io::Result<u64> {
        lock(&self.socket).take_lost()
    }
}

impl AsFd for SharedXdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl fmt::Debug for SharedXdpSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SharedXdpSocket").field(&self.fd).finish()
    }
}

fn duplicate(socket: &impl AsFd) -> Result<Arc<OwnedFd>, XdpError> {
    let fd = socket.as_fd().try_clone_to_owned();
    let fd = fd.map_err(|error| XdpError::Failed(XdpStep::Socket, error))?;
    Ok(Arc::new(fd))
}

#[cfg(test)]
mod tests;
