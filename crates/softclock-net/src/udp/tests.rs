//! Tests of UDP's header: the rules of both versions of IP, and properties for any input.

use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::udp;

#[path = "target.rs"]
mod target;

fn addresses(is_v6: bool) -> Addresses {
    let pair = match is_v6 {
        true => ["2001:db8::1", "2001:db8::2"],
        false => ["10.0.0.1", "10.0.0.2"],
    };
    let [source, destination] = pair.map(|address| address.parse().unwrap());
    Addresses {
        source,
        destination,
    }
}

fn written(is_v6: bool, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(addresses(is_v6), 1, 2, payload, &mut bytes).unwrap();
    bytes
}

proptest! {
    #[test]
    fn a_datagram_is_read_as_it_was_written(
        is_v6 in any::<bool>(),
        ports in any::<[u16; 2]>(),
        payload in prop::collection::vec(any::<u8>(), 0..200),
        before in prop::collection::vec(any::<u8>(), 0..5),
        padding in prop::collection::vec(any::<u8>(), 0..20),
    ) {
        let mut bytes = before.clone();
        write(addresses(is_v6), ports[0], ports[1], &payload, &mut bytes).unwrap();
        bytes.extend(padding);
        prop_assert!(bytes.starts_with(&before));
        let datagram = Datagram { source_port: ports[0], destination_port: ports[1], payload: &payload };
        let parsed = parse(addresses(is_v6), &bytes[before.len()..], Verify::Yes);
        prop_assert_eq!(parsed, Ok(datagram));
    }

    #[test]
    fn a_changed_byte_is_seen_unless_the_link_is_trusted(
        is_v6 in any::<bool>(),
        payload in prop::collection::vec(any::<u8>(), 2..60),
        place in any::<prop::sample::Index>(),
        by in 1..=255_u8,
    ) {
        let mut bytes = written(is_v6, &payload);
        let place = HEADER_BYTES + place.index(payload.len());
        bytes[place] = bytes[place].wrapping_add(by);
        let parsed = parse(addresses(is_v6), &bytes, Verify::Yes);
        prop_assert_eq!(parsed, Err(DropReason::UdpChecksum));
        prop_assert!(parse(addresses(is_v6), &bytes, Verify::Trusted).is_ok());
    }

    #[test]
    fn any_bytes_satisfy_the_properties(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        target::check(&bytes);
    }

    #[test]
    fn bytes_with_a_plausible_length_satisfy_the_properties(
        mut bytes in prop::collection::vec(any::<u8>(), 8..100),
        length in 0..100_u16,
    ) {
        bytes[4..6].copy_from_slice(&length.to_be_bytes());
        target::check(&bytes);
    }
}

#[test]
fn a_known_datagram_has_its_known_checksum() {
    // The words of the pseudo-header, c0a8 0002 c0a8 0001 0011 000b, and of the datagram add up to 1ede3.
    let addresses = Addresses {
        source: "192.168.0.2".parse().unwrap(),
        destination: "192.168.0.1".parse().unwrap(),
    };
    let mut bytes = Vec::new();
    write(addresses, 0x0035, 0x0400, &[0x12, 0x34, 0x56], &mut bytes).unwrap();

    assert_eq!(bytes[..6], [0x00, 0x35, 0x04, 0x00, 0x00, 0x0b]);
    assert_eq!(bytes[6..8], [0x12, 0x1b]);
}

#[test]
fn a_checksum_of_zero_is_none_over_v4_and_refused_over_v6() {
    for (is_v6, expected) in [(false, None), (true, Some(DropReason::UdpChecksum))] {
        let mut bytes = written(is_v6, b"text");
        bytes[6..8].fill(0);
        assert_eq!(parse(addresses(is_v6), &bytes, Verify::Yes).err(), expected);
        assert!(parse(addresses(is_v6), &bytes, Verify::Trusted).is_ok());
    }
}

#[test]
fn a_checksum_that_comes_out_as_zero_is_written_as_its_complement() {
    for is_v6 in [false, true] {
        // Appending the checksum of a datagram to its payload would make the sum that of zero.
        let sum = written(is_v6, &[0, 0]);
        let bytes = written(is_v6, &sum[6..8]);
        assert_eq!(bytes[6..8], [0xff, 0xff]);
        assert!(parse(addresses(is_v6), &bytes, Verify::Yes).is_ok());
    }
}

#[test]
fn lengths_that_contradict_are_refused() {
    for length in [0, 7, 13, 0xffff_u16] {
        let mut bytes = written(false, b"text");
        bytes[4..6].copy_from_slice(&length.to_be_bytes());
        let parsed = parse(addresses(false), &bytes, Verify::Trusted);
        assert_eq!(parsed, Err(DropReason::UdpHeader), "{length}");
    }
    let bytes = written(false, b"");
    assert!(parse(addresses(false), &bytes, Verify::Yes).is_ok());
    let cut = parse(addresses(false), &bytes[..7], Verify::Yes);
    assert_eq!(cut, Err(DropReason::UdpHeader));
}

#[test]
fn a_payload_is_as_long_as_the_version_of_ip_allows() {
    for (is_v6, most) in [(false, MOST_PAYLOAD), (true, MOST_PAYLOAD_V6)] {
        let payload = vec![7; most + 1];
        let mut bytes = Vec::new();
        let too_long = write(addresses(is_v6), 1, 2, &payload, &mut bytes);
        assert_eq!(too_long, Err(TooLong));
        assert!(bytes.is_empty());
        write(addresses(is_v6), 1, 2, &payload[1..], &mut bytes).unwrap();
        let parsed = parse(addresses(is_v6), &bytes, Verify::Yes);
        assert_eq!(parsed.unwrap().payload.len(), most);
    }
    assert_eq!(MOST_PAYLOAD, 65_507);
}
