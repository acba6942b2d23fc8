//! The text form of a class: `rate 10mbit peak 20mbit burst 15kb behind 20ms limit 1000 src 10.0.0.0/8 dport 80`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use softclock_core::Rate;
use softclock_core::pacing::ClassOptions;
use softclock_core::units::{UnitError, parse_size, parse_time};
use softclock_wire::packet::{Filter, FilterError};

/// A class: the filter that selects its packets, and how they are paced. Parsed from text by [`FromStr`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Class {
    /// The name in reports, if the text gives one.
    pub name: Option<String>,
    /// Selects the packets of the class.
    pub filter: Filter,
    /// Whether the class takes the packets that match no other class, wherever it stands in the list.
    pub is_default: bool,
    /// Rate, peak, burst and queue limits.
    pub options: ClassOptions,
    /// A packet that an offload has joined passes uncut if it takes at most so many bytes on the wire.
    pub whole_bytes: u64,
    /// The text that the class was parsed from, with single spaces.
    pub text: String,
}

impl Class {
    /// The text of the class with the defaults that apply to it appended.
    pub fn effective(&self) -> String {
        let is_written = |name| self.text.split(' ').any(|word| word == name);
        let mut text = self.text.clone();
        if let Some(peak) = self.options.peak.filter(|_| !is_written("peak")) {
            text.push_str(&format!(" peak {peak}"));
        }
        if !is_written("limit") {
            text.push_str(&format!(" limit {}", self.options.most_packets));
        }
        text
    }
}

impl FromStr for Class {
    type Err = ClassError;

    fn from_str(text: &str) -> Result<Self, ClassError> {
        let mut parts = Parts::default();
        let mut filter = Filter::default();
        let mut words = text.split_whitespace();
        while let Some(word) = words.next() {
            if word == "default" {
                parts.is_default = true;
                continue;
            }
            // The parts of a class first, then the filter's conditions. A missing value is reported below, since an
            // unknown word is the more likely mistake.
            let value = words.next().unwrap_or_default();
            if parts.add(word, value)? {
                continue;
            }
            match filter.add(word, value) {
                Ok(true) => {}
                Ok(false) => return Err(ClassError::UnknownPart(word.into())),
                Err(_) if value.is_empty() => return Err(ClassError::NoValue(word.into())),
                Err(error) => return Err(ClassError::Condition(error)),
            }
        }
        if parts.is_default && filter != Filter::default() {
            return Err(ClassError::DefaultWithConditions);
        }
        parts.into_class(filter, text)
    }
}

/// The parts of a class other than its conditions, while the text is parsed.
#[derive(Default)]
struct Parts {
    name: Option<String>,
    is_default: bool,
    rate: Option<Rate>,
    peak: Option<Rate>,
    burst: Option<u64>,
    behind: Option<Duration>,
    limit: Option<usize>,
}

impl Parts {
    /// Parses `name value`; returns false if `name` is not one of these parts.
    fn add(&mut self, name: &str, value: &str) -> Result<bool, ClassError> {
        let no_value = || ClassError::NoValue(name.into());
        let explain = |error: UnitError| match value.is_empty() {
            true => no_value(),
            false => ClassError::Value {
                part: name.into(),
                value: value.into(),
                error,
            },
        };
        let repeated = match name {
            "name" if value.is_empty() => return Err(no_value()),
            "name" => self.name.replace(value.into()).is_some(),
            "rate" => {
                let rate = value.parse().map_err(explain)?;
                self.rate.replace(rate).is_some()
            }
            "peak" => {
                let rate = value.parse().map_err(explain)?;
                self.peak.replace(rate).is_some()
            }
            "burst" => {
                let size = parse_size(value).map_err(explain)?;
                self.burst.replace(size).is_some()
            }
            "behind" => {
                let time = parse_time(value).map_err(explain)?;
                self.behind.replace(time).is_some()
            }
            "limit" => {
                let limit = value.parse().ok().filter(|limit| LIMITS.contains(limit));
                let limit = limit.ok_or_else(|| match value.is_empty() {
                    true => no_value(),
                    false => ClassError::Limit(value.into()),
                })?;
                self.limit.replace(limit).is_some()
            }
            _ => return Ok(false),
        };
        match repeated {
            true => Err(ClassError::Twice(name.into())),
            false => Ok(true),
        }
    }

    fn into_class(self, filter: Filter, text: &str) -> Result<Class, ClassError> {
        let rate = self.rate.ok_or(ClassError::NoRate)?;
        if let Some(peak) = self.peak
            && peak < rate
        {
            return Err(ClassError::PeakBelowRate { peak, rate });
        }
        let limit = self.limit.unwrap_or(LIMIT);
        // A class with `behind` may have much to catch up on, so it catches up at a rate only a little above its own.
        // Not if it names a burst, which leaves at the link's rate, as with tc; and without `behind` the backlog is too
        // small to matter.
        let gentle = (rate.bps() / 100).saturating_mul(100 + CATCH_UP_PERCENT);
        let peak = match (self.peak, self.behind, self.burst) {
            (None, Some(_), None) => Rate::from_bps(gentle.max(rate.bps())),
            (peak, ..) => peak,
        };
        Ok(Class {
            name: self.name,
            filter,
            is_default: self.is_default,
            options: ClassOptions {
                rate,
                peak,
                burst_bytes: self.burst,
                most_behind: self.behind,
                most_packets: limit,
                most_bytes: (limit as u64 * BYTES_PER_PACKET).max(LEAST_BYTES),
            },
            whole_bytes: self.burst.unwrap_or(0),
            text: text.split_whitespace().collect::<Vec<_>>().join(" "),
        })
    }
}

/// Why the text of a class cannot be parsed.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ClassError {
    /// The word is neither a part nor a condition.
    UnknownPart(String),
    /// The part has no value.
    NoValue(String),
    /// The value of a part cannot be parsed as a rate, size or time.
    Value {
        /// The part's name.
        part: String,
        /// The value as written.
        value: String,
        /// Why it cannot be parsed.
        error: UnitError,
    },
    /// The value of `limit` is not a number, or out of range.
    Limit(String),
    /// The part is given twice.
    Twice(String),
    /// A condition cannot be parsed.
    Condition(FilterError),
    /// The class has no rate.
    NoRate,
    /// The peak is below the rate.
    PeakBelowRate {
        /// The peak.
        peak: Rate,
        /// The rate.
        rate: Rate,
    },
    /// A default class has conditions.
    DefaultWithConditions,
}

impl fmt::Display for ClassError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownPart(word) => write!(f, "unknown word '{word}' in a class; {PARTS}"),
            Self::NoValue(part) => write!(f, "'{part}' stands without a value"),
            Self::Value { part, value, error } => write!(f, "{part} '{value}': {error}"),
            Self::Limit(value) => write!(f, "limit '{value}': packets, 1 to 1000000"),
            Self::Twice(part) => write!(f, "'{part}' is given twice"),
            Self::Condition(error) => error.fmt(f),
            Self::NoRate => f.write_str("a class needs a rate, such as rate 10mbit"),
            Self::PeakBelowRate { peak, rate } => write!(f, "peak {peak} is less than rate {rate}"),
            Self::DefaultWithConditions => {
                f.write_str("a default class takes all other packets and has no conditions")
            }
        }
    }
}

impl std::error::Error for ClassError {}

const PARTS: &str = "valid are rate, peak, burst, behind, limit, name and default, \
                     and the conditions src, dst, host, sport, dport, port, proto, dscp and vlan";

const LIMITS: std::ops::RangeInclusive<usize> = 1..=1_000_000;

/// The default of `limit`: the most packets that wait in a class.
const LIMIT: usize = 1000;

/// The queue's limit in bytes is this times its limit in packets: the mean packet of a full queue may be no longer.
const BYTES_PER_PACKET: u64 = 2 << 10;
/// The least limit in bytes, so that a few joined packets of 64 KiB fit into any queue.
const LEAST_BYTES: u64 = 256 << 10;

/// How far above its rate a class with `behind` sends while it catches up, if it names neither a peak nor a burst. At
/// 100 Mbit/s with frames of 1500 bytes, no millisecond then carries more than 1.2 times the mean.
const CATCH_UP_PERCENT: u64 = 15;

#[cfg(test)]
mod tests {
    use super::*;

    fn class(text: &str) -> Class {
        text.parse().unwrap()
    }

    #[test]
    fn settings_are_shown_with_their_defaults() {
        let limit = format!("limit {LIMIT}");
        assert_eq!(
            class("rate  1mbit").effective(),
            format!("rate 1mbit {limit}")
        );
        let all = "rate 1mbit peak 2mbit limit 9";
        assert_eq!(class(all).effective(), all);
        let patient = class("rate 100mbit behind 5ms").effective();
        assert_eq!(
            patient,
            format!("rate 100mbit behind 5ms peak 115mbit {limit}")
        );
    }

    #[test]
    fn all_parts() {
        let all = class(
            "name web rate 10mbit peak 20mbit burst 15kb behind 20ms limit 500 src 10.0.0.0/8 dport 80",
        );
        assert_eq!(all.name.as_deref(), Some("web"));
        assert_eq!(all.options.rate.bps(), 10_000_000);
        assert_eq!(all.options.peak.unwrap().bps(), 20_000_000);
        assert_eq!(
            (all.options.burst_bytes, all.whole_bytes),
            (Some(15 << 10), 15 << 10)
        );
        assert_eq!(all.options.most_behind, Some(Duration::from_millis(20)));
        assert_eq!(all.options.most_packets, 500);
        assert_eq!(all.filter, "src 10.0.0.0/8 dport 80".parse().unwrap());
        assert!(class("default rate 1mbit").is_default);
    }

    #[test]
    fn what_is_not_said() {
        let plain = class("rate 100mbit");
        assert_eq!(plain.options.peak, None);
        assert_eq!((plain.options.burst_bytes, plain.whole_bytes), (None, 0));
        assert_eq!(plain.options.most_behind, None);
        assert_eq!(plain.options.most_packets, LIMIT);
        let gentle = class("rate 100mbit behind 100ms").options;
        assert_eq!(gentle.peak.unwrap().bps(), 115_000_000);
        let bursts = class("rate 100mbit behind 100ms burst 20kb").options;
        assert_eq!((bursts.peak, bursts.burst_bytes), (None, Some(20 << 10)));
    }

    #[test]
    fn mistakes_are_explained() {
        for (text, part) in [
            ("", "needs a rate"),
            ("dport 80", "needs a rate"),
            ("rate", "'rate' stands without a value"),
            ("rate fast", "rate 'fast': it does not begin with a number"),
            ("rate 0", "out of range"),
            ("rate 1mbit rate 2mbit", "'rate' is given twice"),
            (
                "rate 2mbit peak 1mbit",
                "peak 1mbit is less than rate 2mbit",
            ),
            ("rate 1mbit burst 1x", "burst '1x': unknown unit"),
            ("rate 1mbit behind", "'behind' stands without a value"),
            ("rate 1mbit behind 1x", "behind '1x': unknown unit"),
            ("rate 1mbit limit 0", "limit '0': packets, 1 to"),
            (
                "rate 1mbit colour blue",
                "unknown word 'colour' in a class; valid are rate",
            ),
            ("rate 1mbit src nowhere", "src 'nowhere': an address"),
            ("rate 1mbit dport", "'dport' stands without a value"),
            ("default rate 1mbit dport 80", "has no conditions"),
        ] {
            let error = text.parse::<Class>().unwrap_err().to_string();
            assert!(
                error.contains(part) && !error.contains('\n'),
                "{text}: {error}"
            );
        }
    }
}
