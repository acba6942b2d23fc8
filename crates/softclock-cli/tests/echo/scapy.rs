//! Odd frames that scapy builds: chains of headers, tags, pieces, and packets at random.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;
use softclock_testing::require;

use crate::lab::{ARCHITECTURES, Carrier, Lab, dropped, lab};

/// Runs the script that sends the frames, with these arguments, to its end.
fn send(lab: &Lab, arguments: &[&str]) -> Value {
    // The interpreter for which Debian packages scapy.
    let mut command: Command = lab.client().command("/usr/bin/python3");
    command.args([SCRIPT, "client"]).args(arguments);
    let output = command.output().expect("nsenter is installed");
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)
}

/// Sends the frames of known fates, and compares the summary.
fn assert_known(lab: &Lab, architecture: &str) {
    let server = lab.serve(&["--architecture", architecture]);
    let expected = send(lab, &[]);
    lab.assert_answers();
    let summary = server.end();
    let expected_drops: BTreeMap<String, u64> =
        serde_json::from_value(expected["drops"].clone()).expect("counts by reason");
    let mut drops: BTreeMap<String, u64> =
        serde_json::from_value(summary["drops"].clone()).expect("counts by reason");
    // The client's kernel looks for routers and reports its groups.
    drops.remove("not_our_address");
    assert_eq!(drops, expected_drops, "{architecture}: {summary}");
    let echoes = expected["echoes"].as_u64().map(|echoes| echoes + 2);
    assert_eq!(summary["echo"]["datagrams"].as_u64(), echoes, "{summary}");
}

#[test]
fn odd_frames_have_their_fates_by_af_packet() {
    require!("scapy");
    let lab = lab!(Carrier::Packet);
    for architecture in ARCHITECTURES {
        assert_known(&lab, architecture);
    }
}

#[test]
fn odd_frames_have_their_fates_over_a_tap_device() {
    require!("scapy");
    let lab = lab!(Carrier::Tap);
    assert_known(&lab, "soft-lrp");
}

/// Random packets end neither the server nor its services, and the host beside it is reached as before.
#[test]
fn random_packets_are_survived() {
    require!("scapy");
    for (carrier, seed) in Carrier::ALL.into_iter().zip(1..) {
        let lab = lab!(carrier);
        let server = lab.serve(&[]);
        send(&lab, &[&format!("{seed}"), RANDOM_PACKETS]);
        lab.assert_answers();
        if Carrier::SHARED.contains(&carrier) {
            assert_eq!(lab.ping("10.78.0.2", 3, ""), 3);
            assert_eq!(lab.ping("fd78::2", 3, ""), 3);
        }
        let summary = server.end();
        for reason in [
            "udp_checksum",
            "icmp",
            "icmp_ignored",
            "fragment_invalid",
            "port_unreachable",
            "protocol",
        ] {
            assert!(
                dropped(&summary, reason) > 0,
                "{reason}, seed {seed}: {summary}"
            );
        }
    }
}

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/echo/odd_frames.py");
const RANDOM_PACKETS: &str = "2000";
