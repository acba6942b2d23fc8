//! Dates in the formats of logs, in UTC.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

/// A moment in the Gregorian calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Date {
    year: u64,
    month: usize,
    day: u64,
    second_of_day: u64,
    microsecond: u32,
}

impl Date {
    /// Converts `time`; times before 1970 count as its beginning.
    pub(super) fn of(time: SystemTime) -> Self {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        let (year, month, day) = civil(since.as_secs() / DAY);
        Self {
            year,
            month,
            day,
            second_of_day: since.as_secs() % DAY,
            microsecond: since.subsec_micros(),
        }
    }

    /// Displays as `10/Oct/2000:13:55:36 +0000`, for the common log format.
    pub(super) fn common(self) -> impl fmt::Display {
        fmt::from_fn(move |f| {
            let month = MONTHS[self.month - 1];
            write!(f, "{:02}/{month}/{}:", self.day, self.year)?;
            self.time(f)?;
            f.write_str(" +0000")
        })
    }

    /// Displays as `2000-10-10T13:55:36.000000Z` (RFC 3339).
    pub(super) fn rfc3339(self) -> impl fmt::Display {
        fmt::from_fn(move |f| {
            write!(f, "{}-{:02}-{:02}T", self.year, self.month, self.day)?;
            self.time(f)?;
            write!(f, ".{:06}Z", self.microsecond)
        })
    }

    fn time(self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let second = self.second_of_day;
        let (hours, minutes, seconds) = (second / 3600, second / 60 % 60, second % 60);
        write!(f, "{hours:02}:{minutes:02}:{seconds:02}")
    }
}

/// Returns the year, month and day of a day since 1970-01-01.
///
/// Internally years begin in March, so that leap days come last, and days count from 0000-03-01. An era is the
/// calendar's period of 400 years.
fn civil(days: u64) -> (u64, usize, u64) {
    const ERA_DAYS: u64 = 146_097;
    const TO_1970: u64 = 719_468;
    let day = days + TO_1970;
    let (era, day) = (day / ERA_DAYS, day % ERA_DAYS);
    // Subtracting the leap days leaves years of 365 days.
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    // From March on, each five months have 153 days.
    let month = (5 * day + 2) / 153;
    let first = (153 * month + 2) / 5;
    let (month, carry) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    (era * 400 + year + carry, month as usize, day - first + 1)
}

const DAY: u64 = 86_400;

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn both_forms() {
        let date = Date::of(UNIX_EPOCH + Duration::from_micros(971_186_136_000_042));
        assert_eq!(date.common().to_string(), "10/Oct/2000:13:55:36 +0000");
        assert_eq!(date.rfc3339().to_string(), "2000-10-10T13:55:36.000042Z");
    }

    #[test]
    fn every_day_follows_the_one_before() {
        let mut last = (1970, 1, 0);
        for day in 0..200_000 {
            let (year, month, of_month) = civil(day);
            let (y, m, d) = last;
            let leap = y % 4 == 0 && (y % 100 != 0 || y % 400 == 0);
            let length = [
                31,
                if leap { 29 } else { 28 },
                31,
                30,
                31,
                30,
                31,
                31,
                30,
                31,
                30,
                31,
            ];
            let expected = match (m, d) {
                (12, 31) => (y + 1, 1, 1),
                (_, d) if d == length[m - 1] => (y, m + 1, 1),
                _ => (y, m, d + 1),
            };
            assert_eq!((year, month, of_month), expected);
            last = expected;
        }
    }
}
