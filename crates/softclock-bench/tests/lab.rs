//! The network namespaces and processes of experiments end with the run that made them, even if it is killed.

use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// A killed run leaves no process, and so no namespace, since the namespaces have no names.
#[test]
fn a_killed_run_leaves_nothing() {
    softclock_testing::require!("iperf3", "tcpdump", "tc", "ethtool", "unshare", "nsenter");
    if let Err(reason) = softclock_bench::lab::bridge::check() {
        softclock_testing::skip!("{reason}");
    }
    // Three namespaces and the sender.
    kill("pspacer/table-7", 4);
}

#[test]
fn a_killed_run_of_a_server_under_flood_leaves_nothing() {
    softclock_testing::require!("ip", "ethtool", "chrt", "unshare", "nsenter");
    if let Err(reason) = softclock_bench::lab::lrp::check() {
        softclock_testing::skip!("{reason}");
    }
    kill("lrp/figure-3", 3);
}

/// The proxies that are not measured are stopped.
#[test]
fn a_killed_run_of_stopped_servers_leaves_nothing() {
    // The upstream, a proxy with its shell and its clients, and the next proxy.
    kill("event-delivery/table-2", 5);
}

/// Runs an experiment until it has this many children, kills it, and waits until the children have ended.
fn kill(experiment: &str, least: usize) {
    let mut run = Command::new(env!("CARGO_BIN_EXE_softclock-bench"))
        .args(["run", experiment])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts");
    let begun = Instant::now();
    let children = loop {
        let children = children(run.id());
        if children.len() >= least {
            break children;
        }
        assert!(begun.elapsed() < PATIENCE, "only {children:?} started");
        thread::sleep(LOOK_UP);
    };
    run.kill().expect("our own child");
    run.wait().expect("our own child");
    let killed = Instant::now();
    for child in children {
        while is_alive(&child) {
            assert!(killed.elapsed() < PATIENCE, "{child} goes on");
            thread::sleep(LOOK_UP);
        }
    }
}

fn children(id: u32) -> Vec<String> {
    let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
    let children = children.unwrap_or_default();
    children.split_whitespace().map(str::to_owned).collect()
}

/// A zombie counts as ended.
fn is_alive(id: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(')').map(|(_, rest)| rest.trim_start());
    state.is_some_and(|state| !state.starts_with('Z'))
}

const PATIENCE: Duration = Duration::from_secs(20);
const LOOK_UP: Duration = Duration::from_millis(2);
