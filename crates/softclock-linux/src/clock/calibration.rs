//! Measures the counter's rate, once in a process. Each clock then refines the rate for itself.

use std::sync::OnceLock;
use std::time::Duration;

use super::conversion::mult_of;
use super::counter::{Counter, IS_TSC};
use super::kernel::monotonic_ns;
use super::source::{ClockSource, Distrust};

/// A reading of the counter and of CLOCK_MONOTONIC at the same time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) counter: u64,
    pub(super) ns: u64,
    /// The ticks that the reading took, which is twice its largest error.
    pub(super) width: u64,
}

/// The counter of this machine and its rate, as measured at the first use in this process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Calibration {
    pub(super) counter: Counter,
    pub(super) start: Sample,
    pub(super) mult: u64,
    pub(super) source: ClockSource,
}

impl Sample {
    /// Takes a sample: reads the counter before and after CLOCK_MONOTONIC, and uses the middle.
    pub(super) fn take(counter: Counter) -> Self {
        let before = counter.read_ordered();
        let ns = monotonic_ns();
        let width = counter.read_ordered().wrapping_sub(before);
        Self {
            counter: before.wrapping_add(width / 2),
            ns,
            width,
        }
    }

    /// Takes several samples and returns the narrowest, which is the most precise.
    fn best(counter: Counter) -> Self {
        (1..TRIES)
            .map(|_| Self::take(counter))
            .fold(Self::take(counter), |best, sample| {
                if sample.width < best.width {
                    sample
                } else {
                    best
                }
            })
    }
}

impl Calibration {
    /// Returns the calibration of this process, or the reason why the counter cannot be used. The first call takes
    /// about 3 ms; later ones only read memory.
    pub(super) fn of_process() -> Result<Self, Distrust> {
        static CALIBRATION: OnceLock<Result<Calibration, Distrust>> = OnceLock::new();
        *CALIBRATION.get_or_init(|| Counter::detect().map(Self::measure))
    }

    fn measure(counter: Counter) -> Self {
        let start = Sample::best(counter);
        std::thread::sleep(BASELINE);
        let end = Sample::best(counter);
        let (ns, ticks) = (end.ns - start.ns, end.counter.wrapping_sub(start.counter));
        let hz = (u128::from(ticks) * 1_000_000_000 / u128::from(ns.max(1))) as u64;
        Self {
            counter,
            start,
            mult: mult_of(ns, ticks),
            source: if IS_TSC {
                ClockSource::Tsc { hz }
            } else {
                ClockSource::Cntvct { hz }
            },
        }
    }
}

/// The number of samples of which the best one is used.
const TRIES: usize = 16;

/// The time over which the rate is measured: long enough for a rate that is right to a few parts in a million. The
/// samples of each clock improve on it.
const BASELINE: Duration = Duration::from_millis(3);
