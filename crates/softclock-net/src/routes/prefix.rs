//! An address of a host together with the prefix of its link.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::str::FromStr;

/// An address and the number of its leading bits that all addresses on the same link share.
///
/// More bits than the address has mean all of them.
///
/// ```
/// use softclock_net::routes::Prefix;
///
/// let prefix: Prefix = "10.0.0.1/24".parse().unwrap();
/// assert!(prefix.contains("10.0.0.200".parse().unwrap()));
/// assert_eq!(prefix.network(), "10.0.0.0".parse::<std::net::IpAddr>().unwrap());
/// assert_eq!(prefix.broadcast(), Some("10.0.0.255".parse().unwrap()));
/// assert_eq!(prefix.to_string(), "10.0.0.1/24");
/// assert!("10.0.0.1/33".parse::<Prefix>().is_err());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Prefix {
    /// The address of the host.
    pub address: IpAddr,
    /// The length of the prefix in bits.
    pub bits: u8,
}

impl Prefix {
    /// Whether the prefix contains this address. An IPv4 prefix contains no IPv6 address, and the reverse.
    pub const fn contains(&self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4()
            && common_bits(self.address, address) >= self.length()
    }

    /// Returns the first address of the prefix.
    pub const fn network(&self) -> IpAddr {
        match self.address {
            IpAddr::V4(address) => IpAddr::V4(Ipv4Addr::from_bits(
                address.to_bits() & !self.host_mask_v4(),
            )),
            IpAddr::V6(address) => {
                let host_mask = match u128::MAX.checked_shr(self.length()) {
                    Some(mask) => mask,
                    None => 0,
                };
                IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !host_mask))
            }
        }
    }

    /// Returns the address that reaches all hosts of the prefix. `None` for IPv6, and for IPv4 prefixes of 31 and 32
    /// bits, which have no such address (RFC 3021).
    pub const fn broadcast(&self) -> Option<Ipv4Addr> {
        match self.address {
            IpAddr::V4(address) if self.bits < 31 => {
                Some(Ipv4Addr::from_bits(address.to_bits() | self.host_mask_v4()))
            }
            _ => None,
        }
    }

    /// The length of the prefix, at most that of the address.
    pub(super) const fn length(&self) -> u32 {
        let most = match self.address {
            IpAddr::V4(_) => Ipv4Addr::BITS,
            IpAddr::V6(_) => Ipv6Addr::BITS,
        };
        match self.bits as u32 {
            bits if bits < most => bits,
            _ => most,
        }
    }

    const fn host_mask_v4(&self) -> u32 {
        match u32::MAX.checked_shr(self.length()) {
            Some(mask) => mask,
            None => 0,
        }
    }
}

/// The number of leading bits that two addresses of the same family share; 0 for different families.
pub(super) const fn common_bits(one: IpAddr, other: IpAddr) -> u32 {
    match (one, other) {
        (IpAddr::V4(one), IpAddr::V4(other)) => (one.to_bits() ^ other.to_bits()).leading_zeros(),
        (IpAddr::V6(one), IpAddr::V6(other)) => (one.to_bits() ^ other.to_bits()).leading_zeros(),
        _ => 0,
    }
}

/// A text is no prefix: it is not an IP address, a slash, and the number of bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InvalidPrefix;

impl fmt::Display for InvalidPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not an address and a prefix length such as 10.0.0.1/24 or fe80::1/64")
    }
}

impl core::error::Error for InvalidPrefix {}

impl FromStr for Prefix {
    type Err = InvalidPrefix;

    fn from_str(text: &str) -> Result<Self, InvalidPrefix> {
        let (address, bits) = text.split_once('/').ok_or(InvalidPrefix)?;
        let is_decimal = bits.bytes().all(|b| b.is_ascii_digit());
        let prefix = Self {
            address: address.parse().map_err(|_| InvalidPrefix)?,
            bits: bits.parse().map_err(|_| InvalidPrefix)?,
        };
        match is_decimal && u32::from(prefix.bits) == prefix.length() {
            true => Ok(prefix),
            false => Err(InvalidPrefix),
        }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}
