//! `--napi` of a server on the kernel's sockets, and the report of `softclock doctor` about it.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use softclock_testing::lab::{Namespace, connect};
use softclock_testing::{KilledOnDrop, require, skip};

use crate::run;

/// A host whose link has receive work, since it joins segments (GRO), and its neighbor.
fn hosts() -> Result<[Namespace; 2], String> {
    let [near, far] = [Namespace::new()?, Namespace::new()?];
    let linked = connect((&near, "near"), (&far, "far"))
        .and_then(|()| near.run("ip link set lo up"))
        .and_then(|()| near.run("ethtool -K near gro on"));
    linked.map_err(|error| error.to_string())?;
    Ok([near, far])
}

fn softclock(host: &Namespace, arguments: &[&str]) -> Command {
    let mut command = host.command(env!("CARGO_BIN_EXE_softclock"));
    command.args(arguments);
    command
}

const SERVE: [&str; 7] = [
    "serve",
    "--listen=127.0.0.1:0",
    "--napi=defer=2,flush=500us,suspend=20ms",
    "--napi-dev=near",
    "--busy-poll=20us",
    "--threads=2",
    ".",
];

/// Starts a server and waits until it serves.
fn start_server(host: &Namespace) -> KilledOnDrop {
    let mut command = softclock(host, &SERVE);
    let child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut server = KilledOnDrop::new(child);
    let output = BufReader::new(server.stdout.take().unwrap());
    let mut lines = output.lines().map(|line| line.unwrap());
    assert!(lines.any(|line| line == "Ctrl-C ends it."), "it ended");
    server
}

/// The lines of `softclock doctor` about a name, with the advice.
fn doctor(host: &Namespace, name: &str) -> String {
    let (_, text) = run(&mut softclock(host, &["doctor"]));
    let mut lines = text
        .lines()
        .skip_while(|line| line.get(12..).is_none_or(|line| !line.starts_with(name)));
    let line = lines
        .next()
        .unwrap_or_else(|| panic!("no line about {name} in {text}"));
    let advice = lines.next().filter(|line| line.contains("->"));
    format!("{line}{}", advice.unwrap_or_default())
}

const DELAYED: &str = "delayed interrupts";

#[test]
fn a_killed_server_leaves_no_delay() {
    require!("ip", "unshare", "nsenter", "ethtool");
    let [near, _far] = match hosts() {
        Ok(hosts) => hosts,
        Err(reason) => skip!("{reason}"),
    };
    let found = doctor(&near, "delayable interrupts");
    if !found.contains("near (1)") {
        skip!("{found}");
    }
    assert!(doctor(&near, DELAYED).ends_with("none"));
    let server = start_server(&near);
    let found = doctor(&near, DELAYED);
    let expected = format!(
        "near: polled every 500us, interrupts on after 2 empty polls, suspended up to 20ms, by process {}",
        server.id()
    );
    assert!(found.contains(&expected) && found.contains("ok"), "{found}");
    let (output, text) = run(&mut softclock(&near, &SERVE));
    assert_eq!(output.status.code(), Some(1), "{text}");
    let refused = String::from_utf8_lossy(&output.stderr).into_owned();
    let expected = format!("near: process {} delays them already", server.id());
    assert!(refused.contains(&expected), "{refused}");
    drop(server);
    let begun = Instant::now();
    while !doctor(&near, DELAYED).ends_with("none") {
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "{}",
            doctor(&near, DELAYED)
        );
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn doctor_names_delays_without_a_process() {
    require!("ip", "unshare", "nsenter", "ethtool");
    let [near, _far] = match hosts() {
        Ok(hosts) => hosts,
        Err(reason) => skip!("{reason}"),
    };
    let mut left = near.command("sh");
    let echo = "echo 100000 > /sys/class/net/near/gro_flush_timeout";
    if !left.args(["-c", echo]).status().unwrap().success() {
        skip!("/sys is read-only here");
    }
    let found = doctor(&near, DELAYED);
    for part in [
        "note",
        "near: ",
        "100us",
        "by no softclock process",
        "echo 0 >",
    ] {
        assert!(found.contains(part), "{found}");
    }
}

#[test]
fn settings_that_cannot_be_are_refused() {
    for (arguments, reason) in [
        (
            &["serve", "--napi=flush=1ms"][..],
            "--napi needs --napi-dev IF, or --dev",
        ),
        (
            &["serve", "--napi=flush=1ms", "--napi-dev=no-such-link"],
            "cannot find interface no-such-link",
        ),
        (
            &["serve", "--napi=flush=1ms", "--napi-dev=lo"],
            "cannot delay the interrupts of lo: the interface has no receive work",
        ),
        (
            &["serve", "--napi=flush=1ms,suspend=1ms", "--napi-dev=lo"],
            "suspend=TIME of --napi needs --busy-poll TIME",
        ),
        (
            &["serve", "--busy-poll=20us", "--signalling=clocked"],
            "with --signalling clocked=1000us a thread looks instead",
        ),
        (
            &[
                "echo",
                "--dev=lo",
                "--address=192.0.2.7/24",
                "--napi=flush=1ms,suspend=1ms",
            ],
            "only serve and proxy have",
        ),
        (&["serve", "--napi-dev=lo"], "--napi <SETTINGS>"),
        (
            &["serve", "--busy-poll=2ms"],
            "write a time from 1us to 1ms",
        ),
        (
            &[
                "serve",
                "--busy-poll=20us",
                "--events=poll",
                "--listen=127.0.0.1:0",
            ],
            "poll cannot busy-poll network devices",
        ),
    ] {
        let mut command = crate::softclock();
        let (output, _) = run(command.args(arguments));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{arguments:?}");
        assert!(said.contains(reason), "{arguments:?}: {said}");
    }
}
