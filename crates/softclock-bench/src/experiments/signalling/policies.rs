//! The policies that are compared.

use std::time::Duration;

use softclock::signalling::{LatencyBound, Period, Policy, Quota, Wakeups};

use crate::lab::signalling::policy_name;

/// One of each kind, for smoke runs.
pub(in crate::experiments) fn few() -> Vec<Policy> {
    let kinds = [
        "interrupt",
        "clocked=1000us",
        "hybrid",
        "soft-poll=auto",
        "automatic=deferred, 250 us",
    ];
    let mut all = all();
    all.retain(|policy| kinds.contains(&&policy_name(*policy)[..]));
    all
}

/// All policies: with the default latency bound, and where a waiting thread is not woken also with a longer one.
pub(in crate::experiments) fn all() -> Vec<Policy> {
    let bound = LatencyBound::default();
    let clocked = [2_000, 1_000, 250, 50].map(|us| {
        let period = Period::new(Duration::from_micros(us)).expect("within the range");
        Policy::Clocked(period)
    });
    let fixed = [1, 2, 5, 10, 15].map(|packets| Quota::packets(packets).expect("within the range"));
    let quotas = fixed.into_iter().chain([Quota::AUTOMATIC]);
    let mut policies = vec![Policy::Interrupt, Policy::Poll];
    policies.extend(clocked);
    policies.push(Policy::Hybrid);
    policies.extend(quotas.map(|quota| Policy::SoftPoll { quota, bound }));
    policies.push(Policy::default());
    let deferred = [100, 250, 500].map(|us| Policy::Automatic {
        bound: LatencyBound::new(Duration::from_micros(us)).expect("within the range"),
        wakeups: Wakeups::Deferred,
    });
    policies.extend(deferred);
    policies
}
