//! ICMPv6: echo and errors (RFC 4443). Messages of neighbor discovery are recognized, not parsed.
//!
//! The types are those of [ICMP](crate::icmp), where [`may_answer`](crate::icmp::may_answer) is, too.

use alloc::vec::Vec;

use softclock_wire::packet::{ICMPV6, MOST_EXTENSIONS};

use crate::checksum::{Addresses, Verify, is_transport_checksum_right, transport_checksum};
use crate::drops::DropReason;
use crate::icmp::{
    CHECKSUM, Echo, ErrorKind, ErrorMessage, Fields, HEADER_BYTES, Quoted, REASSEMBLY, Report,
    quote, write_without_checksum,
};

/// A message of ICMPv6.
///
/// ```
/// use softclock_net::checksum::{Addresses, Verify};
/// use softclock_net::icmp::Echo;
/// use softclock_net::icmp_v6::{self, Message};
///
/// let addresses = Addresses { source: "fe80::1".parse()?, destination: "fe80::2".parse()? };
/// let echo = Echo { identifier: 7, sequence: 1, data: b"ping" };
/// let mut request = Vec::new();
/// icmp_v6::write_echo_request(addresses, &echo, &mut request);
/// assert_eq!(icmp_v6::parse(addresses, &request, Verify::Yes), Ok(Message::EchoRequest(echo)));
///
/// let addresses = addresses.swapped();
/// let mut reply = Vec::new();
/// icmp_v6::write_echo_reply(addresses, &echo, &mut reply);
/// assert_eq!(icmp_v6::parse(addresses, &reply, Verify::Yes), Ok(Message::EchoReply(echo)));
/// # Ok::<(), core::net::AddrParseError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Message<'a> {
    /// A request to send the same data back. The reply to a request to a group comes from an address of the host.
    EchoRequest(Echo<'a>),
    /// An answer to a request.
    EchoReply(Echo<'a>),
    /// A host or router could not deliver a packet of this host.
    Error(ErrorMessage<'a>),
    /// A message of neighbor discovery (RFC 4861): the whole message, whose checksum is right.
    NeighborDiscovery(&'a [u8]),
    /// A message of a type that the stack does not handle: it counts as [`DropReason::IcmpIgnored`].
    Other,
}

/// Parses a message of ICMPv6: the payload of an IPv6 packet.
///
/// # Errors
/// - [`DropReason::Icmp`]: the message is cut off, its checksum is wrong, or an error message quotes no packet.
/// - [`DropReason::IcmpIgnored`]: an error message gives an MTU below that of any link (RFC 8201 section 4).
pub fn parse(
    addresses: Addresses,
    message: &[u8],
    verify: Verify,
) -> Result<Message<'_>, DropReason> {
    let (fields, body) = Fields::parse(message)?;
    if verify == Verify::Yes && !is_transport_checksum_right(addresses, ICMPV6, message) {
        return Err(DropReason::Icmp);
    }
    let kind = match (fields.message_type, fields.code) {
        (ECHO_REQUEST, 0) => return Ok(Message::EchoRequest(fields.echo(body))),
        (ECHO_REPLY, 0) => return Ok(Message::EchoReply(fields.echo(body))),
        (ROUTER_SOLICITATION..=REDIRECT, _) => return Ok(Message::NeighborDiscovery(message)),
        (INFORMATIONAL.., _) => return Ok(Message::Other),
        (UNREACHABLE, code) => unreachable_kind(code),
        // The code is ignored (RFC 4443 section 3.2).
        (PACKET_TOO_BIG, _) => ErrorKind::PacketTooBig,
        (TIME_EXCEEDED, 0) => ErrorKind::HopLimitExceeded,
        (TIME_EXCEEDED, REASSEMBLY) => ErrorKind::ReassemblyTimeExceeded,
        (PARAMETER_PROBLEM, UNRECOGNIZED_NEXT_HEADER) => ErrorKind::ProtocolUnreachable,
        (PARAMETER_PROBLEM, _) => ErrorKind::ParameterProblem,
        // Errors of unknown types, too, go to the transport layer (section 2.4 a).
        _ => ErrorKind::Other,
    };
    let mtu = u32::from_be_bytes(fields.rest);
    let next_hop_mtu = (kind == ErrorKind::PacketTooBig).then_some(mtu);
    if next_hop_mtu.is_some_and(|mtu| mtu < LEAST_MTU) {
        return Err(DropReason::IcmpIgnored);
    }
    Ok(Message::Error(ErrorMessage {
        kind,
        next_hop_mtu,
        quoted: Quoted::parse(body, true)?,
    }))
}

/// Appends an echo request to `to`: the payload of an IPv6 packet with these addresses.
pub fn write_echo_request(addresses: Addresses, echo: &Echo<'_>, to: &mut Vec<u8>) {
    write(addresses, (ECHO_REQUEST, 0), echo.rest(), echo.data, to);
}

/// Appends the reply to an echo request to `to`: the payload of an IPv6 packet with these addresses, which are those of
/// the reply.
pub fn write_echo_reply(addresses: Addresses, echo: &Echo<'_>, to: &mut Vec<u8>) {
    write(addresses, (ECHO_REPLY, 0), echo.rest(), echo.data, to);
}

/// The message that reports that `original`, a packet or first fragment from the IPv6 header on, was not delivered: the
/// payload of an IPv6 packet with these addresses, which are those of the report. Quotes as much as fits into a packet
/// of 1280 bytes.
///
/// Ask [`may_answer`](crate::icmp::may_answer) before. Bytes behind the original packet are not quoted.
///
/// ```
/// use softclock_net::checksum::{Addresses, Verify};
/// use softclock_net::icmp::{ErrorKind, Report};
/// use softclock_net::icmp_v6::{self, Message};
///
/// // A datagram without payload from port 5353 of ::1:1 to port 53 of ::1:2.
/// let mut original = [0; 48];
/// original[0] = 0x60;
/// original[5..7].copy_from_slice(&[8, 17]);
/// original[21..24].copy_from_slice(&[1, 0, 1]);
/// original[37..40].copy_from_slice(&[1, 0, 2]);
/// original[40..44].copy_from_slice(&[0x14, 0xe9, 0, 53]);
///
/// let addresses = Addresses { source: "::1:2".parse()?, destination: "::1:1".parse()? };
/// let message = icmp_v6::write_report(addresses, Report::PortUnreachable, &original);
/// let Ok(Message::Error(error)) = icmp_v6::parse(addresses, &message, Verify::Yes) else {
///     panic!("an error message");
/// };
/// assert_eq!(error.kind, ErrorKind::PortUnreachable);
/// assert_eq!(error.quoted.ports, Some((5353, 53)));
/// # Ok::<(), core::net::AddrParseError>(())
/// ```
#[must_use]
pub fn write_report(addresses: Addresses, reason: Report, original: &[u8]) -> Vec<u8> {
    let (kind, rest) = match reason {
        Report::HostUnreachable => ((UNREACHABLE, ADDRESS), [0; 4]),
        Report::PortUnreachable => ((UNREACHABLE, PORT), [0; 4]),
        Report::ReassemblyTimeExceeded => ((TIME_EXCEEDED, REASSEMBLY), [0; 4]),
        Report::ProtocolUnreachable => {
            let pointer = last_next_header(original) as u32;
            let kind = (PARAMETER_PROBLEM, UNRECOGNIZED_NEXT_HEADER);
            (kind, pointer.to_be_bytes())
        }
    };
    let mut message = Vec::new();
    write(
        addresses,
        kind,
        rest,
        quote(original, MOST_QUOTE),
        &mut message,
    );
    message
}

fn write(addresses: Addresses, kind: (u8, u8), rest: [u8; 4], body: &[u8], to: &mut Vec<u8>) {
    let start = write_without_checksum(kind, rest, body, to);
    let checksum = transport_checksum(addresses, ICMPV6, &to[start..]);
    to[start + CHECKSUM..start + CHECKSUM + 2].copy_from_slice(&checksum.to_be_bytes());
}

fn unreachable_kind(code: u8) -> ErrorKind {
    match code {
        0 | 2 => ErrorKind::NetUnreachable,
        1 | 5 | 6 => ErrorKind::Prohibited,
        ADDRESS => ErrorKind::HostUnreachable,
        PORT => ErrorKind::PortUnreachable,
        _ => ErrorKind::Other,
    }
}

/// The offset of the field that gives the protocol of the payload: that of the last extension header that the stack
/// skips, or of the IPv6 header.
fn last_next_header(packet: &[u8]) -> usize {
    let mut field = 6;
    let mut header = 40;
    for _ in 0..MOST_EXTENSIONS {
        let (Some(&next), Some(&units)) = (packet.get(field), packet.get(header + 1)) else {
            break;
        };
        let length = match next {
            HOP_BY_HOP | ROUTING | DESTINATION => usize::from(units) * 8 + 8,
            FRAGMENT => 8,
            _ => break,
        };
        field = header;
        header += length;
    }
    field
}

const UNREACHABLE: u8 = 1;
const PACKET_TOO_BIG: u8 = 2;
const TIME_EXCEEDED: u8 = 3;
const PARAMETER_PROBLEM: u8 = 4;
/// Types from here on are information, those below are errors.
const INFORMATIONAL: u8 = 128;
const ECHO_REQUEST: u8 = 128;
const ECHO_REPLY: u8 = 129;
const ROUTER_SOLICITATION: u8 = 133;
const REDIRECT: u8 = 137;

/// The code of an address that does not answer on its link.
const ADDRESS: u8 = 3;
/// The code of an unreachable port.
const PORT: u8 = 4;
/// The code of a parameter problem by which a host says that it does not have a protocol.
const UNRECOGNIZED_NEXT_HEADER: u8 = 1;

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION: u8 = 60;

/// The longest quote: every link takes a packet of 1280 bytes, of which 40 are the header of IPv6.
const MOST_QUOTE: usize = LEAST_MTU as usize - 40 - HEADER_BYTES;

/// The least MTU of a link for IPv6 (RFC 8200 section 5).
const LEAST_MTU: u32 = 1280;

#[cfg(test)]
mod tests;
