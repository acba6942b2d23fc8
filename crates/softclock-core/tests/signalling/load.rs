//! The policies under rising load: what they cost, and that the automatic one follows the load.

use softclock_core::Instant;
use softclock_core::signalling::{Policy, Quota, Wakeups};

use crate::model::{Costs, Model, SplitMix};
use crate::{MS, automatic, soft_poll};

const END: u64 = 500 * MS;

/// Runs a policy at `percent` of the load at which packets alone take all of the time.
fn at_load(policy: Policy, percent: u64, seed: u64) -> Model {
    let costs = Costs::TYPICAL;
    let gap_ns = costs.packet_ns * 100 / percent;
    let arrivals = SplitMix(seed).poisson(0, END, gap_ns);
    let mut model = Model::new(policy, vec![arrivals], costs, seed);
    model.run(END);
    model
}

fn looks_per_packet(model: &Model) -> f64 {
    model.one().looks as f64 / model.one().taken as f64
}

fn waits_per_packet(model: &Model) -> f64 {
    let counts = model.one().signalling.counts(Instant::from_ns(model.now));
    counts.waits as f64 / counts.packets as f64
}

#[test]
fn automatic_is_hybrid_under_light_load_and_soft_polls_under_heavy_load() {
    let policy = automatic(100, Wakeups::AtOnce);
    for percent in [1, 5] {
        let (model, hybrid) = (
            at_load(policy, percent, 1),
            at_load(Policy::Hybrid, percent, 1),
        );
        assert!(!model.one().signalling.is_soft_polling());
        assert_eq!(model.one().looks, hybrid.one().looks);
        assert_eq!(model.one().waits_ns, hybrid.one().waits_ns);
    }
    for percent in [50, 80, 90] {
        let model = at_load(policy, percent, 1);
        assert!(model.one().signalling.is_soft_polling(), "{percent} %");
        let hybrid = at_load(Policy::Hybrid, percent, 1);
        let (soft, hybrid_looks) = (looks_per_packet(&model), looks_per_packet(&hybrid));
        println!("{percent} %: {soft:.3} looks a packet, {hybrid_looks:.3} of hybrid");
        assert!(soft < hybrid_looks, "{soft} {hybrid_looks}");
        // Once it soft polls, nothing disturbs the work: at most in the first milliseconds.
        assert!(model.one().disturbances * 20 < hybrid.one().disturbances);
    }
}

#[test]
fn a_busy_thread_needs_few_looks() {
    let fixed = |quota| soft_poll(Quota::packets(quota).unwrap(), 1_000);
    let at_95 = |policy| looks_per_packet(&at_load(policy, 95, 2));
    let interrupt = at_95(Policy::Interrupt);
    let (one, five) = (at_95(fixed(1)), at_95(fixed(5)));
    assert!(five < one && five < interrupt, "{five} {one} {interrupt}");
    assert!(at_95(automatic(1_000, Wakeups::AtOnce)) < five);
}

#[test]
fn soft_polls_cost_less_than_a_series_of_looks_at_each_interrupt() {
    for percent in [20, 50, 80] {
        let policy = soft_poll(Quota::AUTOMATIC, 100);
        let (soft, hybrid) = (
            at_load(policy, percent, 3),
            at_load(Policy::Hybrid, percent, 3),
        );
        let ratio = soft.busy_ns as f64 / hybrid.busy_ns as f64;
        println!("{percent} %: {ratio:.3} of the processor time");
        assert!(ratio < 1.0, "{ratio} at {percent} %");
        assert_eq!(soft.one().taken, hybrid.one().taken);
    }
}

#[test]
fn deferred_wake_ups_are_fewer_and_keep_the_bound() {
    for percent in [40, 60, 80] {
        let prompt = at_load(automatic(100, Wakeups::AtOnce), percent, 4);
        let deferred = at_load(automatic(100, Wakeups::Deferred), percent, 4);
        let (many, few) = (waits_per_packet(&prompt), waits_per_packet(&deferred));
        println!(
            "{percent} %: waits {many:.3} {few:.3} mean wait {:.0} {:.0} ns",
            prompt.one().mean_wait_ns(),
            deferred.one().mean_wait_ns()
        );
        assert!(few < 0.6 * many, "{few} of {many} at {percent} %");
        assert!(deferred.one().mean_wait_ns() < 60_000.0);
    }
    let idle = at_load(automatic(100, Wakeups::Deferred), 5, 4);
    let counts = idle.one().signalling.counts(Instant::from_ns(idle.now));
    assert_eq!(counts.masked_waits, 0);
}

#[test]
fn automatic_follows_a_step_of_the_load_within_milliseconds() {
    let mut random = SplitMix(5);
    let mut arrivals = random.poisson(0, 50 * MS, 100_000);
    arrivals.extend(random.poisson(50 * MS, 100 * MS, 8_000));
    let policy = automatic(100, Wakeups::AtOnce);
    let mut model = Model::new(policy, vec![arrivals], Costs::TYPICAL, 5);
    model.run(50 * MS);
    assert!(!model.one().signalling.is_soft_polling());
    model.run(53 * MS);
    assert!(model.one().signalling.is_soft_polling());
    model.run(99 * MS);
    assert!(model.one().signalling.is_soft_polling());
    model.run(200 * MS);
    assert!(model.one().signalling.current().look.is_none());
}

/// Runs a policy with clients that wait for answers, and returns the packets served and the busy time for each.
fn closed(policy: Policy, clients: u64, think_ns: u64) -> (u64, f64) {
    let arrivals = (0..clients).map(|client| client * 300).collect();
    let mut model = Model::new(policy, vec![arrivals], Costs::TYPICAL, 6).with_clients(think_ns);
    model.run(END);
    let taken = model.one().taken;
    (taken, model.busy_ns as f64 / taken as f64)
}

#[test]
fn clients_that_wait_for_answers_lose_nothing() {
    for clients in [1, 2, 4, 8, 32, 128] {
        for think_ns in [10_000, 40_000] {
            let (hybrid, hybrid_ns) = closed(Policy::Hybrid, clients, think_ns);
            for (policy, least) in [
                (soft_poll(Quota::packets(5).unwrap(), 100), 0.99),
                (soft_poll(Quota::AUTOMATIC, 100), 0.99),
                (automatic(100, Wakeups::AtOnce), 0.99),
                (automatic(100, Wakeups::Deferred), 0.97),
            ] {
                let (served, ns) = closed(policy, clients, think_ns);
                let share = served as f64 / hybrid as f64;
                println!(
                    "{clients} clients, {think_ns} ns, {policy:?}: {share:.3} served, {:.3} time",
                    ns / hybrid_ns
                );
                assert!(share > least, "{share} with {clients} clients: {policy:?}");
                assert!(ns < 1.01 * hybrid_ns, "{ns} of {hybrid_ns} ns: {policy:?}");
            }
        }
    }
}
