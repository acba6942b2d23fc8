//! Settings of each direction: one value for both, or two separated by a comma.

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use softclock_core::units::{UnitError, parse_time};

use crate::values::{percent, whole};

/// The values from A to B, and from B to A.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Each<T>(pub(super) [T; 2]);

impl<T: FromStr<Err: Display> + Copy> FromStr for Each<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parse = |text: &str| {
            text.trim()
                .parse()
                .map_err(|error: T::Err| error.to_string())
        };
        let parts: Vec<_> = text.split(',').collect();
        match parts[..] {
            [both] => parse(both).map(|both| Self([both; 2])),
            [there, back] => Ok(Self([parse(there)?, parse(back)?])),
            _ => Err(format!(
                "{} values; write one for both directions, or two: from A to B, from B to A",
                parts.len()
            )),
        }
    }
}

/// A number of packets.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Packets(pub(super) usize);

impl FromStr for Packets {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        whole(0..)(text).map(Self)
    }
}

/// A time as `tc` writes it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Time(pub(super) Duration);

impl FromStr for Time {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        parse_time(text).map(Self)
    }
}

/// A share of packets, written as `0.1%` or `0.1`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Percentage(pub(super) f64);

impl FromStr for Percentage {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        percent(text).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_or_two_values() {
        let ms = |ms| Time(Duration::from_millis(ms));
        assert_eq!("40ms".parse(), Ok(Each([ms(40); 2])));
        assert_eq!("40ms,5ms".parse(), Ok(Each([ms(40), ms(5)])));
        assert_eq!(
            "1%, 50".parse(),
            Ok(Each([Percentage(0.01), Percentage(0.5)]))
        );
        let error = "1ms,2ms,3ms".parse::<Each<Time>>().unwrap_err();
        assert!(error.starts_with("3 values; write one for both"), "{error}");
        assert!("101%".parse::<Each<Percentage>>().is_err());
        assert!(",1".parse::<Each<Packets>>().is_err());
    }
}
