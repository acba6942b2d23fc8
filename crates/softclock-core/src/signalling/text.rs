//! Policies as text.
//!
//! | text | policy |
//! |---|---|
//! | `interrupt`, `poll`, `hybrid` | the policy of that name |
//! | `clocked=TIME` | a look once a period, such as `clocked=50us`; without a value 1 ms |
//! | `soft-poll=PACKETS` | soft polls with this quota; `auto`, also without a value, for [`Quota::AUTOMATIC`] |
//! | `automatic` | by load |
//! | `automatic=timer`, `automatic=deferred` | with wake-ups left to the next timer; with wake-ups deferred |

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use super::policy::{LatencyBound, Period, Policy, PolicyError, Quota, Wakeups};
use crate::units::{UnitError, parse_time};

/// Why a text is not a policy. `Display` says how to correct it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ParsePolicyError {
    /// No policy has this name.
    Name,
    /// The policy takes no value.
    Value(&'static str),
    /// The period is not a time.
    Time(UnitError),
    /// The quota is not a number.
    Quota,
    /// The wake-ups of `automatic` are neither `timer` nor `deferred`.
    Wakeups,
    /// The value is out of range.
    Range(PolicyError),
}

impl FromStr for Policy {
    type Err = ParsePolicyError;

    /// Parses a policy in the notation of its `Display`, with the default [`LatencyBound`].
    fn from_str(text: &str) -> Result<Self, ParsePolicyError> {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (text, None),
        };
        let bound = LatencyBound::default();
        let plain = |policy: Self| match value {
            None => Ok(policy),
            Some(_) => Err(ParsePolicyError::Value(policy.name())),
        };
        match name {
            "interrupt" => plain(Self::Interrupt),
            "poll" => plain(Self::Poll),
            "hybrid" => plain(Self::Hybrid),
            "clocked" => Ok(Self::Clocked(period(value)?)),
            "soft-poll" => Ok(Self::SoftPoll {
                quota: quota(value)?,
                bound,
            }),
            "automatic" => Ok(Self::Automatic {
                bound,
                wakeups: wakeups(value)?,
            }),
            _ => Err(ParsePolicyError::Name),
        }
    }
}

fn period(value: Option<&str>) -> Result<Period, ParsePolicyError> {
    let time = match value {
        None => Duration::from_millis(1),
        Some(text) => parse_time(text).map_err(ParsePolicyError::Time)?,
    };
    Period::new(time).map_err(ParsePolicyError::Range)
}

fn quota(value: Option<&str>) -> Result<Quota, ParsePolicyError> {
    match value {
        None | Some("auto") => Ok(Quota::AUTOMATIC),
        Some(text) => {
            let packets = text.parse::<u32>().map_err(|_| ParsePolicyError::Quota)?;
            Quota::packets(packets).map_err(ParsePolicyError::Range)
        }
    }
}

fn wakeups(value: Option<&str>) -> Result<Wakeups, ParsePolicyError> {
    match value {
        None => Ok(Wakeups::AtOnce),
        Some("timer") => Ok(Wakeups::ByTimer),
        Some("deferred") => Ok(Wakeups::Deferred),
        Some(_) => Err(ParsePolicyError::Wakeups),
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Self::Clocked(period) => match period.as_ns() {
                ns if ns % 1_000 == 0 => write!(f, "={}us", ns / 1_000),
                ns => write!(f, "={ns}ns"),
            },
            Self::SoftPoll { quota, .. } => match quota.fixed() {
                Some(packets) => write!(f, "={packets}"),
                None => f.write_str("=auto"),
            },
            Self::Automatic { wakeups, .. } => f.write_str(match wakeups {
                Wakeups::AtOnce => "",
                Wakeups::ByTimer => "=timer",
                Wakeups::Deferred => "=deferred",
            }),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for ParsePolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name => f.write_str(
                "write interrupt, poll, clocked=TIME, hybrid, soft-poll=PACKETS, automatic, automatic=timer or automatic=deferred",
            ),
            Self::Value(name) => write!(f, "{name} takes no value"),
            Self::Time(error) => error.fmt(f),
            Self::Quota => f.write_str("write a number of packets, or auto"),
            Self::Wakeups => f.write_str("write automatic, automatic=timer or automatic=deferred"),
            Self::Range(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for ParsePolicyError {}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn policies_are_written_as_they_are_read() {
        for text in [
            "interrupt",
            "poll",
            "hybrid",
            "clocked=50us",
            "clocked=2000us",
            "clocked=20500ns",
            "soft-poll=5",
            "soft-poll=auto",
            "automatic",
            "automatic=timer",
            "automatic=deferred",
        ] {
            let policy: Policy = text.parse().unwrap();
            assert_eq!(policy.to_string(), text);
        }
        for (short, long) in [
            ("clocked", "clocked=1000us"),
            ("clocked=2ms", "clocked=2000us"),
            ("soft-poll", "soft-poll=auto"),
        ] {
            assert_eq!(short.parse::<Policy>(), long.parse());
        }
        assert_eq!("automatic".parse(), Ok(Policy::default()));
    }

    #[test]
    fn errors_name_the_valid_values() {
        for (text, reason) in [
            ("soft-poll=65", "the quota must be from 1 to 64 packets"),
            ("soft-poll=many", "write a number of packets, or auto"),
            (
                "clocked=3ms",
                "the period of clocked looks must be from 20us to 2ms",
            ),
            ("clocked=5", "a time needs a unit: 5us, 5ms or 5s"),
            ("poll=1", "poll takes no value"),
            (
                "automatic=soon",
                "write automatic, automatic=timer or automatic=deferred",
            ),
            (
                "polling",
                "write interrupt, poll, clocked=TIME, hybrid, soft-poll=PACKETS, automatic, automatic=timer or automatic=deferred",
            ),
        ] {
            let error = text.parse::<Policy>().unwrap_err();
            assert_eq!(error.to_string(), reason, "{text}");
        }
    }
}
