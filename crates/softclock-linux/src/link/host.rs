//! The part of the host in a stack that shares the host's addresses: its neighbors, its routers and its ports
//! (rtnetlink(7)).

use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with,
    sockopt,
};

use super::netlink::{
    ACKNOWLEDGE, Attribute, DONE, DUMP, ERROR, REQUEST, Reply, finish, message, next_message,
};
use super::{Link, Transport};
use crate::socket::NEW_SOCKET;

/// The link addresses of the host's neighbors on a link, which the kernel finds and keeps up to date. Its descriptor is
/// readable when [`receive`](Self::receive) has news.
///
/// ```no_run
/// use softclock_linux::link::{HostNeighbors, Link};
///
/// let neighbors = HostNeighbors::open(&Link::named("eth0")?)?;
/// if neighbors.ask("192.0.2.1".parse()?)?.is_none() {
///     // Once the descriptor is readable:
///     neighbors.receive(|address, link_address| println!("{address} is at {link_address:?}"))?;
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct HostNeighbors {
    link: u32,
    /// Receives news of all neighbors.
    news: OwnedFd,
    /// Asks, and receives the answers.
    asker: OwnedFd,
    buffer: RefCell<Vec<u8>>,
}

impl HostNeighbors {
    /// Opens the table of neighbors in the network namespace of this thread.
    ///
    /// # Errors
    /// Those of socket(2) and bind(2).
    pub fn open(link: &Link) -> io::Result<Self> {
        let news = route_socket(NEW_SOCKET)?;
        bind(&news, &SocketAddrNetlink::new(0, NEIGHBOR_GROUP))?;
        Ok(Self {
            link: link.index(),
            news,
            asker: route_socket(SocketFlags::CLOEXEC)?,
            buffer: vec![0; BUFFER_BYTES].into(),
        })
    }

    /// Returns the link address of a neighbor, if the kernel knows it, and makes the kernel find it, or confirm it, if
    /// need be. If it is not known, [`receive`](Self::receive) has it when the neighbor has answered. Makes two to four
    /// system calls. Needs CAP_NET_ADMIN.
    ///
    /// # Errors
    /// Those of the kernel for neighbors that cannot be, and without the capability.
    pub fn ask(&self, address: IpAddr) -> io::Result<Option<[u8; 6]>> {
        let header = self.header(address, 0);
        let known = self.request(GET_NEIGHBOR, REQUEST, &header, address);
        let known = match known {
            Ok(reply) => reply.filter(Neighbor::is_valid),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => None,
            Err(error) => return Err(error),
        };
        let needs_look = known.as_ref().is_none_or(|known| known.state & STALE != 0);
        if needs_look {
            // As a packet of the host does: an entry without an address is asked for, a stale one is confirmed.
            let header = self.header(address, USE);
            let flags = REQUEST | ACKNOWLEDGE | CREATE;
            self.request(NEW_NEIGHBOR, flags, &header, address)?;
        }
        Ok(known.and_then(|known| known.link_address))
    }

    /// Passes neighbors on the link whose link addresses are news to `on_news`. Takes at most one message of the
    /// kernel, with one or a few neighbors.
    ///
    /// # Errors
    /// `WouldBlock` if there is none. After `ENOBUFS`, news was lost: [`ask`](Self::ask) again.
    pub fn receive(&self, mut on_news: impl FnMut(IpAddr, [u8; 6])) -> io::Result<()> {
        let mut buffer = self.buffer.borrow_mut();
        let (bytes, _) = recv(&self.news, &mut buffer[..], RecvFlags::empty())?;
        let mut rest = buffer.get(..bytes).unwrap_or_default();
        while let Some((kind, body)) = next_message(&mut rest) {
            let neighbor = Neighbor::parse(body).filter(|_| kind == NEW_NEIGHBOR);
            let Some(neighbor) = neighbor.filter(|one| one.link == self.link && one.is_valid())
            else {
                continue;
            };
            if let Some(link_address) = neighbor.link_address {
                on_news(neighbor.address, link_address);
            }
        }
        Ok(())
    }

    /// `struct ndmsg`.
    fn header(&self, address: IpAddr, flags: u8) -> [u8; 12] {
        let mut header = [0; 12];
        header[0] = family_of(address);
        header[4..8].copy_from_slice(&self.link.to_ne_bytes());
        header[10] = flags;
        header
    }

    /// Makes a request about a neighbor; returns the neighbor in the reply, if there is one.
    fn request(
        &self,
        kind: u16,
        flags: u16,
        header: &[u8],
        address: IpAddr,
    ) -> io::Result<Option<Neighbor>> {
        let destination = match address {
            IpAddr::V4(address) => Attribute::bytes(DESTINATION, &address.octets()),
            IpAddr::V6(address) => Attribute::bytes(DESTINATION, &address.octets()),
        };
        let request = message(kind, flags, header, &[destination]);
        send(&self.asker, &request, SendFlags::empty())?;
        let mut buffer = self.buffer.borrow_mut();
        let (bytes, _) = recv(&self.asker, &mut buffer[..], RecvFlags::empty())?;
        match next_message(&mut buffer.get(..bytes).unwrap_or_default()) {
            Some((ERROR | DONE, body)) => finish(body, None),
            Some((_, body)) => Ok(Neighbor::parse(body)),
            None => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

impl AsFd for HostNeighbors {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.news.as_fd()
    }
}

/// An entry of the kernel's table.
struct Neighbor {
    link: u32,
    address: IpAddr,
    state: u16,
    link_address: Option<[u8; 6]>,
}

impl Neighbor {
    /// Reads `struct ndmsg` and the attributes behind it.
    fn parse(body: &[u8]) -> Option<Self> {
        let header = body.first_chunk::<12>()?;
        let reply = Reply::parse(body, header.len());
        let [_, _, _, _, a, b, c, d, e, f, ..] = *header;
        Some(Self {
            link: u32::from_ne_bytes([a, b, c, d]),
            address: address_of(reply.value(DESTINATION)?)?,
            state: u16::from_ne_bytes([e, f]),
            link_address: reply
                .value(LINK_ADDRESS)
                .and_then(|bytes| bytes.try_into().ok()),
        })
    }

    fn is_valid(&self) -> bool {
        self.state & VALID != 0
    }
}

impl Link {
    /// Lists the routers of the host's default routes over this link, the preferred ones first: at most one for each
    /// version of IP.
    ///
    /// # Errors
    /// Those of netlink(7).
    pub fn default_routers(&self) -> io::Result<Vec<IpAddr>> {
        let socket = route_socket(SocketFlags::CLOEXEC)?;
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut routers = Vec::new();
        for family in [libc::AF_INET, libc::AF_INET6] {
            let mut header = [0; ROUTE_HEADER];
            header[0] = family as u8;
            send(
                &socket,
                &message(GET_ROUTE, REQUEST | DUMP, &header, &[]),
                SendFlags::empty(),
            )?;
            let mut found: Option<(u64, IpAddr)> = None;
            'dump: loop {
                let (bytes, _) = recv(&socket, &mut buffer[..], RecvFlags::empty())?;
                let mut rest = buffer.get(..bytes).unwrap_or_default();
                while let Some((kind, body)) = next_message(&mut rest) {
                    if matches!(kind, ERROR | DONE) {
                        finish(body, ())?;
                        break 'dump;
                    }
                    let route = self.default_route(body);
                    found = match (found, route) {
                        (Some(best), Some(route)) if route.0 < best.0 => Some(route),
                        (None, route) => route,
                        (best, _) => best,
                    };
                }
            }
            routers.extend(found.map(|(_, router)| router));
        }
        Ok(routers)
    }

    /// Reads `struct rtmsg` and its attributes: the metric and the router, if it is a default route over this link.
    fn default_route(&self, body: &[u8]) -> Option<(u64, IpAddr)> {
        let [_, bits, _, _, table, ..] = *body.first_chunk::<ROUTE_HEADER>()?;
        let reply = Reply::parse(body, ROUTE_HEADER);
        let is_ours = reply.number(OUTPUT_LINK) == Some(self.index().into());
        if bits != 0 || table != MAIN_TABLE || !is_ours {
            return None;
        }
        let metric = reply.number(METRIC).unwrap_or(0);
        Some((metric, address_of(reply.value(GATEWAY)?)?))
    }
}

/// Reserves a port of the host: the host's sockets cannot have it, with the same or an unspecified address, while the
/// result is held. The socket is bound and not listening, so the host refuses connections that reach it. If connections
/// of the host at this port are in TIME-WAIT, sockets with SO_REUSEADDR can have it nevertheless.
///
/// # Errors
/// `AddrInUse` if a socket of the host has the port; those of bind(2).
pub fn reserve_port(transport: Transport, address: SocketAddr) -> io::Result<OwnedFd> {
    let kind = match transport {
        Transport::Tcp => SocketType::STREAM,
        Transport::Udp => SocketType::DGRAM,
    };
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let socket = socket_with(family, kind, NEW_SOCKET, None)?;
    match bind(&socket, &address) {
        Err(Errno::ADDRINUSE) if transport == Transport::Tcp => {
            // Past connections are no reason to refuse.
            sockopt::set_socket_reuseaddr(&socket, true)?;
            bind(&socket, &address)?;
        }
        bound => bound?,
    }
    Ok(socket)
}

pub(super) fn route_socket(flags: SocketFlags) -> io::Result<OwnedFd> {
    // Without a protocol: NETLINK_ROUTE is 0.
    Ok(socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        flags,
        None,
    )?)
}

const fn family_of(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => libc::AF_INET as u8,
        IpAddr::V6(_) => libc::AF_INET6 as u8,
    }
}

fn address_of(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    let v6 = <[u8; 16]>::try_from(bytes).map(IpAddr::from);
    v4.or(v6).ok()
}

/// include/uapi/linux/rtnetlink.h.
const NEW_NEIGHBOR: u16 = 28;
const GET_NEIGHBOR: u16 = 30;
const GET_ROUTE: u16 = 26;
const NEIGHBOR_GROUP: u32 = 1 << 2;
const ROUTE_HEADER: usize = 12;
const MAIN_TABLE: u8 = 254;
const OUTPUT_LINK: u16 = 4;
const GATEWAY: u16 = 5;
const METRIC: u16 = 6;
/// include/uapi/linux/netlink.h.
const CREATE: u16 = 0x400;
/// include/uapi/linux/neighbour.h.
const DESTINATION: u16 = 1;
const LINK_ADDRESS: u16 = 2;
const USE: u8 = 1;
const STALE: u16 = 4;
/// REACHABLE, STALE, DELAY, PROBE, NOARP, PERMANENT.
const VALID: u16 = 0x2 | STALE | 0x8 | 0x10 | 0x40 | 0x80;

pub(super) const BUFFER_BYTES: usize = 32 << 10;

#[cfg(test)]
mod tests;
