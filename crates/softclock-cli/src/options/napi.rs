//! `--napi`: the delay of an interface's interrupts.

use std::time::Duration;

use softclock::net::stack::InterruptDelay;

use crate::values::{time, whole};

/// Parses settings such as `defer=2,flush=50us,suspend=20ms`.
pub(crate) fn delay(text: &str) -> Result<InterruptDelay, String> {
    let mut delay = InterruptDelay {
        rounds: 1,
        ..InterruptDelay::NONE
    };
    for part in text.split(',') {
        match part.split_once('=') {
            Some(("defer", rounds)) => delay.rounds = whole(1..=MOST_ROUNDS)(rounds)?,
            Some(("flush", flush)) => delay.timeout = at_most(LONGEST_FLUSH, "flush", flush)?,
            Some(("suspend", suspend)) => {
                delay.suspension = at_most(LONGEST_SUSPENSION, "suspend", suspend)?;
            }
            _ => {
                return Err(
                    "write flush=TIME, with defer=ROUNDS and suspend=TIME if need be".into(),
                );
            }
        }
    }
    match delay.timeout.is_zero() {
        true => Err("flush=TIME is needed: without it, interrupts are not delayed".into()),
        false => Ok(delay),
    }
}

fn at_most(most: Duration, name: &str, text: &str) -> Result<Duration, String> {
    let time = time(text)?;
    match time <= most {
        true => Ok(time),
        false => Err(format!(
            "{name} is at most {}",
            crate::values::format_time(most)
        )),
    }
}

/// With `flush=10ms`, so many empty polls keep the interrupts of an idle device masked for 10 s.
const MOST_ROUNDS: u32 = 1000;

/// In this time, a device with 1 million frames a second fills a ring of 4096.
const LONGEST_FLUSH: Duration = Duration::from_millis(10);

/// Frames of other programs wait this long for a thread that does not return to the kernel.
const LONGEST_SUSPENSION: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_have_defaults_and_limits() {
        let expected = InterruptDelay {
            rounds: 1,
            timeout: Duration::from_micros(200),
            suspension: Duration::ZERO,
        };
        assert_eq!(delay("flush=200us"), Ok(expected));
        let expected = InterruptDelay {
            rounds: 100,
            timeout: Duration::from_micros(20),
            suspension: Duration::from_millis(20),
        };
        assert_eq!(delay("suspend=20ms,defer=100,flush=20us"), Ok(expected));
        for (text, reason) in [
            (
                "",
                "write flush=TIME, with defer=ROUNDS and suspend=TIME if need be",
            ),
            (
                "flush",
                "write flush=TIME, with defer=ROUNDS and suspend=TIME if need be",
            ),
            (
                "defer=2",
                "flush=TIME is needed: without it, interrupts are not delayed",
            ),
            ("defer=0,flush=1us", "write a whole number from 1 to 1000"),
            ("flush=11ms", "flush is at most 10ms"),
            ("flush=1ms,suspend=2s", "suspend is at most 1s"),
            ("flush=5", "a time needs a unit: 5us, 5ms or 5s"),
        ] {
            assert_eq!(delay(text), Err(reason.to_owned()), "{text}");
        }
    }
}
