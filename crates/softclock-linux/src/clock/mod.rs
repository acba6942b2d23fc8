//! Time: the processor's counter on the scale of CLOCK_MONOTONIC.
//!
//! The check at a trigger state (*Soft Timers*, section 3) is "reading the clock (usually a CPU register) and a
//! comparison", so the clock is the processor's counter with one multiplication. The counter is used only where the
//! kernel uses it too; elsewhere the clock reads CLOCK_MONOTONIC and says so ([`ThreadClock::source`]).

mod calibration;
mod conversion;
mod counter;
mod kernel;
mod run_time;
mod source;

use std::cell::Cell;
use std::rc::Rc;
use std::sync::OnceLock;
use std::time;

use softclock_core::{Clock, Instant};

use calibration::{Calibration, Sample};
pub(crate) use conversion::Conversion;
use conversion::mult_of;
pub use counter::Counter;
pub use kernel::{cpu_time_ns, monotonic_ns, set_timer_slack_ns, tick_ns};
pub use run_time::RunTime;
pub use source::{ClockSource, Distrust};

/// The clock of one thread: [`now`](Clock::now) costs a counter reading and about 1 ns.
///
/// Clones are handles to the same clock. Readings are nanoseconds of CLOCK_MONOTONIC, to within about 1 us while
/// [`resync_if_due`](Self::resync_if_due) is called often enough, and never go backwards. Readings of several threads'
/// clocks are comparable to the same precision.
#[derive(Clone, Debug)]
pub struct ThreadClock(Rc<Inner>);

#[derive(Debug)]
struct Inner {
    conversion: Conversion,
    source: Cell<ClockSource>,
    tracking: Cell<Option<Tracking>>,
    /// When [`ThreadClock::resync_if_due`] is to act, in nanoseconds.
    resync_at_ns: Cell<u64>,
}

/// What is needed to follow CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug)]
struct Tracking {
    counter: Counter,
    /// The other end of the interval over which the rate is measured.
    base: Sample,
    /// Until the next resynchronisation, in nanoseconds.
    pause_ns: u64,
    /// The narrowest sample, in ticks; much wider ones were interrupted.
    narrowest: u64,
    /// Resynchronisations in a row that found the clock wrong beyond reason.
    astray: u32,
}

impl ThreadClock {
    /// The best clock that this machine has. The first call in a process takes about 3 ms to measure the counter.
    pub fn new() -> Self {
        match Calibration::of_process() {
            Ok(calibration) => Self::tracking(calibration),
            Err(why) => Self::reading_monotonic(why),
        }
    }

    /// A clock that reads CLOCK_MONOTONIC itself, about 26 ns a reading.
    pub fn monotonic() -> Self {
        Self::reading_monotonic(Distrust::Asked)
    }

    fn tracking(calibration: Calibration) -> Self {
        let clock = Self::with_source(calibration.source);
        clock.0.tracking.set(Some(Tracking {
            counter: calibration.counter,
            base: calibration.start,
            pause_ns: FIRST_PAUSE_NS,
            narrowest: calibration.start.width,
            astray: 0,
        }));
        let start = calibration.start;
        let conversion = &clock.0.conversion;
        conversion.rebase(start.counter, start.ns, calibration.mult, 0);
        clock.resync();
        clock
    }

    fn reading_monotonic(why: Distrust) -> Self {
        let clock = Self::with_source(ClockSource::Monotonic { why });
        clock.0.resync_at_ns.set(u64::MAX);
        clock
    }

    fn with_source(source: ClockSource) -> Self {
        Self(Rc::new(Inner {
            conversion: Conversion::default(),
            source: Cell::new(source),
            tracking: Cell::new(None),
            resync_at_ns: Cell::new(0),
        }))
    }

    /// Where the time comes from.
    pub fn source(&self) -> ClockSource {
        self.0.source.get()
    }

    /// Resynchronises if it is time to (20 ms after the start, then ever more rarely up to once a second), given the
    /// current time. Costs a comparison otherwise.
    #[inline]
    pub fn resync_if_due(&self, now: Instant) -> bool {
        let due = now.as_ns() >= self.0.resync_at_ns.get();
        if due {
            self.resync();
        }
        due
    }

    /// Resynchronises if the last reading was so long ago that the clock may have gone wrong since. To be called first
    /// thing after blocking. Costs a counter reading otherwise.
    pub fn resync_after_wait(&self) {
        if self.0.conversion.since_last_ns() > LONG_WAIT_NS {
            self.resync();
        }
    }

    /// Corrects the clock by CLOCK_MONOTONIC: one or two readings of each, some 100 ns.
    ///
    /// A clock that is behind steps forward. One that is ahead stands still until the right time comes, usually for
    /// some nanoseconds. After blocking nothing needs to stand still if it comes before any reading.
    pub fn resync(&self) {
        let Some(mut tracking) = self.0.tracking.get() else {
            return;
        };
        if let Some(sample) = tracking.undisturbed_sample() {
            self.correct(&mut tracking, sample);
            tracking.pause_ns = (tracking.pause_ns * 4).min(LONGEST_PAUSE_NS);
        }
        if tracking.astray >= ASTRAY_LIMIT {
            self.distrust();
        } else {
            self.0.tracking.set(Some(tracking));
        }
    }

    fn correct(&self, tracking: &mut Tracking, sample: Sample) {
        let conversion = &self.0.conversion;
        // A rate that is far from the one before is no rate: the machine was suspended, and only one of the two clocks
        // stood still.
        let before = conversion.mult();
        let rate = tracking.rate(sample);
        let mult = rate
            .filter(|mult| mult.abs_diff(before) <= before / IMPLAUSIBLE)
            .unwrap_or(before);
        let truth = sample.ns + conversion.offset_ns();
        // Standing still for long would stop every timer, so a reading far ahead (the machine was suspended or moved)
        // is made the new truth.
        let ahead = conversion.last_ns().saturating_sub(truth);
        let lasting = if ahead > LONGEST_HOLD_NS { ahead } else { 0 };
        tracking.astray = if lasting > 0 { tracking.astray + 1 } else { 0 };
        conversion.rebase(
            sample.counter,
            truth + lasting,
            mult,
            conversion.offset_ns() + lasting,
        );
        let resync_at = truth + lasting + tracking.pause_ns;
        self.0.resync_at_ns.set(resync_at);
    }

    fn distrust(&self) {
        let why = Distrust::Diverged;
        self.0.source.set(ClockSource::Monotonic { why });
        self.0.tracking.set(None);
        self.0.resync_at_ns.set(u64::MAX);
        let conversion = &self.0.conversion;
        conversion.use_monotonic(conversion.offset_ns());
    }

    /// The same point in time for the standard library, to within about 1 us.
    pub fn to_std(&self, instant: Instant) -> time::Instant {
        let (here, there) = anchor();
        let here = here.add_ns(self.0.conversion.offset_ns());
        let later = there.checked_add(instant.since(here));
        if instant >= here {
            later.unwrap_or(there)
        } else {
            there.checked_sub(here.since(instant)).unwrap_or(there)
        }
    }

    /// The same point in time on this clock, to within about 1 us; the origin if it is before that.
    #[allow(clippy::wrong_self_convention, reason = "the pair of to_std")]
    pub fn from_std(&self, instant: time::Instant) -> Instant {
        let (here, there) = anchor();
        let here = here.add_ns(self.0.conversion.offset_ns());
        match instant.checked_duration_since(there) {
            Some(later) => here + later,
            None => here - there.duration_since(instant),
        }
    }

    /// The conversion, for alarms that interrupt this thread. They keep the clock alive by a clone.
    pub(crate) fn conversion(&self) -> &Conversion {
        &self.0.conversion
    }
}

impl Clock for ThreadClock {
    #[inline(always)]
    fn now(&self) -> Instant {
        Instant::from_ns(self.0.conversion.read())
    }
}

impl Default for ThreadClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Tracking {
    fn undisturbed_sample(&mut self) -> Option<Sample> {
        let limit = self.narrowest.saturating_mul(DISTURBED).max(DISTURBED);
        let found = (0..2)
            .map(|_| Sample::take(self.counter))
            .find(|sample| sample.width <= limit);
        match found {
            Some(sample) => self.narrowest = self.narrowest.min(sample.width),
            // Where all samples have become slow, the limit gives way.
            None => self.narrowest = self.narrowest.saturating_mul(2).max(1),
        }
        found
    }

    /// The rate since the base, which `sample` becomes if it is far enough away.
    fn rate(&mut self, sample: Sample) -> Option<u64> {
        let ns = sample.ns.saturating_sub(self.base.ns);
        if ns < SHORTEST_BASELINE_NS {
            return None;
        }
        let ticks = sample.counter.wrapping_sub(self.base.counter);
        self.base = sample;
        Some(mult_of(ns, ticks))
    }
}

/// The same moment on CLOCK_MONOTONIC and as the standard library has it.
fn anchor() -> (Instant, time::Instant) {
    static ANCHOR: OnceLock<(Instant, time::Instant)> = OnceLock::new();
    *ANCHOR.get_or_init(|| {
        let read = || {
            let before = monotonic_ns();
            let there = time::Instant::now();
            let width = monotonic_ns() - before;
            (width, Instant::from_ns(before + width / 2), there)
        };
        let best = (0..8).map(|_| read()).min_by_key(|&(width, ..)| width);
        let (_, here, there) = best.unwrap_or_else(read);
        (here, there)
    })
}

/// The calibration's rate is right to some parts in a million: 20 ms keep the error below 100 ns.
const FIRST_PAUSE_NS: u64 = 20_000_000;

/// Once it is known to a part in a million, the clock may be wrong by 100 ns after so long.
const LONG_WAIT_NS: u64 = 100_000_000;

/// Time synchronisation changes the kernel's rate by up to 500 parts in a million, rarely and gradually.
const LONGEST_PAUSE_NS: u64 = 1_000_000_000;

/// Quartz and time synchronisation stay within 600 parts in a million.
const IMPLAUSIBLE: u64 = 1_000;

/// Two samples' errors of some 10 ns are then one part in a million.
const SHORTEST_BASELINE_NS: u64 = 10_000_000;

/// A sample this many times wider than the narrowest was interrupted.
const DISTURBED: u64 = 4;

/// The longest that time stands still.
const LONGEST_HOLD_NS: u64 = 1_000_000;

/// As many resynchronisations in a row that find the clock far ahead end the trust in the counter.
const ASTRAY_LIMIT: u32 = 3;

#[cfg(test)]
mod tests;
