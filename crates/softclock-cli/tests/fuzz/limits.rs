//! The limits with which the servers run here, and the time that this program waits for their effects.

use std::time::Duration;

/// Options of both commands. Each limit is short, so that a round sees all of them.
pub(crate) const OPTIONS: &[&str] = &[
    "--first-byte-timeout=2",
    "--head-timeout=2",
    "--body-timeout=2",
    "--idle-timeout=2",
    "--send-timeout=2",
];

/// Additional options of `proxy`.
pub(crate) const PROXY_OPTIONS: &[&str] = &[
    "--connect-timeout=2",
    "--upstream-send-timeout=2",
    "--upstream-read-timeout=1",
    "--tunnel-timeout=2",
    "--keep-time=1",
];

/// Nothing may take longer than this: several of the limits in a row, on a machine with other work.
pub(crate) const ANSWER: Duration = Duration::from_secs(15);

/// How much later than planned this program may do something without the server's timeouts having struck.
pub(crate) const DELAY: Duration = Duration::from_millis(700);

/// Time after the last session in which the server must release everything that the sessions held.
pub(crate) const SETTLED: Duration = Duration::from_secs(15);

/// Whether this provocation is left out, to look for faults behind those that it finds:
/// `SOFTCLOCK_FUZZ_WITHOUT=tunnel,pace,patient,no-content,slow,stall,continuation`.
pub(crate) fn is_without(provocation: &str) -> bool {
    let names = std::env::var("SOFTCLOCK_FUZZ_WITHOUT");
    let names = names.as_deref().unwrap_or(OF_DEPENDENCIES);
    names.split(',').any(|name| name == provocation)
}

/// Known faults of dependencies. The crate h2 0.4 accepts malformed requests if the end of a frame cuts their fields.
const OF_DEPENDENCIES: &str = "continuation";
