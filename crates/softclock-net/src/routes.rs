//! The addresses of a stack with one link, and the routes of its packets.
//!
//! The stack is a host: it delivers packets to its own addresses and groups, and forwards none. All its addresses
//! belong to one link. A destination is on the link if a [`Prefix`] contains it, or if it is an IPv6 link-local
//! address; packets to all others go to a gateway.

use alloc::vec::Vec;
use core::fmt;
use core::net::{IpAddr, Ipv4Addr};

use crate::ip::ndisc::{self, solicited_node};
use crate::link::LinkAddress;

mod prefix;

pub use prefix::{InvalidPrefix, Prefix};

/// The addresses, groups and gateways of a stack.
///
/// # Cost
/// Each look-up visits each address once, and there are at most [`MOST_ADDRESSES`](Self::MOST_ADDRESSES). Groups are
/// found by binary search.
///
/// # Example
/// ```
/// use softclock_net::routes::{Destination, NextHop, Routes};
///
/// let ip = |text: &str| text.parse::<std::net::IpAddr>().unwrap();
/// let addresses = vec!["10.0.0.1/24".parse().unwrap(), "2001:db8::1/64".parse().unwrap()];
/// let routes = Routes::new(addresses, vec![ip("10.0.0.254")]).unwrap();
///
/// assert_eq!(routes.classify(ip("10.0.0.1")), Destination::Ours);
/// assert_eq!(routes.classify(ip("10.0.0.255")), Destination::Broadcast);
/// assert_eq!(routes.next_hop(ip("10.0.0.7")), Some(NextHop::Neighbor(ip("10.0.0.7"))));
/// assert_eq!(routes.next_hop(ip("192.0.2.1")), Some(NextHop::Neighbor(ip("10.0.0.254"))));
/// assert_eq!(routes.next_hop(ip("2001:db8:ffff::1")), None);
/// assert_eq!(routes.source_for(ip("192.0.2.1")), Some(ip("10.0.0.1")));
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Routes {
    addresses: Vec<Prefix>,
    gateways: Vec<IpAddr>,
    /// The groups that were joined, ascending, each with the number of its members.
    groups: Vec<(IpAddr, usize)>,
}

/// A destination of a packet, from the point of view of the stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Destination {
    /// An address of the stack.
    Ours,
    /// A multicast group that the stack has joined.
    Group,
    /// All IPv4 hosts on the link: 255.255.255.255, or the broadcast address of a prefix.
    Broadcast,
    /// Any other address.
    Other,
}

/// The first receiver of a packet on its way to the destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NextHop {
    /// The link address is known: that of a multicast group or of all hosts.
    Link(LinkAddress),
    /// The destination itself or a gateway, whose link address [`Neighbors`](crate::neighbors::Neighbors) finds.
    Neighbor(IpAddr),
}

/// An address, a gateway or a group cannot be added.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RouteError {
    /// The prefix has more bits than its address.
    PrefixLength(Prefix),
    /// A host on a link cannot have this address: it is a multicast, unspecified, loopback or IPv4-mapped address, or
    /// the first or last address of its IPv4 prefix.
    UnusableAddress(IpAddr),
    /// The stack has this address already.
    DuplicateAddress(IpAddr),
    /// The stack has the largest number of addresses.
    TooManyAddresses,
    /// The gateway cannot be the address of another host, or is listed twice.
    UnusableGateway(IpAddr),
    /// No prefix contains the address of the gateway.
    GatewayNotOnLink(IpAddr),
    /// This is not the address of a multicast group.
    NotAGroup(IpAddr),
    /// The stack has joined the largest number of groups.
    TooManyGroups,
}

impl Routes {
    /// The largest number of addresses.
    pub const MOST_ADDRESSES: usize = 64;
    /// The largest number of groups that can be joined.
    pub const MOST_GROUPS: usize = 1024;

    /// Returns the routes of a stack with these addresses. Packets to destinations that are not on the link go to the
    /// first gateway that is of the destination's family and on the link.
    ///
    /// # Errors
    /// [`RouteError`] for the first address, then the first gateway, that cannot be used.
    pub fn new(addresses: Vec<Prefix>, gateways: Vec<IpAddr>) -> Result<Self, RouteError> {
        let mut routes = Self {
            addresses: Vec::with_capacity(addresses.len().min(Self::MOST_ADDRESSES)),
            gateways: Vec::new(),
            groups: Vec::new(),
        };
        for prefix in addresses {
            routes.add_address(prefix)?;
        }
        for gateway in gateways {
            routes.add_gateway(gateway)?;
        }
        Ok(routes)
    }

    /// The stack's addresses, in the order in which they were added.
    pub fn addresses(&self) -> &[Prefix] {
        &self.addresses
    }

    /// The gateways, in the order of preference.
    pub fn gateways(&self) -> &[IpAddr] {
        &self.gateways
    }

    /// Adds an address.
    ///
    /// # Errors
    /// [`RouteError`] if the address cannot be used.
    pub fn add_address(&mut self, prefix: Prefix) -> Result<(), RouteError> {
        let address = prefix.address;
        if u32::from(prefix.bits) != prefix.length() {
            return Err(RouteError::PrefixLength(prefix));
        }
        let is_end_of_prefix = prefix.broadcast().is_some_and(|broadcast| {
            IpAddr::V4(broadcast) == address || prefix.network() == address
        });
        if !can_be_host(address) || is_end_of_prefix {
            return Err(RouteError::UnusableAddress(address));
        }
        if self.is_ours(address) {
            return Err(RouteError::DuplicateAddress(address));
        }
        if self.addresses.len() >= Self::MOST_ADDRESSES {
            return Err(RouteError::TooManyAddresses);
        }
        self.addresses.push(prefix);
        Ok(())
    }

    /// Removes an address; returns its prefix, or `None` if the stack does not have it. A gateway that is not on the
    /// link any more stays in the list, and is used again when an address on its prefix is added.
    pub fn remove_address(&mut self, address: IpAddr) -> Option<Prefix> {
        let place = self
            .addresses
            .iter()
            .position(|own| own.address == address)?;
        Some(self.addresses.remove(place))
    }

    /// Joins a multicast group: packets to it are [`Destination::Group`] until it is [left](Self::leave) as often as it
    /// was joined. Returns whether this is its first member, so that the link must start to accept frames to
    /// [`LinkAddress::of_group`].
    ///
    /// The stack sends no reports (IGMP, MLD): behind a switch that needs them, only link-local groups are received.
    ///
    /// # Errors
    /// [`RouteError::NotAGroup`] and [`RouteError::TooManyGroups`].
    pub fn join(&mut self, group: IpAddr) -> Result<bool, RouteError> {
        if !group.is_multicast() {
            return Err(RouteError::NotAGroup(group));
        }
        match self.place_of_group(group) {
            Ok(place) => {
                self.groups[place].1 += 1;
                Ok(false)
            }
            Err(_) if self.groups.len() >= Self::MOST_GROUPS => Err(RouteError::TooManyGroups),
            Err(place) => {
                self.groups.insert(place, (group, 1));
                Ok(true)
            }
        }
    }

    /// Takes back one [`join`](Self::join). Returns whether this was the last member of the group.
    pub fn leave(&mut self, group: IpAddr) -> bool {
        let Ok(place) = self.place_of_group(group) else {
            return false;
        };
        let members = &mut self.groups[place].1;
        *members -= 1;
        let is_last = *members == 0;
        if is_last {
            self.groups.remove(place);
        }
        is_last
    }

    /// All groups whose packets the stack accepts: those of all hosts of both families, those of its own IPv6 addresses
    /// for neighbor discovery, and those that were joined. May return a group twice.
    pub fn groups(&self) -> impl Iterator<Item = IpAddr> {
        let solicited = self.addresses.iter().filter_map(|own| match own.address {
            IpAddr::V6(address) => Some(IpAddr::V6(solicited_node(address))),
            IpAddr::V4(_) => None,
        });
        let joined = self.groups.iter().map(|&(group, _)| group);
        ALL_HOSTS.into_iter().chain(solicited).chain(joined)
    }

    /// Says for which hosts a packet to this address is.
    pub fn classify(&self, destination: IpAddr) -> Destination {
        if self.is_ours(destination) {
            Destination::Ours
        } else if self.is_broadcast(destination) {
            Destination::Broadcast
        } else if destination.is_multicast() && self.is_member(destination) {
            Destination::Group
        } else {
            Destination::Other
        }
    }

    /// Returns the first receiver of a packet to `destination`.
    ///
    /// Returns `None` if no route leads to it: the stack has no address of its family or no gateway, or the destination
    /// cannot be on any link. Own addresses have no next hop, either: packets to them do not leave the stack.
    pub fn next_hop(&self, destination: IpAddr) -> Option<NextHop> {
        let mut own = self.addresses.iter();
        let has_family = own.any(|own| own.address.is_ipv4() == destination.is_ipv4());
        if !has_family || self.is_ours(destination) {
            return None;
        }
        if self.is_broadcast(destination) {
            return Some(NextHop::Link(LinkAddress::BROADCAST));
        }
        if let Some(link) = LinkAddress::of_group(destination) {
            return Some(NextHop::Link(link));
        }
        if !can_be_host(destination) {
            return None;
        }
        if self.is_on_link(destination) {
            return Some(NextHop::Neighbor(destination));
        }
        self.gateway_for(destination).map(NextHop::Neighbor)
    }

    /// Returns the own address with which packets to `destination` are sent; `None` if no route leads to it.
    ///
    /// This is the destination itself if it is an own address. Otherwise the rules are, in this order: a link-local
    /// address for a link-local destination, and another one for others (RFC 6724, rule 2); an address on the longest
    /// prefix that contains the destination, and on the gateway's prefix; the address that shares most bits with the
    /// destination (rule 8, only for an IPv6 host); the address that was added first. A link-local address is never
    /// used for packets to a gateway, since routers do not forward them (RFC 3927, 7; RFC 4291, 2.5.6).
    pub fn source_for(&self, destination: IpAddr) -> Option<IpAddr> {
        if self.is_ours(destination) {
            return Some(destination);
        }
        let gateway = match self.next_hop(destination)? {
            NextHop::Neighbor(hop) if hop != destination => Some(hop),
            NextHop::Neighbor(_) | NextHop::Link(_) => None,
        };
        let preference = |own: &Prefix| {
            let bits_on_prefix = |address| own.contains(address).then_some(own.bits);
            let common = match destination {
                // Bits behind the prefix are the host's, and say nothing about the distance.
                IpAddr::V6(unicast) if !unicast.is_multicast() => {
                    prefix::common_bits(own.address, destination).min(own.length())
                }
                _ => 0,
            };
            (
                is_link_local(own.address) == is_link_local(destination),
                bits_on_prefix(destination),
                gateway.and_then(bits_on_prefix),
                common,
            )
        };
        let possible = self.addresses.iter().filter(|own| {
            own.address.is_ipv4() == destination.is_ipv4()
                && !(gateway.is_some() && is_link_local(own.address))
        });
        // Of equals, `max_by_key` returns the last.
        let best = possible.rev().max_by_key(|own| preference(own))?;
        Some(best.address)
    }

    fn add_gateway(&mut self, gateway: IpAddr) -> Result<(), RouteError> {
        if !can_be_host(gateway)
            || self.is_broadcast(gateway)
            || self.is_ours(gateway)
            || self.gateways.contains(&gateway)
        {
            return Err(RouteError::UnusableGateway(gateway));
        }
        if !self.is_on_link(gateway) {
            return Err(RouteError::GatewayNotOnLink(gateway));
        }
        self.gateways.push(gateway);
        Ok(())
    }

    /// Returns the first gateway that can be used. Addresses may have changed since the gateways were verified.
    fn gateway_for(&self, destination: IpAddr) -> Option<IpAddr> {
        let mut gateways = self.gateways.iter().copied();
        gateways.find(|&gateway| {
            gateway.is_ipv4() == destination.is_ipv4()
                && self.is_on_link(gateway)
                && !self.is_ours(gateway)
                && !self.is_broadcast(gateway)
        })
    }

    fn is_ours(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|own| own.address == address)
    }

    /// Whether hosts on the link have this address. Each IPv6 link has the link-local prefix (RFC 4861, 5.1).
    fn is_on_link(&self, address: IpAddr) -> bool {
        let is_v6 = |own: &Prefix| own.address.is_ipv6();
        let is_link_local_v6 = address.is_ipv6() && is_link_local(address);
        self.addresses.iter().any(|own| own.contains(address))
            || (is_link_local_v6 && self.addresses.iter().any(is_v6))
    }

    fn is_broadcast(&self, address: IpAddr) -> bool {
        let IpAddr::V4(address) = address else {
            return false;
        };
        address.is_broadcast()
            || self
                .addresses
                .iter()
                .any(|own| own.broadcast() == Some(address))
    }

    fn is_member(&self, group: IpAddr) -> bool {
        let is_solicited = |own: &Prefix| match own.address {
            IpAddr::V6(own) => group == IpAddr::V6(solicited_node(own)),
            IpAddr::V4(_) => false,
        };
        ALL_HOSTS.contains(&group)
            || self.place_of_group(group).is_ok()
            || self.addresses.iter().any(is_solicited)
    }

    fn place_of_group(&self, group: IpAddr) -> Result<usize, usize> {
        self.groups
            .binary_search_by_key(&group, |&(joined, _)| joined)
    }
}

impl fmt::Display for RouteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PrefixLength(prefix) => write!(f, "{prefix} has more bits than its address"),
            Self::UnusableAddress(address) => {
                write!(f, "{address} cannot be the address of a host")
            }
            Self::DuplicateAddress(address) => write!(f, "the stack already has {address}"),
            Self::TooManyAddresses => {
                write!(f, "the stack has {} addresses", Routes::MOST_ADDRESSES)
            }
            Self::UnusableGateway(gateway) => write!(f, "{gateway} cannot be a gateway"),
            Self::GatewayNotOnLink(gateway) => {
                write!(
                    f,
                    "gateway {gateway} is on no prefix of the stack's addresses"
                )
            }
            Self::NotAGroup(address) => write!(f, "{address} is not a multicast group"),
            Self::TooManyGroups => write!(f, "the stack has joined {} groups", Routes::MOST_GROUPS),
        }
    }
}

impl core::error::Error for RouteError {}

/// Whether a host on a link can have this address.
pub(crate) const fn can_be_host(address: IpAddr) -> bool {
    match address {
        // 0.0.0.0/8 is "this network" (RFC 1122, 3.2.1.3).
        IpAddr::V4(address) => {
            address.octets()[0] != 0
                && !address.is_loopback()
                && !address.is_multicast()
                && !address.is_broadcast()
        }
        IpAddr::V6(address) => {
            !address.is_unspecified()
                && !address.is_loopback()
                && !address.is_multicast()
                && address.to_ipv4_mapped().is_none()
        }
    }
}

/// Whether an address is valid only on its link, or a group's members are all on one link.
fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) if address.is_multicast() => {
            matches!(address.octets()[1] & 0x0f, 1 | 2)
        }
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

/// The groups that each host is a member of (RFC 1112, 4; RFC 4291, 2.8).
const ALL_HOSTS: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(224, 0, 0, 1)),
    IpAddr::V6(ndisc::ALL_NODES),
];

#[cfg(test)]
mod tests;
