//! Tests of headers built byte by byte, of fragments, and properties for any input.

use alloc::vec;

use proptest::prelude::*;

use super::*;

#[path = "target.rs"]
mod target;

const UDP: u8 = 17;

fn v4() -> Output {
    output("10.0.0.1", "10.0.0.2")
}

fn v6() -> Output {
    output("2001:db8::1", "2001:db8::2")
}

fn output(source: &str, destination: &str) -> Output {
    Output {
        addresses: Addresses {
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
        },
        protocol: UDP,
        hop_limit: 64,
        traffic_class: 0xb9,
        identification: 0x1234_5678,
        may_fragment: true,
    }
}

fn packet(output: &Output, payload: &[u8]) -> Vec<u8> {
    let mut packet = Vec::new();
    write_header(output, payload.len(), &mut packet);
    packet.extend_from_slice(payload);
    packet
}

/// An IPv4 packet with options, and with a right checksum.
fn v4_with_options(options: &[u8], payload: &[u8]) -> Vec<u8> {
    assert!(options.len().is_multiple_of(4));
    let mut packet = packet(&v4(), &[options, payload].concat());
    let header_bytes = 20 + options.len();
    packet[0] = 0x40 | (header_bytes / 4) as u8;
    with_checksum(packet)
}

fn with_checksum(mut packet: Vec<u8>) -> Vec<u8> {
    let header_bytes = usize::from(packet[0] & 0x0f) * 4;
    packet[10..12].fill(0);
    let sum = softclock_wire::packet::ones_complement_sum(&packet[..header_bytes]);
    packet[10..12].copy_from_slice(&(!sum).to_be_bytes());
    packet
}

/// An IPv6 packet whose first extension header, or payload, has the number `first`.
fn v6_with(first: u8, content: &[u8]) -> Vec<u8> {
    let output = Output {
        protocol: first,
        ..v6()
    };
    packet(&output, content)
}

fn reason(packet: &[u8]) -> Option<DropReason> {
    parse(packet).err()
}

#[test]
fn an_ipv4_header_has_the_bytes_of_the_rfc() {
    let output = Output {
        may_fragment: false,
        ..v4()
    };
    let mut header = Vec::new();
    write_header(&output, 8, &mut header);
    let expected = [
        0x45, 0xb9, 0, 28, 0x56, 0x78, 0x40, 0, 64, 17, 0xcf, 0x9d, 10, 0, 0, 1, 10, 0, 0, 2,
    ];
    assert_eq!(header, expected);
}

#[test]
fn an_ipv6_header_has_the_bytes_of_the_rfc() {
    let mut header = Vec::new();
    write_header(&v6(), 8, &mut header);
    let fields = [0x6b, 0x90, 0, 0, 0, 8, 17, 64];
    assert_eq!(header[..8], fields);
    assert_eq!(
        header[8..],
        *b"\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x02"
    );
}

#[test]
fn cut_and_contradicting_headers_are_refused() {
    let valid = packet(&v4(), b"payload");
    assert_eq!(reason(&[]), Some(DropReason::TooShort));
    assert_eq!(reason(&valid[..19]), Some(DropReason::TooShort));
    assert_eq!(reason(&valid[..26]), Some(DropReason::IpHeader));
    let mut short_header = valid.clone();
    short_header[0] = 0x44;
    assert_eq!(reason(&short_header), Some(DropReason::IpHeader));
    let mut short_total = valid.clone();
    short_total[3] = 19;
    assert_eq!(
        reason(&with_checksum(short_total)),
        Some(DropReason::IpHeader)
    );
    let mut other_version = valid;
    other_version[0] = 0x55;
    assert_eq!(reason(&other_version), Some(DropReason::IpHeader));

    let valid = packet(&v6(), b"payload");
    assert_eq!(reason(&valid[..39]), Some(DropReason::TooShort));
    assert_eq!(reason(&valid[..46]), Some(DropReason::IpHeader));
}

#[test]
fn sources_that_are_no_single_host_are_refused() {
    for source in [
        "0.0.0.0",
        "0.1.2.3",
        "127.0.0.1",
        "224.0.0.1",
        "255.255.255.255",
    ] {
        let packet = packet(&output(source, "10.0.0.2"), b"");
        assert_eq!(reason(&packet), Some(DropReason::IpSource), "{source}");
    }
    for source in ["::", "::1", "ff02::1", "::ffff:10.0.0.1"] {
        let packet = packet(&output(source, "2001:db8::2"), b"");
        assert_eq!(reason(&packet), Some(DropReason::IpSource), "{source}");
    }
}

#[test]
fn the_detection_of_duplicate_addresses_has_no_source() {
    let solicitation = |destination, protocol| {
        let output = Output {
            protocol,
            ..output("::", destination)
        };
        reason(&packet(&output, &[0; 24]))
    };
    assert_eq!(solicitation("ff02::1:ff00:1", ICMPV6), None);
    assert_eq!(
        solicitation("ff02::1:ff00:1", UDP),
        Some(DropReason::IpSource)
    );
    assert_eq!(
        solicitation("2001:db8::1", ICMPV6),
        Some(DropReason::IpSource)
    );
}

#[test]
fn options_of_ipv4_are_skipped_except_for_source_routes() {
    let options: [(&[u8], _); 9] = [
        (&[1, 1, 1, 0], None),
        (&[0, 131, 0, 0], None),
        (&[148, 4, 0, 0], None),
        (&[7, 7, 4, 0, 0, 0, 0, 0], None),
        (&[1, 131, 3, 4], Some(DropReason::IpOption)),
        (&[137, 3, 4, 0], Some(DropReason::IpOption)),
        (&[7, 0, 0, 0], Some(DropReason::IpHeader)),
        (&[7, 5, 0, 0], Some(DropReason::IpHeader)),
        (&[1, 1, 1, 7], Some(DropReason::IpHeader)),
    ];
    for (options, expected) in options {
        let packet = v4_with_options(options, b"payload");
        match (parse(&packet), expected) {
            (Ok(parsed), None) => {
                assert_eq!(parsed.payload, b"payload");
                assert_eq!(parsed.header_bytes, 20 + options.len());
            }
            (parsed, expected) => assert_eq!(parsed.err(), expected, "{options:?}"),
        }
    }
}

#[test]
fn extension_headers_of_ipv6_are_skipped() {
    let hop_by_hop = [60, 0, 5, 2, 0, 0, 1, 0];
    let destination = [43, 1, 0, 0, 0x1e, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let routing = [44, 0, 0, 0, 0, 0, 0, 0];
    let atomic = [UDP, 0, 0, 0, 0, 0, 0, 1];
    let content = [&hop_by_hop[..], &destination, &routing, &atomic, b"payload"].concat();
    let bytes = v6_with(0, &content);
    let parsed = parse(&bytes).unwrap();
    assert_eq!(parsed.payload, b"payload");
    assert_eq!((parsed.protocol, parsed.fragment), (UDP, None));
    assert_eq!(parsed.header_bytes, 40 + 8 + 16 + 8 + 8);
}

#[test]
fn no_next_header_is_a_protocol() {
    let bytes = v6_with(59, b"ignored");
    assert_eq!(parse(&bytes).unwrap().protocol, 59);
}

#[test]
fn extension_headers_of_ipv6_that_a_host_must_refuse() {
    let padding = [0, 0, 0, 0, 0];
    let options = |next, option: [u8; 6]| [&[next, 0][..], &option].concat();
    let unknown = |kind| options(UDP, [kind, 4, 0, 0, 0, 0]);
    let cases = [
        (60, unknown(0x3e), None),
        (60, unknown(0x7e), Some(DropReason::IpOption)),
        (60, unknown(0x80), Some(DropReason::IpOption)),
        // A jumbo payload.
        (0, unknown(0xc2), Some(DropReason::IpOption)),
        // An option that is longer than its header, and one without a length.
        (
            60,
            options(UDP, [0x3e, 5, 0, 0, 0, 0]),
            Some(DropReason::IpHeader),
        ),
        (
            60,
            options(UDP, [0, 0, 0, 0, 0, 1]),
            Some(DropReason::IpHeader),
        ),
        // Hop-by-hop options behind another header.
        (
            60,
            [options(0, [1, 4, 0, 0, 0, 0]), unknown(0x3e)].concat(),
            Some(DropReason::IpHeader),
        ),
        // Segments left.
        (
            43,
            [&[UDP, 0, 0, 1][..], &padding[..4]].concat(),
            Some(DropReason::IpOption),
        ),
        // Two fragment headers.
        (
            44,
            [[44, 0, 0, 0, 0, 0, 0, 1], [UDP, 0, 0, 0, 0, 0, 0, 2]].concat(),
            Some(DropReason::IpHeader),
        ),
        // Cut off.
        (60, vec![UDP], Some(DropReason::TooShort)),
        (
            60,
            vec![UDP, 1, 1, 4, 0, 0, 0, 0],
            Some(DropReason::TooShort),
        ),
        (44, vec![UDP, 0, 0, 0, 0, 0, 0], Some(DropReason::TooShort)),
    ];
    for (first, content, expected) in cases {
        let bytes = v6_with(first, &content);
        assert_eq!(reason(&bytes), expected, "{first}: {content:?}");
    }
}

#[test]
fn a_chain_has_at_most_eight_extension_headers() {
    let chain = |headers: usize| {
        let mut content = [60, 0, 1, 4, 0, 0, 0, 0].repeat(headers);
        content[8 * (headers - 1)] = UDP;
        reason(&v6_with(60, &content))
    };
    assert_eq!(chain(8), None);
    assert_eq!(chain(9), Some(DropReason::IpHeader));
}

#[test]
fn a_first_fragment_of_ipv6_has_all_headers() {
    let fragment = [60, 0, 0, 1, 0, 0, 0, 1];
    let options = [UDP, 0, 1, 4, 0, 0, 0, 0];
    let reason = |content: &[&[u8]]| reason(&v6_with(44, &content.concat()));
    assert_eq!(reason(&[&fragment, &options, &[0; 8]]), None);
    let cut_in_upper = reason(&[&fragment, &options]);
    assert_eq!(cut_in_upper, Some(DropReason::FragmentInvalid));
    let cut_in_chain = reason(&[&fragment, &[UDP, 1, 1, 4, 0, 0, 0, 0]]);
    assert_eq!(cut_in_chain, Some(DropReason::FragmentInvalid));
}

#[test]
fn impossible_fragments_are_refused() {
    let v4_fragment = |flags_offset: u16, payload: &[u8]| {
        let mut packet = packet(&v4(), payload);
        packet[6..8].copy_from_slice(&flags_offset.to_be_bytes());
        reason(&with_checksum(packet))
    };
    let v6_fragment = |offset_flag: u16, payload: &[u8]| {
        let [high, low] = offset_flag.to_be_bytes();
        let header = [59, 0, high, low, 0, 0, 0, 1];
        reason(&v6_with(44, &[&header, payload].concat()))
    };
    let invalid = Some(DropReason::FragmentInvalid);
    assert_eq!(v4_fragment(0x2000, &[0; 8]), None);
    assert_eq!(v4_fragment(0x2000, &[0; 9]), invalid);
    assert_eq!(v4_fragment(0x2000, &[]), invalid);
    assert_eq!(v4_fragment(0x0001, &[]), invalid);
    // The packet would have 65535 and 65536 bytes.
    assert_eq!(v4_fragment(0x1ffd, &[0; 3]), None);
    assert_eq!(v4_fragment(0x1ffd, &[0; 4]), invalid);
    assert_eq!(v6_fragment(0xfff8, &[0; 7]), None);
    assert_eq!(v6_fragment(0xfff8, &[0; 8]), invalid);
    assert_eq!(v6_fragment(0x0001, &[0; 9]), invalid);
    assert_eq!(v6_fragment(0x0008, &[]), invalid);
}

#[test]
fn a_payload_that_may_not_be_cut_or_is_too_long_gives_no_packet() {
    for (output, most) in [(v4(), MOST_PAYLOAD_V4), (v6(), MOST_PAYLOAD_V6)] {
        let payload = vec![0; most + 1];
        assert_eq!(fragments(&output, &payload, 1500).count(), 0);
        assert!(fragments(&output, &payload[..most], 1500).count() > 40);
        let uncut = Output {
            may_fragment: false,
            ..output
        };
        assert_eq!(fragments(&uncut, &payload[..1400], 1300).count(), 0);
        assert_eq!(fragments(&uncut, &payload[..1400], 1500).count(), 1);
        assert_eq!(fragments(&uncut, &[], 1500).count(), 1);
    }
}

proptest! {
    #[test]
    fn a_packet_is_read_as_it_was_written(
        is_v6 in any::<bool>(),
        (hop_limit, traffic_class, identification) in any::<(u8, u8, u32)>(),
        may_fragment in any::<bool>(),
        payload in prop::collection::vec(any::<u8>(), 0..100),
        padding in prop::collection::vec(any::<u8>(), 0..50),
    ) {
        let base = if is_v6 { v6() } else { v4() };
        let output = Output { hop_limit, traffic_class, identification, may_fragment, ..base };
        let mut bytes = packet(&output, &payload);
        bytes.extend(padding);
        let expected = Packet {
            addresses: output.addresses,
            protocol: UDP,
            hop_limit,
            traffic_class,
            fragment: None,
            has_fragment_header: false,
            payload: &payload,
            header_bytes: header_bytes(&output.addresses.source),
        };
        prop_assert_eq!(parse(&bytes), Ok(expected));
    }

    #[test]
    fn a_changed_bit_of_an_ipv4_header_is_seen(bit in 0..160usize) {
        let mut bytes = packet(&v4(), b"payload");
        bytes[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(parse(&bytes).is_err());
    }

    #[test]
    fn fragments_fit_and_contain_the_payload_in_order(
        is_v6 in any::<bool>(),
        payload in prop::collection::vec(any::<u8>(), 0..5000),
        mtu in 0..2000usize,
    ) {
        let output = if is_v6 { v6() } else { v4() };
        let least = if is_v6 { 56 } else { 28 };
        let mut received = Vec::new();
        let mut has_more = true;
        for bytes in fragments(&output, &payload, mtu) {
            prop_assert!(has_more && bytes.len() <= mtu.max(least));
            let packet = parse(&bytes).unwrap();
            prop_assert_eq!(packet.addresses, output.addresses);
            has_more = packet.fragment.is_some_and(|fragment| fragment.has_more);
            if let Some(fragment) = packet.fragment {
                prop_assert_eq!(fragment.offset, received.len());
                let mask = if is_v6 { u32::MAX } else { 0xffff };
                prop_assert_eq!(fragment.identification, output.identification & mask);
            }
            received.extend_from_slice(packet.payload);
        }
        prop_assert!(!has_more);
        prop_assert_eq!(received, payload);
    }

    #[test]
    fn any_bytes_cause_no_panic(
        mut bytes in prop::collection::vec(any::<u8>(), 0..200),
        is_v6 in any::<bool>(),
    ) {
        if let Some(first) = bytes.get_mut(2) {
            *first = if is_v6 { 0x60 } else { 0x45 };
        }
        target::check(&bytes);
        let _ = parse(&bytes);
    }

    #[test]
    fn changed_packets_cause_no_panic(packets in prop::collection::vec(changed_packet(), 1..12)) {
        let mut input = Vec::new();
        for packet in packets {
            input.extend_from_slice(&(packet.len() as u16).to_be_bytes());
            input.extend_from_slice(&packet);
        }
        target::check(&input);
    }
}

/// A packet or a fragment of which a few bytes are changed, often such that it is still valid.
fn changed_packet() -> impl Strategy<Value = Vec<u8>> {
    let next = prop::sample::select(vec![0, 6, UDP, 43, 44, 58, 59, 60]);
    let payload = prop::collection::vec(prop_oneof![Just(0), 0..8u8, any::<u8>()], 0..120);
    let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3);
    let cut = (any::<prop::sample::Index>(), 60..200usize, 0..2u32);
    (any::<bool>(), next, payload, changes, cut).prop_map(
        |(is_v6, protocol, payload, changes, (which, mtu, identification))| {
            let base = if is_v6 { v6() } else { v4() };
            let output = Output {
                protocol,
                identification,
                ..base
            };
            let packets: Vec<_> = fragments(&output, &payload, mtu).collect();
            let mut packet = packets[which.index(packets.len())].clone();
            for (at, value) in changes {
                let at = at.index(packet.len());
                packet[at] = value;
            }
            packet
        },
    )
}
