//! The aggregation quota: what looks find on average, and how soon they follow the rate (*Soft Timers*, 4.2).

use softclock_core::signalling::{Interrupts, Quota};

use crate::model::{Costs, Job, Model, SplitMix};
use crate::{MS, soft_poll};

/// Trigger states each microsecond or two, and a look that costs next to nothing: a thread that computes.
const COSTS: Costs = Costs {
    packet_ns: 1,
    look_ns: 50,
    trigger_ns: 2_000,
    ..Costs::TYPICAL
};

const ALWAYS: Job = Job {
    at_ns: 0,
    ns: 10_000 * MS,
};

/// Returns the mean of packets a look from `from_ns` on, of a busy thread.
fn mean(quota: Quota, bound_us: u64, gap_ns: u64, trigger_ns: u64, seed: u64) -> f64 {
    let (from_ns, to_ns) = (100 * MS, 1_100 * MS);
    let arrivals = SplitMix(seed).poisson(0, to_ns, gap_ns);
    let costs = Costs {
        trigger_ns,
        ..COSTS
    };
    let policy = soft_poll(quota, bound_us);
    let mut model = Model::new(policy, vec![arrivals], costs, seed).with_jobs([ALWAYS]);
    model.run(from_ns);
    let (looks, taken) = (model.one().looks, model.one().taken);
    model.run(to_ns);
    assert_eq!(model.one().disturbances, 0);
    (model.one().taken - taken) as f64 / (model.one().looks - looks) as f64
}

#[test]
fn a_look_finds_the_quota_on_average() {
    for (seed, packets) in [1, 2, 5, 10, 15, 64].into_iter().enumerate() {
        let quota = Quota::packets(packets).unwrap();
        for gap_ns in [5_000, 20_000] {
            for trigger_ns in [2_000, 6_000] {
                let mean = mean(quota, 10_000, gap_ns, trigger_ns, seed as u64);
                let ratio = mean / f64::from(packets);
                println!("quota {packets} gap {gap_ns} trigger {trigger_ns}: {mean:.2}");
                assert!(
                    (0.92..1.08).contains(&ratio),
                    "quota {packets}, gap {gap_ns}: {mean}"
                );
            }
        }
    }
}

#[test]
fn the_bound_goes_before_the_quota() {
    // 5 packets in 100 us; the lateness of looks is taken off the interval.
    let mean = mean(Quota::packets(40).unwrap(), 100, 20_000, 2_000, 1);
    assert!((4.5..5.1).contains(&mean), "{mean}");
}

#[test]
fn the_automatic_quota_is_what_the_bound_has_room_for() {
    let few = mean(Quota::AUTOMATIC, 100, 20_000, 2_000, 1);
    assert!((4.5..5.1).contains(&few), "{few}");
    let many = mean(Quota::AUTOMATIC, 100, 2_000, 2_000, 1);
    assert!((15.0..17.0).contains(&many), "{many}");
}

#[test]
fn looks_are_no_more_frequent_than_trigger_states() {
    // A packet each 2 us, trigger states each 10 us on average.
    let mean = mean(Quota::packets(1).unwrap(), 100, 2_000, 20_000, 1);
    assert!((5.0..8.5).contains(&mean), "{mean}");
}

#[test]
fn the_interval_leaves_room_for_the_usual_time_to_a_trigger_state() {
    for (bound_us, trigger_ns) in [(20, 4_000), (100, 20_000), (1_000, 300_000)] {
        let arrivals = SplitMix(7).poisson(0, 1_000 * MS, 50_000);
        let costs = Costs {
            trigger_ns,
            ..COSTS
        };
        let policy = soft_poll(Quota::AUTOMATIC, bound_us);
        let mut model = Model::new(policy, vec![arrivals], costs, 7).with_jobs([ALWAYS]);
        model.run(50 * MS);
        model.queues[0].longest_wait_ns = 0;
        model.run(1_000 * MS);
        let longest = model.one().longest_wait_ns;
        let bound = bound_us * 1_000;
        println!("bound {bound} trigger {trigger_ns}: {longest}");
        assert!(longest < bound * 11 / 10, "{longest} of {bound} ns");
        // The room is not wasted either.
        let mean = model.one().mean_wait_ns();
        assert!(mean > bound as f64 / 4.0, "{mean} of {bound} ns");
    }
}

/// The packets that each look found after a change of the rate from `before` to `after`, at 50 ms.
fn found_after_step(quota: u32, before: u64, after: u64, seed: u64) -> Vec<u64> {
    let step = 50 * MS;
    let mut random = SplitMix(seed);
    let mut arrivals = random.poisson(0, step, before);
    arrivals.extend(random.poisson(step, 2 * step, after));
    let policy = soft_poll(Quota::packets(quota).unwrap(), 10_000);
    let mut model = Model::new(policy, vec![arrivals], COSTS, seed).with_jobs([ALWAYS]);
    model.run(step);
    let mut found = Vec::new();
    while found.len() < 40 && model.now < 2 * step {
        let (looks, taken) = (model.one().looks, model.one().taken);
        model.run(model.now + 1);
        if model.one().looks > looks {
            found.push(model.one().taken - taken);
        }
    }
    found
}

/// The mean over several runs of what the look `index` after a step found.
fn mean_after_step(quota: u32, before: u64, after: u64, index: usize) -> f64 {
    let runs = 200;
    let found = (0..runs).map(|seed| found_after_step(quota, before, after, seed)[index]);
    found.sum::<u64>() as f64 / runs as f64
}

#[test]
fn a_step_up_is_followed_within_a_few_looks() {
    for quota in [1, 5, 15] {
        let mean = mean_after_step(quota, 50_000, 5_000, 5);
        let ratio = mean / f64::from(quota);
        assert!(ratio < 1.6, "quota {quota}: {mean}");
    }
}

#[test]
fn a_step_down_is_followed_within_a_few_looks() {
    for quota in [1, 5, 15] {
        let mean = mean_after_step(quota, 5_000, 50_000, 12);
        let ratio = mean / f64::from(quota);
        assert!(ratio > 0.6, "quota {quota}: {mean}");
    }
}

#[test]
fn a_pause_leaves_no_debt() {
    let quota = Quota::packets(5).unwrap();
    let mut random = SplitMix(3);
    let mut arrivals = random.poisson(0, 20 * MS, 5_000);
    arrivals.extend(random.poisson(520 * MS, 540 * MS, 5_000));
    let mut model = Model::new(soft_poll(quota, 200), vec![arrivals], COSTS, 3).with_jobs([ALWAYS]);
    model.run(520 * MS);
    let looks = model.one().looks;
    // The bound limits the interval in the pause.
    assert!((2_500..6_000).contains(&looks), "{looks}");
    model.run(521 * MS);
    // 200 packets: 40 looks at the quota.
    let looks = model.one().looks - looks;
    assert!(looks > 25, "{looks}");
    assert_eq!(
        model.one().signalling.current().interrupts,
        Interrupts::Masked
    );
}
