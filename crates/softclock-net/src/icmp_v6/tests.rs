//! Tests of ICMPv6: types and codes, the checksum over the addresses, and the pointer to an unknown protocol. The
//! properties for any input are tested with those of ICMP.

use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;

const UDP: u8 = 17;
const AUTHENTICATION: u8 = 51;

fn addresses() -> Addresses {
    Addresses {
        source: "2001:db8::1".parse().unwrap(),
        destination: "2001:db8::2".parse().unwrap(),
    }
}

/// A packet of IPv6 from 2001:db8::2 to 2001:db8::1, whose payload begins with a header of type `next`.
fn packet(next: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend((payload.len() as u16).to_be_bytes());
    packet.extend([next, 64]);
    for last in [2, 1] {
        packet.extend([
            0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last,
        ]);
    }
    packet.extend(payload);
    packet
}

fn message(message_type: u8, code: u8, rest: [u8; 4], body: &[u8]) -> Vec<u8> {
    let mut message = Vec::new();
    write(addresses(), (message_type, code), rest, body, &mut message);
    message
}

fn error_of(message: &[u8]) -> ErrorMessage<'_> {
    match parse(addresses(), message, Verify::Yes) {
        Ok(Message::Error(error)) => error,
        other => panic!("{other:?} instead of an error message"),
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
        write_echo_request(addresses(), &echo, &mut request);
        write_echo_reply(addresses(), &echo, &mut reply);
        prop_assert!(request.starts_with(&before) && reply.starts_with(&before));
        let parsed = parse(addresses(), &request[before.len()..], Verify::Yes);
        prop_assert_eq!(parsed, Ok(Message::EchoRequest(echo)));
        let parsed = parse(addresses(), &reply[before.len()..], Verify::Yes);
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
        prop_assert_eq!(parse(addresses(), &bytes, Verify::Yes), Err(DropReason::Icmp));
        prop_assert!(parse(addresses(), &bytes, Verify::Trusted).is_ok());
    }

    #[test]
    fn a_report_quotes_the_packet_that_was_not_delivered(
        transport in prop::collection::vec(any::<u8>(), 4..2000),
        padding in prop::collection::vec(any::<u8>(), 0..50),
        is_port in any::<bool>(),
    ) {
        let mut original = packet(UDP, &transport);
        original.extend(padding);
        let (reason, kind) = match is_port {
            true => (Report::PortUnreachable, ErrorKind::PortUnreachable),
            false => (Report::ProtocolUnreachable, ErrorKind::ProtocolUnreachable),
        };
        let bytes = write_report(addresses(), reason, &original);
        prop_assert!(bytes.len() <= 1240);
        let error = error_of(&bytes);
        prop_assert_eq!((error.kind, error.next_hop_mtu), (kind, None));
        prop_assert_eq!(error.quoted.addresses, addresses().swapped());
        let quoted = transport.len().min(1240 - 8 - 40);
        prop_assert_eq!(error.quoted.transport, &transport[..quoted]);
    }
}

#[test]
fn the_checksum_covers_the_addresses() {
    let bytes = message(ECHO_REQUEST, 0, [0; 4], b"data");
    let mut other = addresses();
    other.destination = "2001:db8::3".parse().unwrap();
    assert_eq!(parse(other, &bytes, Verify::Yes), Err(DropReason::Icmp));
    assert!(parse(other, &bytes, Verify::Trusted).is_ok());
}

#[test]
fn types_and_codes_of_errors() {
    let quote = packet(UDP, &[0; 8]);
    for (message_type, codes, kind) in [
        (1, &[0, 2][..], ErrorKind::NetUnreachable),
        (1, &[1, 5, 6], ErrorKind::Prohibited),
        (1, &[3], ErrorKind::HostUnreachable),
        (1, &[4], ErrorKind::PortUnreachable),
        (1, &[7, 255], ErrorKind::Other),
        (3, &[0], ErrorKind::HopLimitExceeded),
        (3, &[1], ErrorKind::ReassemblyTimeExceeded),
        (3, &[2], ErrorKind::Other),
        (4, &[1], ErrorKind::ProtocolUnreachable),
        (4, &[0, 2, 3], ErrorKind::ParameterProblem),
        (100, &[0], ErrorKind::Other),
    ] {
        for &code in codes {
            let bytes = message(message_type, code, [0; 4], &quote);
            let error = error_of(&bytes);
            assert_eq!(error.kind, kind, "{message_type} {code}");
            assert_eq!(error.next_hop_mtu, None);
        }
    }
}

#[test]
fn the_mtu_of_the_next_link_is_that_of_a_possible_link() {
    let quote = packet(UDP, &[0, 1, 0, 2]);
    let of = |code, mtu: u32| message(PACKET_TOO_BIG, code, mtu.to_be_bytes(), &quote);
    let bytes = of(0, 1280);
    let error = error_of(&bytes);
    assert_eq!(
        (error.kind, error.next_hop_mtu),
        (ErrorKind::PacketTooBig, Some(1280))
    );
    assert_eq!(error.quoted.ports, Some((1, 2)));
    assert_eq!(error_of(&of(7, 1 << 20)).next_hop_mtu, Some(1 << 20));
    for mtu in [0, 1279] {
        let bytes = of(0, mtu);
        let parsed = parse(addresses(), &bytes, Verify::Yes);
        assert_eq!(parsed, Err(DropReason::IcmpIgnored));
    }
}

#[test]
fn messages_of_neighbor_discovery_are_passed_on_whole() {
    for message_type in 133..=137 {
        let bytes = message(message_type, 0, [0; 4], &[0; 16]);
        let parsed = parse(addresses(), &bytes, Verify::Yes);
        assert_eq!(parsed, Ok(Message::NeighborDiscovery(&bytes)));
    }
    // Multicast listeners, an unknown type, and an echo request with a code that the RFC does not define.
    for (message_type, code) in [(130, 0), (143, 0), (255, 0), (128, 1)] {
        let bytes = message(message_type, code, [0; 4], &[0; 16]);
        let parsed = parse(addresses(), &bytes, Verify::Yes);
        assert_eq!(parsed, Ok(Message::Other));
    }
}

#[test]
fn an_error_that_quotes_no_packet_of_its_version_is_refused() {
    let mut v4 = [0; 48];
    v4[0] = 0x45;
    let cut_off = &packet(UDP, &[])[..39];
    for quote in [&[][..], cut_off, &v4, &packet(FRAGMENT, &[])] {
        let bytes = message(UNREACHABLE, 4, [0; 4], quote);
        let parsed = parse(addresses(), &bytes, Verify::Yes);
        assert_eq!(parsed, Err(DropReason::Icmp));
    }
}

#[test]
fn an_unknown_protocol_is_pointed_at_behind_extension_headers() {
    let pointer = |original: &[u8]| {
        let message = write_report(addresses(), Report::ProtocolUnreachable, original);
        u32::from_be_bytes(message[4..8].try_into().unwrap())
    };
    assert_eq!(pointer(&packet(200, &[0; 8])), 6);
    assert_eq!(pointer(&packet(200, &[])), 6);
    // Options for each hop (16 bytes), then options for the destination (8 bytes) in front of protocol 200.
    let mut extensions = [0; 28];
    extensions[..2].copy_from_slice(&[DESTINATION, 1]);
    extensions[16] = 200;
    assert_eq!(pointer(&packet(HOP_BY_HOP, &extensions)), 56);
    // An authentication header (12 bytes), which is the protocol that the stack does not have.
    extensions[0] = AUTHENTICATION;
    extensions[17] = 1;
    assert_eq!(pointer(&packet(HOP_BY_HOP, &extensions)), 40);
    assert_eq!(pointer(&packet(AUTHENTICATION, &extensions[16..])), 6);
    // An atomic fragment in front of protocol 200, which has no bytes.
    assert_eq!(pointer(&packet(FRAGMENT, &[200, 0, 0, 0, 0, 0, 0, 0])), 40);
}
