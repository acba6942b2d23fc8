//! The identifications of packets to send.

use core::array;
use core::net::IpAddr;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::checksum::Addresses;
use crate::demux::HashKey;

/// Identifications for packets that can be cut into fragments: a sequence of its own for each sender and receiver, of
/// which no other host can tell where it is (RFC 7739, 5.3).
///
/// From one counter for all, each receiver would learn how much is sent to others, and foresee identifications with
/// which to spoil their packets' reassembly. Pairs of addresses share a fixed number of counters by a keyed hash; each
/// pair begins elsewhere. Threads can draw from it at the same time.
///
/// ```
/// use softclock_net::checksum::Addresses;
/// use softclock_net::demux::HashKey;
/// use softclock_net::ip::Identifications;
///
/// let to = |destination: [u8; 4]| Addresses { source: [10, 0, 0, 1].into(), destination: destination.into() };
/// let identifications = Identifications::new(HashKey([1, 2]));
/// let first = identifications.next(to([10, 0, 0, 2]));
/// assert_eq!(identifications.next(to([10, 0, 0, 2])), first.wrapping_add(1));
/// assert_ne!(identifications.next(to([10, 0, 0, 3])), first.wrapping_add(2));
/// ```
#[derive(Debug)]
pub struct Identifications {
    key: HashKey,
    counters: [AtomicU32; COUNTERS],
}

impl Identifications {
    /// Begins all sequences. `key` must be random.
    pub fn new(key: HashKey) -> Self {
        Self {
            key,
            counters: array::from_fn(|_| AtomicU32::new(0)),
        }
    }

    /// Returns the identification of the next packet between these addresses. IPv4 takes the low 16 bits.
    pub fn next(&self, addresses: Addresses) -> u32 {
        let hash = self.hash(addresses);
        let counter = &self.counters[(hash >> 32) as usize % COUNTERS];
        (hash as u32).wrapping_add(counter.fetch_add(1, Ordering::Relaxed))
    }

    fn hash(&self, addresses: Addresses) -> u64 {
        if let (IpAddr::V4(source), IpAddr::V4(destination)) =
            (addresses.source, addresses.destination)
        {
            return self
                .key
                .mac([source.octets(), destination.octets()].as_flattened());
        }
        let octets = [addresses.source, addresses.destination].map(|address| match address {
            IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
            IpAddr::V6(address) => address.octets(),
        });
        self.key.mac(octets.as_flattened())
    }
}

/// The number of counters.
const COUNTERS: usize = 256;
