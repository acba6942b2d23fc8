//! Opens a stack at the addresses of the host.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

use softclock_linux::link::{HostNeighbors, Link, Transport, reserve_port};
use softclock_net::routes::Prefix;

use crate::net::stack::{StackError, StackOptions, host_addresses};

/// What a stack at the addresses of the host needs of the host.
pub(in super::super) struct HostParts {
    pub(in super::super) neighbors: HostNeighbors,
    pub(in super::super) ports: Vec<(Transport, u16)>,
    /// Keeps the host's sockets from the ports.
    pub(in super::super) reserved: Vec<OwnedFd>,
}

/// The options with the addresses and routers of the host.
pub(super) fn addressed(
    options: &StackOptions,
    ports: &[(Transport, u16)],
) -> Result<StackOptions, StackError> {
    if ports.is_empty() {
        return Err(StackError::NoHostPort);
    }
    if !options.addresses.is_empty() || options.link_address.is_some() {
        return Err(StackError::HostAndOwn);
    }
    let mut options = options.clone();
    options.addresses = host_addresses(&options.interface)?;
    if options.gateways.is_empty() {
        let routers = Link::named(&options.interface).and_then(|link| link.default_routers());
        options.gateways =
            routers.map_err(|error| StackError::Find(options.interface.clone(), error))?;
    }
    Ok(options)
}

/// The host's addresses on a link, with their prefixes. Link-local ones of IPv6 and loopback ones stay the host's.
pub(in super::super) fn addresses(link: &Link) -> io::Result<Vec<Prefix>> {
    let is_shared = |(address, _): &(IpAddr, u32)| match address {
        IpAddr::V4(address) => !address.is_loopback(),
        IpAddr::V6(address) => !(address.is_unicast_link_local() || address.is_loopback()),
    };
    let all = link.addresses()?.into_iter().filter(is_shared);
    let prefix = |(address, bits)| Prefix {
        address,
        bits: u8::try_from(bits).unwrap_or(u8::MAX),
    };
    Ok(all.map(prefix).collect())
}

/// Opens the host's table of neighbors, and reserves the ports, if the options are those of a stack at the host's
/// addresses.
pub(super) fn parts(link: &Link, options: &StackOptions) -> Result<Option<HostParts>, StackError> {
    let Some(ports) = &options.host_ports else {
        return Ok(None);
    };
    let mut reserved = Vec::new();
    for prefix in &options.addresses {
        for &(transport, port) in ports {
            let address = SocketAddr::new(prefix.address, port);
            let socket = reserve_port(transport, address);
            reserved.push(socket.map_err(|error| StackError::HostPort(address, error))?);
        }
    }
    let neighbors = HostNeighbors::open(link).map_err(StackError::Watch)?;
    Ok(Some(HostParts {
        neighbors,
        ports: ports.clone(),
        reserved,
    }))
}
