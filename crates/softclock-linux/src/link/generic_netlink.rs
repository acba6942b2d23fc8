//! Requests of generic netlink (Documentation/userspace-api/netlink/intro.rst).

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};
use rustix::net::{recv, send, socket_with};

use super::netlink::{
    ACKNOWLEDGE, Attribute, DONE, DUMP, ERROR, REQUEST, Reply, finish, message, next_message,
};

/// A family of requests, with a socket in the network namespace of the thread that looked it up.
#[derive(Debug)]
pub(super) struct Family {
    socket: OwnedFd,
    id: u16,
}

impl Family {
    /// Looks up a family by name.
    ///
    /// # Errors
    /// `Unsupported` if the kernel has no such family.
    pub(super) fn named(name: &CStr) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let generic = Some(netlink::GENERIC);
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, generic)?;
        let controller = Self {
            socket,
            id: CONTROLLER,
        };
        let asked = [Attribute::bytes(FAMILY_NAME, name.to_bytes_with_nul())];
        let replies = controller.request(GET_FAMILY, &asked);
        let replies = replies.map_err(|error| match error.raw_os_error() {
            Some(libc::ENOENT) => io::ErrorKind::Unsupported.into(),
            _ => error,
        })?;
        let id = replies.first().and_then(|reply| reply.number(FAMILY_ID));
        let id = id.and_then(|id| u16::try_from(id).ok());
        Ok(Self {
            id: id.ok_or(io::ErrorKind::Unsupported)?,
            ..controller
        })
    }

    /// Makes a request; returns the replies, if there are any besides the acknowledgement.
    ///
    /// # Errors
    /// The error in the acknowledgement; `Unsupported` for an unknown command.
    pub(super) fn request(&self, command: u8, attributes: &[Attribute]) -> io::Result<Vec<Reply>> {
        self.exchange(command, REQUEST | ACKNOWLEDGE, attributes)
    }

    /// Makes a request with a reply for each of several objects.
    ///
    /// # Errors
    /// As [`request`](Self::request).
    pub(super) fn dump(&self, command: u8, attributes: &[Attribute]) -> io::Result<Vec<Reply>> {
        self.exchange(command, REQUEST | DUMP, attributes)
    }

    /// The bytes of a request, to be written to the [socket](Self::as_fd) later. It is acknowledged.
    pub(super) fn written(&self, command: u8, attributes: &[Attribute]) -> Vec<u8> {
        let flags = REQUEST | ACKNOWLEDGE;
        message(self.id, flags, &[command, VERSION, 0, 0], attributes)
    }

    fn exchange(
        &self,
        command: u8,
        flags: u16,
        attributes: &[Attribute],
    ) -> io::Result<Vec<Reply>> {
        let request = message(self.id, flags, &[command, VERSION, 0, 0], attributes);
        send(&self.socket, &request, SendFlags::empty())?;
        let mut replies = Vec::new();
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            let (bytes, _) = recv(&self.socket, &mut buffer[..], RecvFlags::empty())?;
            let mut rest = buffer.get(..bytes).unwrap_or_default();
            while let Some((kind, body)) = next_message(&mut rest) {
                match kind {
                    // The acknowledgement, with 0 or a negative error; the end of a dump has the same.
                    ERROR | DONE => return finish(body, replies),
                    _ => replies.push(Reply::parse(body, HEADER)),
                }
            }
        }
    }
}

impl AsFd for Family {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// include/uapi/linux/genetlink.h.
const HEADER: usize = 4;
const CONTROLLER: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
const VERSION: u8 = 1;

/// The kernel's replies are at most this long.
const BUFFER_BYTES: usize = 32 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_family_is_unsupported() {
        let error = Family::named(c"no-such-family").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
    }
}
