//! Counts the connections and HTTP/2 streams of each client address.
//!
//! All threads share the counts: the kernel spreads a client's connections over the threads unevenly, so limits for
//! each thread would refuse clients with few connections and admit clients with many. The table has an entry for each
//! address with a connection. It is locked when a connection begins and ends; streams are counted without the lock. If
//! neither number is limited, nothing is counted.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::net::carrier::Peer;

/// The limits for each client address, over all threads; 0 is unlimited.
///
/// The IPv6 addresses of a /64 network count as one address. Connections over Unix sockets are not limited. Behind
/// another proxy, all clients share the proxy's address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientLimits {
    /// Connections at a time. Further ones are reset when they are accepted.
    pub connections: usize,
    /// HTTP/2 streams at a time, over all connections. Further ones are reset with REFUSED_STREAM, after which the
    /// client may send them again.
    pub streams: usize,
}

/// The addresses that have connections.
#[derive(Default)]
pub(crate) struct Clients {
    all: Mutex<HashMap<Network, Counted>>,
}

struct Counted {
    connections: usize,
    streams: Arc<AtomicUsize>,
}

/// The addresses that count as one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Network {
    V4(Ipv4Addr),
    /// The first 64 bits: one host can use any address of its /64 network.
    V6(u64),
}

impl Network {
    fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::V4(address),
            IpAddr::V6(address) => Self::V6((address.to_bits() >> 64) as u64),
        }
    }
}

impl Clients {
    /// Counts a connection of `peer` until the permit is dropped. Returns `None` if its address has reached the limit.
    /// O(1), under a lock.
    pub(crate) fn connect(
        self: &Arc<Self>,
        peer: Peer,
        limits: &ClientLimits,
    ) -> Option<ConnectionPermit> {
        let Peer::Internet(address) = peer else {
            return Some(ConnectionPermit::default());
        };
        // Without limits, no lock is taken.
        if *limits == ClientLimits::default() {
            return Some(ConnectionPermit::default());
        }
        let network = Network::of(address);
        let mut all = self.lock();
        let counted = all.entry(network).or_insert_with(|| Counted {
            connections: 0,
            streams: Arc::default(),
        });
        // A new entry is always within the limit, so returning here never leaves an entry without connections in the
        // table.
        if limits.connections > 0 && counted.connections >= limits.connections {
            return None;
        }
        counted.connections += 1;
        let streams = Arc::clone(&counted.streams);
        Some(ConnectionPermit {
            counted: Some((Arc::clone(self), network, streams)),
        })
    }

    fn disconnect(&self, network: Network) {
        if let Entry::Occupied(mut counted) = self.lock().entry(network) {
            counted.get_mut().connections -= 1;
            if counted.get().connections == 0 {
                counted.remove();
            }
        }
    }

    /// Locks the table even if the lock is poisoned: no code that can panic leaves the counts half changed.
    fn lock(&self) -> MutexGuard<'_, HashMap<Network, Counted>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clients")
            .field("addresses", &self.lock().len())
            .finish()
    }
}

/// A connection that is counted for its address until this is dropped. The default is not counted.
#[derive(Debug, Default)]
pub(crate) struct ConnectionPermit {
    counted: Option<(Arc<Clients>, Network, Arc<AtomicUsize>)>,
}

impl ConnectionPermit {
    /// Counts a stream of this connection until the permit is dropped. Returns `None` if its address has `limit`
    /// streams already; a limit of 0 is unlimited.
    pub(crate) fn open_stream(&self, limit: usize) -> Option<StreamPermit> {
        let Some((_, _, streams)) = &self.counted else {
            return Some(StreamPermit(None));
        };
        // Counted before the check, so that two threads cannot both take the last place. A refused permit is dropped
        // and subtracts the stream again.
        let before = streams.fetch_add(1, Ordering::Relaxed);
        let permit = StreamPermit(Some(Arc::clone(streams)));
        (limit == 0 || before < limit).then_some(permit)
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        if let Some((clients, network, _)) = &self.counted {
            clients.disconnect(*network);
        }
    }
}

/// A stream that is counted for its client's address until this is dropped.
#[derive(Debug)]
pub(crate) struct StreamPermit(Option<Arc<AtomicUsize>>);

impl Drop for StreamPermit {
    fn drop(&mut self) {
        if let Some(streams) = &self.0 {
            streams.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(address: &str) -> Peer {
        Peer::Internet(address.parse().unwrap())
    }

    fn limits(connections: usize, streams: usize) -> ClientLimits {
        ClientLimits {
            connections,
            streams,
        }
    }

    #[test]
    fn each_address_has_its_own_connections() {
        let clients = Arc::new(Clients::default());
        let limits = limits(2, 0);
        let connect = |address| clients.connect(peer(address), &limits);
        let first = connect("192.0.2.1").unwrap();
        let mapped = connect("::ffff:192.0.2.1").unwrap();
        assert!(connect("192.0.2.1").is_none());
        let other = connect("192.0.2.2").unwrap();
        drop(first);
        let again = connect("192.0.2.1").unwrap();
        assert!(connect("192.0.2.1").is_none());
        drop((mapped, again, other));
        assert!(clients.lock().is_empty(), "no entry without connections");
    }

    #[test]
    fn a_network_of_ipv6_is_one_client() {
        let clients = Arc::new(Clients::default());
        let limits = limits(1, 0);
        let connect = |address| clients.connect(peer(address), &limits);
        let _one = connect("2001:db8:0:1::1").unwrap();
        assert!(connect("2001:db8:0:1:ffff::2").is_none());
        assert!(connect("2001:db8:0:2::1").is_some());
    }

    #[test]
    fn streams_count_over_all_connections() {
        let clients = Arc::new(Clients::default());
        let limits = limits(0, 3);
        let connect = |address| clients.connect(peer(address), &limits).unwrap();
        let (one, two, other) = (
            connect("192.0.2.1"),
            connect("192.0.2.1"),
            connect("192.0.2.2"),
        );
        let mut streams: Vec<_> = [&one, &two, &one]
            .map(|permit| permit.open_stream(3))
            .into();
        assert!(streams.iter().all(Option::is_some));
        assert!(one.open_stream(3).is_none() && two.open_stream(3).is_none());
        assert!(other.open_stream(3).is_some());
        drop(streams.pop());
        streams.push(two.open_stream(3));
        assert!(streams[2].is_some() && one.open_stream(3).is_none());
        assert!(one.open_stream(0).is_some(), "no limit");
    }

    #[test]
    fn nothing_is_counted_without_a_limit_or_an_address() {
        let clients = Arc::new(Clients::default());
        let none = ClientLimits::default();
        let _free = clients.connect(peer("192.0.2.1"), &none).unwrap();
        let local = clients.connect(Peer::Local, &limits(1, 1)).unwrap();
        assert!(clients.connect(Peer::Local, &limits(1, 1)).is_some());
        assert!(local.open_stream(1).is_some() && local.open_stream(1).is_some());
        assert!(clients.lock().is_empty());
    }
}
