//! Tests of ICMP for IPv4: the rules of the RFCs on messages and on answering, and properties for any input.

use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::{icmp, icmp_v6};

#[path = "target.rs"]
mod target;

const UDP: u8 = 17;

/// A packet of IPv4 from 10.0.0.1 to 10.0.0.2.
fn packet(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0];
    packet.extend([10, 0, 0, 1, 10, 0, 0, 2]);
    packet.extend(payload);
    let length = packet.len() as u16;
    packet[2..4].copy_from_slice(&length.to_be_bytes());
    packet
}

fn message(message_type: u8, code: u8, rest: [u8; 4], body: &[u8]) -> Vec<u8> {
    let mut message = Vec::new();
    write(message_type, code, rest, body, &mut message);
    message
}

fn error_of(message: &[u8]) -> ErrorMessage<'_> {
    match parse(message, Verify::Yes) {
        Ok(Message::Error(error)) => error,
        other => panic!("{other:?} instead of an error message"),
    }
}

/// A packet that may be answered.
fn original<'a>(protocol: u8, payload: &'a [u8]) -> Original<'a> {
    Original {
        addresses: Addresses {
            source: "10.0.0.1".parse().unwrap(),
            destination: "10.0.0.2".parse().unwrap(),
        },
        is_to_group: false,
        is_later_fragment: false,
        protocol,
        payload,
    }
}

proptest! {
    #[test]
    fn an_echo_is_read_as_it_was_written(
        identifier in any::<u16>(),
        sequence in any::<u16>(),
        data in prop::collection::vec(any::<u8>(), 0..100),
        before in prop::collection::vec(any::<u8>(), 0..5),
    ) {
        let echo = Echo { identifier, sequence, data: &data };
        let (mut request, mut reply) = (before.clone(), before.clone());
        write_echo_request(&echo, &mut request);
        write_echo_reply(&echo, &mut reply);
        prop_assert!(request.starts_with(&before) && reply.starts_with(&before));
        let parsed = parse(&request[before.len()..], Verify::Yes);
        prop_assert_eq!(parsed, Ok(Message::EchoRequest(echo)));
        let parsed = parse(&reply[before.len()..], Verify::Yes);
        prop_assert_eq!(parsed, Ok(Message::EchoReply(echo)));
    }

    #[test]
    fn a_changed_byte_is_seen_unless_the_link_is_trusted(
        data in prop::collection::vec(any::<u8>(), 0..60),
        place in any::<prop::sample::Index>(),
        by in 1..=255_u8,
    ) {
        let mut bytes = message(ECHO_REQUEST, 0, [1; 4], &data);
        // A changed type could be that of an error, whose quote is damaged.
        let place = 1 + place.index(bytes.len() - 1);
        bytes[place] = bytes[place].wrapping_add(by);
        prop_assert_eq!(parse(&bytes, Verify::Yes), Err(DropReason::Icmp));
        prop_assert!(parse(&bytes, Verify::Trusted).is_ok());
    }

    #[test]
    fn a_report_quotes_the_packet_that_was_not_delivered(
        ports in any::<[u16; 2]>(),
        payload in prop::collection::vec(any::<u8>(), 4..1000),
        padding in prop::collection::vec(any::<u8>(), 0..50),
        is_port in any::<bool>(),
    ) {
        let mut transport = Vec::new();
        transport.extend(ports[0].to_be_bytes());
        transport.extend(ports[1].to_be_bytes());
        transport.extend(payload);
        let mut original = packet(UDP, &transport);
        original.extend(padding);
        let (reason, kind) = match is_port {
            true => (Report::PortUnreachable, ErrorKind::PortUnreachable),
            false => (Report::ProtocolUnreachable, ErrorKind::ProtocolUnreachable),
        };
        let bytes = write_report(reason, &original);
        prop_assert!(bytes.len() <= 556);
        let error = error_of(&bytes);
        prop_assert_eq!((error.kind, error.next_hop_mtu), (kind, None));
        prop_assert_eq!(error.quoted.ports, Some((ports[0], ports[1])));
        let quoted = transport.len().min(556 - 8 - 20);
        prop_assert_eq!(error.quoted.transport, &transport[..quoted]);
    }

    #[test]
    fn any_bytes_satisfy_the_properties(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        target::check(&bytes);
    }

    #[test]
    fn messages_about_packets_satisfy_the_properties(
        message_type in prop_oneof![0..20_u8, 128..140_u8],
        code in 0..20_u8,
        mtu in prop_oneof![0..100_u32, any::<u32>()],
        start in prop::sample::select(vec![0x45_u8, 0x46, 0x60]),
        next in prop::sample::select(vec![0_u8, 6, 17, 43, 44, 51, 60]),
        rest in prop::collection::vec(prop_oneof![0..3_u8, any::<u8>()], 39..150),
    ) {
        let mut bytes = message(message_type, code, mtu.to_be_bytes(), &[start]);
        bytes.extend(rest);
        bytes[8 + 6] = next;
        bytes[8 + 9] = next;
        target::check(&bytes);
        target::check(&bytes[8..]);
    }
}

#[test]
fn the_codes_of_unreachable_destinations() {
    let quote = packet(UDP, &[0; 8]);
    for (codes, kind) in [
        (&[0, 6, 11][..], ErrorKind::NetUnreachable),
        (&[1, 7, 8, 12], ErrorKind::HostUnreachable),
        (&[2], ErrorKind::ProtocolUnreachable),
        (&[3], ErrorKind::PortUnreachable),
        (&[4], ErrorKind::PacketTooBig),
        (&[9, 10, 13, 14, 15], ErrorKind::Prohibited),
        (&[5, 16, 255], ErrorKind::Other),
    ] {
        for &code in codes {
            let bytes = message(UNREACHABLE, code, [0; 4], &quote);
            assert_eq!(error_of(&bytes).kind, kind, "{code}");
        }
    }
}

#[test]
fn the_other_types() {
    let quote = packet(UDP, &[0; 8]);
    for (message_type, code, kind) in [
        (11, 0, ErrorKind::HopLimitExceeded),
        (11, 1, ErrorKind::ReassemblyTimeExceeded),
        (11, 2, ErrorKind::Other),
        (12, 0, ErrorKind::ParameterProblem),
    ] {
        let bytes = message(message_type, code, [0; 4], &quote);
        assert_eq!(error_of(&bytes).kind, kind, "{message_type} {code}");
    }
    // Source quench, redirect, timestamp; and an echo request with a code that no RFC defines.
    for (message_type, code) in [(4, 0), (5, 1), (13, 0), (200, 0), (8, 9)] {
        let bytes = message(message_type, code, [0; 4], &quote);
        assert_eq!(parse(&bytes, Verify::Yes), Ok(Message::Other));
    }
}

#[test]
fn the_mtu_of_the_next_link_is_read_if_it_is_possible() {
    let quote = packet(UDP, &[0; 8]);
    let of = |code, mtu: u32| message(UNREACHABLE, code, mtu.to_be_bytes(), &quote);
    assert_eq!(error_of(&of(4, 1400)).next_hop_mtu, Some(1400));
    assert_eq!(error_of(&of(4, 68)).next_hop_mtu, Some(68));
    assert_eq!(error_of(&of(4, 0)).next_hop_mtu, None);
    assert_eq!(error_of(&of(3, 1400)).next_hop_mtu, None);
    let impossible = of(4, 67);
    assert_eq!(
        parse(&impossible, Verify::Yes),
        Err(DropReason::IcmpIgnored)
    );
}

#[test]
fn a_quote_gives_as_much_as_it_holds() {
    let quote = packet(TCP, &[0, 80, 1, 0, 0xde, 0xad, 0xbe, 0xef]);
    let bytes = message(UNREACHABLE, 1, [0; 4], &quote);
    let quoted = error_of(&bytes).quoted;
    assert_eq!(quoted.addresses, original(TCP, &[]).addresses);
    assert_eq!((quoted.protocol, quoted.ports), (TCP, Some((80, 256))));
    assert_eq!(quoted.tcp_sequence(), Some(0xdead_beef));

    let bytes = message(UNREACHABLE, 1, [0; 4], &quote[..27]);
    let quoted = error_of(&bytes).quoted;
    assert_eq!(quoted.ports, Some((80, 256)));
    assert_eq!(quoted.tcp_sequence(), None);

    let bytes = message(UNREACHABLE, 1, [0; 4], &quote[..23]);
    assert_eq!(error_of(&bytes).quoted.ports, None);

    let datagram = packet(UDP, &quote[20..]);
    let bytes = message(UNREACHABLE, 1, [0; 4], &datagram);
    assert_eq!(error_of(&bytes).quoted.tcp_sequence(), None);

    let mut fragment = quote;
    fragment[7] = 1;
    let bytes = message(UNREACHABLE, 1, [0; 4], &fragment);
    let quoted = error_of(&bytes).quoted;
    assert_eq!((quoted.ports, quoted.tcp_sequence()), (None, None));
}

#[test]
fn an_error_that_quotes_no_packet_of_its_version_is_refused() {
    let mut v6 = [0; 48];
    v6[0] = 0x60;
    for quote in [&[][..], &packet(UDP, &[])[..19], &v6] {
        let bytes = message(UNREACHABLE, 3, [0; 4], quote);
        assert_eq!(parse(&bytes, Verify::Yes), Err(DropReason::Icmp));
    }
}

#[test]
fn a_message_without_all_its_fields_is_refused() {
    let bytes = message(ECHO_REQUEST, 0, [0; 4], b"");
    assert!(parse(&bytes, Verify::Yes).is_ok());
    assert_eq!(parse(&bytes[..7], Verify::Trusted), Err(DropReason::Icmp));
}

#[test]
fn errors_are_not_answered() {
    for (protocol, answered, silent) in [
        (ICMP, &[0, 8, 13][..], &[3, 4, 5, 11, 12, 40, 255][..]),
        (ICMPV6, &[128, 129, 135], &[1, 2, 3, 4, 100, 127, 137]),
        (UDP, &[3], &[]),
        // Of the header behind it.
        (AUTHENTICATION, &[TCP, UDP], &[ICMP, ICMPV6]),
    ] {
        for message_type in answered {
            assert!(may_answer(&original(protocol, &[*message_type])));
        }
        for message_type in silent {
            assert!(!may_answer(&original(protocol, &[*message_type])));
        }
    }
    assert!(!may_answer(&original(ICMP, &[])));
    assert!(!may_answer(&original(AUTHENTICATION, &[])));
    assert!(may_answer(&original(UDP, &[])));
}

#[test]
fn packets_to_several_hosts_and_later_fragments_are_not_answered() {
    let datagram = original(UDP, &[]);
    assert!(!may_answer(&Original {
        is_to_group: true,
        ..datagram
    }));
    assert!(!may_answer(&Original {
        is_later_fragment: true,
        ..datagram
    }));
    for pair in [["10.0.0.1", "224.0.0.251"], ["fe80::1", "ff02::fb"]] {
        let [source, destination] = pair.map(|address| address.parse().unwrap());
        let addresses = Addresses {
            source,
            destination,
        };
        assert!(!may_answer(&Original {
            addresses,
            ..datagram
        }));
    }
}

#[test]
fn sources_that_are_no_single_host_are_not_answered() {
    let is_answered = |source: &str| {
        let mut datagram = original(UDP, &[]);
        datagram.addresses.source = source.parse().unwrap();
        may_answer(&datagram)
    };
    for source in [
        "0.0.0.0",
        "0.1.2.3",
        "127.0.0.1",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "ff02::1",
    ] {
        assert!(!is_answered(source), "{source}");
    }
    for source in ["1.0.0.1", "223.255.255.1", "2001:db8::1", "fe80::1"] {
        assert!(is_answered(source), "{source}");
    }
}
