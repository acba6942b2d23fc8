//! Ethernet: addresses and the header of frames.

use core::fmt;
use core::net::IpAddr;
use core::str::FromStr;

use crate::drops::DropReason;

/// An address of the link layer (EUI-48).
///
/// ```
/// use softclock_net::link::LinkAddress;
///
/// let address: LinkAddress = "02:00:00:00:00:01".parse().unwrap();
/// assert!(!address.is_group());
/// assert_eq!(address.to_string(), "02:00:00:00:00:01");
/// assert!("02:00:00".parse::<LinkAddress>().is_err());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkAddress(pub [u8; 6]);

impl LinkAddress {
    /// The address of all hosts on the link.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// Whether this is the address of a group of hosts, or of all.
    pub const fn is_group(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// Whether a host can have this address: it is no group's, and not zero.
    pub const fn is_host(self) -> bool {
        !self.is_group() && !matches!(self.0, [0, 0, 0, 0, 0, 0])
    }

    /// The address that packets to a multicast group are sent to (RFC 1112, 6.4; RFC 2464, 7). `None` if the IP address
    /// is that of a single host.
    pub const fn of_group(group: IpAddr) -> Option<Self> {
        match group {
            IpAddr::V4(group) if group.is_multicast() => {
                let [_, b, c, d] = group.octets();
                Some(Self([0x01, 0x00, 0x5e, b & 0x7f, c, d]))
            }
            IpAddr::V6(group) if group.is_multicast() => {
                let [.., a, b, c, d] = group.octets();
                Some(Self([0x33, 0x33, a, b, c, d]))
            }
            _ => None,
        }
    }
}

impl fmt::Display for LinkAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for LinkAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text is no link address: it is not six bytes of two hexadecimal digits, separated by colons.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InvalidLinkAddress;

impl fmt::Display for InvalidLinkAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a link address such as 02:00:00:00:00:01")
    }
}

impl core::error::Error for InvalidLinkAddress {}

impl FromStr for LinkAddress {
    type Err = InvalidLinkAddress;

    fn from_str(text: &str) -> Result<Self, InvalidLinkAddress> {
        let mut bytes = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut bytes {
            let part = parts.next().ok_or(InvalidLinkAddress)?;
            let is_hexadecimal = part.len() == 2 && part.bytes().all(|b| b.is_ascii_hexdigit());
            *byte = match u8::from_str_radix(part, 16) {
                Ok(byte) if is_hexadecimal => byte,
                _ => return Err(InvalidLinkAddress),
            };
        }
        match parts.next() {
            None => Ok(Self(bytes)),
            Some(_) => Err(InvalidLinkAddress),
        }
    }
}

/// The header of an Ethernet frame without VLAN tags.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The receiver.
    pub destination: LinkAddress,
    /// The sender.
    pub source: LinkAddress,
    /// The EtherType of the payload.
    pub ether_type: u16,
}

impl Header {
    /// The length of a header.
    pub const BYTES: usize = 14;

    /// Parses the header of a frame; also returns the payload, with the padding of short frames.
    ///
    /// # Errors
    /// [`DropReason::TooShort`].
    pub fn parse(frame: &[u8]) -> Result<(Self, &[u8]), DropReason> {
        let (header, payload) = frame
            .split_first_chunk::<{ Self::BYTES }>()
            .ok_or(DropReason::TooShort)?;
        let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, t0, t1] = *header;
        let header = Self {
            destination: LinkAddress([d0, d1, d2, d3, d4, d5]),
            source: LinkAddress([s0, s1, s2, s3, s4, s5]),
            ether_type: u16::from_be_bytes([t0, t1]),
        };
        Ok((header, payload))
    }

    /// The bytes of the header.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..6].copy_from_slice(&self.destination.0);
        bytes[6..12].copy_from_slice(&self.source.0);
        bytes[12..].copy_from_slice(&self.ether_type.to_be_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_header_is_read_as_it_was_written(bytes in any::<[u8; Header::BYTES]>()) {
            let (header, payload) = Header::parse(&bytes).unwrap();
            prop_assert!(payload.is_empty());
            prop_assert_eq!(header.to_bytes(), bytes);
        }

        #[test]
        fn an_address_is_read_as_it_was_written(bytes in any::<[u8; 6]>()) {
            let address = LinkAddress(bytes);
            let text = alloc::string::ToString::to_string(&address);
            prop_assert_eq!(text.parse(), Ok(address));
        }
    }

    #[test]
    fn texts_that_are_no_address() {
        for text in [
            "",
            "02",
            "02:00:00:00:00:1",
            "02:00:00:00:00:+1",
            "02:00:00:00:00:01:02",
            "g2:00:00:00:00:01",
        ] {
            assert_eq!(
                text.parse::<LinkAddress>(),
                Err(InvalidLinkAddress),
                "{text}"
            );
        }
    }

    #[test]
    fn groups_have_link_addresses() {
        let of = |group: &str| LinkAddress::of_group(group.parse().unwrap());
        assert_eq!(of("224.129.2.3"), Some(LinkAddress([1, 0, 0x5e, 1, 2, 3])));
        assert_eq!(
            of("ff02::1:ff00:1"),
            Some(LinkAddress([0x33, 0x33, 0xff, 0, 0, 1]))
        );
        assert_eq!(of("10.0.0.1"), None);
    }

    #[test]
    fn a_short_frame_is_refused() {
        assert_eq!(Header::parse(&[0; 13]), Err(DropReason::TooShort));
    }
}
