//! Parses values of options that several commands share: numbers, times, shares and names; formats times and
//! addresses.

use std::fmt::Display;
use std::ops::{Bound, RangeBounds};
use std::str::FromStr;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use softclock::Mechanism;
use softclock_core::units::parse_time;
use softclock_http::{ListenAddress, Place};

/// Returns a parser of whole numbers within `range`, which must have a lower bound. Its errors name the bounds.
pub(crate) fn whole<T>(
    range: impl RangeBounds<T> + Clone + Send + Sync + 'static,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: FromStr + PartialOrd + Display + Clone + Send + Sync + 'static,
{
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| match (range.start_bound(), range.end_bound()) {
            (Bound::Included(least), Bound::Included(most)) => {
                format!("write a whole number from {least} to {most}")
            }
            (Bound::Included(least), _) => format!("write a whole number, {least} or more"),
            _ => "write a whole number".into(),
        })
    }
}

/// Parses a time with a unit; a number alone is in seconds.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds)
            .map_err(|_| "write a number of seconds, 0 or more, or 500ms, 10s, 2m".to_owned()),
        Err(_) => {
            parse_time(text).map_err(|_| "write a number of seconds, or 500ms, 10s, 2m".into())
        }
    }
}

/// Parses a time with a unit.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    parse_time(text).map_err(|error| error.to_string())
}

/// Formats a time as options write it, in the largest unit without a fraction.
pub(crate) fn format_time(time: Duration) -> String {
    let ns = time.as_nanos();
    let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")];
    let unit = units
        .into_iter()
        .find(|(factor, _)| ns >= *factor && ns.is_multiple_of(*factor));
    let (factor, name) = unit.unwrap_or((1, "ns"));
    format!("{}{name}", ns / factor)
}

/// Formats an address for a browser, or as it is given if browsers have no form for it.
pub(crate) fn url(address: &ListenAddress) -> String {
    let scheme = if address.tls { "https" } else { "http" };
    match &address.place {
        Place::One(address) if address.ip().is_unspecified() => format!(
            "{scheme}://localhost:{}/ (all addresses of this machine)",
            address.port()
        ),
        Place::One(address) => format!("{scheme}://{address}/"),
        _ => address.to_string(),
    }
}

/// Parses a percentage, and returns it as a share from 0 to 1.
pub(crate) fn percent(text: &str) -> Result<f64, String> {
    match text.strip_suffix('%').unwrap_or(text).parse() {
        Ok(percent @ 0.0..=100.0) => Ok(percent / 100.0),
        _ => Err("not a percentage from 0 to 100".into()),
    }
}

/// Returns a parser of the names of [`Mechanism`], which lists them in the help and completions.
pub(crate) fn mechanism() -> impl TypedValueParser<Value = Mechanism> {
    let names = PossibleValuesParser::new(Mechanism::ALL.map(Mechanism::name));
    names.try_map(|name| name.parse::<Mechanism>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_say_their_range() {
        let threads = whole(1..=1024u16);
        assert_eq!(threads("7"), Ok(7));
        for text in ["0", "1025", "x", "1.5", ""] {
            let error = threads(text).unwrap_err();
            assert_eq!(error, "write a whole number from 1 to 1024", "{text}");
        }
        let any = whole(0usize..);
        assert_eq!(any("0"), Ok(0));
        assert_eq!(any("-1"), Err("write a whole number, 0 or more".into()));
    }

    #[test]
    fn numbers_alone_are_seconds() {
        for (text, ms) in [
            ("10", 10_000),
            ("0.5", 500),
            ("250ms", 250),
            ("2m", 120_000),
            ("0", 0),
        ] {
            assert_eq!(seconds(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        assert!(seconds("10d").unwrap_err().contains("500ms, 10s, 2m"));
        assert!(seconds("-1").unwrap_err().contains("0 or more"));
        assert_eq!(
            time("40"),
            Err("a time needs a unit: 40us, 40ms or 40s".into())
        );
    }

    #[test]
    fn times_are_written_as_options() {
        for text in ["1ms", "10us", "1500us", "2s", "7ns"] {
            let time = parse_time(text).unwrap();
            assert_eq!(format_time(time), text);
        }
        assert_eq!(format_time(Duration::ZERO), "0ns");
    }

    #[test]
    fn urls() {
        for (address, start) in [
            ("[::1]:80", "http://[::1]:80/"),
            ("0.0.0.0:80", "http://localhost:80/ "),
            ("tls:127.0.0.1:443", "https://127.0.0.1:443/"),
            ("unix:/run/x", "unix:/run/x"),
        ] {
            assert!(
                url(&address.parse().unwrap()).starts_with(start),
                "{address}"
            );
        }
    }
}
