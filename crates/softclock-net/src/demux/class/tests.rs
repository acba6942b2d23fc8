use super::*;
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;
use softclock_wire::packet::Headers;

/// A frame of IPv4 with a header of `header_words` words of 4 bytes.
fn v4(protocol: u8, header_words: u8, fragment: u16, payload: &[u8]) -> Vec<u8> {
    let header_bytes = usize::from(header_words) * 4;
    let total = (header_bytes + payload.len()) as u16;
    let mut packet = vec![0; header_bytes];
    packet[0] = 0x40 | header_words;
    packet[2..4].copy_from_slice(&total.to_be_bytes());
    packet[6..8].copy_from_slice(&fragment.to_be_bytes());
    packet[9] = protocol;
    packet[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    packet.extend(payload);
    frame(IPV4, &packet)
}

/// A frame of IPv6. `payload` includes the extension headers.
fn v6(next: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; 40];
    packet[0] = 0x60;
    packet[4..6].copy_from_slice(&(payload.len() as u16).to_be_bytes());
    packet[6] = next;
    packet[23] = 1;
    packet[39] = 2;
    packet.extend(payload);
    frame(IPV6, &packet)
}

fn frame(ether_type: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; 12];
    frame.extend(ether_type.to_be_bytes());
    frame.extend(payload);
    frame
}

/// The class of the packets of [`v4`] and [`v6`] from port 258 to port 80.
fn flow(transport: Transport, remote: &str, local: &str) -> Result<Class, DropReason> {
    Ok(Class::Flow(Flow {
        transport,
        remote: (remote.parse().unwrap(), 258),
        local: (local.parse().unwrap(), 80),
    }))
}

const PORTS: [u8; 8] = [1, 2, 0, 80, 0, 0, 0, 0];

#[test]
fn flows_have_the_destination_as_local_end() {
    for (number, transport) in [(UDP, Transport::Udp), (TCP, Transport::Tcp)] {
        let expected = flow(transport, "10.0.0.1", "10.0.0.2");
        assert_eq!(classify(&v4(number, 5, 0, &PORTS)), expected);
        // With options, and with the flag that forbids fragmentation.
        assert_eq!(classify(&v4(number, 15, 0x4000, &PORTS)), expected);
        assert_eq!(classify(&v6(number, &PORTS)), flow(transport, "::1", "::2"));
    }
}

#[test]
fn packets_without_flow_are_for_control() {
    let control = |kind| Ok(Class::Control(kind));
    assert_eq!(classify(&frame(ARP, &[])), control(ControlKind::Arp));
    assert_eq!(classify(&v4(ICMP, 5, 0, &[])), control(ControlKind::Icmp));
    assert_eq!(classify(&v6(ICMPV6, &[])), control(ControlKind::IcmpV6));
    // ICMP of the other version is a protocol that the stack does not have.
    assert_eq!(
        classify(&v4(ICMPV6, 5, 0, &[])),
        control(ControlKind::Other)
    );
    assert_eq!(classify(&v6(ICMP, &[])), control(ControlKind::Other));
    assert_eq!(
        classify(&v4(132, 5, 0, &PORTS)),
        control(ControlKind::Other)
    );
    assert_eq!(classify(&v6(59, &[])), control(ControlKind::Other));
}

#[test]
fn all_fragments_are_fragments_but_atomic_ones() {
    for place in [0x2000, 0x2001, 0x0001, 0x1fff, 0x6000] {
        assert_eq!(classify(&v4(UDP, 5, place, &PORTS)), Ok(Class::Fragment));
    }
    let fragment = |place: [u8; 2]| {
        let mut payload = vec![UDP, 0xff, place[0], place[1], 0, 0, 0, 7];
        payload.extend(PORTS);
        classify(&v6(FRAGMENT, &payload))
    };
    for place in [[0, 1], [0, 8], [0xff, 0xf8], [0xff, 0xf9]] {
        assert_eq!(fragment(place), Ok(Class::Fragment));
    }
    // The reserved bits are ignored, and so is the reserved byte.
    for place in [[0, 0], [0, 6]] {
        assert_eq!(fragment(place), flow(Transport::Udp, "::1", "::2"));
    }
}

#[test]
fn eight_extension_headers_are_skipped_and_nine_are_not() {
    let chain = |count: usize| {
        let mut payload = Vec::new();
        for number in 1..=count {
            let next = if number == count { UDP } else { DESTINATION };
            // Headers of 8 and of 16 bytes in turn.
            let length = number % 2;
            payload.extend([next, length as u8]);
            payload.resize(payload.len() + 6 + 8 * length, 0);
        }
        payload.extend(PORTS);
        classify(&v6(if count == 0 { UDP } else { HOP_BY_HOP }, &payload))
    };
    for count in 0..=8 {
        assert_eq!(chain(count), flow(Transport::Udp, "::1", "::2"), "{count}");
    }
    assert_eq!(chain(9), Err(DropReason::IpOption));
}

#[test]
fn lengths_that_contradict_each_other_are_refused() {
    // Longer than the frame, shorter than its header, a header below the least, the wrong version.
    for (at, value) in [(17, 29), (17, 19), (14, 0x44), (14, 0x65)] {
        let mut frame = v4(UDP, 5, 0, &PORTS);
        frame[at] = value;
        assert_eq!(classify(&frame), Err(DropReason::IpHeader), "{at} {value}");
    }
    for (at, value) in [(19, 9), (14, 0x45)] {
        let mut frame = v6(UDP, &PORTS);
        frame[at] = value;
        assert_eq!(classify(&frame), Err(DropReason::IpHeader), "{at} {value}");
    }
}

#[test]
fn ports_must_be_within_the_packet_and_not_in_the_padding() {
    for length in 20..28 {
        let mut frame = v4(UDP, 5, 0, &PORTS);
        frame[17] = length;
        assert_eq!(classify(&frame).is_ok(), length >= 24);
    }
    assert_eq!(
        classify(&v4(UDP, 5, 0, &[0; 3])),
        Err(DropReason::UdpHeader)
    );
    assert_eq!(classify(&v6(TCP, &[0; 3])), Err(DropReason::TcpHeader));
}

#[test]
fn frames_of_other_types_and_short_ones_are_refused() {
    assert_eq!(
        classify(&frame(0x8100, &[0; 50])),
        Err(DropReason::EtherType)
    );
    for frame in [v4(UDP, 5, 0, &[]), v6(UDP, &[])] {
        let short = &frame[..frame.len() - 1];
        assert_eq!(classify(short), Err(DropReason::TooShort));
    }
    for length in 0..8 {
        let extension = [UDP, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(
            classify(&v6(ROUTING, &extension[..length])),
            Err(DropReason::TooShort)
        );
    }
}

/// Bytes that begin like a frame that the stack takes, so that more than the first checks are tested.
fn frame_like() -> impl Strategy<Value = Vec<u8>> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..120);
    let next = prop::sample::select(vec![
        HOP_BY_HOP,
        ROUTING,
        FRAGMENT,
        DESTINATION,
        UDP,
        TCP,
        ICMPV6,
        51,
    ]);
    let extension = (
        next.clone(),
        0..3u8,
        prop::sample::select(vec![0u8, 0, 1, 6, 255]),
    );
    prop_oneof![
        bytes(),
        (
            any::<u8>(),
            5..16u8,
            prop_oneof![3 => Just(0u16), 1 => any::<u16>()],
            bytes()
        )
            .prop_map(|(protocol, words, place, payload)| v4(protocol, words, place, &payload)),
        (next, prop::collection::vec(extension, 0..12), bytes()).prop_map(
            |(first, extensions, rest)| {
                let mut payload = Vec::new();
                for (next, length, place) in extensions {
                    payload.extend([next, length, 0, place, 0, 0, 0, 0]);
                    payload.resize(payload.len() + 8 * usize::from(length), 0);
                }
                payload.extend(rest);
                v6(first, &payload)
            }
        ),
    ]
}

proptest! {
    #[test]
    fn any_bytes_have_a_class_or_a_reason(
        frame in frame_like(),
        cut in any::<prop::sample::Index>(),
        changed in any::<prop::sample::Index>(),
        value in any::<u8>(),
    ) {
        let _ = classify(&frame);
        let mut frame = frame;
        let _ = classify(&frame[..cut.index(frame.len() + 1)]);
        if !frame.is_empty() {
            let changed = changed.index(frame.len());
            frame[changed] = value;
        }
        let _ = classify(&frame);
    }

    #[test]
    fn a_flow_is_that_of_the_parser_of_captures(frame in frame_like()) {
        if let Ok(Class::Flow(flow)) = classify(&frame) {
            let headers = Headers::of_frame(&frame);
            // That parser counts the transport header's predecessors in another way, and gives up one earlier.
            if headers.protocol.is_some() {
                prop_assert_eq!(headers.addresses, Some((flow.remote.0, flow.local.0)));
                prop_assert_eq!(headers.ports, Some((flow.remote.1, flow.local.1)));
            }
        }
    }

    #[test]
    fn padding_behind_the_packet_does_not_matter(
        frame in frame_like(),
        padding in prop::collection::vec(any::<u8>(), 0..60),
    ) {
        let class = classify(&frame);
        if class.is_ok() {
            let padded: Vec<u8> = frame.iter().chain(&padding).copied().collect();
            prop_assert_eq!(classify(&padded), class);
        }
    }
}
