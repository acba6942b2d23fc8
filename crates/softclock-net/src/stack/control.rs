//! Packets for the stack itself, packets without an endpoint, and the timers.

use core::net::IpAddr;
use core::ops::Deref;

use softclock_core::Instant;
use softclock_wire::packet::{ARP, ICMP, ICMPV6, TCP, UDP};

use super::Stack;
use super::endpoint::Arrived;
use super::icmp::shared;
use crate::drops::DropReason;
use crate::icmp::{Original, Report, may_answer};
use crate::ip::{self, NO_NEXT_HEADER, Packet};
use crate::link::Header;
use crate::routes::Destination;
use crate::{icmp, icmp_v6, udp};

impl<B: Deref<Target = [u8]>> Stack<B> {
    /// Whether the address is one of the stack's, or of a group that it has joined.
    pub fn is_own_or_group(&self, address: IpAddr) -> bool {
        matches!(
            self.routes.classify(address),
            Destination::Ours | Destination::Group
        )
    }

    /// Forgets the path MTUs that routers have reported. Connections that exist keep the size of their segments.
    pub fn forget_path_mtus(&mut self) {
        self.path_mtus.clear();
    }

    pub(super) fn is_own(&self, address: IpAddr) -> bool {
        self.routes.classify(address) == Destination::Ours
    }

    /// Handles a frame of the control channel. A packet of UDP or of another protocol is there because no endpoint
    /// takes it.
    pub(super) fn on_control(&mut self, now: Instant, frame: &Arrived<B>) {
        let handled = match Header::parse(frame.memory.bytes()) {
            Ok((header, payload)) if header.ether_type == ARP => self.on_arp(now, payload),
            Ok((header, packet)) => self.on_packet(now, header, packet, frame),
            Err(reason) => Err(reason),
        };
        if let Err(reason) = handled {
            self.drops.count(reason);
        }
    }

    /// Handles a packet that no endpoint takes.
    fn on_packet(
        &mut self,
        now: Instant,
        header: Header,
        bytes: &[u8],
        frame: &Arrived<B>,
    ) -> Result<(), DropReason> {
        let packet = ip::parse(bytes)?;
        let checked = self.check_source(packet.addresses.source, frame.is_own);
        let destination = self.routes.classify(packet.addresses.destination);
        if destination == Destination::Other {
            return Err(DropReason::NotOurAddress);
        }
        let is_to_group = header.destination.is_group() || destination != Destination::Ours;
        let is_v4 = packet.addresses.source.is_ipv4();
        match packet.protocol {
            ICMP if is_v4 => {
                checked?;
                let message = icmp::parse(packet.payload, frame.verify)?;
                if self.hand_error_over(now, &message, frame) {
                    return Ok(());
                }
                self.on_icmp(now, &packet, &message, is_to_group)
            }
            ICMPV6 if !is_v4 => {
                let message = icmp_v6::parse(packet.addresses, packet.payload, frame.verify)?;
                match message {
                    // Fragmentation would hide the message from filters of the link (RFC 6980, 5).
                    icmp_v6::Message::NeighborDiscovery(_) if packet.has_fragment_header => {
                        Err(DropReason::NeighborDiscovery)
                    }
                    // A host that uses one of the stack's addresses shows itself in this way.
                    icmp_v6::Message::NeighborDiscovery(_) => self.on_discovery(now, &packet),
                    message => {
                        checked?;
                        let message = shared(message);
                        if self.hand_error_over(now, &message, frame) {
                            return Ok(());
                        }
                        self.on_icmp(now, &packet, &message, is_to_group)
                    }
                }
            }
            TCP => {
                checked?;
                let verify = (frame.verify, is_to_group);
                Err(self.tcp_on_closed_port(now, &packet, verify))
            }
            // Nothing follows, and nothing is wrong with that (RFC 8200, 4.7).
            NO_NEXT_HEADER if !is_v4 => {
                checked?;
                Err(DropReason::Protocol)
            }
            _ => {
                checked?;
                if packet.protocol == UDP {
                    // A damaged datagram may have been sent to another port, and is not answered (RFC 1122, 4.1.3.4).
                    udp::parse(packet.addresses, packet.payload, frame.verify)?;
                }
                // The demultiplexer has taken a token of the rate limit for a closed port.
                let may_answer = packet.protocol == UDP || self.may_report(now);
                Err(self.refuse(now, &packet, bytes, (is_to_group, may_answer)))
            }
        }
    }

    /// Reports to the sender that no endpoint takes its packet, if the rate limit allows it. Returns the reason for
    /// which the packet is dropped.
    pub(super) fn refuse(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        bytes: &[u8],
        (is_to_group, is_within_rate): (bool, bool),
    ) -> DropReason {
        let original = Original {
            addresses: packet.addresses,
            is_to_group,
            is_later_fragment: false,
            protocol: packet.protocol,
            payload: packet.payload,
        };
        let (report, dropped) = match packet.protocol {
            UDP => (Report::PortUnreachable, DropReason::PortUnreachable),
            _ => (Report::ProtocolUnreachable, DropReason::Protocol),
        };
        if !may_answer(&original) {
            return dropped;
        }
        if !is_within_rate {
            return DropReason::IcmpRate;
        }
        self.send_report(now, packet.addresses.swapped(), report, bytes);
        dropped
    }
}
