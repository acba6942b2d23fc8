//! Peers whose addresses are not forged.

use alloc::vec;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr};

use softclock_core::Instant;

use crate::demux::HashKey;
use crate::rate_limit::TokenBucket;

/// Hosts that have completed a handshake, so that forged SYNs do not keep them out. Linux remembers such hosts for the
/// same purpose (`tcp_peer_is_proven`).
///
/// A host is an address of IPv4, or a /64 of IPv6. Each has one place of a table, by a keyed hash, so a new host
/// displaces at most one other, and cannot choose which. The table takes no memory before the first host, and 17 bytes
/// for each place then. It protects from forged addresses only: an attacker with many real ones can displace all
/// other hosts.
///
/// ```
/// use softclock_core::Instant;
/// use softclock_net::demux::HashKey;
/// use softclock_net::tcp::listen::ProvenPeers;
///
/// let mut peers = ProvenPeers::new(1024, HashKey([1, 2])); // In earnest: random, and secret.
/// let [one, other] = ["192.0.2.7", "192.0.2.8"].map(|address| address.parse().unwrap());
/// let change = peers.insert(Instant::ORIGIN, one).unwrap();
/// assert_eq!((change.added, change.displaced), (one, None));
/// assert!(peers.contains(one) && !peers.contains(other));
/// ```
pub struct ProvenPeers {
    key: HashKey,
    most: usize,
    /// By hash; empty until there is one.
    places: Vec<Option<IpAddr>>,
    rate: TokenBucket,
}

/// A change of [`ProvenPeers`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct PeerChange {
    /// The host that is proven now: an address of IPv4, or the first of a /64 of IPv6.
    pub added: IpAddr,
    /// The host whose place it has taken.
    pub displaced: Option<IpAddr>,
}

impl ProvenPeers {
    /// Creates a table without hosts, with this number of places. Without places no host is proven.
    pub const fn new(most: usize, key: HashKey) -> Self {
        Self {
            key,
            most,
            places: Vec::new(),
            rate: TokenBucket::new(MOST_PER_SECOND, MOST_PER_SECOND),
        }
    }

    /// Whether the host of this address is proven.
    pub fn contains(&self, address: IpAddr) -> bool {
        let host = host_of(address);
        !self.places.is_empty() && self.places[self.place(host)] == Some(host)
    }

    /// Notes that the host of this address has completed a handshake. Returns the change, if there is one: at most
    /// 10 000 hosts a second are added, since a caller may have to tell others of each.
    pub fn insert(&mut self, now: Instant, address: IpAddr) -> Option<PeerChange> {
        if self.most == 0 || self.contains(address) || !self.rate.take(now) {
            return None;
        }
        if self.places.is_empty() {
            self.places = vec![None; self.most];
        }
        let added = host_of(address);
        let place = self.place(added);
        let displaced = self.places[place].replace(added);
        Some(PeerChange { added, displaced })
    }

    fn place(&self, host: IpAddr) -> usize {
        let hash = match host {
            IpAddr::V4(host) => self.key.hash(&host.octets()),
            IpAddr::V6(host) => self.key.hash(&host.octets()[..8]),
        };
        (hash % self.places.len() as u64) as usize
    }
}

/// The host of an address: of IPv6 the first address of its /64.
fn host_of(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
    }
}

const MOST_PER_SECOND: u32 = 10_000;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn addresses_of_one_network_of_ipv6_are_one_host() {
        let mut peers = ProvenPeers::new(16, HashKey([1, 2]));
        let [one, same, other] = ["fd00:1:2:3::5", "fd00:1:2:3:4::", "fd00:1:2:4::5"]
            .map(|address| address.parse().unwrap());
        assert!(peers.insert(Instant::ORIGIN, one).is_some());
        assert_eq!(peers.insert(Instant::ORIGIN, same), None);
        assert!(peers.contains(same) && !peers.contains(other));
    }

    #[test]
    fn without_places_none_is_proven() {
        let mut peers = ProvenPeers::new(0, HashKey([1, 2]));
        let one = "192.0.2.7".parse().unwrap();
        assert_eq!(peers.insert(Instant::ORIGIN, one), None);
        assert!(!peers.contains(one));
    }

    #[test]
    fn insertions_are_limited_per_second() {
        let mut peers = ProvenPeers::new(1 << 20, HashKey([1, 2]));
        let mut added = |now, number| {
            peers
                .insert(now, IpAddr::from(u32::to_be_bytes(number)))
                .is_some()
        };
        let at = Instant::from_ns;
        assert_eq!(
            (0..20_000).filter(|&number| added(at(5), number)).count(),
            10_000
        );
        assert_eq!(
            (0..20_000)
                .filter(|&number| added(at(500_000_005), number))
                .count(),
            5000
        );
    }

    proptest! {
        /// Replaying the changes gives the same hosts.
        #[test]
        fn the_changes_are_complete(numbers in prop::collection::vec(0..40u32, 1..200)) {
            let mut peers = ProvenPeers::new(16, HashKey([3, 4]));
            let mut told = alloc::collections::BTreeSet::new();
            for number in numbers {
                let address = IpAddr::from(number.to_be_bytes());
                if let Some(PeerChange { added, displaced }) = peers.insert(Instant::ORIGIN, address) {
                    prop_assert!(told.insert(added));
                    if let Some(displaced) = displaced {
                        prop_assert!(told.remove(&displaced));
                    }
                }
                prop_assert!(peers.contains(address));
                prop_assert!(told.len() <= 16);
                for number in 0..40u32 {
                    let address = IpAddr::from(number.to_be_bytes());
                    prop_assert_eq!(peers.contains(address), told.contains(&address));
                }
            }
        }
    }
}
