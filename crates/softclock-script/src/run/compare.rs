//! Expected and actual packets.

use std::fmt::{self, Write as _};
use std::net::SocketAddr;
use std::time::Duration;

use softclock_net::tcp::segment::Flags;

use super::flow::{Flow, pattern};
use crate::syntax::{Ecn, IcmpSpec, PacketSpec, Quoted, SegmentSpec};
use crate::wire::{IpHeader, TCP, TcpOption, TcpPacket, UDP, quote};

/// Compares a segment of the host with the script's, and learns the host's numbers from it. The first difference is the
/// error.
///
/// Values of time stamps are compared only if their tick and a tolerance are given.
pub(super) fn compare(
    flow: &mut Flow,
    spec: &PacketSpec,
    segment: &SegmentSpec,
    packet: &TcpPacket,
    tick: Option<(Duration, Duration)>,
) -> Result<(), String> {
    if flow.local.port() == 0 {
        flow.local.set_port(packet.source().port());
    }
    ends(
        (packet.source(), packet.destination()),
        (flow.local, flow.remote),
    )?;
    ip_fields(spec, &packet.ip)?;
    header(flow, segment, packet)?;
    if let Some(expected) = &segment.options {
        options(flow, expected, &packet.options, tick)?;
    }
    payload(flow, segment, packet)?;
    let sequence = flow.to_script(packet.header.sequence.0);
    flow.on_outbound(packet.header.flags, sequence, packet.payload.len() as u32);
    Ok(())
}

/// Compares a datagram of UDP.
pub(super) fn compare_datagram(
    flow: &Flow,
    spec: &PacketSpec,
    length: u16,
    (ip, ports, payload): (&IpHeader, (u16, u16), &[u8]),
) -> Result<(), String> {
    let source = SocketAddr::new(ip.source, ports.0);
    let destination = SocketAddr::new(ip.destination, ports.1);
    ends((source, destination), (flow.local, flow.remote))?;
    ip_fields(spec, ip)?;
    match usize::from(length) == payload.len() {
        true => Ok(()),
        false => Err(format!("the datagram has {} bytes", payload.len())),
    }
}

/// Compares a message of ICMP about a packet of the remote end. Parameter and quote are compared if they are stated.
pub(super) fn compare_message(
    flow: &Flow,
    spec: &PacketSpec,
    message: &IcmpSpec,
    (ip, numbers, rest): (&IpHeader, (u8, u8), &[u8]),
) -> Result<(), String> {
    ends(
        (ip.source, ip.destination),
        (flow.local.ip(), flow.remote.ip()),
    )?;
    ip_fields(spec, ip)?;
    if message.numbers(ip.source.is_ipv6()) != Some(numbers) {
        return Err(format!("type and code are {numbers:?}"));
    }
    let Some((parameter, packet)) = rest.split_first_chunk::<4>() else {
        return Err("the message has no parameter".to_owned());
    };
    let parameter = u32::from_be_bytes(*parameter);
    if message.mtu.is_some_and(|mtu| mtu != parameter) {
        return Err(format!("the parameter is {parameter}"));
    }
    let (protocol, number, unused_bits) = match message.quoted {
        Quoted::Unstated => return Ok(()),
        Quoted::Segment(range) => (TCP, range.start, 0),
        // Behind the length is the checksum.
        Quoted::Datagram(length) => (UDP, u32::from(length) + 8, 16),
    };
    let quote = quote(packet)?;
    ends((quote.source, quote.destination), (flow.remote, flow.local))
        .map_err(|difference| format!("in the quote, {difference}"))?;
    match (quote.protocol, quote.number >> unused_bits) == (protocol, number) {
        true => Ok(()),
        false => Err("the quote is of another packet".to_owned()),
    }
}

fn ends<T: PartialEq + fmt::Display>(actual: (T, T), expected: (T, T)) -> Result<(), String> {
    match actual == expected {
        true => Ok(()),
        false => Err(format!("the packet is from {} to {}", actual.0, actual.1)),
    }
}

fn ip_fields(spec: &PacketSpec, ip: &IpHeader) -> Result<(), String> {
    if spec.ttl.is_some_and(|ttl| ttl != ip.ttl) {
        return Err(format!("the TTL is {}", ip.ttl));
    }
    // In an expected traffic class of a segment, the bits of ECN are compared, too.
    if spec.class.is_some_and(|class| class != ip.class) {
        return Err(format!("the traffic class is {:#x}", ip.class));
    }
    let ecn = ip.class & 3;
    let is_right = match spec.ecn {
        None => true,
        Some(Ecn::NotCapable) => ecn == 0,
        Some(Ecn::Capable1) => ecn == 1,
        Some(Ecn::Capable0) => ecn == 2,
        Some(Ecn::Capable) => ecn == 1 || ecn == 2,
        Some(Ecn::Experienced) => ecn == 3,
    };
    match is_right {
        true => Ok(()),
        false => Err(format!("the bits of ECN are {ecn}")),
    }
}

fn header(flow: &mut Flow, spec: &SegmentSpec, packet: &TcpPacket) -> Result<(), String> {
    let header = &packet.header;
    if spec.flags != header.flags {
        return Err(format!("the flags are not `{}`", letters(spec.flags)));
    }
    if header.flags.contains(Flags::SYN) && !spec.is_absolute {
        flow.learn_initial(spec.range.map(|range| range.start), header.sequence.0);
    }
    if let Some(range) = spec.range {
        let expected = match spec.is_absolute {
            true => range.start,
            false => flow.to_wire(range.start),
        };
        if expected != header.sequence.0 {
            return Err(format!("the sequence number is not {}", range.start));
        }
    }
    if spec.length as usize != packet.payload.len() {
        return Err(format!("the length is not {}", spec.length));
    }
    let acknowledgment = header.acknowledgment.0;
    if spec
        .acknowledgment
        .is_some_and(|number| number != acknowledgment)
    {
        return Err(format!(
            "the acknowledgment is not {}",
            spec.acknowledgment.unwrap_or(0)
        ));
    }
    if spec.window.is_some_and(|window| window != header.window) {
        return Err(format!("the window is not {}", spec.window.unwrap_or(0)));
    }
    if spec.urgent.is_some_and(|urgent| urgent != header.urgent) {
        return Err(format!("the urgent pointer is {}", header.urgent));
    }
    Ok(())
}

/// Compares options as sets, without padding.
fn options(
    flow: &mut Flow,
    expected: &[TcpOption],
    actual: &[TcpOption],
    tick: Option<(Duration, Duration)>,
) -> Result<(), String> {
    let mut rest: Vec<&TcpOption> = actual
        .iter()
        .filter(|option| !option.is_padding())
        .collect();
    for option in expected.iter().filter(|option| !option.is_padding()) {
        let found = rest.iter().position(|other| match (option, other) {
            (
                TcpOption::Timestamps { echo, .. },
                TcpOption::Timestamps {
                    echo: other_echo, ..
                },
            ) => echo == other_echo,
            (option, other) => option == *other,
        });
        let Some(index) = found else {
            return Err(format!("the options lack `{option}`"));
        };
        let matching = rest.remove(index);
        if let (TcpOption::Timestamps { value, .. }, TcpOption::Timestamps { value: actual, .. }) =
            (option, matching)
        {
            timestamps(flow, *value, *actual, tick)?;
        }
    }
    match rest.first() {
        Some(option) => Err(format!("the options have `{option}`")),
        None => Ok(()),
    }
}

/// Notes a value of the host's time stamps; compares its distance from the first one if the tick is known.
fn timestamps(
    flow: &mut Flow,
    expected: u32,
    actual: u32,
    tick: Option<(Duration, Duration)>,
) -> Result<(), String> {
    if let (Some((script, wire)), Some((tick, tolerance))) = (flow.first_timestamp(), tick) {
        let expected_ticks = expected.wrapping_sub(script);
        let actual_ticks = actual.wrapping_sub(wire);
        let difference = tick.checked_mul(expected_ticks.abs_diff(actual_ticks));
        if difference.is_none_or(|difference| difference > tolerance) {
            return Err(format!(
                "the time stamp is {actual_ticks} ticks behind the first"
            ));
        }
    }
    flow.learn_timestamp(expected, actual);
    Ok(())
}

/// The payload must be the bytes that the program has written.
fn payload(flow: &Flow, spec: &SegmentSpec, packet: &TcpPacket) -> Result<(), String> {
    let sequence = flow.to_script(packet.header.sequence.0);
    let place = flow.outbound_place(spec.flags, sequence);
    let expected = pattern(place, packet.payload.len());
    let pairs = expected.iter().zip(&packet.payload);
    match pairs.into_iter().position(|(one, other)| one != other) {
        Some(index) => Err(format!("byte {index} of the payload is not the program's")),
        None => Ok(()),
    }
}

fn letters(flags: Flags) -> String {
    let all = [
        (Flags::FIN, 'F'),
        (Flags::SYN, 'S'),
        (Flags::RST, 'R'),
        (Flags::PSH, 'P'),
        (Flags::URG, 'U'),
        (Flags::ECE, 'E'),
        (Flags::CWR, 'W'),
        (Flags::AE, 'A'),
        (Flags::ACK, '.'),
    ];
    let set = all.iter().filter(|(flag, _)| flags.contains(*flag));
    match flags == Flags::empty() {
        true => "-".to_owned(),
        false => set.map(|(_, letter)| letter).collect(),
    }
}

/// A segment of the host in the notation and the numbers of the script.
pub(super) fn show_segment(flow: &Flow, packet: &TcpPacket) -> String {
    let header = &packet.header;
    // Before the host's first SYN, the numbers are those of the wire.
    let start = flow.to_script(header.sequence.0);
    let length = packet.payload.len();
    let end = start.wrapping_add(length as u32);
    let mut shown = format!("`> {} {start}:{end}({length})", letters(header.flags));
    if header.flags.contains(Flags::ACK) {
        let _ = write!(shown, " ack {}", header.acknowledgment.0);
    }
    let _ = write!(shown, " win {}", header.window);
    let options: Vec<String> = packet.options.iter().map(TcpOption::to_string).collect();
    if !options.is_empty() {
        let _ = write!(shown, " <{}>", options.join(","));
    }
    shown.push('`');
    shown
}

#[cfg(test)]
mod tests {
    use softclock_net::tcp::segment::Header;
    use softclock_net::tcp::seq::Seq;

    use super::*;
    use crate::syntax::{Body, Direction, Range};

    fn flow() -> Flow {
        let mut flow = Flow::new(
            "192.168.0.1:8080".parse().unwrap(),
            "192.0.2.1:5".parse().unwrap(),
        );
        flow.learn_initial(Some(0), 1000);
        flow
    }

    /// Compares a segment of the host at the script's position 11 with what the script expects.
    fn compare_payload(payload: &[u8]) -> Result<(), String> {
        let mut flow = flow();
        let length = payload.len() as u32;
        let segment = SegmentSpec {
            flags: Flags::ACK,
            range: Some(Range { start: 11, length }),
            is_absolute: false,
            length,
            acknowledgment: None,
            window: None,
            urgent: None,
            options: Some(Vec::new()),
        };
        let spec = PacketSpec {
            direction: Direction::Out,
            ttl: None,
            class: None,
            ecn: None,
            body: Body::Tcp(segment.clone()),
        };
        let packet = TcpPacket {
            ip: IpHeader {
                source: flow.local.ip(),
                destination: flow.remote.ip(),
                ttl: 64,
                class: 0,
            },
            header: Header {
                source_port: flow.local.port(),
                destination_port: flow.remote.port(),
                sequence: Seq(1011),
                flags: Flags::ACK,
                ..Header::default()
            },
            options: Vec::new(),
            payload: payload.to_vec(),
        };
        compare(&mut flow, &spec, &segment, &packet, None)
    }

    #[test]
    fn each_byte_of_a_payload_is_compared() {
        assert_eq!(compare_payload(&[10, 11]), Ok(()));
        assert_eq!(compare_payload(&[10]), Ok(()));
        for wrong in [&[10, 12][..], &[11, 11], &[11]] {
            assert!(compare_payload(wrong).is_err(), "{wrong:?}");
        }
    }
}
