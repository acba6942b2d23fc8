//! Fragments, and the packets that are put together from them.

use alloc::vec::Vec;
use core::net::SocketAddr;
use core::ops::Deref;

use softclock_core::Instant;
use softclock_wire::packet::{ICMP, ICMPV6, TCP, UDP};

use super::endpoint::{Arrived, Datagram, Memory};
use super::icmp::shared;
use super::{EndpointId, Stack};
use crate::checksum::Verify;
use crate::demux::{Flow, Transport};
use crate::drops::DropReason;
use crate::icmp::{Original, Report, may_answer};
use crate::ip::fragments::Reassembled;
use crate::ip::{self, NO_NEXT_HEADER, Packet};
use crate::link::Header;
use crate::routes::Destination;
use crate::{icmp, icmp_v6, udp};

impl<B: Deref<Target = [u8]>> Stack<B> {
    /// Handles a fragment. The packet that it completes goes to its endpoint, or is handled as a control packet.
    pub(super) fn on_fragment(&mut self, now: Instant, frame: &Arrived<B>) {
        self.expire_fragments(now);
        let fragment = Header::parse(frame.memory.bytes()).and_then(|(header, bytes)| {
            let packet = ip::parse(bytes)?;
            self.check_source(packet.addresses.source, frame.is_own)?;
            match self.routes.classify(packet.addresses.destination) {
                Destination::Other => Err(DropReason::NotOurAddress),
                // As for a whole packet: in a frame to several hosts it has no business (RFC 1122, 3.3.6).
                Destination::Ours if header.destination.is_group() => {
                    Err(DropReason::NotOurAddress)
                }
                _ => self.reassembly.on_fragment(now, &packet),
            }
        });
        let evicted = self.reassembly.take_evicted();
        self.drops.count_many(DropReason::FragmentMemory, evicted);
        match fragment {
            Ok(None) => {}
            Ok(Some(whole)) => {
                self.counts.reassembled += 1;
                // The checksum of a fragmented packet is never left to a link.
                if let Err(reason) = self.on_reassembled(now, frame.at, whole) {
                    self.drops.count(reason);
                }
            }
            Err(reason) => self.drops.count(reason),
        }
    }

    fn on_reassembled(
        &mut self,
        now: Instant,
        at: Instant,
        whole: Reassembled,
    ) -> Result<(), DropReason> {
        let packet = whole.as_packet();
        let addresses = whole.addresses;
        let is_to_group = self.routes.classify(addresses.destination) != Destination::Ours;
        match whole.protocol {
            ICMP if addresses.source.is_ipv4() => {
                let message = icmp::parse(&whole.payload, Verify::Yes)?;
                self.on_icmp(now, &packet, &message, is_to_group)
            }
            // Neighbor discovery must not be fragmented (RFC 6980).
            ICMPV6 if !addresses.source.is_ipv4() => {
                let message = icmp_v6::parse(addresses, &whole.payload, Verify::Yes)?;
                match message {
                    icmp_v6::Message::NeighborDiscovery(_) => Err(DropReason::NeighborDiscovery),
                    message => self.on_icmp(now, &packet, &shared(message), is_to_group),
                }
            }
            UDP => {
                let datagram = udp::parse(addresses, &whole.payload, Verify::Yes)?;
                let flow = Flow {
                    transport: Transport::Udp,
                    remote: (addresses.source, datagram.source_port),
                    local: (addresses.destination, datagram.destination_port),
                };
                let ids = self.receivers(&flow);
                let length = datagram.payload.len();
                match ids.is_empty() {
                    true => Err(self.refuse_reassembled(now, &packet, is_to_group)),
                    false => self.deliver_reassembled(&ids, &flow, (at, length), whole),
                }
            }
            NO_NEXT_HEADER if addresses.source.is_ipv6() => Err(DropReason::Protocol),
            TCP if !is_to_group => {
                self.tcp_on_reassembled(now, at, &packet);
                Ok(())
            }
            _ => Err(self.refuse_reassembled(now, &packet, is_to_group)),
        }
    }

    /// Like [`refuse`](Self::refuse), for a packet that arrived in fragments. The report quotes it as if it were whole.
    fn refuse_reassembled(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        is_to_group: bool,
    ) -> DropReason {
        let mut bytes = Vec::new();
        ip::write_header_of_reassembled(packet, &mut bytes);
        let quoted = packet.payload.len().min(self.settings.mtu);
        bytes.extend(packet.payload.get(..quoted).unwrap_or_default());
        let is_within_rate = self.may_report(now);
        self.refuse(now, packet, &bytes, (is_to_group, is_within_rate))
    }

    /// Gives a reassembled datagram with a payload of `length` bytes to endpoints.
    fn deliver_reassembled(
        &mut self,
        ids: &[EndpointId],
        flow: &Flow,
        (at, length): (Instant, usize),
        whole: Reassembled,
    ) -> Result<(), DropReason> {
        let Some((&last, others)) = ids.split_last() else {
            return Err(DropReason::PortUnreachable);
        };
        let datagram = |memory| Datagram {
            source: SocketAddr::new(flow.remote.0, flow.remote.1),
            destination: flow.local.0,
            ecn: whole.traffic_class & 3,
            arrived: at,
            memory: Memory::Copy(memory),
            payload: udp::HEADER_BYTES..udp::HEADER_BYTES + length,
        };
        let bytes = whole.payload.len();
        for &id in others {
            self.push_datagram(id, datagram(whole.payload.clone()), bytes);
        }
        self.push_datagram(last, datagram(whole.payload), bytes);
        Ok(())
    }

    /// Gives up packets whose fragments did not arrive in time, and reports those of which the first fragment is here
    /// to their senders (RFC 1122, 3.3.2; RFC 8200, 4.5), if the rate limit allows it.
    pub(super) fn expire_fragments(&mut self, now: Instant) {
        let mut first_fragments = Vec::new();
        let expired = self
            .reassembly
            .expire(now, |first| first_fragments.push(first));
        self.drops.count_many(DropReason::FragmentTimeout, expired);
        for bytes in first_fragments {
            let Ok(packet) = ip::parse(&bytes) else {
                continue;
            };
            // Extension headers may hide an error message, which is never answered.
            let Ok((protocol, payload)) = packet.upper_layer() else {
                continue;
            };
            let destination = self.routes.classify(packet.addresses.destination);
            let original = Original {
                addresses: packet.addresses,
                is_to_group: destination != Destination::Ours,
                is_later_fragment: false,
                protocol,
                payload,
            };
            if may_answer(&original) && self.may_report(now) {
                let addresses = packet.addresses.swapped();
                self.send_report(now, addresses, Report::ReassemblyTimeExceeded, &bytes);
            }
        }
    }
}
