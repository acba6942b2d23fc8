//! The table of endpoints: from the flow of a packet to the handle of its endpoint.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;

use super::flat::Flat;
use super::key::{Binding, FlowKey, FlowV4, FlowV6};
use super::{Flow, HashKey, Protocol};

/// An exact table of connected flows and of bound endpoints.
///
/// `T` is a small handle of an endpoint, such as a `u32`. The table compares whole keys, so a packet is never taken for
/// one of another flow. Entries are in flat arrays that double when they are three quarters full, which takes time
/// in proportion to the entries: constant time an entry, amortized. In a table that grows, a flow of IPv4 occupies 32 to
/// 64 bytes with a handle of 8 bytes, as the stack has, and one of IPv6 64 to 128. The arrays halve when fewer than one
/// place in eight is occupied. The caller bounds the number of entries.
///
/// ```
/// use softclock_net::demux::{Flow, HashKey, InUse, Protocol, Table};
///
/// let flow = Flow {
///     protocol: Protocol::Tcp,
///     remote: ("192.0.2.7".parse().unwrap(), 40_000),
///     local: ("192.0.2.1".parse().unwrap(), 80),
/// };
/// let any = "0.0.0.0".parse().unwrap();
/// let (listener, connection) = (1_u32, 2);
///
/// let mut table = Table::new(HashKey([1, 2])); // In earnest: random, and secret.
/// table.bind(Protocol::Tcp, (any, 80), listener).unwrap();
/// assert_eq!(table.find(&flow), Some(listener));
/// table.connect(flow, connection).unwrap();
/// assert_eq!(table.find(&flow), Some(connection));
/// assert_eq!(table.connect(flow, 3), Err(InUse));
/// ```
pub struct Table<T: Copy> {
    key: HashKey,
    /// The flows of IPv4 and of IPv6, each by [`Protocol`].
    v4: [Flat<FlowV4, T>; 2],
    v6: [Flat<FlowV6, T>; 2],
    /// The first endpoint of each binding to an address. Apart from those to any address, since many hosts have none.
    bound: Flat<Binding, T>,
    bound_to_any: Flat<Binding, T>,
    /// All endpoints of each binding that is shared, and of each group, in the order in which they came. Only datagrams
    /// to groups and the owner's own calls look here.
    shared: BTreeMap<Binding, Vec<T>>,
    joined: BTreeMap<Binding, Vec<T>>,
}

/// The flow, or the address and port, belongs to another endpoint, or [`MOST_SHARING`] endpoints share it already.
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
            shared: BTreeMap::new(),
            joined: BTreeMap::new(),
        }
    }

    /// Gives an endpoint the packets to an address and port that belong to no connected flow. An unspecified address
    /// stands for any address of its version of IP.
    ///
    /// A binding to an address goes before one to any address with the same port; they do not exclude each other.
    ///
    /// # Errors
    /// [`InUse`] if an endpoint is bound to the same address and port, shared or not.
    pub fn bind(
        &mut self,
        protocol: Protocol,
        local: (IpAddr, u16),
        value: T,
    ) -> Result<(), InUse> {
        let (key, binding) = (self.key, Binding::new(protocol, local));
        let is_new = self.bindings_mut(&binding).insert(key, binding, value);
        is_new.then_some(()).ok_or(InUse)
    }

    /// Binds an endpoint to an address and port that others may be bound to by the same call.
    ///
    /// [`find`](Self::find) returns the endpoint that has been bound longest; datagrams to groups go to all by
    /// [`find_all_bound`](Self::find_all_bound).
    ///
    /// # Errors
    /// [`InUse`] if an endpoint is bound by [`bind`](Self::bind), or [`MOST_SHARING`] endpoints are bound already.
    pub fn bind_shared(
        &mut self,
        protocol: Protocol,
        local: (IpAddr, u16),
        value: T,
    ) -> Result<(), InUse> {
        let binding = Binding::new(protocol, local);
        if !self.shared.contains_key(&binding) {
            self.bind(protocol, local, value)?;
        }
        add(self.shared.entry(binding).or_default(), value)
    }

    /// Removes the binding made by [`bind`](Self::bind) and returns its endpoint. Returns `None`, without effect, if no
    /// endpoint is bound, or if the binding is shared.
    pub fn unbind(&mut self, protocol: Protocol, local: (IpAddr, u16)) -> Option<T> {
        let (key, binding) = (self.key, Binding::new(protocol, local));
        match self.shared.contains_key(&binding) {
            true => None,
            false => self.bindings_mut(&binding).remove(key, &binding),
        }
    }

    /// Gives an endpoint the packets of one flow. A binding of the same endpoint remains.
    ///
    /// # Errors
    /// [`InUse`] if the flow has an endpoint.
    pub fn connect(&mut self, flow: Flow, value: T) -> Result<(), InUse> {
        let protocol = flow.protocol as usize;
        let is_new = match (FlowV4::of(&flow), FlowV6::of(&flow)) {
            (Some(flow), _) => self.v4[protocol].insert(self.key, flow, value),
            (_, Some(flow)) => self.v6[protocol].insert(self.key, flow, value),
            (None, None) => false,
        };
        is_new.then_some(()).ok_or(InUse)
    }

    /// Gives the packets of a connected flow to another endpoint, and returns the previous one: for a connection that
    /// enters TIME-WAIT, whose packets go to a channel that all such connections share. Returns `None`, without effect,
    /// if the flow is not connected.
    pub fn reconnect(&mut self, flow: &Flow, value: T) -> Option<T> {
        let protocol = flow.protocol as usize;
        match (FlowV4::of(flow), FlowV6::of(flow)) {
            (Some(flow), _) => self.v4[protocol].replace(self.key, &flow, value),
            (_, Some(flow)) => self.v6[protocol].replace(self.key, &flow, value),
            (None, None) => None,
        }
    }

    /// Removes a connected flow and returns its endpoint.
    pub fn disconnect(&mut self, flow: &Flow) -> Option<T> {
        let protocol = flow.protocol as usize;
        match (FlowV4::of(flow), FlowV6::of(flow)) {
            (Some(flow), _) => self.v4[protocol].remove(self.key, &flow),
            (_, Some(flow)) => self.v6[protocol].remove(self.key, &flow),
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

    /// The number of connected flows and of endpoints that are bound. Does not count memberships of groups.
    pub fn len(&self) -> usize {
        // The first endpoint of each shared binding is also in the map of bindings.
        let sharing = self.shared.values().map(|all| all.len() - 1).sum::<usize>();
        self.connected() + self.bound.len() + self.bound_to_any.len() + sharing
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
        let protocol = flow.protocol as usize;
        match FlowV4::of(flow) {
            Some(flow) => self.v4[protocol].find(self.key, &flow),
            None => self.v6[protocol].find(self.key, &FlowV6::of(flow)?),
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
            let map = &maps[flow.protocol as usize];
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
        let map = |probe: &Probe<K>| &maps[flows[probe.number].protocol as usize];
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
        let binding = Binding::new(flow.protocol, flow.local);
        let bound = self.bound.find(self.key, &binding);
        bound
            .or_else(|| self.bound_to_any.find(self.key, &binding.to_any()))
            .copied()
    }

    /// All endpoints of a binding.
    fn all_bound(&self, binding: &Binding) -> &[T] {
        if let Some(all) = self.shared.get(binding) {
            return all;
        }
        let bindings = match binding.is_to_any() {
            true => &self.bound_to_any,
            false => &self.bound,
        };
        let one = bindings.find(self.key, binding);
        one.map_or(&[], core::slice::from_ref)
    }

    fn bindings_mut(&mut self, binding: &Binding) -> &mut Flat<Binding, T> {
        match binding.is_to_any() {
            true => &mut self.bound_to_any,
            false => &mut self.bound,
        }
    }
}

impl<T: Copy + PartialEq> Table<T> {
    /// Removes the binding of one endpoint that was made by [`bind_shared`](Self::bind_shared). Returns whether it was
    /// bound so.
    pub fn unbind_shared(&mut self, protocol: Protocol, local: (IpAddr, u16), value: T) -> bool {
        let (key, binding) = (self.key, Binding::new(protocol, local));
        let is_removed = remove(&mut self.shared, &binding, value);
        if is_removed {
            let next = self
                .shared
                .get(&binding)
                .and_then(|all| all.first())
                .copied();
            let bindings = self.bindings_mut(&binding);
            match next {
                Some(next) => bindings.replace(key, &binding, next),
                None => bindings.remove(key, &binding),
            };
        }
        is_removed
    }

    /// Makes an endpoint a receiver of the datagrams to a group and port, beside those that are bound to them. Only
    /// [`find_all_bound`](Self::find_all_bound) looks at groups. Joining again has no effect.
    ///
    /// # Errors
    /// [`InUse`] if [`MOST_SHARING`] endpoints have joined.
    pub fn join(&mut self, group: IpAddr, port: u16, value: T) -> Result<(), InUse> {
        let binding = Binding::new(Protocol::Udp, (group, port));
        let receivers = self.joined.entry(binding).or_default();
        match receivers.contains(&value) {
            true => Ok(()),
            false => add(receivers, value),
        }
    }

    /// Ends a membership made by [`join`](Self::join). Returns whether the endpoint had joined.
    pub fn leave(&mut self, group: IpAddr, port: u16, value: T) -> bool {
        let binding = Binding::new(Protocol::Udp, (group, port));
        remove(&mut self.joined, &binding, value)
    }

    /// Calls `each` once for every endpoint that receives a datagram to a group or to all hosts: those bound to its
    /// destination address and port, those that [joined](Self::join) them, and those bound to the port and any address.
    ///
    /// Connected flows are not considered. Calls `each` at most 3 * [`MOST_SHARING`] times.
    pub fn find_all_bound(&self, flow: &Flow, mut each: impl FnMut(T)) {
        let to_address = Binding::new(flow.protocol, flow.local);
        let joined = self.joined.get(&to_address).map_or(&[][..], Vec::as_slice);
        let receivers = [
            self.all_bound(&to_address),
            joined,
            self.all_bound(&to_address.to_any()),
        ];
        for (number, some) in receivers.iter().enumerate() {
            for (place, value) in some.iter().enumerate() {
                // An endpoint may be bound to any address and have joined the group, too.
                let is_known = receivers[..number]
                    .iter()
                    .any(|those| those.contains(value))
                    || some[..place].contains(value);
                if !is_known {
                    each(*value);
                }
            }
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

fn add<T>(to: &mut Vec<T>, value: T) -> Result<(), InUse> {
    if to.len() >= MOST_SHARING {
        return Err(InUse);
    }
    to.push(value);
    Ok(())
}

/// Removes a value from a list, and the list when it is empty.
fn remove<T: PartialEq>(from: &mut BTreeMap<Binding, Vec<T>>, binding: &Binding, value: T) -> bool {
    let Some(all) = from.get_mut(binding) else {
        return false;
    };
    let place = all.iter().position(|one| *one == value);
    if let Some(place) = place {
        all.remove(place);
    }
    if all.is_empty() {
        from.remove(binding);
    }
    place.is_some()
}

/// The most endpoints that share an address and port, and the most that join a group on one port: each datagram to a
/// group is given to all of them.
pub const MOST_SHARING: usize = 64;

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
