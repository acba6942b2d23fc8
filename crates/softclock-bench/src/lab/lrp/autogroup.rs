//! The weight of this session's threads beside all others of the machine.
//!
//! With autogroups (sched(7)) nice values count only among the threads of a session, and the session as a whole has the
//! weight of one thread with the nice value of its autogroup: threads of the kernel, such as kdamond, take half of the
//! receivers' processor for hundreds of microseconds whatever the receivers' nice values.

use std::fs;
use std::io;

use crate::lab::at_end::AtEnd;

/// A higher weight of this session, until it is dropped or the process ends.
#[derive(Debug)]
pub(super) struct Autogroup {
    _restorer: Option<AtEnd>,
}

impl Autogroup {
    /// Raises the weight. Without autogroups, or without the right to it, nothing happens.
    pub(super) fn raise() -> Self {
        let text = fs::read_to_string(FILE).unwrap_or_default();
        // Before the change, so that it is never left behind.
        let restorer = nice(&text).and_then(|before| restorer(before).ok());
        let is_raised = restorer.is_some() && fs::write(FILE, NICE.to_string()).is_ok();
        Self {
            _restorer: restorer.filter(|_| is_raised),
        }
    }
}

/// Writes the nice value of before at the end. The shell is in the same session.
fn restorer(before: i32) -> io::Result<AtEnd> {
    AtEnd::run(&format!("echo {before} > {FILE}"))
}

/// The nice value in a line such as `/autogroup-25 nice 0`.
fn nice(text: &str) -> Option<i32> {
    text.trim_end().rsplit_once("nice ")?.1.parse().ok()
}

const FILE: &str = "/proc/self/autogroup";
const NICE: i32 = -15;

#[cfg(test)]
mod tests {
    use std::env;
    use std::path::Path;
    use std::process::Command;

    use super::*;

    #[test]
    fn the_kernels_line_is_understood() {
        assert_eq!(nice("/autogroup-25 nice -3\n"), Some(-3));
        assert_eq!(nice("/autogroup-25\n"), None);
    }

    /// Also where this process has no right to raise the weight, the value of before is written.
    #[test]
    fn the_value_of_before_is_restored() {
        if env::var_os(OWN_SESSION).is_none() {
            return run_in_a_session_of_its_own();
        }
        let before = fs::read_to_string(FILE).unwrap();
        let value = nice(&before).expect("the kernel's line");
        let restorer = restorer(value).unwrap();
        let _ = fs::write(FILE, (value - 1).to_string());
        drop(restorer);
        assert_eq!(fs::read_to_string(FILE).unwrap(), before);
    }

    /// Runs the test above in a new session. The session of the tests may be the first of the system, whose threads
    /// are in no autogroup: the kernel's file is empty then.
    fn run_in_a_session_of_its_own() {
        if !Path::new(FILE).exists() {
            eprintln!("skipped the_value_of_before_is_restored: the kernel has no autogroups");
            return;
        }
        let status = Command::new("setsid")
            .arg("--wait")
            .arg(env::current_exe().unwrap())
            .args([
                "--exact",
                "lab::lrp::autogroup::tests::the_value_of_before_is_restored",
            ])
            .env(OWN_SESSION, "1")
            .status()
            .unwrap();
        assert!(status.success());
    }

    const OWN_SESSION: &str = "SOFTCLOCK_TEST_OWN_SESSION";
}
