//! Changes of a link that the kernel reports (rtnetlink(7)).

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{RecvFlags, bind, recv};

use super::Link;
use super::host::{BUFFER_BYTES, route_socket};
use super::netlink::next_message;
use crate::socket::NEW_SOCKET;

/// Reports that a link was deleted, which AF_XDP sockets do not, and that the host's addresses on it have changed. Its
/// descriptor is readable when [`receive`](Self::receive) has a message.
///
/// ```no_run
/// use softclock_linux::link::{Link, LinkChange, LinkMonitor};
///
/// let link = Link::named("eth0")?;
/// let monitor = LinkMonitor::with_addresses(&link)?;
/// // Once the descriptor is readable:
/// monitor.receive(|change| match change {
///     LinkChange::Deleted => println!("gone"),
///     LinkChange::Addresses => println!("{:?}", link.addresses()),
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct LinkMonitor {
    link: u32,
    socket: OwnedFd,
    buffer: RefCell<Vec<u8>>,
}

/// A change of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkChange {
    /// The link was deleted, or moved to another network namespace.
    Deleted,
    /// An address of the host on this link was added, removed or changed.
    Addresses,
}

impl LinkMonitor {
    /// Opens a monitor of the link's end. It reports what happens from this call on, in the network namespace of this
    /// thread.
    ///
    /// # Errors
    /// Those of socket(2) and bind(2).
    pub fn open(link: &Link) -> io::Result<Self> {
        Self::of_groups(link, LINK_GROUP)
    }

    /// Opens a monitor of the link's end, as [`open`](Self::open) does, and of the host's addresses on the link. The
    /// kernel reports addresses more often than they are added and removed, such as with each router advertisement.
    ///
    /// # Errors
    /// Those of socket(2) and bind(2).
    pub fn with_addresses(link: &Link) -> io::Result<Self> {
        Self::of_groups(link, LINK_GROUP | ADDRESS_GROUPS)
    }

    fn of_groups(link: &Link, groups: u32) -> io::Result<Self> {
        let socket = route_socket(NEW_SOCKET)?;
        bind(&socket, &SocketAddrNetlink::new(0, groups))?;
        Ok(Self {
            link: link.index(),
            socket,
            buffer: vec![0; BUFFER_BYTES].into(),
        })
    }

    /// Passes the changes of the link in the next message of the kernel to `on_change`. There are none if the message
    /// is about another link.
    ///
    /// # Errors
    /// `WouldBlock` if there is no message. After `ENOBUFS`, messages were lost: look at [`Link::exists`] and
    /// [`Link::addresses`].
    pub fn receive(&self, mut on_change: impl FnMut(LinkChange)) -> io::Result<()> {
        let mut buffer = self.buffer.borrow_mut();
        let (bytes, _) = recv(&self.socket, &mut buffer[..], RecvFlags::empty())?;
        let mut rest = buffer.get(..bytes).unwrap_or_default();
        while let Some((kind, body)) = next_message(&mut rest) {
            change(self.link, kind, body)
                .into_iter()
                .for_each(&mut on_change);
        }
        Ok(())
    }
}

impl AsFd for LinkMonitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Reads the family and the index at the beginning of `struct ifinfomsg` and of `struct ifaddrmsg`.
fn change(link: u32, kind: u16, body: &[u8]) -> Option<LinkChange> {
    let [family, _, _, _, a, b, c, d] = *body.first_chunk()?;
    if u32::from_ne_bytes([a, b, c, d]) != link {
        return None;
    }
    match kind {
        // With the family of bridges, the link has only left its bridge.
        DELETE_LINK if i32::from(family) == libc::AF_UNSPEC => Some(LinkChange::Deleted),
        NEW_ADDRESS | DELETE_ADDRESS => Some(LinkChange::Addresses),
        _ => None,
    }
}

/// include/uapi/linux/rtnetlink.h.
const DELETE_LINK: u16 = 17;
const NEW_ADDRESS: u16 = 20;
const DELETE_ADDRESS: u16 = 21;
/// RTMGRP_LINK, RTMGRP_IPV4_IFADDR and RTMGRP_IPV6_IFADDR.
const LINK_GROUP: u32 = 1;
const ADDRESS_GROUPS: u32 = 0x10 | 0x100;

#[cfg(test)]
mod tests;
