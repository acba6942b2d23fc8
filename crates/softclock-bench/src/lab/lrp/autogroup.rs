//! The weight of this session's threads beside all others of the machine.
//!
//! With autogroups (sched(7)) nice values count only among the threads of a session, and the session as a whole has the
//! weight of one thread with the nice value of its autogroup: threads of the kernel, such as kdamond, take half of the
//! receivers' processor for hundreds of microseconds whatever the receivers' nice values.

use std::fs;
use std::process::{Child, Command, Stdio};

/// A higher weight of this session, until it is dropped or the process ends.
#[derive(Debug)]
pub(super) struct Autogroup {
    /// A process of the session that restores the weight when its input ends.
    restorer: Option<Child>,
}

impl Autogroup {
    /// Raises the weight. Without autogroups, or without the right to it, nothing happens.
    pub(super) fn raise() -> Self {
        let text = fs::read_to_string(FILE).unwrap_or_default();
        let before = nice(&text).filter(|_| fs::write(FILE, NICE.to_string()).is_ok());
        Self {
            restorer: before.and_then(restorer),
        }
    }
}

impl Drop for Autogroup {
    fn drop(&mut self) {
        if let Some(restorer) = &mut self.restorer {
            drop(restorer.stdin.take());
            // The session then keeps the higher weight.
            let _ = restorer.wait();
        }
    }
}

/// Starts the process that writes the nice value of before, which also an end of this one by a signal does not prevent.
/// Where it cannot be started, the value is restored at once.
fn restorer(before: i32) -> Option<Child> {
    let script = format!("trap '' HUP INT TERM; read -r _; echo {before} > {FILE}");
    let mut command = Command::new("sh");
    command.args(["-c", &script]).stdin(Stdio::piped());
    command
        .spawn()
        .map_err(|_| fs::write(FILE, before.to_string()))
        .ok()
}

/// The nice value in a line such as `/autogroup-25 nice 0`.
fn nice(text: &str) -> Option<i32> {
    text.trim_end().rsplit_once("nice ")?.1.parse().ok()
}

const FILE: &str = "/proc/self/autogroup";
const NICE: i32 = -15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_line_is_understood() {
        assert_eq!(nice("/autogroup-25 nice -3\n"), Some(-3));
        assert_eq!(nice("/autogroup-25\n"), None);
    }

    /// Also where this process has no right to raise the weight, the value of before is written.
    #[test]
    fn the_end_of_the_input_restores_the_value() {
        let Ok(before) = fs::read_to_string(FILE) else {
            return;
        };
        let value = nice(&before).expect("the kernel's line");
        let _ = fs::write(FILE, (value - 1).to_string());
        drop(Autogroup {
            restorer: restorer(value),
        });
        assert_eq!(fs::read_to_string(FILE).unwrap(), before);
    }
}
