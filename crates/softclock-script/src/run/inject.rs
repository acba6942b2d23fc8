//! Packets to the host.

use std::net::SocketAddr;

use softclock_net::tcp::segment::Header;
use softclock_net::tcp::seq::Seq;

use super::flow::{Flow, pattern};
use super::{Runner, Stop};
use crate::host::Host;
use crate::syntax::{Body, Ecn, IcmpSpec, Owner, PacketSpec, Quoted, SegmentSpec};
use crate::wire::{self, IpHeader, TcpOption, TcpPacket};

impl<H: Host> Runner<'_, H> {
    /// Delivers a packet of the script to the host.
    pub(super) fn inject(&mut self, packet: &PacketSpec) -> Result<(), Stop> {
        let bytes = match &packet.body {
            Body::Tcp(segment) => {
                wire::tcp_packet(&self.segment(packet, segment)?).map_err(Stop::Failed)?
            }
            Body::Icmp(message) => self.icmp(packet, message)?,
            Body::Udp(length) => {
                let flow = self.flow().clone();
                let ports = (flow.remote.port(), flow.local.port());
                let payload = vec![0; usize::from(*length)];
                wire::udp_packet(self.ip_header(packet, &flow), ports, &payload)
                    .map_err(Stop::Failed)?
            }
        };
        self.host.on_packet(self.now, &bytes);
        if self.owner == Owner::Prompt {
            self.host.visit(self.now);
        }
        Ok(())
    }

    /// The current flow. A packet before any call that begins a connection is from a client to the port of `bind`.
    pub(super) fn flow(&mut self) -> &mut Flow {
        let environment = &self.environment;
        let number = self.current;
        self.flows.entry(number).or_insert_with(|| {
            let local = SocketAddr::new(environment.network.local, environment.bind_port);
            let port = FIRST_CLIENT_PORT.wrapping_add(number as u16);
            Flow::new(local, SocketAddr::new(environment.network.remote, port))
        })
    }

    fn segment(&mut self, packet: &PacketSpec, spec: &SegmentSpec) -> Result<TcpPacket, Stop> {
        let Some(range) = spec.range else {
            return Err(Stop::failed(
                "a packet to the host needs its sequence numbers",
            ));
        };
        let flags = spec.flags;
        let flow = self.flow();
        flow.on_inbound(flags, range.start);
        let acknowledgment = match spec.acknowledgment {
            Some(number) if spec.is_absolute => number,
            Some(number) => flow.to_wire(number),
            None => 0,
        };
        let options = spec.options.iter().flatten();
        let options = options.map(|option| to_wire(flow, option)).collect();
        let payload = pattern(
            flow.inbound_place(flags, range.start),
            range.length as usize,
        );
        let flow = flow.clone();
        Ok(TcpPacket {
            ip: self.ip_header(packet, &flow),
            header: Header {
                source_port: flow.remote.port(),
                destination_port: flow.local.port(),
                sequence: Seq(range.start),
                acknowledgment: Seq(acknowledgment),
                flags,
                window: spec.window.unwrap_or(0),
                urgent: spec.urgent.unwrap_or(0),
            },
            options,
            payload,
        })
    }

    fn ip_header(&self, packet: &PacketSpec, flow: &Flow) -> IpHeader {
        let ecn = match packet.ecn {
            None | Some(Ecn::NotCapable) => 0,
            Some(Ecn::Capable1) => 1,
            Some(Ecn::Capable0 | Ecn::Capable) => 2,
            Some(Ecn::Experienced) => 3,
        };
        IpHeader {
            source: flow.remote.ip(),
            destination: flow.local.ip(),
            ttl: packet.ttl.unwrap_or(255),
            class: packet.class.unwrap_or(0) | ecn,
        }
    }

    /// A message of ICMP that quotes the beginning of a packet of the host: the header of IP, and eight bytes, the
    /// least that RFC 792 demands.
    fn icmp(&mut self, packet: &PacketSpec, message: &IcmpSpec) -> Result<Vec<u8>, Stop> {
        let is_v6 = self.is_v6();
        let Some(numbers) = message.numbers(is_v6) else {
            let name = message.code.as_deref().unwrap_or(&message.kind);
            return Err(Stop::Failed(format!(
                "ICMP of this version has no {} {name}",
                message.kind
            )));
        };
        let flow = self.flow().clone();
        let (sequence, protocol) = match message.quoted {
            Quoted::Segment(range) => (flow.to_wire(range.start), wire::TCP),
            Quoted::Unstated => (
                flow.to_wire(flow.latest.map_or(0, |(start, _)| start)),
                wire::TCP,
            ),
            Quoted::Datagram(length) => (u32::from(length) + 8, wire::UDP),
        };
        let mut quoted = Vec::with_capacity(8);
        quoted.extend(flow.local.port().to_be_bytes());
        quoted.extend(flow.remote.port().to_be_bytes());
        match protocol {
            wire::TCP => quoted.extend(sequence.to_be_bytes()),
            // The length and a checksum of 0.
            _ => quoted.extend([(sequence >> 8) as u8, sequence as u8, 0, 0]),
        }
        let header = IpHeader {
            source: flow.local.ip(),
            destination: flow.remote.ip(),
            ttl: 64,
            class: 0,
        };
        let ip = self.ip_header(packet, &flow);
        let parameter = message.mtu.unwrap_or(0);
        let quote = (header, protocol, quoted.as_slice());
        wire::icmp_packet(ip, numbers, parameter, quote).map_err(Stop::Failed)
    }
}

/// An option for the host: what refers to the host's numbers, in those of the wire.
fn to_wire(flow: &Flow, option: &TcpOption) -> TcpOption {
    match option {
        TcpOption::Sack(ranges) => TcpOption::Sack(
            ranges
                .iter()
                .map(|(start, end)| (flow.to_wire(*start), flow.to_wire(*end)))
                .collect(),
        ),
        // An echo of 0 is that of a SYN, which has nothing to echo.
        TcpOption::Timestamps { value, echo } if *echo != 0 => TcpOption::Timestamps {
            value: *value,
            echo: flow.timestamp_to_wire(*echo),
        },
        other => other.clone(),
    }
}

/// The remote end's port of the first client: an ephemeral one.
const FIRST_CLIENT_PORT: u16 = 50_000;
