//! Keys of the table: flows and bindings, packed so that entries are small and hashes take few rounds.

use core::net::IpAddr;

use super::{Flow, HashKey, Transport};

/// A key of a [`Flat`](super::flat::Flat) map.
pub(super) trait Key: Copy + PartialEq {
    /// The hash, whose upper 32 bits choose the place.
    fn hash(&self, key: HashKey) -> u64;
}

/// A key made from a flow of one IP version, without the protocol.
pub(super) trait FlowKey: Key + Default {
    /// Packs a flow. `None` if it belongs to the other version.
    fn of(flow: &Flow) -> Option<Self>;
}

/// The hash of a flow, without its protocol.
pub(crate) fn hash_of(flow: &Flow, key: HashKey) -> u64 {
    match (FlowV4::of(flow), FlowV6::of(flow)) {
        (Some(flow), _) => flow.hash(key),
        (None, Some(flow)) => flow.hash(key),
        (None, None) => 0,
    }
}

/// A flow of IPv4.
#[derive(Clone, Copy, PartialEq, Default)]
pub(super) struct FlowV4 {
    remote: u32,
    local: u32,
    ports: u32,
}

impl FlowKey for FlowV4 {
    #[inline]
    fn of(flow: &Flow) -> Option<Self> {
        let (IpAddr::V4(remote), IpAddr::V4(local)) = (flow.remote.0, flow.local.0) else {
            return None;
        };
        Some(Self {
            remote: remote.to_bits(),
            local: local.to_bits(),
            ports: ports(flow),
        })
    }
}

impl Key for FlowV4 {
    #[inline]
    fn hash(&self, key: HashKey) -> u64 {
        let addresses = u64::from(self.remote) << 32 | u64::from(self.local);
        key.hash_words([addresses], self.ports.into(), 12)
    }
}

/// A flow of IPv6. A flow of which one address only is of IPv4 has that address mapped (RFC 4291, 2.5.5.2); such a flow
/// never comes from a frame. In words of 32 bits, which need no padding.
#[derive(Clone, Copy, PartialEq, Default)]
pub(super) struct FlowV6 {
    remote: [u32; 4],
    local: [u32; 4],
    ports: u32,
}

impl FlowKey for FlowV6 {
    #[inline]
    fn of(flow: &Flow) -> Option<Self> {
        let (remote, local) = (flow.remote.0, flow.local.0);
        if remote.is_ipv4() && local.is_ipv4() {
            return None;
        }
        Some(Self {
            remote: halves(words(remote)),
            local: halves(words(local)),
            ports: ports(flow),
        })
    }
}

impl Key for FlowV6 {
    #[inline]
    fn hash(&self, key: HashKey) -> u64 {
        let ([a, b], [c, d]) = (joined(self.remote), joined(self.local));
        key.hash_words([a, b, c, d], self.ports.into(), 36)
    }
}

/// The address and port that an endpoint is bound to, without remote end. Integers only, since one is made for each
/// packet that belongs to no connected flow.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Binding {
    /// Zero for any address of the version.
    address: [u64; 2],
    is_v6: bool,
    transport: Transport,
    port: u16,
}

impl Binding {
    #[inline]
    pub(super) fn new(transport: Transport, (address, port): (IpAddr, u16)) -> Self {
        Self {
            address: match address {
                IpAddr::V4(address) => [0, address.to_bits().into()],
                IpAddr::V6(_) => words(address),
            },
            is_v6: address.is_ipv6(),
            transport,
            port,
        }
    }

    /// The binding to any address of the same version.
    #[inline]
    pub(super) fn to_any(self) -> Self {
        Self {
            address: [0, 0],
            ..self
        }
    }

    pub(super) fn is_to_any(&self) -> bool {
        self.address == [0, 0]
    }
}

impl Key for Binding {
    #[inline]
    fn hash(&self, key: HashKey) -> u64 {
        let rest = u64::from(self.transport as u8) << 16 | u64::from(self.port);
        let [a, b] = self.address;
        // The lengths differ, so that each version hashes other messages.
        match self.is_v6 {
            false => key.hash_words([], rest << 32 | b, 7),
            true => key.hash_words([a, b], rest, 19),
        }
    }
}

#[inline]
fn ports(flow: &Flow) -> u32 {
    u32::from(flow.remote.1) << 16 | u32::from(flow.local.1)
}

#[inline]
fn words(address: IpAddr) -> [u64; 2] {
    let bits = match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    };
    [(bits >> 64) as u64, bits as u64]
}

#[inline]
const fn halves([a, b]: [u64; 2]) -> [u32; 4] {
    [(a >> 32) as u32, a as u32, (b >> 32) as u32, b as u32]
}

/// The words that [`halves`] has divided.
#[inline]
const fn joined([a, b, c, d]: [u32; 4]) -> [u64; 2] {
    [(a as u64) << 32 | b as u64, (c as u64) << 32 | d as u64]
}

/// The bytes of an entry of the table with a handle of 8 bytes, as the documentation of [`Table`](super::Table) has
/// them with their tags of 4 bytes.
const _: () = {
    assert!(size_of::<(FlowV4, [u32; 2])>() == 20);
    assert!(size_of::<(FlowV6, [u32; 2])>() == 44);
};
