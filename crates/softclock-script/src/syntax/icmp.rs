//! Messages of ICMP in scripts.

use super::cursor::{Cursor, ParseError};
use super::segment::{Range, datagram, range};

/// A message of ICMP about a packet of the host, such as `icmp unreachable frag_needed mtu 1400 [1:1461(1460)]`. The
/// names of types and codes are looked up when the script runs, since they depend on the version of IP.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IcmpSpec {
    /// The name of the type.
    pub kind: String,
    /// The name of the code.
    pub code: Option<String>,
    /// `mtu N`.
    pub mtu: Option<u32>,
    /// The packet that it quotes.
    pub quoted: Quoted,
}

/// The packet that a message of ICMP quotes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Quoted {
    /// None is stated: the latest segment, from the first position that is not acknowledged.
    Unstated,
    /// `[start:end(length)]`: a segment.
    Segment(Range),
    /// `[udp (N)]`: a datagram with so many bytes.
    Datagram(u16),
}

impl IcmpSpec {
    /// The type and the code as numbers, if both are those of this version of IP (RFC 792, 1122, 1812; RFC 4443).
    pub fn numbers(&self, is_v6: bool) -> Option<(u8, u8)> {
        let types: &[(&str, u8, &[&str])] = match is_v6 {
            true => &TYPES_V6,
            false => &TYPES_V4,
        };
        let (_, number, codes) = types.iter().find(|(name, ..)| *name == self.kind)?;
        let code = match self.code.as_deref() {
            None => 0,
            Some(name) => codes
                .iter()
                .position(|known| known.split('|').any(|alias| alias == name))
                .map(|index| index as u8)
                .or_else(|| name.strip_prefix("code_")?.parse().ok())?,
        };
        Some((*number, code))
    }
}

/// Reads a message behind `icmp`.
pub(super) fn parse(cursor: &mut Cursor<'_>) -> Result<IcmpSpec, ParseError> {
    let Some(kind) = cursor.word() else {
        return Err(cursor.expected("a type of ICMP such as `unreachable`"));
    };
    let mut message = IcmpSpec {
        kind: kind.to_owned(),
        code: None,
        mtu: None,
        quoted: Quoted::Unstated,
    };
    if !cursor.is_next("mtu") {
        message.code = cursor.word().map(str::to_owned);
    }
    if cursor.eat("mtu") {
        message.mtu = Some(cursor.decimal("an MTU")?);
    }
    if cursor.eat("[") {
        message.quoted = match cursor.eat("udp") {
            true => {
                cursor.expect("(")?;
                let length = datagram(cursor)?;
                cursor.expect(")")?;
                Quoted::Datagram(length)
            }
            false => match range(cursor)?.0 {
                Some(range) => Quoted::Segment(range),
                None => Quoted::Unstated,
            },
        };
        cursor.expect("]")?;
    }
    Ok(message)
}

/// Types, each with the names of its codes in order; alternatives are divided by bars.
const TYPES_V4: [(&str, u8, &[&str]); 7] = [
    ("echo_reply", 0, &[]),
    (
        "unreachable",
        3,
        &[
            "net_unreachable",
            "host_unreachable",
            "protocol_unreachable|proto_unreachable",
            "port_unreachable",
            "frag_needed",
            "source_route_failed",
            "net_unknown",
            "host_unknown",
            "source_host_isolated",
            "net_prohibited",
            "host_prohibited",
            "net_unreachable_for_tos",
            "host_unreachable_for_tos",
            "packet_filtered|admin_prohibited",
            "precedence_violation",
            "precedence_cutoff",
        ],
    ),
    ("source_quench", 4, &[]),
    (
        "redirect",
        5,
        &[
            "net_redirect|redirect_net",
            "host_redirect|redirect_host",
            "tos_net_redirect|redirect_tos_net",
            "tos_host_redirect|redirect_tos_host",
        ],
    ),
    ("echo_request", 8, &[]),
    (
        "time_exceeded",
        11,
        &[
            "ttl_exceeded_in_transit|exceeded_ttl|ttl_exceeded",
            "frag_reass_exceeded|exceeded_frag_reass|exceeded_fragtime",
        ],
    ),
    ("parameter_problem", 12, &[]),
];

const TYPES_V6: [(&str, u8, &[&str]); 6] = [
    (
        "unreachable",
        1,
        &[
            "no_route|net_unreachable",
            "admin_prohibited",
            "not_neighbour|not_neighbor|beyond_scope",
            "addr_unreachable|address_unreachable|host_unreachable",
            "port_unreachable",
        ],
    ),
    ("packet_too_big", 2, &[]),
    (
        "time_exceeded",
        3,
        &[
            "exceeded_hop_limit|hop_limit_exceeded",
            "exceeded_frag_reass|frag_reass_exceeded",
        ],
    ),
    (
        "parameter_problem",
        4,
        &["header_field|erroneous_header", "next_header", "option"],
    ),
    ("echo_request", 128, &[]),
    ("echo_reply", 129, &[]),
];
