use super::*;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;

/// Builds an Ethernet frame with these VLAN tags and this EtherType.
fn frame(tags: &[(u16, u16)], ether_type: u16, packet: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x02; 12];
    for (kind, tag) in tags {
        frame.extend(kind.to_be_bytes());
        frame.extend(tag.to_be_bytes());
    }
    frame.extend(ether_type.to_be_bytes());
    frame.extend(packet);
    frame
}

fn ipv4(protocol: u8, fragment: u16, options: usize, transport: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x45 + options as u8, 46 << 2, 0, 0, 0, 0];
    packet.extend(fragment.to_be_bytes());
    packet.extend([64, protocol, 0, 0, 10, 0, 0, 1, 192, 168, 7, 9]);
    packet.extend(vec![1; options * 4]);
    packet.extend(transport);
    packet
}

fn ipv6(next: u8, rest: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60 | 0x0b, 0x80, 0, 0, 0, 0, next, 64];
    packet.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    packet.extend([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
    packet.extend(rest);
    packet
}

fn udp(source: u16, destination: u16) -> Vec<u8> {
    let mut header: Vec<u8> = source.to_be_bytes().into();
    header.extend(destination.to_be_bytes());
    header.extend([0, 8, 0, 0]);
    header
}

fn tcp(source: u16, destination: u16) -> Vec<u8> {
    let mut header = vec![0; 32];
    header[..2].copy_from_slice(&source.to_be_bytes());
    header[2..4].copy_from_slice(&destination.to_be_bytes());
    header[12] = 0x80;
    header
}

#[test]
fn udp_over_ipv4() {
    let headers = Headers::of_frame(&frame(&[], IPV4, &ipv4(UDP, 0, 0, &udp(53, 4242))));
    assert_eq!(
        headers,
        Headers {
            vlan: None,
            ether_type: IPV4,
            network_offset: 14,
            addresses: Some(([10, 0, 0, 1].into(), [192, 168, 7, 9].into())),
            dscp: 46,
            protocol: Some(UDP),
            is_later_fragment: false,
            transport_offset: 34,
            ports: Some((53, 4242)),
            payload_offset: Some(42),
        }
    );
}

#[test]
fn tags_options_and_tcp() {
    let tags = [(0x88a8, 0xe007), (0x8100, 9)];
    let headers = Headers::of_frame(&frame(&tags, IPV4, &ipv4(TCP, 0x4000, 2, &tcp(80, 81))));
    assert_eq!(headers.vlan, Some(7));
    assert_eq!((headers.network_offset, headers.transport_offset), (22, 50));
    assert_eq!(headers.ports, Some((80, 81)));
    assert_eq!(headers.payload_offset, Some(82));
}

#[test]
fn later_fragments_have_no_ports() {
    let headers = Headers::of_ip(&ipv4(UDP, 0x2001, 0, &udp(1, 2)));
    assert!(headers.is_later_fragment);
    assert_eq!((headers.protocol, headers.ports), (Some(UDP), None));
    let first = Headers::of_ip(&ipv4(UDP, 0x2000, 0, &udp(1, 2)));
    assert_eq!(first.ports, Some((1, 2)));
    let mut fragment = vec![UDP, 0, 0, 0x09, 0, 0, 0, 0];
    fragment.extend(udp(1, 2));
    let headers = Headers::of_ip(&ipv6(FRAGMENT, &fragment));
    assert_eq!((headers.protocol, headers.ports), (Some(UDP), None));
}

#[test]
fn ipv6_with_extensions() {
    let mut rest = vec![DESTINATION, 1];
    rest.extend([0; 14]);
    rest.extend([TCP, 0, 0, 0, 0, 0, 0, 0]);
    rest.extend(tcp(443, 5000));
    let headers = Headers::of_frame(&frame(&[], IPV6, &ipv6(HOP_BY_HOP, &rest)));
    assert_eq!(headers.protocol, Some(TCP));
    assert_eq!(headers.ports, Some((443, 5000)));
    assert_eq!(headers.dscp, 46);
    assert_eq!(headers.transport_offset, 14 + 40 + 24);
    let (source, destination) = headers.addresses.unwrap();
    assert_eq!(source.to_string(), "2001:db8::1");
    assert_eq!(destination.to_string(), "fe80::2");
    for (extensions, ports) in [
        (MOST_EXTENSIONS, Some((443, 5000))),
        (MOST_EXTENSIONS + 1, None),
    ] {
        let mut rest = [DESTINATION, 0, 1, 4, 0, 0, 0, 0].repeat(extensions);
        rest[8 * (extensions - 1)] = TCP;
        rest.extend(tcp(443, 5000));
        assert_eq!(
            Headers::of_ip(&ipv6(DESTINATION, &rest)).ports,
            ports,
            "{extensions}"
        );
    }
    let endless = [HOP_BY_HOP, 0, 0, 0, 0, 0, 0, 0].repeat(100);
    assert_eq!(Headers::of_ip(&ipv6(HOP_BY_HOP, &endless)).protocol, None);
}

#[test]
fn other_frames() {
    assert_eq!(
        Headers::of_frame(&frame(&[], ARP, &[0; 28])).ether_type,
        ARP
    );
    assert_eq!(Headers::of_frame(&[]), Headers::default());
    assert_eq!(Headers::of_ip(&[0x70]).ether_type, 0);
}

fn matches(filter: &str, frame: &[u8]) -> bool {
    let filter: Filter = filter.parse().unwrap();
    filter.matches(&Headers::of_frame(frame))
}

#[test]
fn filters() {
    let udp4 = frame(&[(0x8100, 7)], IPV4, &ipv4(UDP, 0, 0, &udp(53, 4242)));
    let tcp6 = frame(&[], IPV6, &ipv6(TCP, &tcp(443, 5000)));
    for (filter, of_udp4, of_tcp6) in [
        ("", true, true),
        ("src 10.0.0.0/8", true, false),
        ("src 10.0.0.2", false, false),
        ("dst 192.168.7.8/31", true, false),
        ("host 192.168.0.0/16", true, false),
        ("src 0.0.0.0/0", true, false),
        ("src ::/0", false, true),
        ("src 2001:db8::/32 dst fe80::2", false, true),
        ("dst 2001:db8::/32", false, false),
        ("sport 53", true, false),
        ("dport 4000-4999", true, false),
        ("port 443", false, true),
        ("port 5000", false, true),
        ("proto udp", true, false),
        ("proto 6", false, true),
        ("dscp ef", true, true),
        ("dscp af31", false, false),
        ("vlan 7", true, false),
        ("vlan 7 proto tcp", false, false),
    ] {
        assert_eq!(matches(filter, &udp4), of_udp4, "{filter} of UDP");
        assert_eq!(matches(filter, &tcp6), of_tcp6, "{filter} of TCP");
    }
    assert!(
        !matches("dscp 0", &frame(&[], ARP, &[0; 28])),
        "ARP has none"
    );
}

#[test]
fn wrong_filters_are_explained() {
    let error = |text: &str| text.parse::<Filter>().unwrap_err().to_string();
    assert!(error("sorce 10.0.0.1").starts_with("'sorce' is not a condition; use src"));
    assert!(error("sorce").starts_with("'sorce' is not a condition"));
    assert_eq!(error("proto tcp dport"), "'dport' stands without a value");
    assert_eq!(error("vlan 1 vlan 2"), "'vlan' is given twice");
    for bad in [
        "src 10.0.0.0/33",
        "src host",
        "dst ::/129",
        "port 80-70",
        "port 65536",
        "proto quic",
        "dscp 64",
        "dscp cs8",
        "dscp af44",
        "vlan 4096",
    ] {
        assert!(error(bad).ends_with("is expected"), "{bad}");
    }
}

proptest! {
    #[test]
    fn no_frame_panics(
        bytes in prop::collection::vec(any::<u8>(), 0..120),
        kind in prop_oneof![Just(IPV4), Just(IPV6), Just(0x8100), any::<u16>()],
    ) {
        let mut frame = bytes;
        let length = frame.len();
        if length >= 14 {
            frame[12..14].copy_from_slice(&kind.to_be_bytes());
        }
        let headers = Headers::of_frame(&frame);
        prop_assert!(headers.network_offset <= length);
        Headers::of_ip(&frame);
    }

    /// Cutting off a frame removes parsed fields, but does not change the others.
    #[test]
    fn a_shorter_frame_tells_no_other_story(cut in 0usize..90) {
        let whole = frame(&[(0x8100, 7)], IPV6, &ipv6(TCP, &tcp(443, 5000)));
        let all = Headers::of_frame(&whole);
        let part = Headers::of_frame(&whole[..cut.min(whole.len())]);
        prop_assert!(part.ports.is_none_or(|ports| Some(ports) == all.ports));
        prop_assert!(part.addresses.is_none_or(|addresses| Some(addresses) == all.addresses));
        prop_assert!(part.protocol.is_none_or(|protocol| Some(protocol) == all.protocol));
    }

    #[test]
    fn no_filter_is_too_strange(text in "\\PC{0,40}", words in "((src|dst|port|vlan|dscp|proto) [0-9a-f./:-]{0,9} ){0,3}") {
        let _ = (text.parse::<Filter>(), words.parse::<Filter>());
    }
}
