//! Steal time: processor time that the hypervisor gave to other guests.

use std::fs;

/// Time of all processors together, in the kernel's ticks, usually of 10 ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ticks {
    stolen: u64,
    all: u64,
}

impl Ticks {
    /// Ticks since the system started; zero if they cannot be read.
    pub(super) fn now() -> Self {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        Self::parse(&stat).unwrap_or_default()
    }

    /// Parses the `cpu` line of proc_stat(5): user, nice, system, idle, iowait, irq, softirq and steal. The guest times
    /// that follow are already part of the first two.
    fn parse(stat: &str) -> Option<Self> {
        let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let ticks = line.split_whitespace().take(8).map(str::parse);
        let ticks: Vec<u64> = ticks.collect::<Result<_, _>>().ok()?;
        Some(Self {
            stolen: *ticks.get(7)?,
            all: ticks.iter().sum(),
        })
    }

    pub(super) fn since(self, earlier: Self) -> Self {
        Self {
            stolen: self.stolen.saturating_sub(earlier.stolen),
            all: self.all.saturating_sub(earlier.all),
        }
    }

    pub(super) fn percent(self) -> f64 {
        100.0 * self.stolen as f64 / self.all.max(1) as f64
    }

    /// Whether steal time is so high that it dominates the figures. A single tick may be chance.
    pub(super) fn is_high(self) -> bool {
        self.stolen > 1 && self.percent() > MOST_PERCENT
    }
}

/// Limit of steal time; a quiet host stays below 1 %.
const MOST_PERCENT: f64 = 3.0;

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Ticks of which `stolen` per cent are steal time.
    pub(in crate::demo) const fn percent(stolen: u64) -> Ticks {
        Ticks { stolen, all: 100 }
    }

    #[test]
    fn steal_is_the_eighth_number_and_guests_count_once() {
        let earlier = Ticks::parse("cpu  10 20 30 400 50 0 7 6 9 9\ncpu0 5 10 15\n").unwrap();
        let later = Ticks::parse("cpu  20 20 30 480 50 0 7 16 9 9\ncpu0 5 10 15\n").unwrap();
        assert_eq!(later.since(earlier), percent(10));
        for text in ["", "intr 9\n", "cpu  10 20\n", "cpu  a b c d e f g h\n"] {
            assert_eq!(Ticks::parse(text), None, "{text}");
        }
    }

    #[test]
    fn more_than_a_few_percent_is_high() {
        assert!(percent(4).is_high() && !percent(3).is_high());
        assert!(!Ticks { stolen: 1, all: 2 }.is_high());
        assert!(!Ticks::default().is_high());
    }
}
