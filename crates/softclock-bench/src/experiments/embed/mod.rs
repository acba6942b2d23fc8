//! `embed/…`: the library inside other programs, beside the libraries that they use today.

pub mod media;
pub mod quic;
pub mod runtimes;
pub mod timers;

use std::time::Duration;

struct Plan {
    rounds: usize,
    slice: Duration,
}

const FULL: Plan = Plan {
    rounds: 5,
    slice: Duration::from_secs(2),
};

const SMOKE: Plan = Plan {
    rounds: 1,
    slice: Duration::from_millis(200),
};
