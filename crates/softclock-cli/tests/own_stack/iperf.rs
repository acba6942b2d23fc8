//! iperf3 through softclock's example `relay` over bad paths: the client is at the far end of the path, the server on
//! the kernel's stack behind the relay.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::Value;
use softclock_testing::{KilledOnDrop, iperf3, require};

use crate::lab::{ADDRESS, Carrier, Lab, Server, lab};

#[test]
fn iperf3_measures_bad_paths_in_both_directions() {
    require!("iperf3");
    for options in [
        "--delay 5ms --loss 1%",
        "--delay 10ms --reorder 10% --duplicate 2%",
        "--delay 100ms --loss 0.1%",
        // A queue this short drops bursts, as a policer does.
        "--delay 10ms --rate 20mbit --queue 10",
    ] {
        let lab = lab!(Carrier::Packet, options);
        lab.server.run("ip link set lo up").expect("a namespace");
        let _server = iperf3_server(&lab);
        let _relay = relay(&lab);
        for words in ["-t 2", "-t 2 -R", "-t 2 -P 4", "-t 2 -P 4 -R"] {
            assert_measured(&lab, words, options);
        }
    }
}

/// Starts iperf3's server, and waits until it listens.
fn iperf3_server(lab: &Lab) -> Server {
    let mut command = lab.server.command("iperf3");
    command.args(["--server", "--bind", "127.0.0.1", "--forceflush"]);
    let spawned = command.stdout(Stdio::piped()).spawn();
    let mut child = spawned.expect("nsenter is installed");
    let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let mut lines = lines.map_while(Result::ok);
    assert!(lines.any(|line| line.contains("listening")), "it ended");
    // Without a reader of its output, iperf3 would end.
    std::thread::spawn(move || lines.for_each(drop));
    Server(KilledOnDrop::new(child))
}

/// Starts the relay on the stack, and waits until it listens.
fn relay(lab: &Lab) -> Server {
    let program = softclock_testing::example("softclock", "relay");
    let mut command = lab.server.command(program.to_str().expect("UTF-8"));
    command.args(["--dev", "host", "--mechanism", "packet"]);
    command.args(["--address", "10.78.0.7/24", "--listen", "10.78.0.7:5201"]);
    command.args(["--upstream", "127.0.0.1:5201"]);
    let spawned = command.stdout(Stdio::piped()).spawn();
    let mut child = spawned.expect("nsenter is installed");
    let mut line = String::new();
    let mut output = BufReader::new(child.stdout.take().expect("piped"));
    output.read_line(&mut line).expect("a pipe");
    assert!(line.starts_with("serving"), "it ended: {line}");
    Server(KilledOnDrop::new(child))
}

/// Runs iperf3's client, whose connections must all carry bytes and end without an error.
fn assert_measured(lab: &Lab, words: &str, options: &str) {
    let line = format!("timeout 90 iperf3 --json --client {ADDRESS} {words}");
    let text = iperf3(|| {
        let output = lab.at_client(&line).output();
        String::from_utf8_lossy(&output.expect("nsenter is installed").stdout).into_owned()
    });
    let report: Value = serde_json::from_str(&text).expect("JSON");
    assert!(report["error"].is_null(), "{options}, {words}: {report}");
    let streams = report["end"]["streams"].as_array().expect("a list");
    let expected = if words.contains("-P 4") { 4 } else { 1 };
    assert_eq!(streams.len(), expected, "{options}, {words}: {report}");
    for stream in streams {
        let received = stream["receiver"]["bytes"].as_u64();
        assert!(received > Some(100_000), "{options}, {words}: {report}");
    }
}
