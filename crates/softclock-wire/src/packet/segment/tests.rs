use super::*;
use crate::packet::{IPV6, Segmentation, complete_checksum};
use alloc::vec;
use proptest::prelude::*;

/// Returns the ones' complement sum of the pseudo-header of a packet whose transport has `length` bytes.
fn pseudo_sum(frame: &[u8], headers: &Headers, length: usize) -> u16 {
    let network = &frame[headers.network_offset..];
    let addresses = match headers.ether_type {
        IPV4 => &network[12..20],
        _ => &network[8..40],
    };
    let mut pseudo = addresses.to_vec();
    pseudo.extend((length as u32).to_be_bytes());
    pseudo.extend([0, headers.protocol.unwrap()]);
    ones_complement_sum(&pseudo)
}

/// Builds a frame with a partial transport checksum.
fn frame(is_ipv4: bool, is_tcp: bool, tag: bool, flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![2; 12];
    if tag {
        frame.extend([0x81, 0, 0, 7]);
    }
    frame.extend(if is_ipv4 { IPV4 } else { IPV6 }.to_be_bytes());
    let protocol = if is_tcp { TCP } else { UDP };
    if is_ipv4 {
        frame.extend([0x45, 0, 0, 0, 0xff, 0xfe, 0x40, 0, 64, protocol, 0, 0]);
        frame.extend([10, 0, 0, 1, 192, 168, 7, 9]);
    } else {
        frame.extend([0x60, 0, 0, 0, 0, 0, protocol, 64]);
        frame.extend([0x20; 16]);
        frame.extend([0xfe; 16]);
    }
    let length = payload.len() + if is_tcp { 32 } else { 8 };
    frame.extend([0x12, 0x34, 0x00, 0x50]);
    if is_tcp {
        frame.extend([
            0xff, 0xff, 0xff, 0x00, 0, 0, 0, 1, 0x80, flags, 1, 1, 0, 0, 0, 0,
        ]);
        frame.extend([1; 12]);
    } else {
        frame.extend((length as u16).to_be_bytes());
        frame.extend([0, 0]);
    }
    frame.extend(payload);
    let headers = Headers::of_frame(&frame);
    let field = headers.transport_offset + if is_tcp { 16 } else { 6 };
    let sum = pseudo_sum(&frame, &headers, length);
    set_u16(&mut frame, field, sum);
    frame
}

fn offload(headers: &Headers, is_ipv4: bool, is_tcp: bool, segment_bytes: u16) -> Offload {
    Offload {
        checksum: Some(PartialChecksum {
            start: headers.transport_offset as u16,
            offset: if is_tcp { 16 } else { 6 },
        }),
        segmentation: Some(Segmentation {
            kind: match (is_tcp, is_ipv4) {
                (true, true) => SegmentKind::Tcp4,
                (true, false) => SegmentKind::Tcp6,
                (false, _) => SegmentKind::Udp,
            },
            has_ecn: false,
            header_bytes: 0,
            segment_bytes,
        }),
    }
}

/// Tunnels: the protocol, the header, and whether Ethernet frames are inside.
const TUNNELS: [(u8, &[u8], bool); 6] = [
    (4, &[], false),
    (47, &[0, 0, 8, 0], false),
    (47, &[0x20, 0, 0x65, 0x58, 0, 0, 0, 7], true),
    // VXLAN without a checksum and with one, and Geneve with an option.
    (
        UDP,
        &[0xc0, 0, 0x12, 0xb5, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 7, 0],
        true,
    ),
    (
        UDP,
        &[0xc0, 0, 0x12, 0xb5, 0, 0, 1, 2, 8, 0, 0, 0, 0, 0, 7, 0],
        true,
    ),
    (
        UDP,
        &[
            0xc0, 0, 0x17, 0xc1, 0, 0, 1, 2, 1, 0, 0x65, 0x58, 0, 0, 7, 0, 1, 2, 3, 0,
        ],
        true,
    ),
];

/// A frame with `inside` in a tunnel.
fn tunnelled(is_ipv4: bool, protocol: u8, header: &[u8], inside: &[u8]) -> Vec<u8> {
    let mut frame = vec![4; 12];
    frame.extend(if is_ipv4 { IPV4 } else { IPV6 }.to_be_bytes());
    if is_ipv4 {
        frame.extend([0x45, 0, 0, 0, 0x12, 0x33, 0, 0, 64, protocol, 0, 0]);
        frame.extend([192, 0, 2, 1, 192, 0, 2, 2]);
    } else {
        frame.extend([0x60, 0, 0, 0, 0, 0, protocol, 64]);
        frame.extend([0x30; 16]);
        frame.extend([0xfd; 16]);
    }
    frame.extend(header);
    frame.extend(inside);
    frame
}

/// Sets the length in the IP header of a frame without a VLAN tag.
fn with_length(mut frame: Vec<u8>) -> Vec<u8> {
    let bytes = frame.len() as u16 - 14;
    match frame[14] >> 4 {
        4 => set_u16(&mut frame, 16, bytes),
        _ => set_u16(&mut frame, 18, bytes - 40),
    }
    frame
}

proptest! {
    #[test]
    fn segments_are_the_frame(
        (is_ipv4, is_tcp, tag) in any::<(bool, bool, bool)>(),
        flags in any::<u8>(),
        payload in prop::collection::vec(any::<u8>(), 1..3000),
        segment_bytes in 1u16..1600,
        finished in prop::option::of(any::<u16>()),
    ) {
        let mut whole = frame(is_ipv4, is_tcp, tag, flags, &payload);
        let headers = Headers::of_frame(&whole);
        let mut offload = offload(&headers, is_ipv4, is_tcp, segment_bytes);
        // A device that joins packets leaves the sum of the first one, or any other.
        if let Some(sum) = finished {
            let partial = offload.checksum.take().unwrap();
            set_u16(&mut whole, (partial.start + partial.offset).into(), sum);
        }
        let segments = segments(&whole, &headers, &offload).unwrap();
        let left = segments.offload().checksum.unwrap();
        let count = payload.len().div_ceil(segment_bytes.into());
        prop_assert_eq!(segments.len(), count);
        let mut joined: Vec<u8> = Vec::new();
        for (index, mut segment) in segments.enumerate() {
            prop_assert!(complete_checksum(&mut segment, left));
            let own = Headers::of_frame(&segment);
            let transport = &segment[own.transport_offset..];
            let sum = u32::from(ones_complement_sum(transport))
                + u32::from(pseudo_sum(&segment, &own, transport.len()));
            prop_assert_eq!(sum % 0xffff, 0, "checksum of the transport");
            let network = &segment[own.network_offset..];
            if is_ipv4 {
                prop_assert_eq!(ones_complement_sum(&network[..20]), 0xffff, "checksum of IPv4");
                prop_assert_eq!(usize::from(u16_at(network, 2)), network.len());
                prop_assert_eq!(u16_at(network, 4), 0xfffe_u16.wrapping_add(index as u16));
            } else {
                prop_assert_eq!(usize::from(u16_at(network, 4)) + 40, network.len());
            }
            if is_tcp {
                let sequence = u32::from_be_bytes(transport[4..8].try_into().unwrap());
                prop_assert_eq!(sequence, 0xffff_ff00_u32.wrapping_add(joined.len() as u32));
                let (first, last) = (index == 0, index + 1 == count);
                let expected = flags & if last { 0xff } else { !(FIN | PSH) } & if first { 0xff } else { !CWR };
                prop_assert_eq!(transport[13], expected);
            } else {
                prop_assert_eq!(usize::from(u16_at(transport, 4)), transport.len());
            }
            prop_assert_eq!(own.ports, headers.ports);
            joined.extend(&segment[own.payload_offset.unwrap()..]);
        }
        prop_assert_eq!(joined, payload);
    }

    /// In a tunnel, the segments are those of the packet inside, each behind headers of its own length.
    #[test]
    fn packets_in_tunnels_are_cut_inside(
        (is_ipv4, is_tcp, is_outer_ipv4) in any::<(bool, bool, bool)>(),
        kind in 0..TUNNELS.len(),
        payload in prop::collection::vec(any::<u8>(), 1..3000),
        segment_bytes in 1u16..1600,
    ) {
        let (protocol, header, has_link) = TUNNELS[kind];
        let protocol = if header.is_empty() && !is_ipv4 { 41 } else { protocol };
        let inner = with_length(frame(is_ipv4, is_tcp, false, 0, &payload));
        let link_bytes = if has_link { 0 } else { 14 };
        let whole = tunnelled(is_outer_ipv4, protocol, header, &inner[link_bytes..]);
        let shift = (whole.len() - inner.len()) as u16;
        let inner_headers = Headers::of_frame(&inner);
        let inner_offload = offload(&inner_headers, is_ipv4, is_tcp, segment_bytes);
        let expected = segments(&inner, &inner_headers, &inner_offload).unwrap();
        let outer = Headers::of_frame(&whole);
        let cut = segments(&whole, &outer, &inner_offload.shifted(shift)).unwrap();
        let left = cut.offload().checksum.unwrap();
        prop_assert_eq!(cut.header_bytes(), expected.header_bytes() + usize::from(shift));
        prop_assert_eq!(cut.len(), expected.len());
        for (index, (mut segment, inside)) in cut.zip(expected).enumerate() {
            let begin = outer.transport_offset + header.len();
            prop_assert_eq!(&segment[begin..], &inside[link_bytes..]);
            prop_assert!(complete_checksum(&mut segment, left));
            let own = Headers::of_frame(&segment);
            let network = &segment[own.network_offset..];
            if is_outer_ipv4 {
                prop_assert_eq!(ones_complement_sum(&network[..20]), 0xffff);
                prop_assert_eq!(usize::from(u16_at(network, 2)), network.len());
                prop_assert_eq!(u16_at(network, 4), 0x1233 + index as u16);
            } else {
                prop_assert_eq!(usize::from(u16_at(network, 4)) + 40, network.len());
            }
            if protocol == UDP {
                let transport = &segment[own.transport_offset..];
                prop_assert_eq!(usize::from(u16_at(transport, 4)), transport.len());
                let sum = u32::from(ones_complement_sum(transport))
                    + u32::from(pseudo_sum(&segment, &own, transport.len()));
                let has_checksum = header[6..8] != [0, 0];
                prop_assert_eq!(u16_at(transport, 6) != 0, has_checksum);
                prop_assert!(!has_checksum || sum % 0xffff == 0, "checksum of the tunnel");
            }
        }
    }

    #[test]
    fn no_frame_panics(
        mut bytes in prop::collection::vec(any::<u8>(), 0..200),
        virtio in any::<[u8; Offload::BYTES]>(),
        (is_ipv4, is_tcp) in any::<(bool, bool)>(),
        cut in 0usize..200,
        kind in 0..TUNNELS.len(),
    ) {
        let mut well_formed = frame(is_ipv4, is_tcp, false, 0, &bytes);
        let (protocol, header, has_link) = TUNNELS[kind];
        let link_bytes = if has_link { 0 } else { 14 };
        let inner = with_length(well_formed.clone());
        let mut tunnelled = tunnelled(!is_ipv4, protocol, header, &inner[link_bytes..]);
        let shift = (tunnelled.len() - inner.len()) as u16;
        let inside = offload(&Headers::of_frame(&inner), is_ipv4, is_tcp, 7).shifted(shift);
        well_formed.truncate(cut);
        tunnelled.truncate(tunnelled.len() - cut / 4);
        bytes.truncate(cut);
        for frame in [bytes, well_formed, tunnelled] {
            let headers = Headers::of_frame(&frame);
            let claims = [Offload::from_bytes(&virtio), Some(offload(&headers, is_ipv4, is_tcp, 7)), Some(inside)];
            for claim in claims.into_iter().flatten() {
                if let Some(segments) = segments(&frame, &headers, &claim) {
                    let told = segments.len();
                    prop_assert_eq!(segments.count(), told);
                }
            }
        }
    }
}

/// GRE with a checksum or a number for each packet cannot be cut, and neither can another protocol.
#[test]
fn unknown_tunnels_are_not_cut() {
    let inner = with_length(frame(true, true, false, 0, &[0; 3000]));
    let offload = offload(&Headers::of_frame(&inner), true, true, 1000);
    let cut = |protocol: u8, header: &[u8]| {
        let whole = tunnelled(true, protocol, header, &inner[14..]);
        let shift = (whole.len() - inner.len()) as u16;
        let headers = Headers::of_frame(&whole);
        segments(&whole, &headers, &offload.shifted(shift)).map(Iterator::count)
    };
    assert_eq!(cut(4, &[]), Some(3));
    assert_eq!(cut(47, &[0x20, 0, 8, 0, 0, 0, 0, 7]), Some(3));
    assert_eq!(cut(47, &[0x80, 0, 8, 0, 0, 0, 0, 0]), None, "checksum");
    assert_eq!(cut(47, &[0x10, 0, 8, 0, 0, 0, 0, 0]), None, "number");
    assert_eq!(cut(50, &[0; 8]), None, "ESP");
}

#[test]
fn what_is_not_asked_for_is_not_cut() {
    let whole = frame(true, true, false, 0, &[0; 100]);
    let headers = Headers::of_frame(&whole);
    assert!(segments(&whole, &headers, &Offload::NONE).is_none());
    let mut wrong = offload(&headers, true, true, 50);
    assert_eq!(segments(&whole, &headers, &wrong).unwrap().count(), 2);
    wrong.segmentation.as_mut().unwrap().kind = SegmentKind::UdpFragments;
    assert!(segments(&whole, &headers, &wrong).is_none());
    let mut elsewhere = offload(&headers, true, true, 50);
    elsewhere.checksum.as_mut().unwrap().start += 2;
    assert!(segments(&whole, &headers, &elsewhere).is_none());
}
