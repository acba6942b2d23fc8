//! The period at which the backup timer looks for overdue events.

/// The period of the backup timer. It adapts to the lateness found, as in FreeBSD's HPTS.
///
/// The paper's interrupt clock has a fixed period. Here four backups in a row that find nothing overdue double the
/// period, and one that finds an event late by more than a quarter of the shortest period halves it. The longest period
/// is the paper's X.
///
/// ```
/// use softclock_linux::alarm::BackupPeriod;
///
/// let mut period = BackupPeriod::new(4_000_000, 32_000_000);
/// let periods: Vec<_> = (0..5).map(|_| period.after_backup(None) / 1_000_000).collect();
/// assert_eq!(periods, [4, 4, 4, 8, 8], "in milliseconds");
/// assert_eq!(period.after_backup(Some(5_000_000)) / 1_000_000, 4);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackupPeriod {
    min_ns: u64,
    max_ns: u64,
    period_ns: u64,
    /// The number of backups in a row that found nothing overdue.
    quiet: u32,
}

impl BackupPeriod {
    /// Starts at the shortest period, `min_ns`, which should be the kernel's tick. A `max_ns` below it is raised to it.
    pub const fn new(min_ns: u64, max_ns: u64) -> Self {
        let max_ns = if max_ns > min_ns { max_ns } else { min_ns };
        Self {
            min_ns,
            max_ns,
            period_ns: min_ns,
            quiet: 0,
        }
    }

    /// The current period in nanoseconds.
    pub const fn period_ns(&self) -> u64 {
        self.period_ns
    }

    /// The longest period, in nanoseconds.
    pub const fn max_ns(&self) -> u64 {
        self.max_ns
    }

    /// Adapts the period after a backup, given the lateness of the most overdue event, or `None` if no event was
    /// overdue. Returns the new period in nanoseconds.
    pub const fn after_backup(&mut self, lateness_ns: Option<u64>) -> u64 {
        match lateness_ns {
            Some(late) => {
                self.quiet = 0;
                // A little lateness is normal between trigger states, and no reason for more backups.
                if late > self.min_ns / 4 {
                    self.shorten();
                }
            }
            None => {
                self.quiet += 1;
                if self.quiet >= QUIET_BACKUPS {
                    self.quiet = 0;
                    self.lengthen();
                }
            }
        }
        self.period_ns
    }

    const fn shorten(&mut self) {
        let half = self.period_ns / 2;
        self.period_ns = if half > self.min_ns {
            half
        } else {
            self.min_ns
        };
    }

    const fn lengthen(&mut self) {
        let double = self.period_ns.saturating_mul(2);
        self.period_ns = if double < self.max_ns {
            double
        } else {
            self.max_ns
        };
    }
}

/// The number of backups in a row without an overdue event after which the period doubles.
const QUIET_BACKUPS: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn lengthens_while_quiet_up_to_the_maximum() {
        let mut period = BackupPeriod::new(4 * MS, 30 * MS);
        let periods: Vec<_> = (0..20).map(|_| period.after_backup(None) / MS).collect();
        assert_eq!(periods[..8], [4, 4, 4, 8, 8, 8, 8, 16]);
        assert_eq!(periods[19], 30);
    }

    #[test]
    fn shortens_on_lateness_down_to_the_tick() {
        let mut period = BackupPeriod::new(4 * MS, 32 * MS);
        while period.period_ns() < 32 * MS {
            period.after_backup(None);
        }
        let periods: Vec<_> = (0..4)
            .map(|_| period.after_backup(Some(9 * MS)) / MS)
            .collect();
        assert_eq!(periods, [16, 8, 4, 4]);
    }

    #[test]
    fn a_little_lateness_keeps_the_period() {
        let mut period = BackupPeriod::new(4 * MS, 32 * MS);
        for _ in 0..4 {
            period.after_backup(None);
        }
        assert_eq!(period.after_backup(Some(MS / 2)), 8 * MS);
    }

    #[test]
    fn a_maximum_below_the_minimum_is_the_minimum() {
        let mut period = BackupPeriod::new(10 * MS, MS);
        for _ in 0..9 {
            assert_eq!(period.after_backup(None), 10 * MS);
        }
    }
}
