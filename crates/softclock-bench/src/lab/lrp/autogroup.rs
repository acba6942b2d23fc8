//! The weight of this session's threads beside all others of the machine.
//!
//! With autogroups (sched(7)) nice values count only among the threads of a session, and the session as a whole has the
//! weight of one thread with the nice value of its autogroup: threads of the kernel, such as kdamond, take half of the
//! receivers' processor for hundreds of microseconds whatever the receivers' nice values.

use std::fs;

/// A higher weight of this session, until it is dropped.
#[derive(Debug)]
pub(super) struct Autogroup {
    /// The nice value before.
    before: Option<i32>,
}

impl Autogroup {
    /// Raises the weight. Without autogroups, or without the right to it, nothing happens.
    pub(super) fn raise() -> Self {
        let text = fs::read_to_string(FILE).unwrap_or_default();
        let before = nice(&text).filter(|_| fs::write(FILE, NICE.to_string()).is_ok());
        Self { before }
    }
}

impl Drop for Autogroup {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            // The session then keeps the higher weight.
            let _ = fs::write(FILE, before.to_string());
        }
    }
}

/// The nice value in a line such as `/autogroup-25 nice 0`.
fn nice(text: &str) -> Option<i32> {
    text.trim_end().rsplit_once("nice ")?.1.parse().ok()
}

const FILE: &str = "/proc/self/autogroup";
const NICE: i32 = -15;

#[cfg(test)]
mod tests {
    use super::nice;

    #[test]
    fn the_kernels_line_is_understood() {
        assert_eq!(nice("/autogroup-25 nice -3\n"), Some(-3));
        assert_eq!(nice("/autogroup-25\n"), None);
    }
}
