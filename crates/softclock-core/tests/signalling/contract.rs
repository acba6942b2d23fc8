//! What holds for every policy, arrival process and load.

use proptest::prelude::*;
use softclock_core::Instant;
use softclock_core::signalling::{Interrupts, Policy, Quota, Wakeups};

use crate::model::{Costs, Job, Model, SplitMix};
use crate::{MS, automatic, longest_ns, period, soft_poll};

const END: u64 = 30 * MS;
const LATER: u64 = 10 * END;

fn policies() -> impl Strategy<Value = Policy> {
    let quotas = prop_oneof![
        Just(Quota::AUTOMATIC),
        (1..=64u32).prop_map(|packets| Quota::packets(packets).unwrap()),
    ];
    let wakeups = prop_oneof![
        Just(Wakeups::AtOnce),
        Just(Wakeups::ByTimer),
        Just(Wakeups::Deferred)
    ];
    prop_oneof![
        Just(Policy::Interrupt),
        Just(Policy::Poll),
        Just(Policy::Hybrid),
        (20..=2_000u64).prop_map(period),
        (quotas, 20..=2_000u64).prop_map(|(quota, bound)| soft_poll(quota, bound)),
        (20..=2_000u64, wakeups).prop_map(|(bound, wakeups)| automatic(bound, wakeups)),
    ]
}

fn costs() -> impl Strategy<Value = Costs> {
    (0..20_000u64, 100..2_000u64, 1..50_000u64, 0..20_000u64).prop_map(
        |(packet_ns, look_ns, trigger_ns, wake_ns)| Costs {
            packet_ns,
            look_ns,
            trigger_ns,
            wake_ns,
            ..Costs::TYPICAL
        },
    )
}

/// Phases with steady or bursty arrivals, or none, in the first two thirds of the time.
fn arrivals(random: &mut SplitMix) -> Vec<u64> {
    let mut all = Vec::new();
    let mut from = 0;
    while from < END * 2 / 3 {
        let to = from + random.below(5 * MS);
        match random.below(4) {
            0 => {}
            1 => {
                let at = from + random.below(MS);
                all.extend((0..random.below(200)).map(|index| at + index * 100));
            }
            _ => {
                let gap_ns = 4_000 << random.below(8);
                all.extend(random.poisson(from, to, gap_ns));
            }
        }
        from = to;
    }
    all.sort_unstable();
    all
}

/// Computing that takes up to a half of the first two thirds.
fn jobs(random: &mut SplitMix) -> Vec<Job> {
    let pause_ns = 10_000 << random.below(10);
    let mut jobs = Vec::new();
    let mut at_ns = random.below(pause_ns);
    while at_ns < END * 2 / 3 {
        let ns = random.below(pause_ns / 2);
        jobs.push(Job { at_ns, ns });
        at_ns += ns + random.below(pause_ns);
    }
    jobs
}

fn run(policy: Policy, costs: Costs, queues: usize, seed: u64) -> Model {
    let mut random = SplitMix(seed);
    let arrivals = (0..queues).map(|_| arrivals(&mut random)).collect();
    let jobs = jobs(&mut random);
    let mut model = Model::new(policy, arrivals, costs, seed).with_jobs(jobs);
    model.run(END);
    model
}

/// Whether this policy lets interrupts disturb the thread's work.
fn disturbs(policy: Policy) -> bool {
    matches!(
        policy,
        Policy::Interrupt | Policy::Hybrid | Policy::Automatic { .. }
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_packet_waits_beyond_the_bound_and_the_next_trigger_state(
        policy in policies(),
        costs in costs(),
        queues in 1..4usize,
        seed: u64,
    ) {
        let model = run(policy, costs, queues, seed);
        // The looks at the other queues come first.
        let others = costs.look_ns * queues as u64;
        let longest = longest_ns(policy) + costs.longest_ns() + others;
        for queue in &model.queues {
            let waited = queue.longest_wait_ns;
            prop_assert!(waited <= longest, "{waited} of {longest} ns");
        }
    }

    #[test]
    fn no_wake_up_is_lost(policy in policies(), costs in costs(), batch in 1..64usize, seed: u64) {
        // A queue that has more than a look takes, too.
        let costs = Costs { batch, packet_ns: costs.packet_ns / 10, ..costs };
        let model = run(policy, costs, 2, seed);
        prop_assert!(!model.is_left());
        for queue in &model.queues {
            let counts = queue.signalling.counts(Instant::from_ns(model.now));
            prop_assert_eq!(counts.packets, queue.taken);
            prop_assert_eq!(counts.looks, queue.looks);
            prop_assert!(counts.found <= counts.looks && counts.found <= counts.packets);
            prop_assert!(counts.masked_waits <= counts.waits);
            prop_assert_eq!(counts.elapsed_ns, model.now);
            prop_assert_eq!(counts.masked_ns, queue.masked_ns);
            // The looks at one queue, after which the thread does not wait, count as a wait of the other.
            let (waited, longest) = (counts.waited_ns + model.busy_ns, model.busy_ns / 2);
            prop_assert!((model.now..=model.now + longest).contains(&waited), "{waited}");
        }
    }

    #[test]
    fn work_is_not_disturbed(policy in policies(), costs in costs(), queues in 1..3usize, seed: u64) {
        prop_assume!(!disturbs(policy));
        let model = run(policy, costs, queues, seed);
        for queue in &model.queues {
            prop_assert_eq!(queue.disturbances, 0);
        }
    }

    #[test]
    fn an_idle_thread_has_interrupts_and_no_look(policy in policies(), costs in costs(), seed: u64) {
        prop_assume!(!matches!(policy, Policy::Poll | Policy::Clocked(_)));
        let mut model = run(policy, costs, 2, seed);
        let looks = |model: &Model| model.queues.iter().map(|queue| queue.looks).sum::<u64>();
        // Work that has piled up is done by then.
        model.run(LATER);
        let before = looks(&model);
        model.run(LATER + 1_000 * MS);
        prop_assert_eq!(looks(&model), before);
        for queue in &model.queues {
            let current = queue.signalling.current();
            prop_assert_eq!(current.interrupts, Interrupts::Enabled);
            prop_assert_eq!(current.look, None);
        }
    }

    #[test]
    fn a_packet_after_an_idle_time_is_seen_at_once(
        policy in policies(),
        costs in costs(),
        seed: u64,
    ) {
        prop_assume!(!matches!(policy, Policy::Clocked(_)));
        let mut random = SplitMix(seed);
        let mut all = arrivals(&mut random);
        all.push(LATER);
        let mut model = Model::new(policy, vec![all], costs, seed);
        model.run(LATER - 1);
        let before = model.one().waits_ns;
        model.run(LATER + END);
        let waited = model.one().waits_ns - before;
        prop_assert!(waited <= costs.wake_ns + 2 * costs.look_ns, "{waited} ns");
    }
}
