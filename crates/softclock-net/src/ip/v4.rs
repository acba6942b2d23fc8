//! The header of IPv4 (RFC 791, RFC 1122 section 3.2.1).

use alloc::vec::Vec;
use core::net::Ipv4Addr;

use softclock_wire::packet::ones_complement_sum;

use super::{Fragment, Output, Packet};
use crate::checksum::Addresses;
use crate::drops::DropReason;

/// Parses a packet whose first byte has version 4.
pub(super) fn parse(bytes: &[u8]) -> Result<Packet<'_>, DropReason> {
    let first = bytes
        .first_chunk::<HEADER_BYTES>()
        .ok_or(DropReason::TooShort)?;
    let [
        version_length,
        traffic_class,
        l0,
        l1,
        i0,
        i1,
        f0,
        f1,
        hop_limit,
        protocol,
        _,
        _,
        addresses @ ..,
    ] = *first;
    let [s0, s1, s2, s3, d0, d1, d2, d3] = addresses;

    let header_bytes = usize::from(version_length & 0x0f) * 4;
    let packet_bytes = usize::from(u16::from_be_bytes([l0, l1]));
    if header_bytes < HEADER_BYTES {
        return Err(DropReason::IpHeader);
    }
    let header = bytes.get(..header_bytes).ok_or(DropReason::TooShort)?;
    if ones_complement_sum(header) != 0xffff {
        return Err(DropReason::IpChecksum);
    }
    let payload = bytes
        .get(header_bytes..packet_bytes)
        .ok_or(DropReason::IpHeader)?;
    check_options(header.get(HEADER_BYTES..).unwrap_or_default())?;

    let flags_offset = u16::from_be_bytes([f0, f1]);
    let fragment = Fragment {
        identification: u32::from(u16::from_be_bytes([i0, i1])),
        offset: usize::from(flags_offset & OFFSET_MASK) * 8,
        has_more: flags_offset & MORE_FRAGMENTS != 0,
    };
    Ok(Packet {
        addresses: Addresses {
            source: Ipv4Addr::new(s0, s1, s2, s3).into(),
            destination: Ipv4Addr::new(d0, d1, d2, d3).into(),
        },
        protocol,
        hop_limit,
        traffic_class,
        fragment: (fragment.offset != 0 || fragment.has_more).then_some(fragment),
        has_fragment_header: false,
        payload,
        header_bytes,
    })
}

/// Appends a header without options.
pub(super) fn write(
    output: &Output,
    [source, destination]: [Ipv4Addr; 2],
    fragment: Option<Fragment>,
    payload_bytes: usize,
    to: &mut Vec<u8>,
) {
    let packet_bytes = u16::try_from(HEADER_BYTES + payload_bytes).unwrap_or(u16::MAX);
    let mut flags_offset = match fragment {
        Some(Fragment { offset, .. }) => (offset / 8) as u16 & OFFSET_MASK,
        None => 0,
    };
    if fragment.is_some_and(|fragment| fragment.has_more) {
        flags_offset |= MORE_FRAGMENTS;
    }
    if !output.may_fragment {
        flags_offset |= DONT_FRAGMENT;
    }
    let mut header = [0; HEADER_BYTES];
    header[0] = 0x45;
    header[1] = output.traffic_class;
    header[2..4].copy_from_slice(&packet_bytes.to_be_bytes());
    header[4..6].copy_from_slice(&(output.identification as u16).to_be_bytes());
    header[6..8].copy_from_slice(&flags_offset.to_be_bytes());
    header[8] = output.hop_limit;
    header[9] = output.protocol;
    header[12..16].copy_from_slice(&source.octets());
    header[16..20].copy_from_slice(&destination.octets());
    let checksum = !ones_complement_sum(&header);
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    to.extend_from_slice(&header);
}

/// Checks the lengths of all options, and refuses source routes (RFC 7126, 4.3 and 4.4). All other options are skipped:
/// none of them changes the meaning of the payload.
fn check_options(mut options: &[u8]) -> Result<(), DropReason> {
    loop {
        options = match *options {
            [] | [END_OF_OPTIONS, ..] => return Ok(()),
            [NO_OPERATION, ref rest @ ..] => rest,
            [LOOSE_SOURCE_ROUTE | STRICT_SOURCE_ROUTE, ..] => return Err(DropReason::IpOption),
            [_, length, ..] if length >= 2 => options
                .get(usize::from(length)..)
                .ok_or(DropReason::IpHeader)?,
            _ => return Err(DropReason::IpHeader),
        };
    }
}

/// The length of a header without options.
pub(super) const HEADER_BYTES: usize = 20;

const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;
const OFFSET_MASK: u16 = 0x1fff;

const END_OF_OPTIONS: u8 = 0;
const NO_OPERATION: u8 = 1;
const LOOSE_SOURCE_ROUTE: u8 = 131;
const STRICT_SOURCE_ROUTE: u8 = 137;
