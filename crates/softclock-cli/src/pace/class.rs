//! How classes are written: `rate 10mbit peak 20mbit burst 15kb limit 1000 src 10.0.0.0/8 dport 80`.

use std::str::FromStr;
use std::time::Duration;

use softclock_core::Rate;
use softclock_core::pacing::ClassOptions;
use softclock_core::packet::Filter;
use softclock_core::units::parse_size;

/// A class, and which packets belong to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Class {
    pub(crate) name: Option<String>,
    pub(crate) filter: Filter,
    /// It takes what no other class wants, wherever it stands.
    pub(crate) is_default: bool,
    pub(crate) options: ClassOptions,
    /// Packets to be segmented that take no more on the wire pass whole.
    pub(crate) whole_bytes: u64,
    /// As it was written.
    pub(crate) text: String,
}

impl FromStr for Class {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = Parts::default();
        let mut filter = Filter::default();
        let mut words = text.split_whitespace();
        while let Some(word) = words.next() {
            if word == "default" {
                parts.is_default = true;
                continue;
            }
            let value = words.next().unwrap_or_default();
            if parts.add(word, value)? {
                continue;
            }
            match filter.add(word, value) {
                Ok(true) => {}
                Ok(false) => return Err(format!("'{word}' is no part of a class; {PARTS}")),
                Err(_) if value.is_empty() => return Err(no_value(word)),
                Err(error) => return Err(error.to_string()),
            }
        }
        if parts.is_default && filter != Filter::default() {
            return Err("a default class takes what is left and has no conditions".into());
        }
        parts.into_class(filter, text)
    }
}

/// What is written of a class beside its conditions.
#[derive(Default)]
struct Parts {
    name: Option<String>,
    is_default: bool,
    rate: Option<Rate>,
    peak: Option<Rate>,
    burst: Option<u64>,
    limit: Option<usize>,
}

impl Parts {
    /// Takes `name value`; false if it is no part of this kind.
    fn add(&mut self, name: &str, value: &str) -> Result<bool, String> {
        let explain = |error: &dyn std::fmt::Display| match value.is_empty() {
            true => no_value(name),
            false => format!("{name} '{value}': {error}"),
        };
        let repeated = match name {
            "name" if value.is_empty() => return Err(no_value(name)),
            "name" => self.name.replace(value.into()).is_some(),
            "rate" => {
                let rate = value.parse().map_err(|error| explain(&error))?;
                self.rate.replace(rate).is_some()
            }
            "peak" => {
                let rate = value.parse().map_err(|error| explain(&error))?;
                self.peak.replace(rate).is_some()
            }
            "burst" => {
                let size = parse_size(value).map_err(|error| explain(&error))?;
                self.burst.replace(size).is_some()
            }
            "limit" => {
                let limit = value.parse().ok().filter(|limit| LIMITS.contains(limit));
                let limit = limit.ok_or_else(|| explain(&"packets, 1 to 1000000"))?;
                self.limit.replace(limit).is_some()
            }
            _ => return Ok(false),
        };
        match repeated {
            true => Err(format!("'{name}' is given twice")),
            false => Ok(true),
        }
    }

    fn into_class(self, filter: Filter, text: &str) -> Result<Class, String> {
        let rate = self
            .rate
            .ok_or("a class needs a rate, such as rate 10mbit")?;
        if let Some(peak) = self.peak
            && peak < rate
        {
            return Err(format!("peak {peak} is less than rate {rate}"));
        }
        let limit = self.limit.unwrap_or(LIMIT);
        // Who names a burst allows it at the link's rate, as with tc; else what is late is made up for gently.
        let gentle = (rate.bps() / 100).saturating_mul(100 + CATCH_UP_PERCENT);
        let peak = match (self.peak, self.burst) {
            (None, None) => Rate::from_bps(gentle.max(rate.bps())),
            (peak, _) => peak,
        };
        let of_time = |time| rate.bytes_in(time).max(LEAST_BYTES_BEHIND);
        let burst_bytes = self.burst.unwrap_or_else(|| of_time(AFTER_IDLENESS));
        let late_bytes = match peak {
            Some(_) => burst_bytes.max(of_time(AFTER_LATENESS)),
            None => burst_bytes,
        };
        Ok(Class {
            name: self.name,
            filter,
            is_default: self.is_default,
            options: ClassOptions {
                rate,
                peak,
                burst_bytes,
                late_bytes,
                most_packets: limit,
                most_bytes: (limit as u64 * BYTES_PER_PACKET).max(LEAST_BYTES),
            },
            whole_bytes: self.burst.unwrap_or(0),
            text: text.split_whitespace().collect::<Vec<_>>().join(" "),
        })
    }
}

fn no_value(name: &str) -> String {
    format!("'{name}' stands without a value")
}

const PARTS: &str = "there are rate, peak, burst, limit, name and default, \
                     and the conditions src, dst, host, sport, dport, port, proto, dscp and vlan";

const LIMITS: std::ops::RangeInclusive<usize> = 1..=1_000_000;

/// Packets that wait in a class at most if it does not say.
const LIMIT: usize = 1000;

/// A packet may be longer, but not all of a queue.
const BYTES_PER_PACKET: u64 = 2 << 10;
/// Some packets that are segmented later fit into any queue.
const LEAST_BYTES: u64 = 256 << 10;

/// What a class that names neither a peak nor a burst sends above its rate while it catches up. At 100 Mbit/s and with
/// frames of 1500 bytes, no millisecond then has more than 1.2 times the mean.
const CATCH_UP_PERCENT: u64 = 15;

/// How long a class that names no burst may have been idle and still catch up.
const AFTER_IDLENESS: Duration = Duration::from_millis(10);
/// How long a class whose peak is bounded may have been kept from sending and still catch up.
const AFTER_LATENESS: Duration = Duration::from_millis(100);
const LEAST_BYTES_BEHIND: u64 = 15 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn class(text: &str) -> Class {
        text.parse().unwrap()
    }

    #[test]
    fn all_parts() {
        let all =
            class("name web rate 10mbit peak 20mbit burst 15kb limit 500 src 10.0.0.0/8 dport 80");
        assert_eq!(all.name.as_deref(), Some("web"));
        assert_eq!(all.options.rate.bps(), 10_000_000);
        assert_eq!(all.options.peak.unwrap().bps(), 20_000_000);
        assert_eq!(
            (all.options.burst_bytes, all.whole_bytes),
            (15 << 10, 15 << 10)
        );
        assert_eq!(all.options.most_packets, 500);
        assert_eq!(all.filter, "src 10.0.0.0/8 dport 80".parse().unwrap());
        assert!(class("default rate 1mbit").is_default);
    }

    #[test]
    fn what_is_not_said() {
        let plain = class("rate 100mbit");
        assert_eq!(plain.options.peak.unwrap().bps(), 115_000_000);
        assert_eq!((plain.options.burst_bytes, plain.whole_bytes), (125_000, 0));
        assert_eq!(plain.options.late_bytes, 1_250_000);
        assert_eq!(plain.options.most_packets, LIMIT);
        let bursts = class("rate 100mbit burst 20kb").options;
        assert_eq!((bursts.peak, bursts.late_bytes), (None, 20 << 10));
        assert_eq!(class("rate 1kbit").options.burst_bytes, LEAST_BYTES_BEHIND);
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
            ("rate 1mbit limit 0", "limit '0': packets, 1 to"),
            (
                "rate 1mbit colour blue",
                "'colour' is no part of a class; there are rate",
            ),
            ("rate 1mbit src nowhere", "src 'nowhere': an address"),
            ("rate 1mbit dport", "'dport' stands without a value"),
            ("default rate 1mbit dport 80", "has no conditions"),
        ] {
            let error = text.parse::<Class>().unwrap_err();
            assert!(
                error.contains(part) && !error.contains('\n'),
                "{text}: {error}"
            );
        }
    }
}
