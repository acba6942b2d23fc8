//! The header of IPv6 and its extension headers (RFC 8200).

use alloc::vec::Vec;
use core::net::Ipv6Addr;

use softclock_wire::packet::{ICMPV6, MOST_EXTENSIONS, TCP, UDP};

use super::{Fragment, Output, Packet};
use crate::checksum::Addresses;
use crate::drops::DropReason;

/// Parses a packet whose first byte has version 6.
pub(super) fn parse(bytes: &[u8]) -> Result<Packet<'_>, DropReason> {
    let (fields, rest) = bytes.split_first_chunk::<8>().ok_or(DropReason::TooShort)?;
    let (source, rest) = split_address(rest)?;
    let (destination, rest) = split_address(rest)?;
    let [c0, c1, _, _, l0, l1, next_header, hop_limit] = *fields;
    let payload_bytes = usize::from(u16::from_be_bytes([l0, l1]));
    let content = rest.get(..payload_bytes).ok_or(DropReason::IpHeader)?;
    let chain = Chain::parse(next_header, content, Start::IpHeader)?;
    let (_, payload) = content
        .split_at_checked(chain.bytes)
        .ok_or(DropReason::TooShort)?;

    if chain.fragment.is_some_and(|fragment| fragment.offset == 0) {
        check_first_fragment(chain.protocol, payload)?;
    }
    Ok(Packet {
        addresses: Addresses {
            source: source.into(),
            destination: destination.into(),
        },
        protocol: chain.protocol,
        hop_limit,
        traffic_class: c0 << 4 | c1 >> 4,
        fragment: chain.fragment,
        has_fragment_header: chain.has_fragment_header,
        payload,
        header_bytes: HEADER_BYTES + chain.bytes,
    })
}

/// Appends a header, and a fragment header behind it if `fragment` is given.
pub(super) fn write(
    output: &Output,
    [source, destination]: [Ipv6Addr; 2],
    fragment: Option<Fragment>,
    payload_bytes: usize,
    to: &mut Vec<u8>,
) {
    let (next_header, extension_bytes) = match fragment {
        Some(_) => (FRAGMENT, FRAGMENT_HEADER_BYTES),
        None => (output.protocol, 0),
    };
    let content_bytes = u16::try_from(extension_bytes + payload_bytes).unwrap_or(u16::MAX);
    let mut header = [0; HEADER_BYTES];
    header[0] = 0x60 | output.traffic_class >> 4;
    header[1] = output.traffic_class << 4;
    header[4..6].copy_from_slice(&content_bytes.to_be_bytes());
    header[6] = next_header;
    header[7] = output.hop_limit;
    header[8..24].copy_from_slice(&source.octets());
    header[24..].copy_from_slice(&destination.octets());
    to.extend_from_slice(&header);

    if let Some(fragment) = fragment {
        let offset = fragment.offset as u16 & OFFSET_MASK;
        let offset_flag = offset | u16::from(fragment.has_more);
        to.extend_from_slice(&[output.protocol, 0]);
        to.extend_from_slice(&offset_flag.to_be_bytes());
        to.extend_from_slice(&fragment.identification.to_be_bytes());
    }
}

/// Skips the extension headers at the beginning of a reassembled payload. Returns the protocol of the upper layer, and
/// the length of the headers.
pub(super) fn skip_extensions(protocol: u8, payload: &[u8]) -> Result<(u8, usize), DropReason> {
    let chain = Chain::parse(protocol, payload, Start::FragmentHeader)?;
    Ok((chain.protocol, chain.bytes))
}

/// Refuses a first fragment that does not contain all headers up to that of the upper layer (RFC 8200, 4.5).
fn check_first_fragment(protocol: u8, payload: &[u8]) -> Result<(), DropReason> {
    let (protocol, extension_bytes) = match skip_extensions(protocol, payload) {
        Err(DropReason::TooShort) => return Err(DropReason::FragmentInvalid),
        chain => chain?,
    };
    let upper_bytes = match protocol {
        TCP => 20,
        UDP | ICMPV6 => 8,
        _ => 0,
    };
    match extension_bytes + upper_bytes <= payload.len() {
        true => Ok(()),
        false => Err(DropReason::FragmentInvalid),
    }
}

/// The extension headers in front of a payload.
struct Chain {
    /// The header behind the chain.
    protocol: u8,
    /// The length of the chain.
    bytes: usize,
    /// The place of the payload, if the chain ends with the header of a fragment.
    fragment: Option<Fragment>,
    /// Whether the chain has, or follows, a fragment header.
    has_fragment_header: bool,
}

/// The header in front of a chain.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Start {
    /// Hop-by-hop options and a fragment header can follow.
    IpHeader,
    /// The chain is in the part of a packet that was fragmented.
    FragmentHeader,
}

impl Chain {
    /// Parses extension headers, of which the first has number `first`, up to the upper layer or to a fragment header.
    fn parse(first: u8, bytes: &[u8], start: Start) -> Result<Self, DropReason> {
        let mut chain = Self {
            protocol: first,
            bytes: 0,
            fragment: None,
            has_fragment_header: start == Start::FragmentHeader,
        };
        for number in 0..=MOST_EXTENSIONS {
            let is_first = number == 0 && start == Start::IpHeader;
            match chain.protocol {
                HOP_BY_HOP if !is_first => return Err(DropReason::IpHeader),
                FRAGMENT if chain.has_fragment_header => return Err(DropReason::IpHeader),
                HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS | FRAGMENT => {}
                _ => return Ok(chain),
            }
            let rest = bytes.get(chain.bytes..).ok_or(DropReason::TooShort)?;
            if chain.protocol == FRAGMENT {
                chain.skip_fragment_header(rest)?;
            } else {
                chain.skip_extension(rest)?;
            }
            if chain.fragment.is_some() {
                return Ok(chain);
            }
        }
        Err(DropReason::IpHeader)
    }

    /// Skips a header whose length is its second byte.
    fn skip_extension(&mut self, rest: &[u8]) -> Result<(), DropReason> {
        let &[next_header, units, ..] = rest else {
            return Err(DropReason::TooShort);
        };
        let bytes = (usize::from(units) + 1) * 8;
        let content = rest.get(2..bytes).ok_or(DropReason::TooShort)?;
        match self.protocol {
            ROUTING => check_routing(content)?,
            _ => check_options(content)?,
        }
        self.protocol = next_header;
        self.bytes += bytes;
        Ok(())
    }

    /// Skips a fragment header, and sets `fragment` unless the fragment is atomic: the whole packet (RFC 6946).
    fn skip_fragment_header(&mut self, rest: &[u8]) -> Result<(), DropReason> {
        let header = rest
            .first_chunk::<FRAGMENT_HEADER_BYTES>()
            .ok_or(DropReason::TooShort)?;
        let [next_header, _, o0, o1, identification @ ..] = *header;
        let offset_flag = u16::from_be_bytes([o0, o1]);
        let fragment = Fragment {
            identification: u32::from_be_bytes(identification),
            offset: usize::from(offset_flag & OFFSET_MASK),
            has_more: offset_flag & MORE_FRAGMENTS != 0,
        };
        self.protocol = next_header;
        self.bytes += FRAGMENT_HEADER_BYTES;
        self.has_fragment_header = true;
        self.fragment = (fragment.offset != 0 || fragment.has_more).then_some(fragment);
        Ok(())
    }
}

/// Refuses a route with segments left (RFC 5095, RFC 8200 section 4.4). `content` begins behind the header's length.
fn check_routing(content: &[u8]) -> Result<(), DropReason> {
    match *content {
        [_kind, 0, ..] => Ok(()),
        _ => Err(DropReason::IpOption),
    }
}

/// Checks the lengths of hop-by-hop or destination options, and refuses those that a host must know (RFC 8200, 4.2):
/// the two highest bits of their type are not zero. Jumbo payloads are among them.
fn check_options(mut options: &[u8]) -> Result<(), DropReason> {
    loop {
        options = match *options {
            [] => return Ok(()),
            [PAD_1, ref rest @ ..] => rest,
            [kind, length, ref rest @ ..] => {
                let rest = rest
                    .get(usize::from(length)..)
                    .ok_or(DropReason::IpHeader)?;
                if kind & MUST_KNOW != 0 {
                    return Err(DropReason::IpOption);
                }
                rest
            }
            [_] => return Err(DropReason::IpHeader),
        };
    }
}

fn split_address(bytes: &[u8]) -> Result<(Ipv6Addr, &[u8]), DropReason> {
    let (address, rest) = bytes
        .split_first_chunk::<16>()
        .ok_or(DropReason::TooShort)?;
    Ok((Ipv6Addr::from(*address), rest))
}

/// The length of the header without extension headers.
pub(super) const HEADER_BYTES: usize = 40;
/// The length of a fragment header.
pub(super) const FRAGMENT_HEADER_BYTES: usize = 8;

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION_OPTIONS: u8 = 60;

const PAD_1: u8 = 0;
const MUST_KNOW: u8 = 0xc0;

/// The offset is in units of 8 bytes, in the 13 highest bits: masked, it is the offset in bytes.
const OFFSET_MASK: u16 = 0xfff8;
const MORE_FRAGMENTS: u16 = 1;
