//! The tables that are compared, each behind the same interface.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::hint::black_box;
use std::net::IpAddr;
use std::time::Instant;

use softclock_net::demux::{self, Flow, HashKey};

use super::keys::unkeyed_hash;

/// The beginning of the names of softclock's variants.
pub(super) const OURS: &str = "softclock";

pub(super) const UNKEYED: &str = "HashMap, BSD's unkeyed hash";

/// A table of flows.
pub(super) trait Find {
    fn name(&self) -> &'static str;

    /// Finds the handles of a batch of at most [`BATCH`] packets.
    fn find(&self, flows: &[Flow], found: &mut [Option<u32>]);

    /// The mean time of a look-up.
    fn ns_per_packet(&self, packets: &[Flow]) -> f64 {
        let start = Instant::now();
        for packets in packets.chunks(BATCH) {
            let mut found = [None; BATCH];
            self.find(packets, &mut found);
            black_box(&found);
        }
        start.elapsed().as_nanos() as f64 / packets.len() as f64
    }
}

pub(super) struct Table {
    table: demux::Table<u32>,
    is_in_batches: bool,
}

impl Table {
    pub(super) fn single(flows: &[Flow]) -> Self {
        let mut table = demux::Table::new(HashKey([0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210]));
        for (number, flow) in (0..).zip(flows) {
            table.connect(*flow, number).expect("flows are distinct");
        }
        Self {
            table,
            is_in_batches: false,
        }
    }

    pub(super) fn in_batches(flows: &[Flow]) -> Self {
        Self {
            is_in_batches: true,
            ..Self::single(flows)
        }
    }
}

impl Find for Table {
    fn name(&self) -> &'static str {
        match self.is_in_batches {
            true => "softclock, 32 at a time",
            false => OURS,
        }
    }

    fn find(&self, flows: &[Flow], found: &mut [Option<u32>]) {
        match self.is_in_batches {
            true => self.table.find_batch(flows, found),
            false => each(flows, found, |flow| self.table.find(flow)),
        }
    }
}

pub(super) struct FlowMap(HashMap<Flow, u32>);

impl FlowMap {
    pub(super) fn new(flows: &[Flow]) -> Self {
        let mut map = HashMap::with_capacity(flows.len());
        map.extend(flows.iter().copied().zip(0..));
        Self(map)
    }
}

impl Find for FlowMap {
    fn name(&self) -> &'static str {
        "HashMap, flows as keys"
    }

    fn find(&self, flows: &[Flow], found: &mut [Option<u32>]) {
        each(flows, found, |flow| self.0.get(flow).copied());
    }
}

pub(super) struct PackedMap(HashMap<u128, u32>);

impl PackedMap {
    pub(super) fn new(flows: &[Flow]) -> Self {
        let mut map = HashMap::with_capacity(flows.len());
        map.extend(flows.iter().map(packed).zip(0..));
        Self(map)
    }
}

impl Find for PackedMap {
    fn name(&self) -> &'static str {
        "HashMap, packed keys"
    }

    fn find(&self, flows: &[Flow], found: &mut [Option<u32>]) {
        each(flows, found, |flow| self.0.get(&packed(flow)).copied());
    }
}

pub(super) struct UnkeyedMap(HashMap<UnkeyedKey, u32, BuildHasherDefault<Unkeyed>>);

impl UnkeyedMap {
    pub(super) fn new(flows: &[Flow]) -> Self {
        let mut map = HashMap::with_capacity_and_hasher(flows.len(), BuildHasherDefault::default());
        map.extend(flows.iter().map(packed).map(UnkeyedKey).zip(0..));
        Self(map)
    }
}

impl Find for UnkeyedMap {
    fn name(&self) -> &'static str {
        UNKEYED
    }

    fn find(&self, flows: &[Flow], found: &mut [Option<u32>]) {
        each(flows, found, |flow| {
            self.0.get(&UnkeyedKey(packed(flow))).copied()
        });
    }
}

#[derive(PartialEq, Eq)]
struct UnkeyedKey(u128);

impl Hash for UnkeyedKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u32(unkeyed_hash((self.0 >> 64) as u32, self.0 as u32));
    }
}

/// Spreads a hash of 32 bits over the 64 that `HashMap` needs, which separates no flows that collide.
#[derive(Default)]
struct Unkeyed(u64);

impl Hasher for Unkeyed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u32(byte.into());
        }
    }

    fn write_u32(&mut self, hash: u32) {
        self.0 = (self.0 ^ u64::from(hash))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(32);
    }
}

/// A flow of IPv4 in one number: remote address, local address and protocol, ports.
fn packed(flow: &Flow) -> u128 {
    let bits = |address| match address {
        IpAddr::V4(address) => address.to_bits(),
        IpAddr::V6(_) => unreachable!("all flows are of IPv4"),
    };
    let (remote, local) = (bits(flow.remote.0), bits(flow.local.0));
    let ports = u32::from(flow.remote.1) << 16 | u32::from(flow.local.1);
    u128::from(flow.transport as u8) << 96
        | u128::from(remote) << 64
        | u128::from(local) << 32
        | u128::from(ports)
}

fn each(flows: &[Flow], found: &mut [Option<u32>], find: impl Fn(&Flow) -> Option<u32>) {
    for (flow, found) in flows.iter().zip(found) {
        *found = find(flow);
    }
}

/// The packets that are looked up at a time: those of one poll of a device.
const BATCH: usize = 32;
