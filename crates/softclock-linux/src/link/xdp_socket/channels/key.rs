//! The endpoints by which the program finds a channel, and the peers whose SYNs it prefers.

use std::net::IpAddr;

use super::super::filter::Transport;

/// An endpoint of this machine: the destination of the frames of a channel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct EndpointKey {
    /// The protocol.
    pub transport: Transport,
    /// The destination address. An address of IPv4 that is mapped to IPv6 is one of IPv6, which no frame should have.
    pub address: IpAddr,
    /// The destination port.
    pub port: u16,
}

impl EndpointKey {
    /// The length of the key in the program's map.
    pub(super) const BYTES: usize = 20;

    /// The key as the program writes it to its stack:
    ///
    /// ```c
    /// struct key { u8 address[16]; __be16 port; u8 protocol; u8 version; };
    /// ```
    ///
    /// The address is in network order, of IPv4 with zeros behind it. The version, 4 or 6, keeps the two apart.
    pub(super) fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut key = [0; Self::BYTES];
        let (address, rest) = key.split_at_mut(PORT);
        let version = match self.address {
            IpAddr::V4(v4) => {
                address[..4].copy_from_slice(&v4.octets());
                4
            }
            IpAddr::V6(v6) => {
                address.copy_from_slice(&v6.octets());
                6
            }
        };
        let [high, low] = self.port.to_be_bytes();
        rest.copy_from_slice(&[high, low, self.transport.number(), version]);
        key
    }
}

/// The key of a peer in the program's map: an address of IPv4, or a /64 of IPv6, as the program writes it to its stack.
///
/// ```c
/// struct peer { u8 network[8]; u32 version; };
/// ```
///
/// The network is in network order, of IPv4 with zeros behind it.
pub(super) fn peer_key(address: IpAddr) -> [u8; PEER_BYTES] {
    let mut key = [0; PEER_BYTES];
    let (network, version) = key.split_at_mut(PEER_VERSION);
    let number: u32 = match address {
        IpAddr::V4(v4) => {
            network[..4].copy_from_slice(&v4.octets());
            4
        }
        IpAddr::V6(v6) => {
            network.copy_from_slice(&v6.octets()[..8]);
            6
        }
    };
    version.copy_from_slice(&number.to_ne_bytes());
    key
}

/// The length of the key of a peer, and the offset of its version.
pub(super) const PEER_BYTES: usize = 12;
pub(super) const PEER_VERSION: usize = 8;

/// The offsets of the fields behind the address.
pub(super) const PORT: usize = 16;
pub(super) const PROTOCOL: usize = 18;
pub(super) const VERSION: usize = 19;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn keys() -> impl Strategy<Value = EndpointKey> {
        let transport = prop_oneof![Just(Transport::Tcp), Just(Transport::Udp)];
        // Few values, so that keys are often equal.
        let address = prop_oneof![
            [0..2u8, 0..2, 0..2, 0..2].prop_map(IpAddr::from),
            (0..2u32).prop_map(|last| IpAddr::from(u128::from(last).to_be_bytes())),
            (0..2u32).prop_map(|first| IpAddr::from((u128::from(first) << 96).to_be_bytes())),
            any::<IpAddr>(),
        ];
        (transport, address, prop_oneof![0..3u16, any::<u16>()]).prop_map(
            |(transport, address, port)| EndpointKey {
                transport,
                address,
                port,
            },
        )
    }

    proptest! {
        #[test]
        fn different_endpoints_have_different_keys(a in keys(), b in keys()) {
            prop_assert_eq!(a == b, a.to_bytes() == b.to_bytes());
        }

        #[test]
        fn fields_are_at_their_offsets(key in keys()) {
            let bytes = key.to_bytes();
            prop_assert_eq!(&bytes[PORT..PROTOCOL], key.port.to_be_bytes());
            prop_assert_eq!(bytes[PROTOCOL], key.transport.number());
            prop_assert_eq!(bytes[VERSION], if key.address.is_ipv4() { 4 } else { 6 });
        }
    }
}
