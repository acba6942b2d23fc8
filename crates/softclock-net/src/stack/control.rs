//! Packets for the stack itself: ICMP, fragments, packets without an endpoint; and the timers.

use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use core::ops::Deref;

use softclock_core::Instant;
use softclock_wire::packet::{ARP, ICMP, ICMPV6, TCP, UDP};

use super::endpoint::{Arrived, Datagram, Memory, NetworkError};
use super::output::Outgoing;
use super::{EndpointId, Stack};
use crate::checksum::{Addresses, Verify};
use crate::demux::{Flow, Protocol};
use crate::drops::DropReason;
use crate::icmp::{Echo, ErrorKind, ErrorMessage, Message, Original, Report, may_answer};
use crate::ip::fragments::Reassembled;
use crate::ip::{self, Packet};
use crate::link::{Header, LinkAddress};
use crate::neighbors::TimerEvent;
use crate::routes::Destination;
use crate::{icmp, icmp_v6, udp};

impl<B: Deref<Target = [u8]>> Stack<B> {
    /// Runs every timer that is due at `now`: TCP connections, listeners and TIME-WAIT, reassembly timeouts, ARP and
    /// neighbor solicitations, and the repeated announcement. Takes time in proportion to the timers that are due: at most
    /// one for each connection, neighbor and incomplete packet. The timer of a connection whose owner does not come also
    /// processes the segments that wait in its channel.
    pub fn on_timer(&mut self, now: Instant) {
        self.tcp_at(now);
        self.expire_fragments(now);
        self.tcp_on_timer(now);
        self.neighbors_on_timer(now);
        self.announcement_on_timer(now);
    }

    /// Asks for link addresses, and gives up on neighbors that do not answer.
    pub(super) fn neighbors_on_timer(&mut self, now: Instant) {
        while let Some(event) = self.neighbors.on_timer(now) {
            match event {
                TimerEvent::Solicit { address, to } => self.solicit(address, to),
                TimerEvent::Failed { packets, .. } => {
                    let packets = packets.len() as u64;
                    self.drops
                        .count_many(DropReason::NeighborUnreachable, packets);
                }
            }
        }
    }

    /// Whether the address is one of the stack's, or of a group that it has joined.
    pub fn is_own_or_group(&self, address: IpAddr) -> bool {
        matches!(
            self.routes.classify(address),
            Destination::Ours | Destination::Group
        )
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
                if self.hand_error_over(&message, frame) {
                    return Ok(());
                }
                self.on_icmp(now, &packet, &message, is_to_group)
            }
            ICMPV6 if !is_v4 => {
                let message = icmp_v6::parse(packet.addresses, packet.payload, frame.verify)?;
                match message {
                    // A host that uses one of the stack's addresses shows itself in this way.
                    icmp_v6::Message::NeighborDiscovery(_) => self.on_discovery(now, &packet),
                    message => {
                        checked?;
                        let message = shared(message);
                        if self.hand_error_over(&message, frame) {
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
            _ => {
                checked?;
                // The demultiplexer has taken a token of the rate limit for a closed port.
                let may_answer = packet.protocol == UDP || self.error_rate.take(now);
                Err(self.refuse(now, &packet, bytes, (is_to_group, may_answer)))
            }
        }
    }

    /// Reports to the sender that no endpoint takes its packet, if the rate limit allows it. Returns the reason for which
    /// the packet is dropped.
    fn refuse(
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

    /// Handles a message of ICMP or ICMPv6.
    fn on_icmp(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        message: &Message<'_>,
        is_to_group: bool,
    ) -> Result<(), DropReason> {
        match message {
            // A request to all hosts would make each of them answer: an attack on its apparent sender.
            Message::EchoRequest(_) if is_to_group => Err(DropReason::IcmpIgnored),
            Message::EchoRequest(echo) => self.on_echo_request(now, packet, echo),
            Message::Error(error) => self.on_error(now, error),
            Message::EchoReply(_) | Message::Other => Err(DropReason::IcmpIgnored),
        }
    }

    fn on_echo_request(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        echo: &Echo<'_>,
    ) -> Result<(), DropReason> {
        if !self.echo_rate.take(now, packet.addresses.source) {
            return Err(DropReason::IcmpRate);
        }
        let addresses = packet.addresses.swapped();
        let mut message = Vec::new();
        let protocol = match addresses.source {
            IpAddr::V4(_) => {
                icmp::write_echo_reply(echo, &mut message);
                ICMP
            }
            IpAddr::V6(_) => {
                icmp_v6::write_echo_reply(addresses, echo, &mut message);
                ICMPV6
            }
        };
        let outgoing = Outgoing {
            // A reply has the traffic class of the request, without its congestion mark (RFC 1122, 3.2.2.6).
            traffic_class: packet.traffic_class & !3,
            ..Outgoing::new(addresses, protocol)
        };
        self.counts.echoes_answered += 1;
        self.send_message(now, outgoing, &message, None);
        Ok(())
    }

    /// Gives an error about a connection of another stack to that stack; returns whether it is one.
    fn hand_error_over(&mut self, message: &Message<'_>, frame: &Arrived<B>) -> bool {
        let Message::Error(error) = message else {
            return false;
        };
        let other = self.stack_of_error(error);
        if let Some(other) = other {
            self.hand_over(other, frame.copied());
        }
        other.is_some()
    }

    /// Handles an error about a packet which, as it says, the stack has sent. Only an endpoint that is connected to the
    /// receiver learns of it, since anyone can forge errors about others (RFC 5927).
    fn on_error(&mut self, now: Instant, error: &ErrorMessage<'_>) -> Result<(), DropReason> {
        let Addresses {
            source,
            destination,
        } = error.quoted.addresses;
        if error.quoted.protocol == TCP {
            return self.on_tcp_error(now, error);
        }
        let (UDP, Some((local_port, remote_port))) = (error.quoted.protocol, error.quoted.ports)
        else {
            return Err(DropReason::IcmpIgnored);
        };
        let flow = Flow {
            protocol: Protocol::Udp,
            remote: (destination, remote_port),
            local: (source, local_port),
        };
        let id = self.table.find(&flow).map(EndpointId);
        let id = id.ok_or(DropReason::IcmpIgnored)?;
        let reported = match error.kind {
            ErrorKind::PortUnreachable => NetworkError::Refused,
            ErrorKind::PacketTooBig => {
                if let Some(mtu) = error.next_hop_mtu {
                    self.path_mtus.on_report(now, destination, mtu as usize);
                }
                NetworkError::TooLong
            }
            ErrorKind::NetUnreachable
            | ErrorKind::HostUnreachable
            | ErrorKind::Prohibited
            | ErrorKind::ProtocolUnreachable => NetworkError::HostUnreachable,
            _ => return Err(DropReason::IcmpIgnored),
        };
        let endpoint = self
            .endpoints
            .get_mut(id.0)
            .ok_or(DropReason::IcmpIgnored)?;
        if endpoint.remote == Some(SocketAddr::new(destination, remote_port)) {
            endpoint.error = Some(reported);
            endpoint.channel.cancel_wait();
            self.wake(id);
        }
        Ok(())
    }

    /// Handles an error about a segment. Only one that quotes a segment in flight is believed (RFC 5927, 4.1).
    fn on_tcp_error(&mut self, now: Instant, error: &ErrorMessage<'_>) -> Result<(), DropReason> {
        if !self.tcp_on_icmp(now, error) {
            return Err(DropReason::IcmpIgnored);
        }
        if let (ErrorKind::PacketTooBig, Some(mtu)) = (error.kind, error.next_hop_mtu) {
            let destination = error.quoted.addresses.destination;
            self.path_mtus.on_report(now, destination, mtu as usize);
        }
        Ok(())
    }

    /// Sends a message of ICMP. It is dropped if there is no route, or no room.
    pub(super) fn send_message(
        &mut self,
        now: Instant,
        outgoing: Outgoing,
        message: &[u8],
        to: Option<LinkAddress>,
    ) {
        let mut frame = self.begin(&outgoing, message.len());
        frame.extend(message);
        if self.transmit(now, &outgoing, frame, to).is_err() {
            self.drops.count(DropReason::NoRoute);
        }
    }

    /// Gives up packets whose fragments did not arrive in time, and reports those of which the first fragment is here to
    /// their senders (RFC 1122, 3.3.2; RFC 8200, 4.5), if the rate limit allows it.
    fn expire_fragments(&mut self, now: Instant) {
        let mut first_fragments = Vec::new();
        let expired = self
            .reassembly
            .expire(now, |first| first_fragments.push(first));
        self.drops.count_many(DropReason::FragmentTimeout, expired);
        for bytes in first_fragments {
            let Ok(packet) = ip::parse(&bytes) else {
                continue;
            };
            let destination = self.routes.classify(packet.addresses.destination);
            let original = Original {
                addresses: packet.addresses,
                is_to_group: destination != Destination::Ours,
                is_later_fragment: false,
                protocol: packet.protocol,
                payload: packet.payload,
            };
            if may_answer(&original) && self.error_rate.take(now) {
                let addresses = packet.addresses.swapped();
                self.send_report(now, addresses, Report::ReassemblyTimeExceeded, &bytes);
            }
        }
    }

    /// Sends an error message about `original`, a packet or its first fragment.
    fn send_report(&mut self, now: Instant, addresses: Addresses, report: Report, original: &[u8]) {
        let (protocol, message) = match addresses.source {
            IpAddr::V4(_) => (ICMP, icmp::write_report(report, original)),
            IpAddr::V6(_) => (ICMPV6, icmp_v6::write_report(addresses, report, original)),
        };
        self.counts.errors_sent += 1;
        self.send_message(now, Outgoing::new(addresses, protocol), &message, None);
    }

    /// Handles a fragment. The packet that it completes goes to its endpoint, or is handled as a control packet.
    pub(super) fn on_fragment(&mut self, now: Instant, frame: &Arrived<B>) {
        self.expire_fragments(now);
        let fragment = Header::parse(frame.memory.bytes()).and_then(|(_, bytes)| {
            let packet = ip::parse(bytes)?;
            self.check_source(packet.addresses.source, frame.is_own)?;
            match self.routes.classify(packet.addresses.destination) {
                Destination::Other => Err(DropReason::NotOurAddress),
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
                    protocol: Protocol::Udp,
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
        let output = ip::Output {
            addresses: packet.addresses,
            protocol: packet.protocol,
            hop_limit: packet.hop_limit,
            traffic_class: packet.traffic_class,
            identification: 0,
            may_fragment: true,
        };
        let mut bytes = Vec::new();
        ip::write_header(&output, packet.payload.len(), &mut bytes);
        let quoted = packet.payload.len().min(self.settings.mtu);
        bytes.extend(packet.payload.get(..quoted).unwrap_or_default());
        let is_within_rate = self.error_rate.take(now);
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

    pub(super) fn is_own(&self, address: IpAddr) -> bool {
        self.routes.classify(address) == Destination::Ours
    }
}

/// The message of ICMP with the same meaning.
const fn shared(message: icmp_v6::Message<'_>) -> Message<'_> {
    match message {
        icmp_v6::Message::EchoRequest(echo) => Message::EchoRequest(echo),
        icmp_v6::Message::EchoReply(echo) => Message::EchoReply(echo),
        icmp_v6::Message::Error(error) => Message::Error(error),
        icmp_v6::Message::NeighborDiscovery(_) | icmp_v6::Message::Other => Message::Other,
    }
}
