//! `--signalling`: how a thread learns that frames have arrived, or of the events of the kernel's sockets.

use softclock::signalling::{LatencyBound, Policy};

use crate::values::time;

/// The help of the option, in short.
pub(crate) const HELP: &str =
    "How a thread learns of frames, or without --dev of the events of the kernel's sockets";

/// The help of the option of a command that always has a stack, in short.
pub(crate) const STACK_HELP: &str = "How the thread learns of frames";

/// The help of the option, which begins with the short one.
pub(crate) fn long_help(help: &str) -> String {
    format!("{help}:\n{POLICIES}")
}

const POLICIES: &str = "\
- interrupt: an arrival wakes it
- poll: it always looks
- clocked=TIME: it looks once a period of 20us to 2ms
- hybrid: an arrival wakes it, then it looks until nothing is left
- soft-poll=PACKETS: a busy thread looks at soft events, so that a look finds 1 to 64 packets on average, or auto; an idle \
one is woken
- automatic: hybrid or soft-poll=auto, by load
- automatic=timer: the same, and no arrival wakes a thread that its next timer wakes within --signalling-latency
- automatic=deferred: the same, and a loaded thread that waits looks instead of being woken";

/// The help of the option of a bridge, in short.
pub(crate) const BRIDGE_HELP: &str = "How the bridge learns of frames";

/// The help of the option of a bridge.
pub(crate) const BRIDGE_LONG_HELP: &str = "\
How the bridge learns of frames:
- automatic=timer: an arrival wakes it, unless a frame leaves within --signalling-latency; then it looks at that time
- interrupt: each arrival wakes it
- automatic=deferred: under load it looks once within --signalling-latency, even if no frame waits
- clocked=TIME, or another policy of softclock serve";

/// Parses a policy.
pub(crate) fn policy(text: &str) -> Result<Policy, String> {
    text.parse::<Policy>().map_err(|error| error.to_string())
}

/// Parses a latency bound.
pub(crate) fn latency(text: &str) -> Result<LatencyBound, String> {
    LatencyBound::new(time(text)?).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_valid_values() {
        let reason = policy("soft-poll=65").unwrap_err();
        assert_eq!(reason, "the quota must be from 1 to 64 packets");
        let reason = latency("11ms").unwrap_err();
        assert_eq!(reason, "the latency bound must be from 20us to 10ms");
        assert!(latency("50us").is_ok());
    }
}
