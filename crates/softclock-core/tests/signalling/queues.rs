//! The queues of a thread: looked at together by one state machine, or each by one of its own.

use softclock_core::signalling::{Policy, Quota, Wakeups};

use crate::model::{Costs, Model, SplitMix};
use crate::{MS, automatic, soft_poll};

const END: u64 = 500 * MS;
const QUEUES: usize = 4;

/// The costs of a thread to which a packet and a look are cheap, as with rings in memory.
const COSTS: Costs = Costs {
    look_ns: 200,
    ..Costs::TYPICAL
};
/// The time that a look takes for each further queue: that of a read of its ring.
const RING_NS: u64 = 20;

/// The arrivals of each queue, at `percent` of the load at which packets alone take all of the time; `shares` of the
/// packets are in the queues, in percent.
fn arrivals(percent: u64, shares: [u64; QUEUES]) -> Vec<Vec<u64>> {
    let mut random = SplitMix(percent);
    let gap_ns = COSTS.packet_ns * 100 / percent;
    let queue = |share| random.poisson(0, END, gap_ns * 100 / share);
    shares.into_iter().map(queue).collect()
}

/// The cost of a way to look.
struct Cost {
    looks_per_packet: f64,
    busy_ns: u64,
    mean_wait_ns: f64,
}

fn run(policy: Policy, arrivals: Vec<Vec<u64>>, costs: Costs) -> Cost {
    let mut model = Model::new(policy, arrivals, costs, 1);
    model.run(END);
    let sum = |of: fn(&crate::model::Queue) -> u64| model.queues.iter().map(of).sum::<u64>() as f64;
    let taken = sum(|queue| queue.taken);
    Cost {
        looks_per_packet: sum(|queue| queue.looks) / taken,
        busy_ns: model.busy_ns,
        mean_wait_ns: sum(|queue| queue.waits_ns) / taken,
    }
}

fn together(policy: Policy, percent: u64, shares: [u64; QUEUES]) -> Cost {
    let mut all = arrivals(percent, shares).concat();
    all.sort_unstable();
    let look_ns = COSTS.look_ns + (QUEUES as u64 - 1) * RING_NS;
    run(policy, vec![all], Costs { look_ns, ..COSTS })
}

fn each(policy: Policy, percent: u64, shares: [u64; QUEUES]) -> Cost {
    run(policy, arrivals(percent, shares), COSTS)
}

/// Evenly loaded queues that are looked at together need less than half of the looks, and their packets wait no longer.
/// If one queue has nearly all packets, looks at the others cost little.
#[test]
fn looks_at_all_queues_cost_less_than_looks_at_each() {
    let five = soft_poll(Quota::packets(5).unwrap(), 1_000);
    for (name, policy) in [
        ("automatic, 100 us", automatic(100, Wakeups::AtOnce)),
        ("soft-poll=5, 1 ms", five),
    ] {
        for (load, shares) in [("even", [25; QUEUES]), ("in one", [97, 1, 1, 1])] {
            for percent in [20, 50, 80, 95] {
                let [all, own] = [together, each].map(|run| run(policy, percent, shares));
                let time = own.busy_ns as f64 / all.busy_ns as f64;
                println!(
                    "{name}, {load}, {percent} %: together and each on its own: looks a packet {:.3} {:.3}, mean wait \
                     {:.1} {:.1} us, {time:.3} of the processor time",
                    all.looks_per_packet,
                    own.looks_per_packet,
                    all.mean_wait_ns / 1e3,
                    own.mean_wait_ns / 1e3,
                );
                let is_even = load == "even";
                assert!(!is_even || own.looks_per_packet > 2.0 * all.looks_per_packet);
                assert!(time > if is_even { 1.0 } else { 0.97 }, "{time}");
                assert!(all.mean_wait_ns < 1.02 * own.mean_wait_ns);
            }
        }
    }
}
