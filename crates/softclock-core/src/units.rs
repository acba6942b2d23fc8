//! Rates, sizes and times in the notation of `tc`.
//!
//! | kind | units | number without a unit |
//! |---|---|---|
//! | rate | `bit`, `kbit`, `mbit`, `gbit`, `tbit`; `byte`, `kbyte` and so on; `kibit`, `kibyte` and so on are powers of 1024 | an error |
//! | size | `b`, `kb`, `mb`, `gb` (powers of 1024, as in `tc`); `kbit`, `mbit`, `gbit` (bits, in powers of 1024) | bytes |
//! | time | `ns`, `us`, `ms`, `s`, `m` or `min`, `h` | an error, except 0 |
//!
//! Numbers may have a fraction. Letters may be of either case.
//!
//! Ambiguous notations of `tc` are errors: there, `mbps` means megabytes per second, which most people read as
//! megabits, and a number without a unit means bits per second or microseconds.
//!
//! # Example
//! ```
//! use softclock_core::units::{Rate, parse_size, parse_time};
//! use std::time::Duration;
//!
//! let rate: Rate = "1.5mbit".parse()?;
//! assert_eq!(rate.bps(), 1_500_000);
//! assert_eq!(rate.time_of(1500), Duration::from_millis(8));
//! assert_eq!(parse_size("64kb")?, 65_536);
//! assert_eq!(parse_time("50ms")?, Duration::from_millis(50));
//!
//! let error = "20".parse::<Rate>().unwrap_err();
//! assert_eq!(error.to_string(), "a rate needs a unit: 20bit, 20kbit or 20mbit");
//! # Ok::<(), softclock_core::units::UnitError>(())
//! ```

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use alloc::string::{String, ToString};

/// A rate in bits per second, at least 1. See the [module](self) for the notation that it parses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Rate(u64);

/// The reason why a text is not a valid rate, size or time. Its `Display` says how to write it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum UnitError {
    /// The text does not begin with a number.
    NoNumber,
    /// The unit is not one of a rate.
    RateUnit,
    /// The unit is not one of a size.
    SizeUnit,
    /// The unit is not one of a time.
    TimeUnit,
    /// A rate has no unit. Holds its number.
    BareRate(String),
    /// A time has no unit. Holds its number.
    BareTime(String),
    /// A rate ends in `bps`, which could mean bits or bytes. Holds its number and the unit's prefix.
    BitsOrBytes(String, String),
    /// The value is too large, or it is a rate of zero.
    OutOfRange,
}

impl Rate {
    /// Returns a rate of `bits_per_second`, or `None` for zero.
    pub const fn from_bps(bits_per_second: u64) -> Option<Self> {
        match bits_per_second {
            0 => None,
            bits => Some(Self(bits)),
        }
    }

    /// Returns the rate in bits per second.
    pub const fn bps(self) -> u64 {
        self.0
    }

    /// Returns the time that `bytes` take at this rate, rounded up to a nanosecond.
    pub const fn time_of(self, bytes: u64) -> Duration {
        let ns = (bytes as u128 * 8_000_000_000).div_ceil(self.0 as u128);
        if ns > u64::MAX as u128 {
            Duration::MAX
        } else {
            Duration::from_nanos(ns as u64)
        }
    }

    /// Returns the number of whole bytes that this rate sends in `time`.
    pub const fn bytes_in(self, time: Duration) -> u64 {
        let bytes = time.as_nanos().saturating_mul(self.0 as u128) / 8_000_000_000;
        if bytes > u64::MAX as u128 {
            u64::MAX
        } else {
            bytes as u64
        }
    }
}

impl FromStr for Rate {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let (number, unit) = split(text)?;
        let digits = || text[..text.len() - unit.len()].to_string();
        let prefix = |end: &str| ends_with(unit, end).then(|| &unit[..unit.len() - end.len()]);
        if unit.is_empty() && !number.is_zero() {
            return Err(UnitError::BareRate(digits()));
        }
        // Checked before the units, to explain the ambiguity instead of rejecting an unknown unit.
        if let Some(prefix) = prefix("bps")
            && prefix_factor(prefix).is_some()
        {
            return Err(UnitError::BitsOrBytes(
                digits(),
                prefix.to_ascii_lowercase(),
            ));
        }
        let in_bits = prefix("bit").and_then(prefix_factor);
        let in_bytes = prefix("byte")
            .and_then(prefix_factor)
            .map(|bytes| bytes * 8);
        let factor = in_bits
            .or(in_bytes)
            .or(unit.is_empty().then_some(1))
            .ok_or(UnitError::RateUnit)?;
        Self::from_bps(number.times(factor)?).ok_or(UnitError::OutOfRange)
    }
}

impl fmt::Display for Rate {
    /// Writes the rate in the largest unit that needs no fraction.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [
            (1_000_000_000, "gbit"),
            (1_000_000, "mbit"),
            (1_000, "kbit"),
        ];
        let unit = units
            .into_iter()
            .find(|(factor, _)| self.0.is_multiple_of(*factor));
        let (factor, unit) = unit.unwrap_or((1, "bit"));
        write!(f, "{}{unit}", self.0 / factor)
    }
}

/// Parses a size in bytes, such as `64kb`.
///
/// # Errors
/// If the text is not a size.
pub fn parse_size(text: &str) -> Result<u64, UnitError> {
    let (number, unit) = split(text)?;
    let units = [
        ("", 8),
        ("b", 8),
        ("k", 8 << 10),
        ("kb", 8 << 10),
        ("m", 8 << 20),
        ("mb", 8 << 20),
        ("g", 8 << 30),
        ("gb", 8 << 30),
        ("kbit", 1 << 10),
        ("mbit", 1 << 20),
        ("gbit", 1 << 30),
    ];
    let factor = find(&units, unit).ok_or(UnitError::SizeUnit)?;
    Ok(number.times(factor)? / 8)
}

/// Parses a time, such as `50ms`.
///
/// # Errors
/// If the text is not a time.
pub fn parse_time(text: &str) -> Result<Duration, UnitError> {
    let (number, unit) = split(text)?;
    let units = [
        ("ns", 1),
        ("nsec", 1),
        ("nsecs", 1),
        ("us", 1_000),
        ("usec", 1_000),
        ("usecs", 1_000),
        ("ms", 1_000_000),
        ("msec", 1_000_000),
        ("msecs", 1_000_000),
        ("s", 1_000_000_000),
        ("sec", 1_000_000_000),
        ("secs", 1_000_000_000),
        ("m", 60_000_000_000),
        ("min", 60_000_000_000),
        ("h", 3_600_000_000_000),
    ];
    if unit.is_empty() {
        return match number.is_zero() {
            true => Ok(Duration::ZERO),
            false => Err(UnitError::BareTime(text.to_string())),
        };
    }
    let factor = find(&units, unit).ok_or(UnitError::TimeUnit)?;
    Ok(Duration::from_nanos(number.times(factor)?))
}

/// A decimal number: `digits` divided by ten to the power of `scale`.
struct Number {
    digits: u128,
    scale: u32,
}

impl Number {
    const fn is_zero(&self) -> bool {
        self.digits == 0
    }

    fn times(&self, factor: u64) -> Result<u64, UnitError> {
        let product = self.digits.checked_mul(factor.into());
        let value = product.map(|product| product / 10u128.pow(self.scale));
        value
            .and_then(|value| u64::try_from(value).ok())
            .ok_or(UnitError::OutOfRange)
    }
}

/// Splits a text into its number and its unit.
fn split(text: &str) -> Result<(Number, &str), UnitError> {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return Err(UnitError::NoNumber);
    }
    let mut digits: u128 = 0;
    // The number stays exact: digits and a power of ten, no floating point.
    for digit in whole.bytes().chain(fraction.bytes().take(MOST_DECIMALS)) {
        let more = digits
            .checked_mul(10)
            .map(|ten| ten + u128::from(digit - b'0'));
        digits = more.ok_or(UnitError::OutOfRange)?;
    }
    let scale = fraction.len().min(MOST_DECIMALS) as u32;
    Ok((Number { digits, scale }, unit))
}

/// Returns the factor of a unit's prefix: `k`, `m`, `g`, `t`, or `ki` and so on for powers of 1024. No prefix is 1.
fn prefix_factor(prefix: &str) -> Option<u64> {
    let units = [
        ("", 1),
        ("k", 1_000),
        ("m", 1_000_000),
        ("g", 1_000_000_000),
        ("t", 1_000_000_000_000),
        ("ki", 1 << 10),
        ("mi", 1 << 20),
        ("gi", 1 << 30),
        ("ti", 1 << 40),
    ];
    find(&units, prefix)
}

fn find(units: &[(&str, u64)], unit: &str) -> Option<u64> {
    let found = units
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(unit));
    found.map(|&(_, factor)| factor)
}

fn ends_with(unit: &str, end: &str) -> bool {
    let start = unit.len().checked_sub(end.len());
    start.is_some_and(|start| {
        unit.get(start..)
            .is_some_and(|tail| tail.eq_ignore_ascii_case(end))
    })
}

impl fmt::Display for UnitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoNumber => "it does not begin with a number",
            Self::RateUnit => "unknown unit; rates are written 100mbit, 1.5gbit, 64kbit, 10mbyte",
            Self::SizeUnit => "unknown unit; sizes are written 1500, 64kb, 1mb",
            Self::TimeUnit => "unknown unit; times are written 50ms, 10us, 500ns, 1.5s, 2m",
            Self::BareRate(number) => {
                return write!(
                    f,
                    "a rate needs a unit: {number}bit, {number}kbit or {number}mbit"
                );
            }
            Self::BareTime(number) => {
                return write!(
                    f,
                    "a time needs a unit: {number}us, {number}ms or {number}s"
                );
            }
            Self::BitsOrBytes(number, prefix) => {
                return write!(
                    f,
                    "write {number}{prefix}bit for bits a second, or {number}{prefix}byte for bytes"
                );
            }
            Self::OutOfRange => "out of range",
        })
    }
}

impl core::error::Error for UnitError {}

/// Digits of a fraction that are read; further ones are ignored.
const MOST_DECIMALS: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rate(text: &str) -> Result<u64, UnitError> {
        text.parse().map(Rate::bps)
    }

    #[test]
    fn rates() {
        for (text, bps) in [
            ("100mbit", 100_000_000),
            ("1Gbit", 1_000_000_000),
            ("1.5kbit", 1_500),
            ("9600bit", 9_600),
            ("1kbyte", 8_000),
            ("8byte", 64),
            ("1kibit", 1_024),
            ("2MiByte", 16 << 20),
            ("400gbit", 400_000_000_000),
            (".5mbit", 500_000),
        ] {
            assert_eq!(rate(text), Ok(bps), "{text}");
        }
        assert_eq!(rate("mbit"), Err(UnitError::NoNumber));
        assert_eq!(rate("."), Err(UnitError::NoNumber));
        assert_eq!(rate("1.2.3"), Err(UnitError::NoNumber));
        assert_eq!(rate("-1"), Err(UnitError::NoNumber));
        assert_eq!(rate("1mb"), Err(UnitError::RateUnit));
        assert_eq!(rate("1 mbit"), Err(UnitError::RateUnit));
        assert_eq!(rate("1ébit"), Err(UnitError::RateUnit));
        assert_eq!(rate("0"), Err(UnitError::OutOfRange));
        assert_eq!(rate("99999999999tbit"), Err(UnitError::OutOfRange));
    }

    #[test]
    fn sizes_and_times() {
        assert_eq!(parse_size("1500"), Ok(1500));
        assert_eq!(parse_size("64kb"), Ok(64 << 10));
        assert_eq!(parse_size("8kbit"), Ok(1 << 10));
        assert_eq!(parse_size("1mbps"), Err(UnitError::SizeUnit));
        assert_eq!(parse_time("50ms"), Ok(Duration::from_millis(50)));
        assert_eq!(parse_time("10us"), Ok(Duration::from_micros(10)));
        assert_eq!(parse_time("0.5s"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_time("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(parse_time("1.5h"), Ok(Duration::from_secs(5400)));
        assert_eq!(parse_time("0"), Ok(Duration::ZERO));
        assert_eq!(parse_time("1d"), Err(UnitError::TimeUnit));
    }

    /// The error message says how to write the quantity.
    #[test]
    fn what_has_two_meanings_is_refused() {
        let told = |error: UnitError| error.to_string();
        for (text, advice) in [
            ("20", "a rate needs a unit: 20bit, 20kbit or 20mbit"),
            ("1.5", "a rate needs a unit: 1.5bit, 1.5kbit or 1.5mbit"),
            (
                "50Mbps",
                "write 50mbit for bits a second, or 50mbyte for bytes",
            ),
            ("8bps", "write 8bit for bits a second, or 8byte for bytes"),
            (
                "1kibps",
                "write 1kibit for bits a second, or 1kibyte for bytes",
            ),
        ] {
            assert_eq!(rate(text).map_err(told), Err(advice.into()), "{text}");
        }
        assert_eq!(rate("1xbps"), Err(UnitError::RateUnit));
        assert_eq!(
            parse_time("40").map_err(told),
            Err("a time needs a unit: 40us, 40ms or 40s".into())
        );
    }

    #[test]
    fn times_of_bytes() {
        let rate: Rate = "100mbit".parse().unwrap();
        assert_eq!(rate.time_of(1500), Duration::from_micros(120));
        assert_eq!(rate.bytes_in(Duration::from_micros(120)), 1500);
        assert_eq!(rate.bytes_in(Duration::MAX), u64::MAX);
        assert_eq!(rate.to_string(), "100mbit");
        assert_eq!(Rate::from_bps(1_001).unwrap().to_string(), "1001bit");
    }

    proptest! {
        #[test]
        fn what_is_shown_is_understood(bps in 1u64..) {
            let rate = Rate::from_bps(bps).unwrap();
            prop_assert_eq!(rate.to_string().parse(), Ok(rate));
        }

        #[test]
        fn no_text_is_too_strange(text in "\\PC{0,12}") {
            let _ = (rate(&text), parse_size(&text), parse_time(&text));
        }
    }
}
