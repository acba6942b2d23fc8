//! The tolerance of departures, which all disciplines share.

use std::time::Duration;

/// How late frames may leave, so that those that are due within this time leave by one system call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tolerance {
    /// The time from the first frame that is due to the transmission that serves it, with all that are due by then.
    pub(crate) wait: Duration,
    /// Whether the thread does not spin before the transmission, which is then late by a blocking wait.
    pub(crate) is_rough: bool,
}

/// The usual lateness of a blocking wait, which a tolerance includes.
pub const LATE_WAIT: Duration = Duration::from_micros(50);

impl Tolerance {
    /// Creates a tolerance of `most` in all: from [`LATE_WAIT`] on, it includes the lateness of a wait.
    pub(crate) fn of(most: Duration) -> Self {
        let wait = most.checked_sub(LATE_WAIT);
        Self {
            wait: wait.unwrap_or(most),
            is_rough: wait.is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_tolerance_includes_the_lateness_of_a_wait() {
        let us = Duration::from_micros;
        for (most, wait, is_rough) in [
            (0, 0, false),
            (49, 49, false),
            (50, 0, true),
            (250, 200, true),
        ] {
            let wait = us(wait);
            assert_eq!(Tolerance::of(us(most)), Tolerance { wait, is_rough });
        }
    }
}
