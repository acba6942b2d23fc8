//! `lrp/demultiplexer`: the table that finds the endpoint of a packet, beside `std::collections::HashMap`.
//!
//! In *Lazy Receiver Processing* demultiplexing is the only work that a packet costs whose channel is full, and it is
//! the predominant cause of the decline of SOFT-LRP's throughput under overload (Figure 5). Remote hosts choose most of
//! a key, so the worst keys count as much as the mean ones.

mod finders;
mod keys;

use std::error::Error;
use std::io;

use softclock_net::demux::Flow;

use crate::output::best_peer::{Better, Comparison};
use crate::output::report::{Context, Experiment, Report, Row, Takes};
use crate::random::Random;
use finders::{Find, FlowMap, OURS, PackedMap, Table, UNKEYED, UnkeyedMap};
use keys::Keys;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "lrp/demultiplexer",
    about: "finding the endpoint of a packet among 1 to a million flows, beside HashMap, with hostile keys, too",
    takes: Takes::Nothing,
    run,
};

fn run(context: &Context) -> Result<Report, Box<dyn Error>> {
    let plan = if context.smoke { &SMOKE } else { &FULL };
    let mut rows = Vec::new();
    let total = plan.flows.len() * Keys::ALL.len();
    for (done, count) in plan.flows.iter().enumerate() {
        for (kind, keys) in Keys::ALL.into_iter().enumerate() {
            let done = done * Keys::ALL.len() + kind;
            rows.extend(cell(context, plan, *count, keys, (done, total))?);
        }
    }
    context.progress(1, 1, "");
    rows.extend(BESIDE_PEERS.rows(&rows));
    Ok(Report {
        title: "demultiplexing: ns a packet, by number of flows",
        notes: NOTES.map(String::from).to_vec(),
        rows,
        charts: Vec::new(),
    })
}

/// Measures all finders with one kind of keys and one number of flows, in turn within each slice.
fn cell(
    context: &Context,
    plan: &Plan,
    count: usize,
    keys: Keys,
    (done, total): (usize, usize),
) -> Result<Vec<Row>, Box<dyn Error>> {
    let mut random = Random(SEED);
    let flows = keys.flows(count);
    let finders = finders(&flows, keys);
    let mut packets = packets(&flows, keys, &mut random);
    check(&finders, &flows)?;
    let metric = format!("{}, {count} flows", keys.name());
    let mut samples = vec![Vec::new(); finders.len()];
    let mut before: Vec<Flow> = packets.by_ref().take(plan.packets).collect();
    for round in 0..plan.rounds {
        let (done, total) = (done * plan.rounds + round, total * plan.rounds);
        let of_round = context.round(done, total, &metric, || {
            let mut samples = vec![Vec::with_capacity(plan.slices); finders.len()];
            for _ in 0..plan.slices {
                // The packets are copied to one place: demultiplexing finds their headers in the cache.
                let slice: Vec<Flow> = packets.by_ref().take(plan.packets).collect();
                for (finder, samples) in finders.iter().zip(&mut samples) {
                    // The finder before has displaced this one from the caches, which other packets put right.
                    finder.ns_per_packet(&before);
                    samples.push(finder.ns_per_packet(&slice));
                }
                before = slice;
            }
            Ok::<_, io::Error>(samples)
        })?;
        for (samples, of_round) in samples.iter_mut().zip(of_round) {
            samples.extend(of_round);
        }
    }
    let rows = finders.iter().zip(&samples);
    Ok(rows
        .map(|(finder, samples)| Row::of_samples(finder.name(), &*metric, "ns", samples))
        .collect())
}

/// The finders, each with all flows; the number of a flow is its handle.
fn finders(flows: &[Flow], keys: Keys) -> Vec<Box<dyn Find>> {
    let mut finders: Vec<Box<dyn Find>> = vec![
        Box::new(Table::single(flows)),
        Box::new(Table::in_batches(flows)),
        Box::new(FlowMap::new(flows)),
        Box::new(PackedMap::new(flows)),
    ];
    // Each look-up walks over all colliding flows, so with more of them the measurement would take minutes.
    if keys != Keys::Colliding || flows.len() <= MOST_COLLIDING {
        finders.push(Box::new(UnkeyedMap::new(flows)));
    }
    finders
}

/// Returns an endless sequence of packets: of random flows, or of the flows' hosts from a port that has no flow.
fn packets(flows: &[Flow], keys: Keys, random: &mut Random) -> impl Iterator<Item = Flow> + use<> {
    let mut flows = flows.to_vec();
    for place in (1..flows.len()).rev() {
        flows.swap(place, random.below(place as u64 + 1) as usize);
    }
    if keys == Keys::Absent {
        for flow in &mut flows {
            flow.remote.1 = keys::ABSENT_PORT;
        }
    }
    // The order is that of a deck, so that each flow of a large table has left the caches when its turn comes again.
    flows.into_iter().cycle()
}

/// Every finder finds every flow, and nothing else.
fn check(finders: &[Box<dyn Find>], flows: &[Flow]) -> Result<(), Box<dyn Error>> {
    for finder in finders {
        let step = (flows.len() / CHECKED).max(1);
        for (number, flow) in flows.iter().enumerate().step_by(step) {
            let absent = Flow {
                remote: (flow.remote.0, keys::ABSENT_PORT),
                ..*flow
            };
            let mut found = [None; 2];
            finder.find(&[*flow, absent], &mut found);
            if found != [Some(number as u32), None] {
                let name = finder.name();
                return Err(format!("{name} found {found:?} for flow {number}").into());
            }
        }
    }
    Ok(())
}

/// The numbers of flows, and the length of the measurement.
struct Plan {
    flows: &'static [usize],
    rounds: usize,
    /// Samples of each finder in a round. The steal time is read once a round, so a round must be long enough for it.
    slices: usize,
    /// Packets in a sample. Few enough that their headers stay in the second-level cache.
    packets: usize,
}

const FULL: Plan = Plan {
    flows: &[1, 100, 10_000, 100_000, 1_000_000],
    rounds: 12,
    slices: 25,
    packets: 4_096,
};

const SMOKE: Plan = Plan {
    flows: &[1, 100, 1_000],
    rounds: 2,
    slices: 2,
    packets: 100,
};

const BESIDE_PEERS: Comparison = Comparison {
    is_ours: |variant| variant.starts_with(OURS),
    is_peer: |variant| !variant.starts_with(OURS) && variant != UNKEYED,
    better: |_| Some(Better::Less),
};

const MOST_COLLIDING: usize = 10_000;

/// The flows of a cell that are looked up before it is measured.
const CHECKED: usize = 1_000;

const SEED: u64 = 0x6c72_7020_6465_6d75;

const NOTES: [&str; 6] = [
    "flows of TCP over IPv4 to one address and port; packets are of all flows in random order, the same for all; the \
     headers are parsed before and in the cache",
    "random: hosts and ports at random; sequential: hosts count upwards, with one port; colliding: hosts and ports for \
     which BSD's unkeyed hash of flows (address xor its upper half xor ports) is the same in each block of 65536 \
     flows; absent: packets of no flow from the random flows' hosts, as in a flood of SYNs, with no listener",
    "softclock, 32 at a time: find_batch with the packets of one poll; tables of up to 16 384 flows are searched one \
     packet at a time there, too. The stack looks up one packet at a time: the row softclock is what it costs today",
    "HashMap, flows as keys: derived Hash and Eq; HashMap, packed keys: the flow packed into 16 bytes at each look-up; \
     both with std's keyed SipHash-1-3 and room reserved for all flows",
    "HashMap, BSD's unkeyed hash: packed keys; shows the cost of an attack and is no peer, since a server on the \
     Internet cannot use it. With colliding keys it has at most 10 000 flows, since more take minutes",
    "the target is 40 ns a packet with 100 000 flows and 100 ns with a million, 32 at a time, and at most twice the \
     cost of random keys for any others",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_finder_finds_all_flows_of_every_kind() {
        for keys in Keys::ALL {
            let flows = keys.flows(500);
            check(&finders(&flows, keys), &flows).unwrap();
        }
    }
}
