//! Frames of hosts that have no stack of their own.

use core::net::{IpAddr, SocketAddr};

use super::*;
use crate::checksum::Addresses;
use crate::ip;
use crate::link::Header as LinkHeader;
use crate::tcp::segment::{self, Flags, Header, Options};
use crate::tcp::seq::Seq;

/// A host that sends what it is told.
pub(super) struct Answering {
    from: u8,
    to: u8,
}

impl Answering {
    pub(super) fn new(from: u8, to: u8) -> Self {
        Self { from, to }
    }

    /// SYNs from as many ports.
    pub(super) fn syns(
        &mut self,
        number: u16,
        remote: SocketAddr,
    ) -> impl Iterator<Item = Vec<u8>> {
        (0..number).map(move |port| {
            let header = Header {
                source_port: 1000 + port,
                destination_port: remote.port(),
                sequence: Seq(u32::from(port) * 7),
                flags: Flags::SYN,
                window: 1000,
                ..Header::default()
            };
            self.frame(&header, &Options::default(), b"")
        })
    }

    /// The report of a router that a frame is too long for the next link.
    pub(super) fn too_big(&self, frame: &[u8], mtu: u16) -> Vec<u8> {
        self.unreachable(frame, 4, mtu)
    }

    /// The report of a router that a filter forbids a frame.
    pub(super) fn prohibited(&self, frame: &[u8]) -> Vec<u8> {
        self.unreachable(frame, 13, 0)
    }

    fn unreachable(&self, frame: &[u8], code: u8, mtu: u16) -> Vec<u8> {
        let quoted = &frame[14..14 + 28];
        let mut body = vec![3, code, 0, 0, 0, 0];
        body.extend(mtu.to_be_bytes());
        body.extend_from_slice(quoted);
        let checksum = !softclock_wire::packet::ones_complement_sum(&body);
        body[2..4].copy_from_slice(&checksum.to_be_bytes());
        self.packet(softclock_wire::packet::ICMP, &body)
    }

    pub(super) fn frame(&self, header: &Header, options: &Options, payload: &[u8]) -> Vec<u8> {
        let mut body = Vec::new();
        let write = |out: &mut Vec<u8>| out.extend_from_slice(payload);
        segment::emit(self.addresses(), header, options, write, &mut body);
        self.packet(6, &body)
    }

    fn addresses(&self) -> Addresses {
        let address = |number| IpAddr::from([10, 0, 0, number]);
        Addresses {
            source: address(self.from),
            destination: address(self.to),
        }
    }

    fn packet(&self, protocol: u8, body: &[u8]) -> Vec<u8> {
        let output = ip::Output {
            addresses: self.addresses(),
            protocol,
            hop_limit: 64,
            traffic_class: 0,
            identification: 1,
            may_fragment: false,
        };
        let link = LinkHeader {
            destination: LinkAddress([2, 0, 0, 0, 0, self.to]),
            source: LinkAddress([2, 0, 0, 0, 0, self.from]),
            ether_type: 0x0800,
        };
        let mut frame = link.to_bytes().to_vec();
        ip::write_header(&output, body.len(), &mut frame);
        frame.extend_from_slice(body);
        frame
    }
}
