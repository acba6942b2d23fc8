//! Each rule of the contract, step by step. The properties in virtual time are in `tests/signalling/`.

use super::*;

const US: u64 = 1_000;

const fn at(us: u64) -> Instant {
    Instant::from_ns(us * US)
}

const fn found(packets: u32) -> Look {
    Look {
        packets,
        ..Look::EMPTY
    }
}

const MORE: Look = Look {
    packets: 32,
    completions: 0,
    has_more: true,
};

fn soft_poll(quota: u32, bound_us: u64) -> Policy {
    Policy::SoftPoll {
        quota: Quota::packets(quota).unwrap(),
        bound: LatencyBound::new(Duration::from_micros(bound_us)).unwrap(),
    }
}

fn automatic(wakeups: Wakeups) -> Policy {
    let bound = LatencyBound::default();
    Policy::Automatic { bound, wakeups }
}

fn clocked() -> Policy {
    Policy::Clocked(Period::new(Duration::from_micros(100)).unwrap())
}

fn all() -> [Policy; 8] {
    [
        Policy::Interrupt,
        Policy::Poll,
        clocked(),
        Policy::Hybrid,
        soft_poll(5, 100),
        automatic(Wakeups::AtOnce),
        automatic(Wakeups::ByTimer),
        automatic(Wakeups::Deferred),
    ]
}

/// A queue whose thread waits since `us`, after it has found nothing.
fn waiting(policy: Policy, us: u64) -> Signalling {
    let mut queue = Signalling::new(policy, at(us - 10));
    let _ = queue.on_look(at(us - 9), Look::EMPTY);
    begin_wait(&mut queue, at(us));
    queue
}

/// Makes a thread wait that has no work. One more look is enough for that.
fn begin_wait(queue: &mut Signalling, now: Instant) {
    if Wait::of(now, [queue.before_wait(now, None)]) == Wait::Refused {
        let _ = queue.on_look(now, Look::EMPTY);
        let next = queue.before_wait(now, None);
        assert_ne!(Wait::of(now, [next]), Wait::Refused);
    }
}

fn is_enabled(next: Next) -> bool {
    next.interrupts == Interrupts::Enabled
}

#[test]
fn a_new_queue_may_have_packets() {
    for policy in all() {
        let queue = Signalling::new(policy, at(5));
        assert!(queue.is_due(at(5)), "{}", policy.name());
    }
}

#[test]
fn an_interrupt_leads_to_a_look_at_once() {
    for policy in all() {
        let mut queue = Signalling::new(policy, at(0));
        let _ = queue.on_look(at(1), Look::EMPTY);
        let next = queue.on_interrupt(at(3));
        assert_eq!(next.look, Some(at(3)), "{}", policy.name());
        assert_eq!(is_enabled(next), policy == Policy::Interrupt);
    }
}

#[test]
fn polling_goes_on_while_a_look_leaves_packets() {
    for policy in all() {
        let mut queue = waiting_or_new(policy);
        let _ = queue.on_interrupt(at(1_000));
        for us in 1_000..1_010 {
            let next = queue.on_look(at(us), MORE);
            assert_eq!(next.look, Some(at(us)), "{}", policy.name());
            assert_eq!(is_enabled(next), policy == Policy::Interrupt);
            let next = queue.before_wait(at(us), None);
            assert_eq!(Wait::of(at(us), [next]), Wait::Refused);
        }
    }
}

fn waiting_or_new(policy: Policy) -> Signalling {
    match policy {
        Policy::Poll => Signalling::new(policy, at(0)),
        _ => waiting(policy, 100),
    }
}

#[test]
fn a_look_follows_whenever_interrupts_become_enabled() {
    for policy in all() {
        let mut queue = waiting_or_new(policy);
        let _ = queue.on_interrupt(at(1_000));
        let mut next = queue.on_look(at(1_000), found(1));
        if !is_enabled(next) {
            next = queue.before_wait(at(1_000), None);
        }
        if is_enabled(next) && policy != Policy::Interrupt {
            assert!(queue.is_due(at(1_000)), "{}", policy.name());
            let again = queue.before_wait(at(1_000), None);
            assert_eq!(Wait::of(at(1_000), [again]), Wait::Refused);
            let _ = queue.on_look(at(1_001), Look::EMPTY);
            let last = queue.before_wait(at(1_001), None);
            assert_eq!(Wait::of(at(1_001), [last]), Wait::UntilInterrupt);
        }
    }
}

#[test]
fn a_thread_that_always_polls_never_waits() {
    let mut queue = Signalling::new(Policy::Poll, at(0));
    for us in 0..10 {
        assert!(queue.is_due(at(us)));
        let _ = queue.on_look(at(us), Look::EMPTY);
        let next = queue.before_wait(at(us), None);
        assert_eq!(Wait::of(at(us), [next]), Wait::Refused);
    }
    assert_eq!(queue.counts(at(10)).waits, 0);
}

#[test]
fn a_hybrid_has_interrupts_again_when_a_look_leaves_nothing() {
    let mut queue = waiting(Policy::Hybrid, 100);
    assert!(!is_enabled(queue.on_interrupt(at(200))));
    assert!(!is_enabled(queue.on_look(at(201), MORE)));
    assert!(is_enabled(queue.on_look(at(202), found(3))));
    // The look after that is made with interrupts, so it needs no other, whatever it finds.
    let next = queue.on_look(at(203), found(1));
    assert_eq!(next, Next::INTERRUPTED);
}

#[test]
fn a_soft_poll_looks_once_an_interval_while_the_thread_runs() {
    let mut queue = waiting(soft_poll(5, 100), 100);
    let _ = queue.after_wait(at(300));
    let _ = queue.on_interrupt(at(300));
    let next = queue.on_look(at(300), found(1));
    let interval = queue.interval().unwrap();
    assert_eq!(next, Next::masked_until(at(300) + interval));
    assert!(!queue.is_due(at(301)));
    assert!(queue.is_due(at(300) + interval));
    // A look that finds nothing makes the interval longer, up to the bound.
    let mut now = at(300);
    for _ in 0..50 {
        now += queue.interval().unwrap();
        let next = queue.on_look(now, Look::EMPTY);
        assert!(!is_enabled(next), "a busy thread has no interrupts");
    }
    assert_eq!(queue.interval(), Some(Duration::from_micros(100)));
}

#[test]
fn a_soft_polling_thread_that_wakes_up_for_something_else_masks_interrupts() {
    let mut queue = waiting(soft_poll(5, 100), 100);
    assert!(is_enabled(queue.current()));
    let next = queue.after_wait(at(500));
    // The last look was long ago.
    assert_eq!(next, Next::masked_until(at(500)));
    let interval = queue.interval();
    let _ = queue.on_look(at(501), Look::EMPTY);
    assert_eq!(queue.interval(), interval, "interrupts were enabled before");
}

#[test]
fn looks_in_series_are_one_poll() {
    let quota = 40;
    let mut queue = Signalling::new(soft_poll(quota, 10_000), at(0));
    let _ = queue.on_look(at(0), Look::EMPTY);
    let mut now = at(0) + queue.interval().unwrap();
    let before = queue.interval();
    // 32 are fewer than the quota, and 40 are the quota.
    let _ = queue.on_look(now, MORE);
    now += Duration::from_micros(1);
    let _ = queue.on_look(now, found(8));
    assert_eq!(queue.interval(), before);
}

#[test]
fn completions_count_and_do_not_steer() {
    let mut queue = Signalling::new(soft_poll(1, 100), at(0));
    let _ = queue.on_look(at(0), Look::EMPTY);
    let completed = Look {
        completions: 30,
        ..Look::EMPTY
    };
    let mut now = at(0);
    for _ in 0..50 {
        now += queue.interval().unwrap();
        let _ = queue.on_look(now, completed);
    }
    assert_eq!(queue.interval(), Some(Duration::from_micros(100)));
    let counts = queue.counts(now);
    assert_eq!((counts.looks, counts.found), (51, 50));
    assert_eq!((counts.packets, counts.completions), (0, 1_500));
    // They may have woken a sender, so the thread is not idle.
    let _ = queue.before_wait(now, None);
    assert!(!is_enabled(queue.on_look(now, completed)));
}

#[test]
fn a_wait_that_is_called_off_ends_for_all_queues() {
    let mut first = waiting(soft_poll(5, 100), 100);
    let mut second = Signalling::new(soft_poll(5, 100), at(90));
    let _ = second.on_look(at(90), Look::EMPTY);
    let nexts = [
        first.before_wait(at(100), None),
        second.before_wait(at(100), None),
    ];
    assert_eq!(Wait::of(at(100), nexts), Wait::Refused, "by the second");
    let _ = second.on_look(at(101), found(1));
    let next = first.after_wait(at(101));
    assert!(!is_enabled(next));
    assert!(next.look.is_some());
}

/// Runs for `busy_us` of each 50 us, as each wait is ended by a packet. Returns what the last wait had.
fn run_loaded(queue: &mut Signalling, from_us: u64, to_us: u64, busy_us: u64) -> Next {
    let mut last = queue.current();
    for us in (from_us..to_us).step_by(50) {
        let _ = queue.after_wait(at(us));
        let _ = queue.on_interrupt(at(us));
        let _ = queue.on_look(at(us), found(1));
        begin_wait(queue, at(us + busy_us));
        last = queue.current();
    }
    last
}

#[test]
fn automatic_follows_the_load_with_hysteresis() {
    let mut queue = waiting(automatic(Wakeups::AtOnce), 100);
    let _ = run_loaded(&mut queue, 1_000, 10_000, 5);
    assert!(!queue.is_soft_polling(), "{}", queue.busy_share());
    let _ = run_loaded(&mut queue, 10_000, 14_000, 25);
    assert!(queue.is_soft_polling(), "{}", queue.busy_share());
    let _ = run_loaded(&mut queue, 14_000, 24_000, 10);
    assert!(
        queue.is_soft_polling(),
        "between the limits nothing changes"
    );
    let next = run_loaded(&mut queue, 24_000, 30_000, 5);
    assert!(!queue.is_soft_polling(), "{}", queue.busy_share());
    assert_eq!(next, Next::INTERRUPTED);
}

#[test]
fn automatic_leaves_rare_packets_of_a_busy_thread_to_interrupts() {
    let mut queue = waiting(automatic(Wakeups::AtOnce), 100);
    let mut next = queue.after_wait(at(200));
    for us in (1_000..200_000).step_by(5_000) {
        let _ = queue.on_interrupt(at(us));
        let _ = queue.on_look(at(us), found(1));
        next = queue.on_look(at(us + 1), Look::EMPTY);
    }
    assert!(queue.busy_share() > 0.9);
    assert_eq!(next, Next::INTERRUPTED);
}

#[test]
fn a_deferred_wait_ends_when_the_thread_wakes_up_anyway() {
    for wakeups in [Wakeups::ByTimer, Wakeups::Deferred] {
        let mut queue = waiting(automatic(wakeups), 100);
        // Two wake-ups of the thread: one within the latency bound after the last look, and one beyond it.
        let next = queue.before_wait(at(110), Some(at(150)));
        assert_eq!(next, Next::masked_until(at(150)));
        let next = queue.before_wait(at(110), Some(at(900)));
        assert!(is_enabled(next));
    }
    let mut prompt = waiting(automatic(Wakeups::AtOnce), 100);
    assert!(is_enabled(prompt.before_wait(at(110), Some(at(150)))));
}

#[test]
fn a_look_when_the_thread_wakes_up_anyway_does_not_steer() {
    let mut queue = waiting(automatic(Wakeups::Deferred), 100);
    let _ = run_loaded(&mut queue, 1_000, 10_000, 25);
    assert!(queue.is_soft_polling());
    let interval = queue.interval();
    let mut us = 10_000;
    for _ in 0..50 {
        let wakes_at = at(us + 20);
        let next = queue.before_wait(at(us), Some(wakes_at));
        assert_eq!(next, Next::masked_until(wakes_at));
        us += 25;
        assert_eq!(queue.after_wait(at(us)), next);
        let _ = queue.on_look(at(us), found(1));
    }
    assert_eq!(queue.interval(), interval);
}

#[test]
fn the_lateness_of_a_deferred_wait_counts() {
    let interval_after = |late_us| {
        let mut queue = waiting(automatic(Wakeups::Deferred), 100);
        let mut now = at(1_000);
        for _ in 0..300 {
            let _ = queue.after_wait(now);
            let _ = queue.on_look(now, found(5));
            now += Duration::from_micros(40);
            begin_wait(&mut queue, now);
            now = queue
                .current()
                .look
                .unwrap_or(now + Duration::from_micros(60));
            now += Duration::from_micros(late_us);
        }
        assert!(queue.counts(now).masked_waits > 100);
        queue.interval().unwrap()
    };
    assert!(interval_after(0) > Duration::from_micros(98));
    assert!(interval_after(20) < Duration::from_micros(82));
}

/// A queue whose waits also report earlier arrivals needs no look when interrupts become enabled.
#[test]
fn a_look_that_is_owed_can_be_forgiven() {
    let mut queue = Signalling::new(Policy::Hybrid, at(0));
    let next = queue.on_look(at(0), Look::EMPTY);
    assert_eq!(next.interrupts, Interrupts::Enabled);
    assert!(queue.is_due(at(0)));
    assert!(queue.forgive_look());
    assert!(!queue.is_due(at(1_000)) && !queue.forgive_look());
    let wait = Wait::of(at(1), [queue.before_wait(at(1), None)]);
    assert_eq!(wait, Wait::UntilInterrupt);
    assert_eq!(queue.counts(at(1)).looks, 1);
    // A masked queue keeps its look, since its arrivals are not reported.
    let mut queue = Signalling::new(Policy::Poll, at(0));
    assert!(!queue.forgive_look() && queue.is_due(at(0)));
}

/// With `ByTimer`, only a timer masks the interrupts of a wait, however loaded the thread is.
#[test]
fn wakeups_left_to_a_timer_need_one() {
    let mut queue = waiting(automatic(Wakeups::ByTimer), 100);
    for us in (1_000..10_000).step_by(100) {
        let _ = queue.after_wait(at(us));
        let _ = queue.on_look(at(us), found(5));
        begin_wait(&mut queue, at(us + 50));
    }
    assert!(queue.is_soft_polling());
    assert_eq!(queue.counts(at(10_000)).masked_waits, 0);
    let next = queue.before_wait(at(9_960), Some(at(9_990)));
    assert_eq!(next, Next::masked_until(at(9_990)));
}

#[test]
fn deferred_waits_need_load() {
    let mut queue = waiting(automatic(Wakeups::Deferred), 100);
    let _ = run_loaded(&mut queue, 1_000, 10_000, 4);
    assert_eq!(queue.counts(at(10_000)).masked_waits, 0);
    // Five packets in 100 us, half of the time busy.
    let mut us = 10_000;
    while us < 20_000 {
        let _ = queue.after_wait(at(us));
        let _ = queue.on_look(at(us), found(5));
        begin_wait(&mut queue, at(us + 50));
        us += 100;
    }
    assert!(queue.counts(at(us)).masked_waits > 20);
    // A wait in vain: interrupts again.
    for _ in 0..2 {
        us += 100;
        let _ = queue.after_wait(at(us));
        let _ = queue.on_look(at(us), Look::EMPTY);
        begin_wait(&mut queue, at(us));
    }
    assert_eq!(queue.current(), Next::INTERRUPTED);
}

#[test]
fn a_queue_is_small() {
    assert!(
        size_of::<Signalling>() <= 448,
        "{}",
        size_of::<Signalling>()
    );
}
