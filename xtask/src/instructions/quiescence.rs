//! When another process waits.

use std::fs;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

/// Waits for a process to wait, once it is known which.
#[derive(Clone, Default)]
pub(super) struct Quiescence(Arc<OnceLock<u32>>);

impl Quiescence {
    /// From now on it is about this process.
    pub(super) fn watch(&self, process: u32) {
        let _ = self.0.set(process);
    }

    /// Returns when all threads of the process sleep, or when it has ended.
    pub(super) fn wait(&self) {
        while self.0.get().is_some_and(|process| is_busy(*process)) {
            thread::sleep(LOOK_AGAIN);
        }
    }
}

fn is_busy(process: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else {
        return false;
    };
    threads.flatten().any(|thread| {
        let stat = fs::read_to_string(thread.path().join("stat"));
        stat.is_ok_and(|stat| !matches!(state(&stat), Some('S' | 'Z')))
    })
}

/// The state of a thread: the field behind its name, which is in brackets and may have any characters.
fn state(stat: &str) -> Option<char> {
    let (_, fields) = stat.rsplit_once(") ")?;
    fields.chars().next()
}

const LOOK_AGAIN: Duration = Duration::from_micros(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_follows_the_name() {
        assert_eq!(state("12 (a) S (b)) R 1 2"), Some('R'));
    }

    #[test]
    fn a_process_that_has_ended_is_not_waited_for() {
        assert!(is_busy(std::process::id()));
        let gone = Quiescence::default();
        gone.watch(u32::MAX);
        gone.wait();
    }
}
