//! Time: the processor's counter, converted to the scale of CLOCK_MONOTONIC.
//!
//! The check at a trigger state (*Soft Timers*, section 3) is "reading the clock (usually a CPU register) and a
//! comparison". So a clock reads the processor's counter and converts it with one multiplication. It uses the counter
//! only if the kernel does; otherwise it reads CLOCK_MONOTONIC, and [`ThreadClock::source`] gives the reason.
//!
//! # Example
//! ```
//! use softclock_core::Clock;
//! use softclock_linux::clock::ThreadClock;
//!
//! let clock = ThreadClock::new();
//! println!("time source: {}", clock.source());
//!
//! let start = clock.now();
//! // A loop that runs for long calls this now and then, so that the clock keeps to CLOCK_MONOTONIC.
//! clock.resync_if_due(start);
//! println!("took {} ns", clock.now().ns_since(start));
//! ```

mod calibration;
mod conversion;
mod counter;
mod kernel;
mod minimal_slack;
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
pub use minimal_slack::MinimalSlack;
pub use run_time::RunTime;
pub use source::{ClockSource, Distrust};

/// The clock of one thread. [`now`](Clock::now) costs a counter reading and about 1 ns.
///
/// Clones are handles to the same clock. Readings are nanoseconds of CLOCK_MONOTONIC, to within about 1 us while
/// [`resync_if_due`](Self::resync_if_due) is called often enough, and never go backwards. Readings of different
/// threads' clocks can be compared with the same precision.
#[derive(Clone, Debug)]
pub struct ThreadClock(Rc<Inner>);

#[derive(Debug)]
struct Inner {
    conversion: Conversion,
    source: Cell<ClockSource>,
    tracking: Cell<Option<Tracking>>,
    /// The time of the next resynchronisation by [`ThreadClock::resync_if_due`], in nanoseconds.
    resync_at_ns: Cell<u64>,
}

/// The state by which a clock follows CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug)]
struct Tracking {
    counter: Counter,
    /// The sample at the beginning of the interval over which the rate is measured.
    base: Sample,
    /// The time to the next resynchronisation, in nanoseconds.
    pause_ns: u64,
    /// The width of the narrowest sample, in ticks. Much wider samples were interrupted.
    narrowest: u64,
    /// The number of resynchronisations in a row that found the clock implausibly far ahead.
    astray: u32,
}

impl ThreadClock {
    /// Creates a clock that reads the processor's counter if it can be trusted, otherwise CLOCK_MONOTONIC. The first
    /// call in a process takes about 3 ms, to measure the counter's rate.
    pub fn new() -> Self {
        match Calibration::of_process() {
            Ok(calibration) => Self::tracking(calibration),
            Err(why) => Self::reading_monotonic(why),
        }
    }

    /// Creates a clock that reads CLOCK_MONOTONIC, which takes about 26 ns a reading.
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
        // The calibration may be old: other threads may have created their clocks long ago.
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

    /// The source of this clock's time. Can change to CLOCK_MONOTONIC while the clock runs ([`Distrust::Diverged`]).
    pub fn source(&self) -> ClockSource {
        self.0.source.get()
    }

    /// Resynchronises if that is due at `now`, and returns whether it did. Costs a comparison if it is not due.
    ///
    /// The first time is 20 ms after the clock's creation; the intervals then grow to 1 s.
    #[inline]
    pub fn resync_if_due(&self, now: Instant) -> bool {
        let due = now.as_ns() >= self.0.resync_at_ns.get();
        if due {
            self.resync();
        }
        due
    }

    /// Resynchronises if the last reading was so long ago (100 ms) that the clock may have drifted. Call it after
    /// blocking, before any other reading. Costs a counter reading if there is nothing to do.
    pub fn resync_after_wait(&self) {
        if self.0.conversion.since_last_ns() > LONG_WAIT_NS {
            self.resync();
        }
    }

    /// Corrects the clock by one or two readings of CLOCK_MONOTONIC, about 100 ns.
    ///
    /// A clock that is behind steps forward. A clock that is ahead stands still until the right time has come, usually
    /// for a few nanoseconds.
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

    /// Rebases the conversion on `sample`, at the rate measured since the last base.
    fn correct(&self, tracking: &mut Tracking, sample: Sample) {
        let conversion = &self.0.conversion;
        // A rate far from the previous one is implausible and ignored: the machine was suspended, and only one of the
        // two clocks stood still meanwhile.
        let before = conversion.mult();
        let rate = tracking.rate(sample);
        let mult = rate
            .filter(|mult| mult.abs_diff(before) <= before / IMPLAUSIBLE)
            .unwrap_or(before);
        let truth = sample.ns + conversion.offset_ns();
        // A clock that stands still for long would stop every timer. So if it is far ahead (the machine was suspended
        // or migrated), it keeps its lead over CLOCK_MONOTONIC, as an offset from here on.
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

    /// Gives up the counter and reads CLOCK_MONOTONIC from here on.
    fn distrust(&self) {
        let why = Distrust::Diverged;
        self.0.source.set(ClockSource::Monotonic { why });
        self.0.tracking.set(None);
        self.0.resync_at_ns.set(u64::MAX);
        let conversion = &self.0.conversion;
        conversion.use_monotonic(conversion.offset_ns());
    }

    /// Converts an instant of this clock to one of the standard library, to within about 1 us. Returns the time of the
    /// first conversion in this process if the standard library cannot represent the result.
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

    /// Converts an instant of the standard library to one of this clock, to within about 1 us. Returns the origin for
    /// instants before it.
    #[allow(clippy::wrong_self_convention, reason = "the pair of to_std")]
    pub fn from_std(&self, instant: time::Instant) -> Instant {
        let (here, there) = anchor();
        let here = here.add_ns(self.0.conversion.offset_ns());
        match instant.checked_duration_since(there) {
            Some(later) => here + later,
            None => here - there.duration_since(instant),
        }
    }

    /// The conversion, for the alarms that interrupt this thread. They hold a clone of the clock, so it stays valid.
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
    /// Takes up to two samples, and returns the first that was not interrupted.
    fn undisturbed_sample(&mut self) -> Option<Sample> {
        let limit = self.narrowest.saturating_mul(DISTURBED).max(DISTURBED);
        let found = (0..2)
            .map(|_| Sample::take(self.counter))
            .find(|sample| sample.width <= limit);
        match found {
            Some(sample) => self.narrowest = self.narrowest.min(sample.width),
            // If all samples have become slower, say after a migration, a higher limit lets them pass some day.
            None => self.narrowest = self.narrowest.saturating_mul(2).max(1),
        }
        found
    }

    /// Returns the rate since the base, and makes `sample` the new base. Returns `None` and keeps the base if `sample`
    /// is too close to it for a precise rate.
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

/// Returns one moment on both scales: CLOCK_MONOTONIC and the standard library's. Measured once in a process.
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

/// The time to the first resynchronisation. The calibration's rate is right to a few parts in a million, so the error
/// stays below 100 ns.
const FIRST_PAUSE_NS: u64 = 20_000_000;

/// A wait after which the clock may be wrong by 100 ns, at a rate known to one part in a million.
const LONG_WAIT_NS: u64 = 100_000_000;

/// The longest time between resynchronisations. Time synchronisation changes the rate of CLOCK_MONOTONIC by up to 500
/// parts in a million, but rarely and gradually.
const LONGEST_PAUSE_NS: u64 = 1_000_000_000;

/// A rate is implausible if it differs from the previous one by more than one part in this many. The errors of quartz
/// and time synchronisation stay within 600 parts in a million.
const IMPLAUSIBLE: u64 = 1_000;

/// The shortest interval over which a rate is measured. The errors of its two samples, about 10 ns, are then one part
/// in a million.
const SHORTEST_BASELINE_NS: u64 = 10_000_000;

/// A sample more than this many times as wide as the narrowest was interrupted.
const DISTURBED: u64 = 4;

/// The longest time for which the clock stands still.
const LONGEST_HOLD_NS: u64 = 1_000_000;

/// The number of resynchronisations in a row that find the clock far ahead, after which the counter is given up.
const ASTRAY_LIMIT: u32 = 3;

#[cfg(test)]
mod tests;
