//! The contract of `softclock_core::signalling` in virtual time: no packet waits longer than the bound or is forgotten,
//! a busy thread is not interrupted, an idle one has interrupts, and looks find the quota.

mod contract;
mod load;
mod model;
mod queues;
mod quota;

use std::time::Duration;

use softclock_core::signalling::{LatencyBound, Period, Policy, Quota, Wakeups};

fn period(us: u64) -> Policy {
    Policy::Clocked(Period::new(Duration::from_micros(us)).unwrap())
}

fn soft_poll(quota: Quota, bound_us: u64) -> Policy {
    let bound = bound(bound_us);
    Policy::SoftPoll { quota, bound }
}

fn automatic(bound_us: u64, wakeups: Wakeups) -> Policy {
    let bound = bound(bound_us);
    Policy::Automatic { bound, wakeups }
}

fn bound(us: u64) -> LatencyBound {
    LatencyBound::new(Duration::from_micros(us)).unwrap()
}

/// The longest time that a policy may leave a packet to a look.
fn longest_ns(policy: Policy) -> u64 {
    match policy {
        Policy::Interrupt | Policy::Poll | Policy::Hybrid => 0,
        Policy::Clocked(period) => period.as_ns(),
        Policy::SoftPoll { bound, .. } | Policy::Automatic { bound, .. } => bound.as_ns(),
        other => panic!("no limit is known for {other:?}"),
    }
}

const MS: u64 = 1_000_000;
