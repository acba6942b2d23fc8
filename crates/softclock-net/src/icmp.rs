//! ICMP for IPv4 (RFC 792, RFC 1122 section 3.2.2), and the types that it shares with [ICMPv6](crate::icmp_v6).
//!
//! Redirects and source quench are not handled: redirects gain little on a link with one gateway, and any host on that
//! link can forge them; RFC 6633 abolishes source quench.
//!
//! Errors can be forged by any host that can guess the addresses and ports of a packet. A caller compares the
//! [quoted packet](Quoted) with those that it has sent (RFC 5927), and must not close an established connection because
//! of an error.

use core::net::IpAddr;

use alloc::vec::Vec;

use softclock_wire::packet::{Headers, ICMP, ICMPV6, TCP, ones_complement_sum};

use crate::checksum::{Addresses, Verify};
use crate::drops::DropReason;

/// A message of ICMP.
///
/// ```
/// use softclock_net::checksum::Verify;
/// use softclock_net::icmp::{self, Echo, Message};
///
/// let echo = Echo { identifier: 7, sequence: 1, data: b"ping" };
/// let mut request = Vec::new();
/// icmp::write_echo_request(&echo, &mut request);
/// assert_eq!(icmp::parse(&request, Verify::Yes), Ok(Message::EchoRequest(echo)));
///
/// let mut reply = Vec::new();
/// icmp::write_echo_reply(&echo, &mut reply);
/// assert_eq!(icmp::parse(&reply, Verify::Yes), Ok(Message::EchoReply(echo)));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Message<'a> {
    /// A request to send the same data back. A host need not answer a request to a group or to all hosts, and should
    /// not, lest it takes part in attacks by reflection.
    EchoRequest(Echo<'a>),
    /// An answer to a request.
    EchoReply(Echo<'a>),
    /// A host or router could not deliver a packet of this host.
    Error(ErrorMessage<'a>),
    /// A message of a type that the stack does not handle: it counts as [`DropReason::IcmpIgnored`].
    Other,
}

/// The contents of an echo request or reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Echo<'a> {
    /// The number of the program that asks.
    pub identifier: u16,
    /// The number of the request.
    pub sequence: u16,
    /// Data that the reply repeats.
    pub data: &'a [u8],
}

/// A report that a packet was not delivered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ErrorMessage<'a> {
    /// The reason.
    pub kind: ErrorKind,
    /// The longest packet that the next link takes, if the reason is [`ErrorKind::PacketTooBig`] and the router gives
    /// it. At least 68 for IPv4 and 1280 for IPv6: a message with less is refused (RFC 1191 section 3, RFC 8201
    /// section 4).
    pub next_hop_mtu: Option<u32>,
    /// The packet that was not delivered.
    pub quoted: Quoted<'a>,
}

/// The reason for which a packet was not delivered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorKind {
    /// No route leads to the destination's network.
    NetUnreachable,
    /// The destination did not answer on its link.
    HostUnreachable,
    /// A filter or policy forbids the packet.
    Prohibited,
    /// The destination does not have the protocol.
    ProtocolUnreachable,
    /// The destination has no endpoint with the port.
    PortUnreachable,
    /// The packet is longer than a link takes, and must not be fragmented on its way.
    PacketTooBig,
    /// The packet has passed as many routers as its hop limit allows.
    HopLimitExceeded,
    /// Some fragments did not arrive in time at the destination.
    ReassemblyTimeExceeded,
    /// A field of a header is wrong.
    ParameterProblem,
    /// A reason without an entry here.
    Other,
}

impl ErrorKind {
    /// Whether the destination, or a filter on the path, refuses the packet, so that to send it again is in vain (RFC
    /// 1122, 4.2.3.9).
    pub(crate) const fn is_hard(self) -> bool {
        matches!(
            self,
            Self::PortUnreachable | Self::ProtocolUnreachable | Self::Prohibited
        )
    }
}

/// The beginning of a packet, as an error message quotes it. Its checksums are not verified, since a quote may be cut
/// off, and routers may have changed it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Quoted<'a> {
    /// The packet's sender, which should be this host, and its destination.
    pub addresses: Addresses,
    /// The protocol of the transport layer.
    pub protocol: u8,
    /// The ports of UDP, TCP and SCTP: source and destination. `None` for other protocols, for fragments other than the
    /// first, and if they are cut off.
    pub ports: Option<(u16, u16)>,
    /// The bytes behind the IP headers, usually at least 8. Extensions (RFC 4884) may follow those of the packet.
    pub transport: &'a [u8],
}

impl<'a> Quoted<'a> {
    /// The sequence number of a TCP segment, which must be one in flight for the error to be genuine.
    pub fn tcp_sequence(&self) -> Option<u32> {
        let bytes = self.transport.get(4..)?.first_chunk()?;
        let is_tcp = self.protocol == TCP && self.ports.is_some();
        is_tcp.then_some(u32::from_be_bytes(*bytes))
    }

    /// Parses a quote of the version of IP of the error message.
    pub(crate) fn parse(packet: &'a [u8], is_v6: bool) -> Result<Self, DropReason> {
        let headers = Headers::of_ip(packet);
        match (headers.addresses, headers.protocol) {
            (Some((source, destination)), Some(protocol)) if source.is_ipv6() == is_v6 => {
                Ok(Self {
                    addresses: Addresses {
                        source,
                        destination,
                    },
                    protocol,
                    ports: headers.ports,
                    transport: packet.get(headers.transport_offset..).unwrap_or(&[]),
                })
            }
            _ => Err(DropReason::Icmp),
        }
    }
}

/// The reason that an error message of this host gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Report {
    /// The next hop does not answer on its link.
    HostUnreachable,
    /// No endpoint has the port.
    PortUnreachable,
    /// The stack does not have the protocol.
    ProtocolUnreachable,
    /// Some fragments of the packet did not arrive in time; the first one, which is quoted, did.
    ReassemblyTimeExceeded,
}

/// The facts about a received packet that decide whether an error message may be sent about it: see [`may_answer`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Original<'a> {
    /// The packet's sender and destination.
    pub addresses: Addresses,
    /// Whether the packet or its frame was sent to a group or to all hosts. Needed for broadcasts, which do not show in
    /// the addresses of the packet; multicast groups do.
    pub is_to_group: bool,
    /// Whether this is a fragment other than the first.
    pub is_later_fragment: bool,
    /// The protocol of the transport layer.
    pub protocol: u8,
    /// The bytes behind the IP headers.
    pub payload: &'a [u8],
}

/// Whether an error message may be sent about a packet (RFC 1122 section 3.2.2, RFC 4443 section 2.4 e): never about an
/// error message, a later fragment, a packet to more than one host, or a packet whose source is not a single host.
/// Error messages about those would multiply, or reach hosts that did not cause them. A message of ICMP behind an
/// authentication header counts as an error.
///
/// The caller also limits the rate, by a [`TokenBucket`](crate::rate_limit::TokenBucket).
///
/// ```
/// use softclock_net::checksum::Addresses;
/// use softclock_net::icmp::{self, Original};
///
/// let original = Original {
///     addresses: Addresses { source: "10.0.0.1".parse()?, destination: "10.0.0.2".parse()? },
///     is_to_group: false,
///     is_later_fragment: false,
///     protocol: 17,
///     payload: &[],
/// };
/// assert!(icmp::may_answer(&original));
/// assert!(!icmp::may_answer(&Original { is_to_group: true, ..original }));
/// # Ok::<(), core::net::AddrParseError>(())
/// ```
pub fn may_answer(original: &Original<'_>) -> bool {
    let first = original.payload.first().copied();
    // A type that is cut off could be that of an error.
    let is_error = match original.protocol {
        ICMP => first.is_none_or(|of| !is_query(of)),
        ICMPV6 => first.is_none_or(|of| of < 128 || of == REDIRECT_V6),
        // The first byte is the protocol behind the header. The type of the message is not looked for.
        AUTHENTICATION => first.is_none_or(|protocol| matches!(protocol, ICMP | ICMPV6)),
        _ => false,
    };
    let is_to_group = original.is_to_group || original.addresses.destination.is_multicast();
    !is_error && !original.is_later_fragment && !is_to_group && is_single_host(original.addresses)
}

/// Parses a message of ICMP: the payload of an IPv4 packet.
///
/// # Errors
/// - [`DropReason::Icmp`]: the message is cut off, its checksum is wrong, or an error message quotes no packet.
/// - [`DropReason::IcmpIgnored`]: an error message gives an impossible MTU.
pub fn parse(message: &[u8], verify: Verify) -> Result<Message<'_>, DropReason> {
    let (fields, body) = Fields::parse(message)?;
    if verify == Verify::Yes && ones_complement_sum(message) != 0xffff {
        return Err(DropReason::Icmp);
    }
    let kind = match (fields.message_type, fields.code) {
        (ECHO_REQUEST, 0) => return Ok(Message::EchoRequest(fields.echo(body))),
        (ECHO_REPLY, 0) => return Ok(Message::EchoReply(fields.echo(body))),
        (UNREACHABLE, code) => unreachable_kind(code),
        (TIME_EXCEEDED, 0) => ErrorKind::HopLimitExceeded,
        (TIME_EXCEEDED, REASSEMBLY) => ErrorKind::ReassemblyTimeExceeded,
        (TIME_EXCEEDED, _) => ErrorKind::Other,
        (PARAMETER_PROBLEM, _) => ErrorKind::ParameterProblem,
        _ => return Ok(Message::Other),
    };
    let [_, _, m0, m1] = fields.rest;
    let next_hop_mtu = match (kind, u16::from_be_bytes([m0, m1])) {
        // A router from before RFC 1191 leaves the field zero.
        (ErrorKind::PacketTooBig, mtu @ 1..) => Some(u32::from(mtu)),
        _ => None,
    };
    if next_hop_mtu.is_some_and(|mtu| mtu < LEAST_MTU) {
        return Err(DropReason::IcmpIgnored);
    }
    Ok(Message::Error(ErrorMessage {
        kind,
        next_hop_mtu,
        quoted: Quoted::parse(body, false)?,
    }))
}

/// Appends an echo request to `to`: the payload of an IPv4 packet.
pub fn write_echo_request(echo: &Echo<'_>, to: &mut Vec<u8>) {
    write(ECHO_REQUEST, 0, echo.rest(), echo.data, to);
}

/// Appends the reply to an echo request to `to`: the payload of an IPv4 packet.
pub fn write_echo_reply(echo: &Echo<'_>, to: &mut Vec<u8>) {
    write(ECHO_REPLY, 0, echo.rest(), echo.data, to);
}

/// The message that reports that `original`, a packet or first fragment from the IPv4 header on, was not delivered: the
/// payload of an IPv4 packet. Quotes as much as fits into a packet of 576 bytes (RFC 1812 section 4.3.2.3).
///
/// Ask [`may_answer`] before. Bytes behind the original packet are not quoted.
///
/// ```
/// use softclock_net::checksum::Verify;
/// use softclock_net::icmp::{self, ErrorKind, Message, Report};
///
/// // A datagram from port 5353 of 10.0.0.1 to port 53 of 10.0.0.2.
/// let mut original = [0; 28];
/// original[0] = 0x45;
/// original[3] = 28;
/// original[9] = 17;
/// original[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
/// original[20..24].copy_from_slice(&[0x14, 0xe9, 0, 53]);
///
/// let message = icmp::write_report(Report::PortUnreachable, &original);
/// let Ok(Message::Error(error)) = icmp::parse(&message, Verify::Yes) else {
///     panic!("an error message");
/// };
/// assert_eq!(error.kind, ErrorKind::PortUnreachable);
/// assert_eq!(error.quoted.ports, Some((5353, 53)));
/// ```
#[must_use]
pub fn write_report(reason: Report, original: &[u8]) -> Vec<u8> {
    let (message_type, code) = match reason {
        Report::HostUnreachable => (UNREACHABLE, 1),
        Report::ProtocolUnreachable => (UNREACHABLE, 2),
        Report::PortUnreachable => (UNREACHABLE, 3),
        Report::ReassemblyTimeExceeded => (TIME_EXCEEDED, REASSEMBLY),
    };
    let quote = quote(original, MOST_QUOTE);
    let mut message = Vec::new();
    write(message_type, code, [0; 4], quote, &mut message);
    message
}

/// The fields at the beginning of each message.
pub(crate) struct Fields {
    pub(crate) message_type: u8,
    pub(crate) code: u8,
    /// The fields behind the checksum, which depend on the type.
    pub(crate) rest: [u8; 4],
}

impl Fields {
    /// Parses the fields; also returns the body behind them.
    pub(crate) fn parse(message: &[u8]) -> Result<(Self, &[u8]), DropReason> {
        let (fields, body) = message
            .split_first_chunk::<HEADER_BYTES>()
            .ok_or(DropReason::Icmp)?;
        let [message_type, code, _, _, rest @ ..] = *fields;
        let fields = Self {
            message_type,
            code,
            rest,
        };
        Ok((fields, body))
    }

    pub(crate) fn echo<'a>(&self, data: &'a [u8]) -> Echo<'a> {
        let [i0, i1, s0, s1] = self.rest;
        Echo {
            identifier: u16::from_be_bytes([i0, i1]),
            sequence: u16::from_be_bytes([s0, s1]),
            data,
        }
    }
}

impl Echo<'_> {
    pub(crate) fn rest(&self) -> [u8; 4] {
        let ([i0, i1], [s0, s1]) = (self.identifier.to_be_bytes(), self.sequence.to_be_bytes());
        [i0, i1, s0, s1]
    }
}

/// Appends a message with a checksum of zero; returns its place in `to`.
pub(crate) fn write_without_checksum(
    (message_type, code): (u8, u8),
    rest: [u8; 4],
    body: &[u8],
    to: &mut Vec<u8>,
) -> usize {
    let start = to.len();
    to.reserve(HEADER_BYTES + body.len());
    to.extend([message_type, code, 0, 0]);
    to.extend(rest);
    to.extend(body);
    start
}

fn write(message_type: u8, code: u8, rest: [u8; 4], body: &[u8], to: &mut Vec<u8>) {
    let start = write_without_checksum((message_type, code), rest, body, to);
    let checksum = !ones_complement_sum(&to[start..]);
    to[start + CHECKSUM..start + CHECKSUM + 2].copy_from_slice(&checksum.to_be_bytes());
}

/// The beginning of an IP packet, at most `most` bytes, without the bytes behind its length.
pub(crate) fn quote(packet: &[u8], most: usize) -> &[u8] {
    let length = match packet {
        [0x40..=0x4f, _, l0, l1, ..] => usize::from(u16::from_be_bytes([*l0, *l1])),
        [0x60..=0x6f, _, _, _, l0, l1, ..] => 40 + usize::from(u16::from_be_bytes([*l0, *l1])),
        _ => packet.len(),
    };
    packet.get(..length.min(most)).unwrap_or(packet)
}

fn unreachable_kind(code: u8) -> ErrorKind {
    match code {
        0 | 6 | 11 => ErrorKind::NetUnreachable,
        1 | 7 | 8 | 12 => ErrorKind::HostUnreachable,
        2 => ErrorKind::ProtocolUnreachable,
        3 => ErrorKind::PortUnreachable,
        4 => ErrorKind::PacketTooBig,
        9 | 10 | 13..=15 => ErrorKind::Prohibited,
        _ => ErrorKind::Other,
    }
}

/// Whether the source is an address that a single host can have on a network.
fn is_single_host(addresses: Addresses) -> bool {
    match addresses.source {
        IpAddr::V4(source) => {
            // 0.0.0.0/8 is "this host"; 240.0.0.0/4 is reserved, and includes the broadcast address.
            let [first, ..] = source.octets();
            !matches!(first, 0 | 224..) && !source.is_loopback()
        }
        IpAddr::V6(source) => !source.is_unspecified() && !source.is_multicast(),
    }
}

const ECHO_REPLY: u8 = 0;
const UNREACHABLE: u8 = 3;
const ECHO_REQUEST: u8 = 8;
const TIME_EXCEEDED: u8 = 11;
const PARAMETER_PROBLEM: u8 = 12;

/// The code of TIME_EXCEEDED for fragments that did not arrive, of ICMPv6, too.
pub(crate) const REASSEMBLY: u8 = 1;

/// Whether a type of ICMP is known not to be that of an error: echo, router discovery (RFC 1256), timestamps,
/// information and address masks. Types that are not known could be errors.
const fn is_query(message_type: u8) -> bool {
    matches!(message_type, 0 | 8..=10 | 13..=18)
}

/// The authentication header (RFC 4302), which the stack does not have.
const AUTHENTICATION: u8 = 51;

/// A redirect of ICMPv6 has a type among those of information, but must not be answered by an error, either.
const REDIRECT_V6: u8 = 137;

/// The length of the fields of a message: type, code, checksum, and four bytes that depend on the type.
pub(crate) const HEADER_BYTES: usize = 8;

/// The offset of the checksum.
pub(crate) const CHECKSUM: usize = 2;

/// The longest quote: any host accepts a packet of 576 bytes, of which 20 are the header of IPv4.
const MOST_QUOTE: usize = 576 - 20 - HEADER_BYTES;

/// The least MTU of a link for IPv4 (RFC 791): a message with less is forged or damaged.
const LEAST_MTU: u32 = 68;

#[cfg(test)]
mod tests;
