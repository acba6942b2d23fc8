//! A server without clients does not wake up.

use std::fs;
use std::thread;
use std::time::Duration;

use crate::lab::{Carrier, Server, lab};

/// The times that the server's threads have slept and been woken so far.
fn wakeups(server: &Server) -> u64 {
    let id = server.pid().as_raw_nonzero();
    let tasks = fs::read_dir(format!("/proc/{id}/task")).expect("it runs");
    tasks
        .map(|task| {
            let status = task.expect("an entry").path().join("status");
            let status = fs::read_to_string(status).expect("it runs");
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            let count = line.expect("a line of proc(5)").trim();
            count.parse::<u64>().expect("a number")
        })
        .sum()
}

/// Whether there is a second without a wake-up. A neighbor's messages wake any server, so a few are
/// tried.
pub(crate) fn is_idle(server: &Server) -> bool {
    (0..4).any(|_| {
        let before = wakeups(server);
        thread::sleep(Duration::from_secs(1));
        wakeups(server) == before
    })
}

#[test]
fn an_idle_server_does_not_wake_up() {
    for carrier in Carrier::ALL {
        let lab = lab!(carrier);
        let server = lab.serve(&[]);
        lab.assert_answers();
        assert!(is_idle(&server), "{carrier:?}");
        lab.assert_answers();
        server.end();
    }
}
