//! Messages of ICMP and ICMPv6: echo, and errors.

use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use core::ops::Deref;

use softclock_core::Instant;
use softclock_wire::packet::{ICMP, ICMPV6, TCP, UDP};

use super::endpoint::{Arrived, NetworkError};
use super::output::Outgoing;
use super::{EndpointId, Stack};
use crate::checksum::Addresses;
use crate::demux::{Flow, Transport};
use crate::drops::DropReason;
use crate::icmp::{Echo, ErrorKind, ErrorMessage, Message, Report};
use crate::ip::Packet;
use crate::link::LinkAddress;
use crate::{icmp, icmp_v6};

impl<B: Deref<Target = [u8]>> Stack<B> {
    /// Handles a message of ICMP or ICMPv6.
    pub(super) fn on_icmp(
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

    /// Takes a place in the rate limit for an error to report, if there is one; returns whether.
    ///
    /// A host that gets the answers to its own packets could tell by an exact limit how many others got, and so which
    /// port of a resolver is open (Man et al., *DNS Cache Poisoning Attack Reloaded*, CCS 2020). So an error takes one
    /// token or two, at random.
    pub(super) fn may_report(&mut self, now: Instant) -> bool {
        let may_report = self.error_rate.take(now);
        if may_report && self.random.draw().is_multiple_of(2) {
            // The last token is enough for an error.
            let _ = self.error_rate.take(now);
        }
        may_report
    }

    /// Gives an error about a connection of another stack to that stack; returns whether it is one.
    pub(super) fn hand_error_over(
        &mut self,
        now: Instant,
        message: &Message<'_>,
        frame: &Arrived<B>,
    ) -> bool {
        let Message::Error(error) = message else {
            return false;
        };
        let Some((other, route)) = self.stack_of_error(now, error, frame.route) else {
            return false;
        };
        let mut copy = frame.copied();
        copy.route = route;
        self.hand_over(other, copy);
        true
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
            transport: Transport::Udp,
            remote: (destination, remote_port),
            local: (source, local_port),
        };
        let id = self.table.find(&flow).map(EndpointId);
        let id = id.ok_or(DropReason::IcmpIgnored)?;
        let reported = match error.kind {
            ErrorKind::PortUnreachable => NetworkError::Refused,
            ErrorKind::PacketTooBig => NetworkError::TooLong,
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
        let is_connected = endpoint.remote == Some(SocketAddr::new(destination, remote_port));
        // Routers may fragment datagrams of IPv4, so a report about one is most likely forged: it counts for a
        // connected endpoint only, whose ports must be guessed. Over IPv6 only the sender fragments, so all endpoints
        // need reports.
        if reported == NetworkError::TooLong
            && (is_connected || destination.is_ipv6())
            && let Some(mtu) = error.next_hop_mtu
        {
            self.path_mtus.on_report(now, destination, mtu as usize);
        }
        if is_connected {
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

    /// Sends an error message about `original`, a packet or its first fragment.
    pub(super) fn send_report(
        &mut self,
        now: Instant,
        addresses: Addresses,
        report: Report,
        original: &[u8],
    ) {
        let (protocol, message) = self::report(addresses, report, original);
        self.counts.errors_sent += 1;
        self.send_message(now, Outgoing::new(addresses, protocol), &message, None);
    }
}

/// The protocol and the message of a report about `original`.
pub(super) fn report(addresses: Addresses, report: Report, original: &[u8]) -> (u8, Vec<u8>) {
    match addresses.source {
        IpAddr::V4(_) => (ICMP, icmp::write_report(report, original)),
        IpAddr::V6(_) => (ICMPV6, icmp_v6::write_report(addresses, report, original)),
    }
}

/// The message of ICMP with the same meaning.
pub(super) const fn shared(message: icmp_v6::Message<'_>) -> Message<'_> {
    match message {
        icmp_v6::Message::EchoRequest(echo) => Message::EchoRequest(echo),
        icmp_v6::Message::EchoReply(echo) => Message::EchoReply(echo),
        icmp_v6::Message::Error(error) => Message::Error(error),
        icmp_v6::Message::NeighborDiscovery(_) | icmp_v6::Message::Other => Message::Other,
    }
}
