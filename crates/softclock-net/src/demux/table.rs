//! The table of endpoints: from the flow of a packet to the handle of its endpoint.

use core::fmt;
use core::net::IpAddr;

use super::flat::Flat;
use super::key::{Binding, FlowKey, FlowV4, FlowV6};
use super::{Flow, HashKey, Transport};

/// An exact table of connected flows and of bound endpoints.
///
/// `T` is a small handle of an endpoint, such as a `u32`. The table compares whole keys, so a packet is never taken for
/// one of another flow. Entries are in flat arrays that double when they are three quarters full, which takes time
/// in proportion to the entries: constant time an entry, amortized. In a table that grows, a flow of IPv4 occupies 32
/// to 64 bytes with a handle of 8 bytes, as the stack has, and one of IPv6 64 to 128. The arrays halve when fewer than
/// one place in eight is occupied. The caller bounds the number of entries.
///
/// ```
/// use softclock_net::demux::{Flow, HashKey, InUse, Transport, Table};
///
/// let flow = Flow {
///     transport: Transport::Tcp,
///     remote: ("192.0.2.7".parse().unwrap(), 40_000),
///     local: ("192.0.2.1".parse().unwrap(), 80),
/// };
/// let any = "0.0.0.0".parse().unwrap();
/// let (listener, connection) = (1_u32, 2);
///
/// let mut table = Table::new(HashKey([1, 2])); // In earnest: random, and secret.
/// table.bind(Transport::Tcp, (any, 80), listener).unwrap();
/// assert_eq!(table.find(&flow), Some(listener));
/// table.connect(flow, connection).unwrap();
/// assert_eq!(table.find(&flow), Some(connection));
/// assert_eq!(table.connect(flow, 3), Err(InUse));
/// ```
pub struct Table<T: Copy> {
    key: HashKey,
    /// The flows of IPv4 and of IPv6, each by [`Transport`].
    v4: [Flat<FlowV4, T>; 2],
    v6: [Flat<FlowV6, T>; 2],
    /// The endpoint of each binding to an address. Apart from those to any address, since many hosts have none.
    bound: Flat<Binding, T>,
    bound_to_any: Flat<Binding, T>,
}

/// The flow, or the address and port, belongs to another endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InUse;

impl<T: Copy> Table<T> {
    /// Creates an empty table. The key must be random and unknown to other hosts. Allocates nothing.
    pub fn new(key: HashKey) -> Self {
        Self {
            key,
            v4: Default::default(),
            v6: Default::default(),
            bound: Flat::default(),
            bound_to_any: Flat::default(),
        }
    }

    /// Gives an endpoint the packets to an address and port that belong to no connected flow. An unspecified address
    /// stands for any address of its version of IP.
    ///
    /// A binding to an address goes before one to any address with the same port; they do not exclude each other.
    ///
    /// # Errors
    /// [`InUse`] if an endpoint is bound to the same address and port.
    pub fn bind(
        &mut self,
        transport: Transport,
        local: (IpAddr, u16),
        value: T,
    ) -> Result<(), InUse> {
        let (key, binding) = (self.key, Binding::new(transport, local));
        let is_new = self.bindings_mut(&binding).insert(key, binding, value);
        is_new.then_some(()).ok_or(InUse)
    }

    /// Removes the binding made by [`bind`](Self::bind) and returns its endpoint. Returns `None`, without effect, if no
    /// endpoint is bound.
    pub fn unbind(&mut self, transport: Transport, local: (IpAddr, u16)) -> Option<T> {
        let (key, binding) = (self.key, Binding::new(transport, local));
        self.bindings_mut(&binding).remove(key, &binding)
    }

    /// Gives an endpoint the packets of one flow. A binding of the same endpoint remains.
    ///
    /// # Errors
    /// [`InUse`] if the flow has an endpoint.
    pub fn connect(&mut self, flow: Flow, value: T) -> Result<(), InUse> {
        let transport = flow.transport as usize;
        let is_new = match (FlowV4::of(&flow), FlowV6::of(&flow)) {
            (Some(flow), _) => self.v4[transport].insert(self.key, flow, value),
            (_, Some(flow)) => self.v6[transport].insert(self.key, flow, value),
            (None, None) => false,
        };
        is_new.then_some(()).ok_or(InUse)
    }

    /// Removes a connected flow and returns its endpoint.
    pub fn disconnect(&mut self, flow: &Flow) -> Option<T> {
        let transport = flow.transport as usize;
        match (FlowV4::of(flow), FlowV6::of(flow)) {
            (Some(flow), _) => self.v4[transport].remove(self.key, &flow),
            (_, Some(flow)) => self.v6[transport].remove(self.key, &flow),
            (None, None) => None,
        }
    }

    /// Finds the endpoint of a packet: that of its flow; else the one bound to its destination address and port; else
    /// the one bound to its destination port and any address. Takes constant time, with at most five cache misses.
    #[inline]
    pub fn find(&self, flow: &Flow) -> Option<T> {
        self.find_connected(flow).or_else(|| self.find_bound(flow))
    }

    /// Finds the endpoints of several packets, each as by [`find`](Self::find). If one slice is longer than the other,
    /// its rest is ignored.
    ///
    /// Works on 32 packets at a time, in passes: each loads one kind of cache line for all, so that the cache misses of
    /// different packets overlap. Small tables, which stay in the cache, and rests of few packets are searched one
    /// packet at a time, which is faster there.
    pub fn find_batch(&self, flows: &[Flow], found: &mut [Option<T>]) {
        let is_small = self.connected() <= MOST_IN_CACHE;
        for (flows, found) in flows.chunks(BATCH).zip(found.chunks_mut(BATCH)) {
            // Cut to the same length, since the last chunks may differ.
            let packets = flows.len().min(found.len());
            let (flows, found) = (&flows[..packets], &mut found[..packets]);
            if is_small || packets < LEAST_BATCH {
                for (flow, found) in flows.iter().zip(found) {
                    *found = self.find(flow);
                }
                continue;
            }
            found.fill(None);
            self.find_connected_batch(&self.v4, flows, found);
            self.find_connected_batch(&self.v6, flows, found);
            for (flow, found) in flows.iter().zip(found) {
                *found = found.or_else(|| self.find_bound(flow));
            }
        }
    }

    /// The number of connected flows and of endpoints that are bound.
    pub fn len(&self) -> usize {
        self.connected() + self.bound.len() + self.bound_to_any.len()
    }

    /// Whether no flow is connected and no endpoint is bound.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of connected flows.
    fn connected(&self) -> usize {
        let [a, b] = &self.v4;
        let [c, d] = &self.v6;
        a.len() + b.len() + c.len() + d.len()
    }

    /// Finds the endpoint of a connected flow.
    #[inline]
    pub fn find_connected(&self, flow: &Flow) -> Option<T> {
        let transport = flow.transport as usize;
        match FlowV4::of(flow) {
            Some(flow) => self.v4[transport].find(self.key, &flow),
            None => self.v6[transport].find(self.key, &FlowV6::of(flow)?),
        }
        .copied()
    }

    /// Finds the connected flows of one IP version. Leaves `found` as it is for all others.
    #[inline]
    fn find_connected_batch<K: FlowKey>(
        &self,
        maps: &[Flat<K, T>; 2],
        flows: &[Flow],
        found: &mut [Option<T>],
    ) {
        if maps.iter().all(Flat::is_empty) {
            return;
        }
        let mut probes = [Probe::default(); BATCH];
        let mut count = 0;
        for (number, flow) in flows.iter().enumerate() {
            let map = &maps[flow.transport as usize];
            if let Some(key) = K::of(flow)
                && !map.is_empty()
            {
                probes[count] = Probe {
                    key,
                    tag: Flat::<K, T>::tag(self.key, &key),
                    place: 0,
                    number,
                };
                count += 1;
            }
        }
        let probes = &mut probes[..count];
        let map = |probe: &Probe<K>| &maps[flows[probe.number].transport as usize];
        // The passes that touch have no branches that depend on what they load, so the processor does not wait for one
        // load before the next. `black_box` keeps loads whose results are not needed.
        for probe in probes.iter() {
            core::hint::black_box(map(probe).touch_home(probe.tag));
        }
        // Keeps only the probes whose tag is present: the others would load an entry in vain.
        let mut count = 0;
        for number in 0..probes.len() {
            let probe = probes[number];
            if let Some(place) = map(&probe).candidate(probe.tag) {
                probes[count] = Probe { place, ..probe };
                count += 1;
            }
        }
        let probes = &probes[..count];
        for probe in probes {
            core::hint::black_box(map(probe).touch_entry(probe.place));
        }
        for probe in probes {
            found[probe.number] = map(probe).find_from(&probe.key, probe.place).copied();
        }
    }

    /// Finds the endpoint that is bound to the destination of a packet: to its address and port, else to its port and
    /// any address.
    #[inline]
    pub fn find_bound(&self, flow: &Flow) -> Option<T> {
        let binding = Binding::new(flow.transport, flow.local);
        let bound = self.bound.find(self.key, &binding);
        bound
            .or_else(|| self.bound_to_any.find(self.key, &binding.to_any()))
            .copied()
    }

    /// Calls `each` for every endpoint that receives a datagram to a group or to all hosts: the one bound to its
    /// destination address and port, and the one bound to the port and any address. Connected flows are not considered.
    pub fn find_all_bound(&self, flow: &Flow, each: impl FnMut(T)) {
        let binding = Binding::new(flow.transport, flow.local);
        let bound = self.bound.find(self.key, &binding);
        let to_any = self.bound_to_any.find(self.key, &binding.to_any());
        bound.into_iter().chain(to_any).copied().for_each(each);
    }

    fn bindings_mut(&mut self, binding: &Binding) -> &mut Flat<Binding, T> {
        match binding.is_to_any() {
            true => &mut self.bound_to_any,
            false => &mut self.bound,
        }
    }
}

impl<T: Copy> fmt::Debug for Table<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

impl fmt::Display for InUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the address and port are in use")
    }
}

impl core::error::Error for InUse {}

/// A look-up of a batch that is under way.
#[derive(Clone, Copy, Default)]
struct Probe<K> {
    key: K,
    tag: u32,
    place: usize,
    /// The number of the packet in the batch.
    number: usize,
}

/// The packets that a batch works on at a time. Their probes fit into the first-level cache, and are more than the
/// cache misses that a processor has under way at once.
const BATCH: usize = 32;

/// The fewest packets for which the passes of a batch are worth their preparation.
const LEAST_BATCH: usize = 4;

/// The connected flows up to which tags and entries stay in the second-level cache, so that single look-ups are as fast
/// as batches: 16 384 flows of IPv6 occupy 1.5 MiB.
const MOST_IN_CACHE: usize = 16 * 1024;

#[cfg(test)]
mod tests;
