//! Steal time: the share of the processors' time that the hypervisor gave to other machines during a round.
//!
//! The results of a round with much steal time describe the host more than the subject.
//! [`Context`](crate::output::report::Context) counts the steal time of each round. Rounds above [`MOST_PERCENT`] are
//! measured again, a bounded number of times, and the measurement with the least steal time is kept. The report and its
//! JSON have the counts.

use std::fs;
use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;

/// The percentage of all processors' time above which a round is measured again. Experiments distinguish ratios to a
/// few percent; on a quiet host steal time stays below one.
pub const MOST_PERCENT: f64 = 3.0;

/// The least number of stolen ticks that count. The kernel counts ticks of mostly 10 ms: a single one says nothing
/// about a short round.
const LEAST_TICKS: u64 = 2;

/// The most measurements of one round.
const MOST_ATTEMPTS: usize = 3;

/// An experiment may repeat half as many measurements as it has rounds, plus this number.
const SPARE_REPEATS: usize = 2;

/// Statistics of the steal time of an experiment's rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Steal {
    /// Percent of all processors' time, over the whole experiment.
    pub percent: f64,
    /// The highest percentage in a round whose samples were kept; 0 if no round was long enough to tell.
    pub highest_kept_percent: f64,
    /// The limit above which a round was measured again: [`MOST_PERCENT`].
    pub limit_percent: f64,
    /// Rounds whose samples were kept.
    pub rounds: usize,
    /// Measurements that were repeated, and whose samples are not used.
    pub left_out: usize,
    /// Rounds that were kept above the limit, because no repetition within the bounds was better.
    pub kept_above_limit: usize,
}

impl Steal {
    /// Returns a sentence for a report's notes.
    pub fn note(&self) -> String {
        let Self {
            percent,
            highest_kept_percent,
            limit_percent,
            rounds,
            left_out,
            kept_above_limit,
        } = self;
        format!(
            "steal time: {percent:.1} % of all processors' time, at most {highest_kept_percent:.1} % in a round; of \
             {rounds} rounds, measurements left out and repeated because of more than {limit_percent} %: {left_out}, rounds \
             kept in spite of it: {kept_above_limit}"
        )
    }
}

/// Time of all processors together, as the kernel counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ticks {
    stolen: u64,
    all: u64,
}

impl Ticks {
    /// Reads the ticks since the system started, or `None` if they cannot be read.
    fn now() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    /// Parses the first line of `proc_stat(5)`: user, nice, system, idle, iowait, irq, softirq and steal. The guests'
    /// times that follow are included in the first two.
    fn parse(stat: &str) -> Option<Self> {
        let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let ticks = line.split_whitespace().take(8).map(str::parse);
        let ticks: Vec<u64> = ticks.collect::<Result<_, _>>().ok()?;
        let &[.., stolen] = <&[u64; 8]>::try_from(ticks.as_slice()).ok()?;
        Some(Self {
            stolen,
            all: ticks.iter().sum(),
        })
    }

    fn since(self, earlier: Self) -> Self {
        Self {
            stolen: self.stolen.saturating_sub(earlier.stolen),
            all: self.all.saturating_sub(earlier.all),
        }
    }

    /// Returns the share of stolen ticks; 0 if no time has passed.
    fn percent(self) -> f64 {
        100.0 * self.stolen as f64 / self.all.max(1) as f64
    }

    fn is_high(self) -> bool {
        self.stolen >= LEAST_TICKS && self.percent() > MOST_PERCENT
    }
}

/// Counts the steal time of an experiment's rounds.
#[derive(Debug)]
pub(crate) struct Watch {
    /// Whether rounds may be measured again.
    repeats: bool,
    tally: Mutex<Tally>,
}

#[derive(Debug, Default)]
struct Tally {
    begun: Option<Ticks>,
    steal: Steal,
}

impl Watch {
    pub(crate) fn new(repeats: bool) -> Self {
        Self {
            repeats,
            tally: Mutex::default(),
        }
    }

    /// Starts an experiment.
    pub(crate) fn begin(&self) {
        *self.tally() = Tally {
            begun: Ticks::now(),
            steal: Steal::default(),
        };
    }

    /// Returns the statistics since [`begin`](Self::begin), or `None` if the kernel does not report steal time.
    pub(crate) fn end(&self) -> Option<Steal> {
        let tally = mem::take(&mut *self.tally());
        Some(Steal {
            percent: Ticks::now()?.since(tally.begun?).percent(),
            limit_percent: MOST_PERCENT,
            ..tally.steal
        })
    }

    /// Starts a round.
    pub(crate) fn round<T>(&self) -> Round<'_, T> {
        Round {
            watch: self,
            begun: Ticks::now(),
            attempts: 0,
            best: None,
        }
    }

    fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A round, which is measured once or more often.
pub(crate) struct Round<'a, T> {
    watch: &'a Watch,
    begun: Option<Ticks>,
    attempts: usize,
    /// The measurement with the least steal time so far.
    best: Option<(Ticks, T)>,
}

impl<T> Round<'_, T> {
    /// Takes the measurement made since the last call, or since the round began; returns the one to keep, or `None` to
    /// request another measurement.
    pub(crate) fn keep(&mut self, measured: T) -> Option<T> {
        let now = Ticks::now();
        let during = now.zip(self.begun).map(|(now, begun)| now.since(begun));
        // The next measurement of this round begins here.
        self.begun = now;
        self.judge(measured, during.unwrap_or_default())
    }

    fn judge(&mut self, measured: T, during: Ticks) -> Option<T> {
        self.attempts += 1;
        let is_better = |best: &(Ticks, T)| during.percent() < best.0.percent();
        if self.best.as_ref().is_none_or(is_better) {
            self.best = Some((during, measured));
        }
        let mut tally = self.watch.tally();
        let steal = &mut tally.steal;
        // The bound for the whole experiment keeps its duration predictable on a busy host.
        let repeats = self.watch.repeats && steal.left_out < SPARE_REPEATS + steal.rounds / 2;
        if during.is_high() && repeats && self.attempts < MOST_ATTEMPTS {
            steal.left_out += 1;
            return None;
        }
        let (during, kept) = self.best.take()?;
        steal.rounds += 1;
        steal.kept_above_limit += usize::from(during.is_high());
        if during.stolen >= LEAST_TICKS {
            steal.highest_kept_percent = steal.highest_kept_percent.max(during.percent());
        }
        Some(kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ticks(stolen: u64, all: u64) -> Ticks {
        Ticks { stolen, all }
    }

    #[test]
    fn steal_is_the_eighth_number_and_guests_count_once() {
        let stat = "cpu  10 20 30 400 50 0 7 6 9 9\ncpu0 5 10 15 200 25 0 3 3 4 4\nintr 9\n";
        assert_eq!(Ticks::parse(stat), Some(ticks(6, 523)));
        assert_eq!(Ticks::parse("cpu  10 20 30 400\n"), None);
        assert_eq!(Ticks::parse("cpu  a b c d e f g h\n"), None);
        assert_eq!(Ticks::parse("intr 9\n"), None);
    }

    #[test]
    fn a_single_tick_is_never_high() {
        assert!(!ticks(1, 2).is_high());
        assert!(ticks(2, 40).is_high());
        assert!(!ticks(3, 100).is_high());
        assert!(ticks(4, 100).is_high());
        assert!(!Ticks::default().is_high());
    }

    #[test]
    fn a_quiet_round_is_kept_at_once() {
        let watch = Watch::new(true);
        assert_eq!(watch.round().judge("quiet", ticks(2, 100)), Some("quiet"));
        let steal = watch.tally().steal;
        assert_eq!((steal.rounds, steal.left_out), (1, 0));
        assert_eq!(steal.highest_kept_percent, 2.0);
    }

    #[test]
    fn a_disturbed_round_is_measured_again() {
        let watch = Watch::new(true);
        let mut round = watch.round();
        assert_eq!(round.judge("disturbed", ticks(50, 100)), None);
        assert_eq!(round.judge("quiet", ticks(0, 100)), Some("quiet"));
        let steal = watch.tally().steal;
        assert_eq!((steal.rounds, steal.left_out), (1, 1));
        assert_eq!(
            (steal.kept_above_limit, steal.highest_kept_percent),
            (0, 0.0)
        );
    }

    #[test]
    fn the_least_disturbed_is_kept_where_all_are() {
        let watch = Watch::new(true);
        let mut round = watch.round();
        assert_eq!(round.judge("first", ticks(50, 100)), None);
        assert_eq!(round.judge("least", ticks(10, 100)), None);
        assert_eq!(round.judge("last", ticks(40, 100)), Some("least"));
        let steal = watch.tally().steal;
        assert_eq!((steal.rounds, steal.left_out), (1, 2));
        assert_eq!(
            (steal.kept_above_limit, steal.highest_kept_percent),
            (1, 10.0)
        );
    }

    #[test]
    fn repeats_are_bounded_where_every_round_is_disturbed() {
        let watch = Watch::new(true);
        let mut measurements = 0;
        for _ in 0..100 {
            let mut round = watch.round();
            loop {
                measurements += 1;
                if round.judge((), ticks(50, 100)).is_some() {
                    break;
                }
            }
        }
        assert!((150..=152).contains(&measurements), "{measurements}");
        assert_eq!(watch.tally().steal.kept_above_limit, 100);
    }

    #[test]
    fn nothing_is_repeated_where_that_is_not_wanted() {
        let watch = Watch::new(false);
        assert_eq!(watch.round().judge("high", ticks(50, 100)), Some("high"));
        assert_eq!(watch.tally().steal.kept_above_limit, 1);
    }

    #[test]
    fn an_experiment_begins_anew_and_its_note_names_all() {
        let watch = Watch::new(true);
        watch.begin();
        let _ = watch.round().judge((), ticks(1, 100));
        let steal = watch.end().expect("Linux tells");
        assert_eq!((steal.rounds, steal.limit_percent), (1, MOST_PERCENT));
        watch.begin();
        assert_eq!(watch.end().expect("Linux tells").rounds, 0);
        let steal = Steal {
            percent: 1.3,
            highest_kept_percent: 7.0,
            limit_percent: 3.0,
            rounds: 40,
            left_out: 2,
            kept_above_limit: 1,
        };
        let note = "steal time: 1.3 % of all processors' time, at most 7.0 % in a round; of 40 rounds, measurements left out \
                    and repeated because of more than 3 %: 2, rounds kept in spite of it: 1";
        assert_eq!(steal.note(), note);
    }
}
