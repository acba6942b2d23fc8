//! Short loops with a clock reading around them, for operations of nanoseconds.

use std::time::Instant;

use crate::output::report::Context;

/// The numbers of samples and calls of an operation.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Samples, each of which gives one number.
    pub samples: usize,
    /// Calls per sample.
    pub calls: u32,
}

impl Effort {
    /// Returns 1000 samples of `calls` calls each, or fewer of both in a smoke run.
    ///
    /// Choose `calls` so that a sample takes about 50 us: long beside the clock's resolution, and short enough that
    /// most samples are not interrupted.
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

/// Returns the nanoseconds per call of `operation`, over `calls` calls, including the loop.
pub fn ns_per_call(calls: u32, mut operation: impl FnMut()) -> f64 {
    let start = Instant::now();
    for _ in 0..calls {
        operation();
    }
    start.elapsed().as_nanos() as f64 / f64::from(calls)
}
