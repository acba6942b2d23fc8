//! How fast the counter runs: measured once in a process, refined by every clock for itself.

use std::sync::OnceLock;
use std::time::Duration;

use super::conversion::mult_of;
use super::counter::{Counter, IS_TSC};
use super::kernel::monotonic_ns;
use super::source::{ClockSource, Distrust};

/// The counter and CLOCK_MONOTONIC, read together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) counter: u64,
    pub(super) ns: u64,
    /// Counter ticks that the reading took, and so twice its largest error.
    pub(super) width: u64,
}

/// What a process knows of its counter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Calibration {
    pub(super) counter: Counter,
    pub(super) start: Sample,
    pub(super) mult: u64,
    pub(super) source: ClockSource,
}

impl Sample {
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

    /// The most exact of several samples.
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
    /// The process's calibration. The first call takes about 3 ms, later ones nothing.
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

const TRIES: usize = 16;

/// Long enough for a rate that is right to some parts in a million; the clocks' own samples make it better.
const BASELINE: Duration = Duration::from_millis(3);
