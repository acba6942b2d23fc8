//! Processes that take over from the program under test.

use std::fs;

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use crate::server::{Server, until};

/// A process that has replaced another; killed when dropped.
pub(crate) struct Successor(pub(crate) Pid);

impl Successor {
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.0, signal).expect("a running process");
    }

    /// Whether the process runs. A zombie does not count.
    pub(crate) fn runs(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0.as_raw_nonzero()));
        stat.is_ok_and(|stat| !stat.contains(") Z "))
    }

    /// Waits for its end, for ten seconds at most.
    pub(crate) fn wait(&self) {
        until("its end", || !self.runs());
    }
}

impl Drop for Successor {
    fn drop(&mut self) {
        if test_kill_process(self.0).is_ok() {
            let _ = kill_process(self.0, Signal::KILL);
        }
    }
}

/// The processes that `server` and its successors have started, by the log.
pub(crate) fn started(server: &Server) -> Vec<Pid> {
    let log = server.log();
    let lines = log
        .lines()
        .filter(|line| line.contains("a new process starts"));
    let pid = |line: &str| line.split("pid=").nth(1)?.trim().parse().ok();
    let pids = lines.filter_map(pid);
    pids.map(|pid| Pid::from_raw(pid).expect("a process"))
        .collect()
}

/// Waits until `times` processes were replaced, and returns the last one's successor.
pub(crate) fn replaced(server: &Server, times: usize) -> Successor {
    let successors = || -> Vec<i32> {
        let log = server.log();
        let notices = log.split("replaced by a new process: ").skip(1);
        let pid = |notice: &str| notice.split(' ').next()?.parse().ok();
        notices.filter_map(pid).collect()
    };
    until("a new process", || successors().len() >= times);
    let pid = successors().last().copied().and_then(Pid::from_raw);
    Successor(pid.expect("its number"))
}

/// Replaces the server by a new process, and waits until that is done.
pub(crate) fn replace(server: &Server) -> Successor {
    server.signal(Signal::USR2);
    replaced(server, 1)
}
