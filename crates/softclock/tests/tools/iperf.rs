//! iperf3 measures itself through the example `relay`: its client is on the kernel's stack across a link, its server on
//! the kernel's stack behind the relay.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::Stdio;

use serde_json::Value;
use softclock_testing::{KilledOnDrop, iperf3, require};

use crate::lab::{ADDRESSES, Carrier, Lab, lab};

#[test]
fn iperf3_over_a_tap_device() {
    require!("iperf3");
    assert_measured(&lab!(Carrier::Tap));
}

#[test]
fn iperf3_by_af_packet() {
    require!("iperf3");
    assert_measured(&lab!(Carrier::Packet));
}

#[test]
fn iperf3_by_af_xdp() {
    require!("iperf3");
    assert_measured(&lab!(Carrier::Xdp));
}

#[test]
fn iperf3_by_ni_lrp() {
    require!("iperf3");
    assert_measured(&lab!(Carrier::NiLrp));
}

/// Both protocols over both versions of IP, in both directions, with one connection and several.
fn assert_measured(lab: &Lab) {
    let (_server, _output) = server(lab);
    for address in ADDRESSES {
        let listen = SocketAddr::new(address.parse().expect("an address"), 5201).to_string();
        let arguments = ["--listen", &listen, "--upstream", "127.0.0.1:5201"];
        let _relay = lab.start("relay", &arguments, 1);
        for words in [
            "-u -b 20M -t 2",
            "-u -b 20M -t 2 -R",
            "-t 1 -P 2",
            "-t 1 -P 2 -R",
        ] {
            let report = client(lab, address, words);
            let end = &report["end"];
            let received = end.get("sum_received").unwrap_or(&end["sum"]);
            let bytes = received["bytes"].as_u64();
            assert!(bytes > Some(100_000), "{address} {words}: {report}");
            if words.starts_with("-u") {
                let lost = end["sum"]["lost_percent"].as_f64();
                let is_low = lost.is_some_and(|lost| lost < 50.0);
                assert!(is_low, "{address} {words}: {report}");
            }
        }
    }
}

/// Starts iperf3's server beside the relay, and waits until it listens. It ends when its output is closed.
fn server(lab: &Lab) -> (KilledOnDrop, impl Iterator<Item = String>) {
    let spawned = lab
        .server
        .command("iperf3")
        .args(["--server", "--bind", "127.0.0.1", "--forceflush"])
        .stdout(Stdio::piped())
        .spawn();
    let mut child = spawned.expect("nsenter is installed");
    let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let mut lines = lines.map_while(Result::ok);
    assert!(lines.any(|line| line.contains("listening")), "it ended");
    (KilledOnDrop::new(child), lines)
}

/// The report of iperf3's client, which has succeeded.
fn client(lab: &Lab, address: &str, words: &str) -> Value {
    let text = iperf3(|| {
        let output = lab
            .client()
            .command("timeout")
            .args(["60", "iperf3", "--json", "--client", address])
            .args(words.split(' '))
            .output()
            .expect("nsenter is installed");
        String::from_utf8_lossy(&output.stdout).into_owned()
    });
    let report: Value = serde_json::from_str(&text).expect("JSON");
    assert!(report["error"].is_null(), "{words}: {report}");
    report
}
