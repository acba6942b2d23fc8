//! The link between the host and its router: frames of Ethernet, and a router that answers ARP and neighbor discovery.

use std::net::{IpAddr, Ipv6Addr};

use softclock_net::checksum::{Addresses, transport_checksum};
use softclock_net::ip::arp;
use softclock_net::link::{Header, LinkAddress};

/// What a frame of the host is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum FromHost {
    /// A packet of IP for the remote end.
    Packet(Vec<u8>),
    /// A question about the router's link address, with the frame that answers it.
    Question(Vec<u8>),
    /// About the link only.
    Other,
}

/// The host's link address.
pub(super) const HOST: LinkAddress = LinkAddress([2, 0, 0, 0, 0, 1]);

const ROUTER: LinkAddress = LinkAddress([2, 0, 0, 0, 0, 2]);

/// The frame that brings a packet of IP to the host.
pub(super) fn to_host(packet: &[u8]) -> Vec<u8> {
    let ether_type = match packet.first().map(|first| first >> 4) {
        Some(6) => IPV6,
        _ => IPV4,
    };
    frame(ether_type, packet)
}

/// Reads a frame of the host.
pub(super) fn from_host(frame: &[u8]) -> FromHost {
    let Ok((header, payload)) = Header::parse(frame) else {
        return FromHost::Other;
    };
    match header.ether_type {
        IPV4 => FromHost::Packet(payload.to_vec()),
        IPV6 if payload.get(6) == Some(&ICMP_V6) => neighbor_discovery(payload),
        IPV6 => FromHost::Packet(payload.to_vec()),
        ARP => match arp::Message::parse(payload) {
            Ok(message)
                if message.operation == arp::Operation::Request && !message.is_announcement() =>
            {
                FromHost::Question(arp_reply(&message))
            }
            _ => FromHost::Other,
        },
        _ => FromHost::Other,
    }
}

fn arp_reply(request: &arp::Message) -> Vec<u8> {
    // Ethernet and IPv4, with addresses of six and four bytes; the operation is a reply (RFC 826).
    let mut reply = vec![0, 1, 8, 0, 6, 4, 0, 2];
    reply.extend(ROUTER.0);
    reply.extend(request.target.1.octets());
    reply.extend(request.sender.0.0);
    reply.extend(request.sender.1.octets());
    frame(ARP, &reply)
}

/// Answers a neighbor solicitation (RFC 4861, 4.3 and 4.4); other messages between neighbors end here.
fn neighbor_discovery(packet: &[u8]) -> FromHost {
    let octets = |from: usize| -> Option<[u8; 16]> { packet.get(from..from + 16)?.try_into().ok() };
    match (packet.get(40), octets(8), octets(48)) {
        (Some(&SOLICITATION), Some(asker), Some(target)) => {
            FromHost::Question(advertisement(asker.into(), target.into()))
        }
        (Some(133..=137 | 143), ..) => FromHost::Other,
        _ => FromHost::Packet(packet.to_vec()),
    }
}

fn advertisement(asker: Ipv6Addr, target: Ipv6Addr) -> Vec<u8> {
    // Solicited, and overrides what the asker knows.
    let mut message = vec![ADVERTISEMENT, 0, 0, 0, 0x60, 0, 0, 0];
    message.extend(target.octets());
    // The link address of the target, in units of eight bytes.
    message.extend([2, 1]);
    message.extend(ROUTER.0);
    let addresses = Addresses {
        source: IpAddr::V6(target),
        destination: IpAddr::V6(asker),
    };
    let sum = transport_checksum(addresses, ICMP_V6, &message).to_be_bytes();
    if let Some(place) = message.get_mut(2..4) {
        place.copy_from_slice(&sum);
    }
    let mut packet = vec![0x60, 0, 0, 0, 0, message.len() as u8, ICMP_V6, 255];
    packet.extend(target.octets());
    packet.extend(asker.octets());
    packet.extend(message);
    frame(IPV6, &packet)
}

fn frame(ether_type: u16, payload: &[u8]) -> Vec<u8> {
    let header = Header {
        destination: HOST,
        source: ROUTER,
        ether_type,
    };
    [&header.to_bytes(), payload].concat()
}

const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;
const IPV6: u16 = 0x86dd;
const ICMP_V6: u8 = 58;
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
