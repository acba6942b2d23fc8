//! Properties of IP packets that hold for any input. Called by the property tests and by the fuzzer (`fuzz/`).

extern crate alloc;

use alloc::vec::Vec;
use core::time::Duration;

use softclock_core::Instant;
use softclock_wire::packet::ones_complement_sum;

use super::fragments::{Reassembly, ReassemblyLimits};
use super::{Output, Packet, header_bytes, parse, write_header};

/// Cuts the input into packets, each with its length in front as two bytes, and passes them to one reassembly, as they
/// are and with the right checksum. Checks that a packet can be written again, and that the limits hold.
pub(crate) fn check(mut input: &[u8]) {
    let limits = ReassemblyLimits {
        packets: 4,
        bytes: 4096,
        fragments_of_packet: 4,
        timeout: Duration::from_nanos(8),
    };
    let mut reassembly = Reassembly::new(limits);
    for step in 0.. {
        let Some((&[high, low], rest)) = input.split_first_chunk() else {
            break;
        };
        let bytes = usize::from(u16::from_be_bytes([high, low])).min(rest.len());
        let (packet, rest) = rest.split_at(bytes);
        input = rest;

        let now = Instant::from_ns(step);
        reassembly.expire(now, drop);
        check_packet(now, packet, &mut reassembly);
        check_packet(now, &with_checksum(packet), &mut reassembly);
        assert!(reassembly.len() <= limits.packets && reassembly.bytes() <= limits.bytes);
        assert_eq!(reassembly.is_empty(), reassembly.next_timeout().is_none());
    }
    reassembly.expire(Instant::FAR_FUTURE, drop);
    assert_eq!((reassembly.len(), reassembly.bytes()), (0, 0));
}

fn check_packet(now: Instant, bytes: &[u8], reassembly: &mut Reassembly) {
    let Ok(packet) = parse(bytes) else {
        return;
    };
    assert!(packet.header_bytes >= header_bytes(&packet.addresses.source));
    assert!(packet.header_bytes + packet.payload.len() <= bytes.len());
    if packet.fragment.is_none() {
        check_written(&packet);
    }
    if let Ok(Some(whole)) = reassembly.on_fragment(now, &packet) {
        check_written(&whole.as_packet());
    }
}

/// Checks that the packet is the same after it was written and parsed again, except for its options.
fn check_written(packet: &Packet<'_>) {
    let output = Output {
        addresses: packet.addresses,
        protocol: packet.protocol,
        hop_limit: packet.hop_limit,
        traffic_class: packet.traffic_class,
        identification: 0,
        may_fragment: false,
    };
    let mut bytes = Vec::new();
    write_header(&output, packet.payload.len(), &mut bytes);
    bytes.extend_from_slice(packet.payload);
    let written = parse(&bytes);
    let plain = Packet {
        has_fragment_header: false,
        header_bytes: header_bytes(&packet.addresses.source),
        ..*packet
    };
    assert_eq!(written, Ok(plain));
}

/// The packet with the right header checksum, if it is of IPv4.
fn with_checksum(packet: &[u8]) -> Vec<u8> {
    let mut packet = packet.to_vec();
    let header_bytes = packet
        .first()
        .map_or(0, |first| usize::from(first & 0x0f) * 4);
    if let Some(header) = packet.get_mut(..header_bytes)
        && header.len() >= 20
    {
        header[10..12].fill(0);
        let checksum = !ones_complement_sum(header);
        header[10..12].copy_from_slice(&checksum.to_be_bytes());
    }
    packet
}
