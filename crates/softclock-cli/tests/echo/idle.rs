//! A server without clients does not wake up.

use std::thread;
use std::time::Duration;

use crate::lab::{Carrier, Server, lab};

/// The times that the server's threads have slept and been woken so far.
fn wakeups(server: &Server) -> u64 {
    let pid = server.pid().as_raw_nonzero().unsigned_abs();
    softclock_testing::waits_of_process(pid.get()).expect("it runs")
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
