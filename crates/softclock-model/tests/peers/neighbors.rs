//! Finds the link address of a host by ARP or by neighbor discovery, and answers its questions.

use std::net::{IpAddr, Ipv6Addr};

use softclock_model::host::{Version, address_v4, address_v6, link_address};
use softclock_net::checksum::Addresses;
use softclock_net::ip::{self, Output, arp, ndisc};
use softclock_net::link::{self, LinkAddress};

/// A frame about link addresses.
pub(crate) enum Heard {
    /// The link address of the sender.
    Answer(LinkAddress),
    /// The sender asks for the link address of the other host, which sends this frame as its answer.
    Question(Vec<u8>),
}

/// The frame by which a host asks for the link address of another.
pub(crate) fn question(version: Version, asker: u8, target: u8) -> Vec<u8> {
    match version {
        Version::V4 => {
            let sender = (link_address(asker), address_v4(asker));
            let request = arp::Message::request(sender, address_v4(target));
            frame(asker, LinkAddress::BROADCAST, ARP, &request.to_bytes())
        }
        Version::V6 => {
            let target = address_v6(target);
            let addresses = ndisc::request_addresses(address_v6(asker), target);
            let link = Some(link_address(asker));
            let message = ndisc::write_solicitation(addresses, target, link);
            let group = LinkAddress::of_group(addresses.destination).expect("a group");
            frame(asker, group, IPV6, &packet(addresses, &message))
        }
    }
}

/// Returns the meaning of a frame for the host of this number. `None` if it is not about link addresses, or for another
/// host.
pub(crate) fn hear(own: u8, header: &link::Header, payload: &[u8]) -> Option<Heard> {
    match header.ether_type {
        ARP => hear_arp(own, payload),
        IPV6 => hear_discovery(own, header.source, payload),
        _ => None,
    }
}

fn hear_arp(own: u8, payload: &[u8]) -> Option<Heard> {
    let message = arp::Message::parse(payload).expect("a message");
    match message.operation {
        arp::Operation::Reply => Some(Heard::Answer(message.sender.0)),
        arp::Operation::Request if message.target.1 == address_v4(own) => {
            let reply = message.reply(link_address(own)).to_bytes();
            Some(Heard::Question(frame(own, message.sender.0, ARP, &reply)))
        }
        arp::Operation::Request => None,
    }
}

fn hear_discovery(own: u8, sender: LinkAddress, payload: &[u8]) -> Option<Heard> {
    let heard = ip::parse(payload).ok()?;
    if heard.protocol != ICMPV6 {
        return None;
    }
    match ndisc::parse(heard.addresses, heard.hop_limit, heard.payload).ok()? {
        ndisc::Message::Advertisement { target_link, .. } => target_link.map(Heard::Answer),
        ndisc::Message::Solicitation { target, .. } if target == address_v6(own) => {
            let asker = match heard.addresses.source {
                IpAddr::V6(asker) => asker,
                IpAddr::V4(_) => Ipv6Addr::UNSPECIFIED,
            };
            let addresses = ndisc::answer_addresses(asker, target);
            let message = ndisc::write_advertisement(addresses, target, link_address(own), true);
            let answer = packet(addresses, &message);
            Some(Heard::Question(frame(own, sender, IPV6, &answer)))
        }
        _ => None,
    }
}

/// A packet of neighbor discovery.
fn packet(addresses: Addresses, message: &[u8]) -> Vec<u8> {
    let output = Output {
        addresses,
        protocol: ICMPV6,
        hop_limit: ndisc::HOP_LIMIT,
        traffic_class: 0,
        identification: 1,
        may_fragment: false,
    };
    let mut packet = Vec::new();
    ip::write_header(&output, message.len(), &mut packet);
    packet.extend(message);
    packet
}

/// A frame of the host of this number.
pub(crate) fn frame(
    sender: u8,
    destination: LinkAddress,
    ether_type: u16,
    payload: &[u8],
) -> Vec<u8> {
    let header = link::Header {
        destination,
        source: link_address(sender),
        ether_type,
    };
    [&header.to_bytes()[..], payload].concat()
}

/// The type of frames that carry IP.
pub(crate) const fn ether_type(version: Version) -> u16 {
    match version {
        Version::V4 => IPV4,
        Version::V6 => IPV6,
    }
}

const ARP: u16 = 0x0806;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const ICMPV6: u8 = 58;
