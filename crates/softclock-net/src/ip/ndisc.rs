//! Neighbor discovery for IPv6: the messages by which hosts on a link find each other's link addresses (RFC 4861).
//!
//! This module parses and writes neighbor solicitations and advertisements. [`Neighbors`](crate::neighbors::Neighbors)
//! holds the state of the protocol. Addresses and routers are configured, so router advertisements and redirects are
//! recognized, but not used.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr};

use softclock_wire::packet::ICMPV6;

use crate::checksum::{Addresses, transport_checksum};
use crate::drops::DropReason;
use crate::link::LinkAddress;

/// A message of neighbor discovery.
///
/// ```
/// use softclock_net::ip::ndisc::{self, Message};
///
/// let [us, them] = ["fe80::1", "fe80::2"].map(|address| address.parse().unwrap());
/// let link = "02:00:00:00:00:02".parse().unwrap();
///
/// let addresses = ndisc::request_addresses(them, us);
/// assert_eq!(addresses.destination, "ff02::1:ff00:1".parse::<std::net::IpAddr>().unwrap());
/// let bytes = ndisc::write_solicitation(addresses, us, Some(link));
/// let message = ndisc::parse(addresses, ndisc::HOP_LIMIT, &bytes);
/// assert_eq!(message, Ok(Message::Solicitation { target: us, source_link: Some(link) }));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Message {
    /// Asks the target for its link address, or whether it can still be reached.
    Solicitation {
        /// The address in question.
        target: Ipv6Addr,
        /// The link address of the sender. Always `None` in duplicate address detection, when the source address is
        /// unspecified.
        source_link: Option<LinkAddress>,
    },
    /// Answers a solicitation, or announces a new link address.
    Advertisement {
        /// The address in question.
        target: Ipv6Addr,
        /// The link address of the target. May be missing in an answer to a unicast solicitation.
        target_link: Option<LinkAddress>,
        /// The sender is a router.
        is_router: bool,
        /// The message answers a solicitation, so packets reach the target.
        is_solicited: bool,
        /// The link address replaces a different one that is known.
        is_override: bool,
    },
    /// A router solicitation, router advertisement or redirect. The stack does not use them, and their content is not
    /// verified.
    Ignored,
}

/// The hop limit of each message. Routers decrement it, so a message that arrives with it comes from the link.
pub const HOP_LIMIT: u8 = 255;

/// Whether an ICMPv6 message of this type is one of neighbor discovery.
pub const fn is_kind(icmp_type: u8) -> bool {
    matches!(icmp_type, ROUTER_SOLICITATION..=REDIRECT)
}

/// Parses an ICMPv6 message of neighbor discovery, from its type on. The checksum must have been verified before.
///
/// The packet must have arrived in one piece: RFC 6980 demands that the caller drops fragmented messages.
///
/// # Errors
/// [`DropReason::NeighborDiscovery`] if the message fails a check of RFC 4861 (7.1.1 and 7.1.2), a link address in it
/// cannot be that of a single host, or its type is [of another protocol](is_kind).
pub fn parse(addresses: Addresses, hop_limit: u8, message: &[u8]) -> Result<Message, DropReason> {
    let parsed = match (addresses.source, addresses.destination) {
        (IpAddr::V6(source), IpAddr::V6(destination)) if hop_limit == HOP_LIMIT => {
            parse_checked(source, destination, message)
        }
        _ => None,
    };
    parsed.ok_or(DropReason::NeighborDiscovery)
}

/// Returns the multicast group that a host with this address joins, to which solicitations for it are sent (RFC 4291,
/// 2.7.1).
pub const fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let [.., high, low] = address.segments();
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | (high & 0xff), low)
}

/// Returns the addresses of a packet in which `source` asks for the link address of `target`. To confirm a known link
/// address, the solicitation is sent to the target itself instead.
pub const fn request_addresses(source: Ipv6Addr, target: Ipv6Addr) -> Addresses {
    Addresses {
        source: IpAddr::V6(source),
        destination: IpAddr::V6(solicited_node(target)),
    }
}

/// Returns the addresses of the packet with which `target` answers a solicitation from `asker`. An asker without an
/// address, which detects duplicates, is answered by a message to all hosts on the link (RFC 4861, 7.2.4).
pub const fn answer_addresses(asker: Ipv6Addr, target: Ipv6Addr) -> Addresses {
    let destination = if asker.is_unspecified() {
        ALL_NODES
    } else {
        asker
    };
    Addresses {
        source: IpAddr::V6(target),
        destination: IpAddr::V6(destination),
    }
}

/// Returns a solicitation for `target`: an ICMPv6 message with its checksum, to be sent with [`HOP_LIMIT`].
///
/// `source_link` is the sender's link address. It must be there if the destination is a group, and must be `None` if
/// the source is unspecified.
pub fn write_solicitation(
    addresses: Addresses,
    target: Ipv6Addr,
    source_link: Option<LinkAddress>,
) -> Vec<u8> {
    let option = source_link.map(|link| (SOURCE_LINK, link));
    write(addresses, SOLICITATION, 0, target, option)
}

/// Returns the advertisement of a host that `target` has the link address `link`: an ICMPv6 message with its checksum,
/// to be sent with [`HOP_LIMIT`].
///
/// The message counts as solicited unless its destination is a group. `is_override` replaces other link addresses that
/// the receivers know, as all answers do that are not for an anycast address.
pub fn write_advertisement(
    addresses: Addresses,
    target: Ipv6Addr,
    link: LinkAddress,
    is_override: bool,
) -> Vec<u8> {
    let mut flags = 0;
    if !addresses.destination.is_multicast() {
        flags |= IS_SOLICITED;
    }
    if is_override {
        flags |= IS_OVERRIDE;
    }
    let option = Some((TARGET_LINK, link));
    write(addresses, ADVERTISEMENT, flags, target, option)
}

/// The group of all hosts on the link.
pub const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

fn parse_checked(source: Ipv6Addr, destination: Ipv6Addr, message: &[u8]) -> Option<Message> {
    let (&[icmp_type, code], rest) = message.split_first_chunk()?;
    if code != 0 || source.is_multicast() {
        return None;
    }
    match icmp_type {
        SOLICITATION => parse_solicitation(source, destination, rest),
        ADVERTISEMENT => parse_advertisement(source, destination, rest),
        _ if is_kind(icmp_type) => Some(Message::Ignored),
        _ => None,
    }
}

fn parse_solicitation(source: Ipv6Addr, destination: Ipv6Addr, rest: &[u8]) -> Option<Message> {
    let (_, target, options) = split_body(rest)?;
    let source_link = link_option(options, SOURCE_LINK)?;
    // Duplicate address detection: there is no link address to answer to, and only the target's group is asked.
    let is_consistent = !source.is_unspecified()
        || (source_link.is_none() && destination == solicited_node(target));
    is_consistent.then_some(Message::Solicitation {
        target,
        source_link,
    })
}

fn parse_advertisement(source: Ipv6Addr, destination: Ipv6Addr, rest: &[u8]) -> Option<Message> {
    let (flags, target, options) = split_body(rest)?;
    let target_link = link_option(options, TARGET_LINK)?;
    let is_solicited = flags & IS_SOLICITED != 0;
    if source.is_unspecified() || (is_solicited && destination.is_multicast()) {
        return None;
    }
    Some(Message::Advertisement {
        target,
        target_link,
        is_router: flags & IS_ROUTER != 0,
        is_solicited,
        is_override: flags & IS_OVERRIDE != 0,
    })
}

/// Splits a message behind its type and code: the flags, the target, and the options.
fn split_body(rest: &[u8]) -> Option<(u8, Ipv6Addr, &[u8])> {
    let (&[_, _, flags, ..], rest) = rest.split_first_chunk::<6>()?;
    let (&target, options) = rest.split_first_chunk::<16>()?;
    let target = Ipv6Addr::from(target);
    let can_be_host = !target.is_multicast() && !target.is_unspecified() && !target.is_loopback();
    can_be_host.then_some((flags, target, options))
}

/// Returns the link address in the first option of this type, `Some(None)` if no option has it, and `None` if an option
/// is cut off or inconsistent. Options of other types are skipped.
fn link_option(mut options: &[u8], option_type: u8) -> Option<Option<LinkAddress>> {
    let mut found = None;
    // A message has at most 65535 bytes, and each option at least 8: the loop is bounded.
    while !options.is_empty() {
        let &[kind, units] = options.first_chunk()?;
        // An option without a length would end neither itself nor the message.
        let (option, rest) = match units {
            0 => return None,
            _ => options.split_at_checked(usize::from(units) * 8)?,
        };
        if kind == option_type && found.is_none() {
            let &[_, _, ref link @ ..] = <&[u8; 8]>::try_from(option).ok()?;
            let link = LinkAddress(*link);
            found = Some(link.is_host().then_some(link)?);
        }
        options = rest;
    }
    Some(found)
}

fn write(
    addresses: Addresses,
    icmp_type: u8,
    flags: u8,
    target: Ipv6Addr,
    option: Option<(u8, LinkAddress)>,
) -> Vec<u8> {
    let mut message = Vec::with_capacity(32);
    message.extend([icmp_type, 0, 0, 0, flags, 0, 0, 0]);
    message.extend(target.octets());
    if let Some((option_type, link)) = option {
        message.extend([option_type, 1]);
        message.extend(link.0);
    }
    let checksum = transport_checksum(addresses, ICMPV6, &message);
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    message
}

const ROUTER_SOLICITATION: u8 = 133;
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
const REDIRECT: u8 = 137;

const SOURCE_LINK: u8 = 1;
const TARGET_LINK: u8 = 2;

const IS_ROUTER: u8 = 0x80;
const IS_SOLICITED: u8 = 0x40;
const IS_OVERRIDE: u8 = 0x20;

#[cfg(test)]
mod tests;
