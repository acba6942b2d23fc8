//! UDP: the header of datagrams (RFC 768; over IPv6, RFC 8200 section 8.1).

use core::fmt;
use core::net::IpAddr;

use alloc::vec::Vec;

use softclock_wire::packet::UDP;

use crate::checksum::{Addresses, Verify, is_transport_checksum_right, transport_checksum};
use crate::drops::DropReason;

/// A datagram of UDP.
///
/// ```
/// use softclock_net::checksum::{Addresses, Verify};
/// use softclock_net::udp::{self, Datagram};
///
/// let addresses = Addresses {
///     source: "10.0.0.1".parse()?,
///     destination: "10.0.0.2".parse()?,
/// };
/// let mut bytes = Vec::new();
/// udp::write(addresses, 5353, 53, b"name?", &mut bytes)?;
/// assert_eq!(bytes.len(), udp::HEADER_BYTES + 5);
///
/// let datagram = Datagram { source_port: 5353, destination_port: 53, payload: b"name?" };
/// assert_eq!(udp::parse(addresses, &bytes, Verify::Yes), Ok(datagram));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Datagram<'a> {
    /// The port of the sender; 0 if it expects no answer.
    pub source_port: u16,
    /// The port of the receiver.
    pub destination_port: u16,
    /// The bytes behind the header.
    pub payload: &'a [u8],
}

/// The length of a header.
pub const HEADER_BYTES: usize = 8;

/// The longest payload over IPv4, whose length field counts the header of 20 bytes, too.
pub const MOST_PAYLOAD: usize = 65_535 - 20 - HEADER_BYTES;

/// The longest payload over IPv6 without jumbograms (RFC 2675), which this stack does not support.
pub const MOST_PAYLOAD_V6: usize = 65_535 - HEADER_BYTES;

/// Parses a datagram: the payload of an IP packet, or of all its fragments. Bytes behind the datagram's own length are
/// ignored.
///
/// Over IPv4, a datagram may have no checksum. Over IPv6 it must have one, unless the link is
/// [trusted](Verify::Trusted).
///
/// # Errors
/// - [`DropReason::UdpHeader`]: the header is cut off, or the length is less than that of a header, or more than there
///   are bytes.
/// - [`DropReason::UdpChecksum`]: the checksum is wrong, or missing over IPv6.
pub fn parse(
    addresses: Addresses,
    bytes: &[u8],
    verify: Verify,
) -> Result<Datagram<'_>, DropReason> {
    let header = bytes
        .first_chunk::<HEADER_BYTES>()
        .ok_or(DropReason::UdpHeader)?;
    let [s0, s1, d0, d1, l0, l1, c0, c1] = *header;
    let length = usize::from(u16::from_be_bytes([l0, l1]));
    let bytes = bytes.get(..length).ok_or(DropReason::UdpHeader)?;
    let payload = bytes.get(HEADER_BYTES..).ok_or(DropReason::UdpHeader)?;
    let has_checksum = [c0, c1] != [0, 0];
    let is_right = match (verify, addresses.destination) {
        (Verify::Trusted, _) => true,
        (Verify::Yes, IpAddr::V4(_)) if !has_checksum => true,
        (Verify::Yes, _) => has_checksum && is_transport_checksum_right(addresses, UDP, bytes),
    };
    if !is_right {
        return Err(DropReason::UdpChecksum);
    }
    Ok(Datagram {
        source_port: u16::from_be_bytes([s0, s1]),
        destination_port: u16::from_be_bytes([d0, d1]),
        payload,
    })
}

/// Appends a datagram with its checksum to `to`.
///
/// # Errors
/// [`TooLong`]: the payload is longer than [`MOST_PAYLOAD`] over IPv4, or [`MOST_PAYLOAD_V6`] over IPv6. Nothing is
/// appended then.
pub fn write(
    addresses: Addresses,
    source_port: u16,
    destination_port: u16,
    payload: &[u8],
    to: &mut Vec<u8>,
) -> Result<(), TooLong> {
    let most = match addresses.destination {
        IpAddr::V4(_) => MOST_PAYLOAD,
        IpAddr::V6(_) => MOST_PAYLOAD_V6,
    };
    if payload.len() > most {
        return Err(TooLong);
    }
    let length = (HEADER_BYTES + payload.len()) as u16;
    let start = to.len();
    to.reserve(length.into());
    for field in [source_port, destination_port, length, 0] {
        to.extend(field.to_be_bytes());
    }
    to.extend(payload);
    // Zero would mean that there is no checksum; in ones' complement, 0xffff is the same number.
    let checksum = match transport_checksum(addresses, UDP, &to[start..]) {
        0 => 0xffff,
        checksum => checksum,
    };
    to[start + 6..start + HEADER_BYTES].copy_from_slice(&checksum.to_be_bytes());
    Ok(())
}

/// A payload does not fit into a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooLong;

impl fmt::Display for TooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the payload is longer than a datagram of UDP can be")
    }
}

impl core::error::Error for TooLong {}

#[cfg(test)]
mod tests;
