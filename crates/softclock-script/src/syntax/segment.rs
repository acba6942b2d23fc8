//! Packets in scripts: the fields of IP, segments of TCP, datagrams of UDP.

use softclock_net::tcp::segment::Flags;

use super::cursor::{Cursor, ParseError};
use super::icmp::{self, IcmpSpec};
use crate::wire::TcpOption;

/// A packet that arrives (`<`), or that the host must send (`>`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PacketSpec {
    /// Whether the host gets or sends the packet.
    pub direction: Direction,
    /// `(ttl N)`: the time to live, or hop limit.
    pub ttl: Option<u8>,
    /// `(tos N)` or `(class N)`: the whole field.
    pub class: Option<u8>,
    /// `[ect0]` and the like: the low two bits of that field.
    pub ecn: Option<Ecn>,
    /// What is behind the IP header.
    pub body: Body,
}

impl PacketSpec {
    /// Whether the host must send the packet.
    pub fn is_from_host(&self) -> bool {
        self.direction == Direction::Out
    }
}

/// The direction of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// `<`: to the host.
    In,
    /// `>`: from the host.
    Out,
}

/// The codepoint of explicit congestion notification (RFC 3168, 5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ecn {
    /// `[noecn]`.
    NotCapable,
    /// `[ect1]`.
    Capable1,
    /// `[ect0]`.
    Capable0,
    /// `[ect01]`: either codepoint of a capable transport.
    Capable,
    /// `[ce]`.
    Experienced,
}

/// What is behind the IP header.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Body {
    /// A segment of TCP.
    Tcp(SegmentSpec),
    /// A message of ICMP.
    Icmp(IcmpSpec),
    /// A datagram of UDP with so many bytes.
    Udp(u16),
}

/// A segment of TCP as a script states it. Fields that the script leaves out, or gives as `*`, are not compared.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SegmentSpec {
    /// The control bits.
    pub flags: Flags,
    /// The positions of the bytes; none for `...`.
    pub range: Option<Range>,
    /// Whether the positions are those of the wire (`!`), not relative to the script's initial sequence number.
    pub is_absolute: bool,
    /// The bytes of payload.
    pub length: u32,
    /// `ack N`.
    pub acknowledgment: Option<u32>,
    /// `win N`.
    pub window: Option<u16>,
    /// `urg N`.
    pub urgent: Option<u16>,
    /// The options; none for `<...>`, which stands for any.
    pub options: Option<Vec<TcpOption>>,
}

/// A range of sequence numbers, as `start:end(length)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Range {
    /// The first position.
    pub start: u32,
    /// The bytes.
    pub length: u32,
}

/// Reads a packet.
pub(super) fn parse(cursor: &mut Cursor<'_>) -> Result<PacketSpec, ParseError> {
    let direction = match cursor.eat("<") {
        true => Direction::In,
        false => {
            cursor.expect(">")?;
            Direction::Out
        }
    };
    let mut packet = PacketSpec {
        direction,
        ttl: None,
        class: None,
        ecn: None,
        body: Body::Udp(0),
    };
    ip_fields(cursor, &mut packet)?;
    packet.body = body(cursor)?;
    if cursor.is_next("/udp") || cursor.is_next("/ udp") {
        return Err(cursor.unsupported("TCP over UDP"));
    }
    Ok(packet)
}

fn ip_fields(cursor: &mut Cursor<'_>, packet: &mut PacketSpec) -> Result<(), ParseError> {
    loop {
        if cursor.eat("(") {
            while !cursor.eat(")") {
                match cursor.word() {
                    Some("ttl" | "hlim" | "hop_limit") => packet.ttl = Some(byte(cursor)?),
                    Some("tos" | "class" | "tc") => packet.class = Some(byte(cursor)?),
                    Some("flow" | "flowlabel" | "id") => {
                        return Err(cursor.unsupported("flow labels and identifications"));
                    }
                    _ => return Err(cursor.expected("`ttl`, `tos`, `class` or `)`")),
                }
                cursor.eat(",");
            }
        } else if cursor.eat("[") {
            packet.ecn = Some(match cursor.word() {
                Some("noecn") => Ecn::NotCapable,
                Some("ect0") => Ecn::Capable0,
                Some("ect1") => Ecn::Capable1,
                Some("ect01") => Ecn::Capable,
                Some("ce") => Ecn::Experienced,
                Some("flowlabel" | "ttl" | "tos") => {
                    return Err(cursor.unsupported("a field of the IP header in brackets"));
                }
                _ => return Err(cursor.expected("`noecn`, `ect0`, `ect1`, `ect01` or `ce`")),
            });
            cursor.expect("]")?;
        } else {
            return Ok(());
        }
    }
}

/// Reads a field of eight bits, in any notation of numbers.
fn byte(cursor: &mut Cursor<'_>) -> Result<u8, ParseError> {
    let value = cursor.clone().number();
    match value.and_then(|value| u8::try_from(value).ok()) {
        Some(value) => {
            cursor.number();
            Ok(value)
        }
        None => Err(cursor.expected("a number up to 255")),
    }
}

fn body(cursor: &mut Cursor<'_>) -> Result<Body, ParseError> {
    if cursor.eat("icmp") {
        return icmp::parse(cursor).map(Body::Icmp);
    }
    if cursor.eat("udp") {
        cursor.expect("(")?;
        let length = datagram(cursor)?;
        cursor.expect(")")?;
        return Ok(Body::Udp(length));
    }
    for other in [
        "sctp", "udplite", "ipv4", "ipv6", "gre", "mpls", "ip", "arp",
    ] {
        if cursor.is_next(other) {
            return Err(cursor.unsupported(format!("packets of {other}")));
        }
    }
    tcp(cursor).map(Body::Tcp)
}

fn tcp(cursor: &mut Cursor<'_>) -> Result<SegmentSpec, ParseError> {
    let flags = flags(cursor)?;
    let (range, length) = range(cursor)?;
    let mut segment = SegmentSpec {
        flags,
        range,
        is_absolute: cursor.eat("!"),
        length,
        acknowledgment: None,
        window: None,
        urgent: None,
        options: Some(Vec::new()),
    };
    loop {
        if cursor.eat("ack") {
            segment.acknowledgment = match is_any(cursor) {
                true => None,
                false => Some(cursor.decimal("the position that is acknowledged")?),
            };
        } else if cursor.eat("win") {
            segment.window = match is_any(cursor) {
                true => None,
                false => Some(number16(cursor, "a window up to 65535")?),
            };
        } else if cursor.eat("urg") {
            segment.urgent = Some(number16(cursor, "an urgent pointer up to 65535")?);
        } else if cursor.eat("<") {
            segment.options = options(cursor)?;
        } else {
            return Ok(segment);
        }
    }
}

/// Reads the sign for any value, if it comes next.
fn is_any(cursor: &mut Cursor<'_>) -> bool {
    cursor.eat("...") || cursor.eat("*")
}

fn flags(cursor: &mut Cursor<'_>) -> Result<Flags, ParseError> {
    let mut ahead = cursor.clone();
    // `...` is the range of a segment whose flags are missing.
    let letters = match ahead.is_next("...") {
        true => "",
        false => ahead.take_while(|c| "FSRPUEWA.-".contains(c)),
    };
    let mut flags = Flags::empty();
    for letter in letters.chars() {
        flags |= match letter {
            'F' => Flags::FIN,
            'S' => Flags::SYN,
            'R' => Flags::RST,
            'P' => Flags::PSH,
            '.' => Flags::ACK,
            'U' => Flags::URG,
            'E' => Flags::ECE,
            'W' => Flags::CWR,
            'A' => Flags::AE,
            _ => Flags::empty(),
        };
    }
    match letters.is_empty() {
        true => Err(cursor.expected(
            "flags out of `FSRPUEWA.` or `-`, `icmp`, `udp`, or fields of IP in parentheses",
        )),
        false => {
            *cursor = ahead;
            Ok(flags)
        }
    }
}

/// Reads `start:end(length)`, or `...(length)` for any positions.
pub(super) fn range(cursor: &mut Cursor<'_>) -> Result<(Option<Range>, u32), ParseError> {
    let positions = match is_any(cursor) {
        true => None,
        false => {
            let start = cursor.decimal("the first sequence number")?;
            cursor.expect(":")?;
            Some((
                start,
                cursor.decimal("the sequence number behind the last")?,
            ))
        }
    };
    cursor.expect("(")?;
    let mut before = cursor.clone();
    let length = cursor.decimal("the bytes of payload")?;
    if length > u32::from(u16::MAX) {
        return Err(before.expected("a length up to 65535"));
    }
    if positions.is_some_and(|(start, end)| end.wrapping_sub(start) != length) {
        return Err(before.expected("the length of the range before it"));
    }
    cursor.expect(")")?;
    Ok((positions.map(|(start, _)| Range { start, length }), length))
}

/// Reads the bytes of a datagram, whose length counts its header of 8 bytes.
pub(super) fn datagram(cursor: &mut Cursor<'_>) -> Result<u16, ParseError> {
    let mut before = cursor.clone();
    match number16(cursor, MOST_DATAGRAM)? {
        length @ ..=65_527 => Ok(length),
        _ => Err(before.expected(MOST_DATAGRAM)),
    }
}

const MOST_DATAGRAM: &str = "the bytes of a datagram up to 65527";

fn number16(cursor: &mut Cursor<'_>, what: &str) -> Result<u16, ParseError> {
    let mut ahead = cursor.clone();
    match ahead.decimal(what).map(u16::try_from) {
        Ok(Ok(value)) => {
            *cursor = ahead;
            Ok(value)
        }
        _ => Err(cursor.expected(what)),
    }
}

/// Reads options up to the closing bracket; none for `...`.
fn options(cursor: &mut Cursor<'_>) -> Result<Option<Vec<TcpOption>>, ParseError> {
    let mut options = Vec::new();
    if cursor.eat("...") {
        cursor.expect(">")?;
        return Ok(None);
    }
    if cursor.eat(">") {
        return Ok(Some(options));
    }
    loop {
        options.push(option(cursor)?);
        if cursor.eat(">") {
            return Ok(Some(options));
        }
        if !cursor.eat(",") {
            return Err(cursor.expected("`,` or `>` behind the option"));
        }
    }
}

fn option(cursor: &mut Cursor<'_>) -> Result<TcpOption, ParseError> {
    let mut before = cursor.clone();
    match cursor.word() {
        Some("eol") => Ok(TcpOption::EndOfList),
        Some("nop") => Ok(TcpOption::Nop),
        Some("mss") => number16(cursor, "a segment size up to 65535").map(TcpOption::Mss),
        Some("wscale") => byte(cursor).map(TcpOption::WindowScale),
        Some("sackOK") => Ok(TcpOption::SackPermitted),
        Some("sack") => sack(cursor),
        Some("TS") => {
            cursor.expect("val")?;
            let value = cursor.decimal("a time stamp")?;
            cursor.expect("ecr")?;
            let echo = cursor.decimal("a time stamp")?;
            Ok(TcpOption::Timestamps { value, echo })
        }
        Some(other) => Err(before.unsupported(format!("the TCP option {other}"))),
        None => {
            Err(before.expected("an option: `mss`, `wscale`, `sackOK`, `sack`, `TS`, `nop`, `eol`"))
        }
    }
}

fn sack(cursor: &mut Cursor<'_>) -> Result<TcpOption, ParseError> {
    let mut ranges = Vec::new();
    loop {
        let start = cursor.decimal("the beginning of a range")?;
        cursor.expect(":")?;
        ranges.push((start, cursor.decimal("the end of the range")?));
        // The length behind a range is optional, and a comma belongs to the next option.
        if cursor.eat("(") {
            cursor.until(")", "`)`")?;
        }
        if cursor.is_next(",") || cursor.is_next(">") {
            return Ok(TcpOption::Sack(ranges));
        }
    }
}
