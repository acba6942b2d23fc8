//! Builds frames, field by field. Independent of the stack under test, so that both cannot share a mistake.

use std::net::{Ipv4Addr, Ipv6Addr};

use softclock_wire::packet::{ARP, ICMP, ICMPV6, IPV4, IPV6, UDP, ones_complement_sum};

use crate::lab::LINK_ADDRESS;

/// The sender's link address: of no interface.
pub(crate) const FROM: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub(crate) const BROADCAST: [u8; 6] = [0xff; 6];

pub(crate) const CLIENT_V4: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 1);
pub(crate) const STACK_V4: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 7);
pub(crate) const CLIENT_V6: Ipv6Addr = Ipv6Addr::new(0xfd78, 0, 0, 0, 0, 0, 0, 1);
pub(crate) const STACK_V6: Ipv6Addr = Ipv6Addr::new(0xfd78, 0, 0, 0, 0, 0, 0, 7);

/// An Ethernet frame to this link address.
pub(crate) fn ethernet(to: [u8; 6], ether_type: u16, payload: &[u8]) -> Vec<u8> {
    [&to[..], &FROM, &ether_type.to_be_bytes(), payload].concat()
}

/// A packet of IPv4 from the client to the stack, to be changed before it is put into a frame.
#[derive(Clone)]
pub(crate) struct V4 {
    pub(crate) source: Ipv4Addr,
    pub(crate) destination: Ipv4Addr,
    pub(crate) protocol: u8,
    pub(crate) identification: u16,
    /// Flags and offset of fragments.
    pub(crate) fragment: u16,
    pub(crate) options: Vec<u8>,
    pub(crate) payload: Vec<u8>,
}

impl V4 {
    pub(crate) fn new(protocol: u8, payload: Vec<u8>) -> Self {
        Self {
            source: CLIENT_V4,
            destination: STACK_V4,
            protocol,
            identification: 1,
            fragment: 0,
            options: Vec::new(),
            payload,
        }
    }

    /// A datagram to a port of the stack.
    pub(crate) fn udp(port: u16, payload: &[u8]) -> Self {
        let pseudo = [&CLIENT_V4.octets()[..], &STACK_V4.octets()].concat();
        Self::new(UDP, udp(&pseudo, port, payload))
    }

    pub(crate) fn icmp(kind: u8, code: u8, rest: &[u8]) -> Self {
        let mut message = [&[kind, code, 0, 0], rest].concat();
        let checksum = !ones_complement_sum(&message);
        message[2..4].copy_from_slice(&checksum.to_be_bytes());
        Self::new(ICMP, message)
    }

    /// The packet with the right checksum.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let header_bytes = 20 + self.options.len();
        let total = (header_bytes + self.payload.len()) as u16;
        let mut bytes = vec![0x40 | (header_bytes / 4) as u8, 0];
        for field in [total, self.identification, self.fragment] {
            bytes.extend(field.to_be_bytes());
        }
        bytes.extend([64, self.protocol, 0, 0]);
        bytes.extend(self.source.octets());
        bytes.extend(self.destination.octets());
        bytes.extend(&self.options);
        let checksum = !ones_complement_sum(&bytes);
        bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
        bytes.extend(&self.payload);
        bytes
    }

    pub(crate) fn frame(&self) -> Vec<u8> {
        ethernet(LINK_ADDRESS, IPV4, &self.bytes())
    }

    /// The frame with bytes of the header changed, and the right checksum.
    pub(crate) fn frame_with(&self, changes: &[(usize, u8)]) -> Vec<u8> {
        let mut bytes = self.bytes();
        changes
            .iter()
            .for_each(|&(place, value)| bytes[place] = value);
        bytes[10..12].fill(0);
        let checksum = !ones_complement_sum(&bytes[..20 + self.options.len()]);
        bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
        ethernet(LINK_ADDRESS, IPV4, &bytes)
    }

    /// A fragment of a packet whose payload is longer.
    pub(crate) fn fragment(identification: u16, offset: u16, has_more: bool, bytes: usize) -> Self {
        Self {
            identification,
            fragment: (offset / 8) | if has_more { 0x2000 } else { 0 },
            ..Self::new(UDP, vec![0; bytes])
        }
    }
}

/// A packet of IPv6 from the client to the stack.
#[derive(Clone)]
pub(crate) struct V6 {
    pub(crate) source: Ipv6Addr,
    pub(crate) destination: Ipv6Addr,
    pub(crate) next_header: u8,
    pub(crate) hop_limit: u8,
    pub(crate) payload: Vec<u8>,
}

impl V6 {
    pub(crate) fn new(next_header: u8, payload: Vec<u8>) -> Self {
        Self {
            source: CLIENT_V6,
            destination: STACK_V6,
            next_header,
            hop_limit: 64,
            payload,
        }
    }

    pub(crate) fn udp(port: u16, payload: &[u8]) -> Self {
        let pseudo = [&CLIENT_V6.octets()[..], &STACK_V6.octets()].concat();
        Self::new(UDP, udp(&pseudo, port, payload))
    }

    /// A message of ICMPv6 with the right checksum.
    pub(crate) fn icmp(kind: u8, code: u8, rest: &[u8]) -> Self {
        Self::icmp_from(CLIENT_V6, STACK_V6, &[&[kind, code, 0, 0], rest].concat())
    }

    /// A message of neighbor discovery: like any other, but with the highest hop limit.
    pub(crate) fn discovery(kind: u8, code: u8, rest: &[u8]) -> Self {
        Self {
            hop_limit: 255,
            ..Self::icmp(kind, code, rest)
        }
    }

    pub(crate) fn icmp_from(source: Ipv6Addr, destination: Ipv6Addr, message: &[u8]) -> Self {
        let mut message = message.to_vec();
        let pseudo = [&source.octets()[..], &destination.octets()].concat();
        let checksum = transport_checksum(&pseudo, ICMPV6, &message);
        message[2..4].copy_from_slice(&checksum.to_be_bytes());
        Self {
            source,
            destination,
            ..Self::new(ICMPV6, message)
        }
    }

    /// The packet with an extension header of `content` in front of its payload, whose type is `kind`. `content` is
    /// what follows the header's length.
    pub(crate) fn behind(mut self, kind: u8, content: &[u8]) -> Self {
        assert!((content.len() + 2).is_multiple_of(8), "whole units");
        let units = ((content.len() + 2) / 8 - 1) as u8;
        self.payload = [&[self.next_header, units], content, &self.payload].concat();
        self.next_header = kind;
        self
    }

    /// The packet as a fragment with this offset.
    pub(crate) fn fragment(mut self, identification: u32, offset: u16, has_more: bool) -> Self {
        let place = offset | u16::from(has_more);
        self.payload = [
            &[self.next_header, 0][..],
            &place.to_be_bytes(),
            &identification.to_be_bytes(),
            &self.payload,
        ]
        .concat();
        self.next_header = FRAGMENT;
        self
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0x60, 0, 0, 0];
        bytes.extend((self.payload.len() as u16).to_be_bytes());
        bytes.extend([self.next_header, self.hop_limit]);
        bytes.extend(self.source.octets());
        bytes.extend(self.destination.octets());
        bytes.extend(&self.payload);
        bytes
    }

    pub(crate) fn frame(&self) -> Vec<u8> {
        ethernet(LINK_ADDRESS, IPV6, &self.bytes())
    }
}

/// A message of ARP from the client's address.
pub(crate) fn arp(operation: u16, sender: (&[u8; 6], Ipv4Addr), target: Ipv4Addr) -> Vec<u8> {
    let [high, low] = IPV4.to_be_bytes();
    let [o0, o1] = operation.to_be_bytes();
    let message = [
        &[0, 1, high, low, 6, 4, o0, o1][..],
        sender.0,
        &sender.1.octets(),
        &[0; 6],
        &target.octets(),
    ];
    ethernet(BROADCAST, ARP, &message.concat())
}

fn udp(pseudo: &[u8], port: u16, payload: &[u8]) -> Vec<u8> {
    let length = (8 + payload.len()) as u16;
    let mut bytes = Vec::new();
    for field in [SOURCE_PORT, port, length, 0] {
        bytes.extend(field.to_be_bytes());
    }
    bytes.extend(payload);
    let checksum = transport_checksum(pseudo, UDP, &bytes);
    bytes[6..8].copy_from_slice(&checksum.to_be_bytes());
    bytes
}

/// The checksum behind this protocol's pseudo-header, whose addresses are `pseudo`.
fn transport_checksum(pseudo: &[u8], protocol: u8, bytes: &[u8]) -> u16 {
    let length = (bytes.len() as u32).to_be_bytes();
    let whole = [pseudo, &length, &[0, 0, 0, protocol], bytes].concat();
    match !ones_complement_sum(&whole) {
        0 => 0xffff,
        checksum => checksum,
    }
}

/// The port that datagrams come from.
const SOURCE_PORT: u16 = 40_000;

pub(crate) const HOP_BY_HOP: u8 = 0;
pub(crate) const ROUTING: u8 = 43;
pub(crate) const FRAGMENT: u8 = 44;
pub(crate) const DESTINATION_OPTIONS: u8 = 60;
