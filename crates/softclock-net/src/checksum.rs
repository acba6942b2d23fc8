//! Checksums of the transport layer, which cover a pseudo-header of the IP addresses (RFC 768, RFC 8200 section 8.1).
//!
//! # Example
//! ```
//! use softclock_net::checksum::{Addresses, is_transport_checksum_right, transport_checksum};
//!
//! # fn main() -> Result<(), std::net::AddrParseError> {
//! let addresses = Addresses { source: "10.0.0.1".parse()?, destination: "10.0.0.2".parse()? };
//! const UDP: u8 = 17;
//! let mut datagram = [0x14, 0xe9, 0, 53, 0, 10, 0, 0, b'h', b'i'];
//! let checksum = transport_checksum(addresses, UDP, &datagram);
//! datagram[6..8].copy_from_slice(&checksum.to_be_bytes());
//! assert!(is_transport_checksum_right(addresses, UDP, &datagram));
//! datagram[9] = b'o';
//! assert!(!is_transport_checksum_right(addresses, UDP, &datagram));
//! # Ok(())
//! # }
//! ```

use core::net::IpAddr;

use softclock_wire::packet::ones_complement_sum;

/// The sender and the receiver of a packet: both of IPv4, or both of IPv6.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Addresses {
    /// The sender.
    pub source: IpAddr,
    /// The receiver.
    pub destination: IpAddr,
}

impl Addresses {
    /// The addresses of an answer.
    #[must_use]
    pub const fn swapped(self) -> Self {
        Self {
            source: self.destination,
            destination: self.source,
        }
    }
}

/// Whether a checksum must be verified.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Verify {
    /// Verify it: the packet comes from a wire.
    #[default]
    Yes,
    /// Trust it: the link has verified it, or the sender on this machine has left its computation to the link
    /// (checksum offload), so the field does not hold it.
    Trusted,
}

/// The checksum of a packet of the transport layer, in which the checksum field is zero. May be zero, which UDP writes
/// as 0xffff.
pub fn transport_checksum(addresses: Addresses, protocol: u8, packet: &[u8]) -> u16 {
    !sum(addresses, protocol, packet)
}

/// Whether the checksum in a packet of the transport layer is right.
pub fn is_transport_checksum_right(addresses: Addresses, protocol: u8, packet: &[u8]) -> bool {
    sum(addresses, protocol, packet) == 0xffff
}

fn sum(addresses: Addresses, protocol: u8, packet: &[u8]) -> u16 {
    let header = pseudo_header_sum(addresses, protocol, packet.len() as u32);
    fold(u32::from(header) + u32::from(ones_complement_sum(packet)))
}

/// The ones' complement sum of the pseudo-header of a packet of this length.
pub(crate) fn pseudo_header_sum(addresses: Addresses, protocol: u8, length: u32) -> u16 {
    let of = |address| match address {
        IpAddr::V4(address) => halves(address.to_bits()),
        IpAddr::V6(address) => address.segments().map(u32::from).iter().sum(),
    };
    let addresses = of(addresses.source) + of(addresses.destination);
    fold(addresses + u32::from(protocol) + halves(length))
}

/// Adds the carries until 16 bits are left.
const fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = halves(sum);
    }
    sum as u16
}

/// The sum of the two 16-bit words.
const fn halves(word: u32) -> u32 {
    (word >> 16) + (word & 0xffff)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_written_checksum_is_right_and_a_changed_byte_is_seen(
            is_v6 in any::<bool>(),
            protocol in any::<u8>(),
            mut packet in prop::collection::vec(any::<u8>(), 8..100),
            changed in any::<prop::sample::Index>(),
            by in 1..=255u8,
        ) {
            let addresses = match is_v6 {
                true => ["2001:db8::1", "ff02::2"],
                false => ["10.0.0.1", "255.255.255.255"],
            };
            let [source, destination] = addresses.map(|address| address.parse().unwrap());
            let addresses = Addresses { source, destination };
            packet[6..8].fill(0);
            let checksum = transport_checksum(addresses, protocol, &packet);
            packet[6..8].copy_from_slice(&checksum.to_be_bytes());
            prop_assert!(is_transport_checksum_right(addresses, protocol, &packet));
            prop_assert!(is_transport_checksum_right(addresses.swapped(), protocol, &packet));
            let changed = changed.index(packet.len());
            packet[changed] = packet[changed].wrapping_add(by);
            prop_assert!(!is_transport_checksum_right(addresses, protocol, &packet));
        }
    }
}
