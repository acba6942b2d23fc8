//! Short loops timed from outside, for operations of nanoseconds.

use std::time::Instant;

use crate::output::report::Context;

/// How often an operation is timed and how many calls each time.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Samples taken, each of which gives one number.
    pub samples: usize,
    /// Calls in a sample.
    pub calls: u32,
}

impl Effort {
    /// `calls` calls in each of 1000 samples, or fewer of both for a smoke run.
    ///
    /// Choose `calls` so that a sample takes some 50 us: long beside the clock's resolution, and
    /// short enough that most samples are not interrupted.
    pub fn of(context: &Context, calls: u32) -> Self {
        if context.smoke {
            Self {
                samples: 25,
                calls: calls.min(200),
            }
        } else {
            Self {
                samples: 1000,
                calls,
            }
        }
    }
}

/// Nanoseconds a call of `operation` takes in one run of `calls` of them, the loop included.
pub fn ns_per_call(calls: u32, mut operation: impl FnMut()) -> f64 {
    let start = Instant::now();
    for _ in 0..calls {
        operation();
    }
    start.elapsed().as_nanos() as f64 / f64::from(calls)
}
