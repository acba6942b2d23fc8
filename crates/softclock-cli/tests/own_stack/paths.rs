//! Paths that lose, delay, reorder, repeat and damage packets, and links of other lengths of packets. The bytes are
//! right, and no connection is reset.

use std::fs;

use crate::lab::{Carrier, LARGE, Lab, content, lab};
use crate::loads::{assert_h2load, assert_wrk, serve_tls};
use crate::metrics::{METRICS, samples, sum};
use crate::transfers::{assert_downloads, assert_returns, echo_bodies};
use crate::wireshark::{self, Judge};

/// Exchanges files in both directions over a path with these options of `softclock wan`, and loads a server at its far
/// end. `$metric` names a metric of the server that is above zero if the path is as bad as intended; `None` if there is
/// none.
macro_rules! assert_path {
    ($carrier:expr, $options:expr, $metric:expr) => {{
        softclock_testing::require!("tshark", "wrk", "h2load");
        let lab = lab!($carrier, $options);
        exchange(&lab, $options, $metric);
    }};
}

/// Exchanges files in both directions, loads a server, and has Wireshark judge the captures of the stack.
fn exchange(lab: &Lab, options: &str, metric: Option<&str>) {
    let judge = match options.contains("corrupt") {
        true => Judge::Damaged,
        false => Judge::Bad,
    };
    for (name, bytes) in [("middling", 200_000), ("bulk", 1 << 20)] {
        fs::write(lab.path(name), content(bytes)).expect("a directory");
    }
    lab.server.run("ip link set lo up").expect("a namespace");
    let capture = lab.path("proxy.pcapng").display().to_string();
    let proxy = lab.proxy(&["--pcap", &capture]);
    echo_bodies(lab);
    for name in ["small", "middling", "bulk"] {
        assert_returns(lab, name);
    }
    proxy.end();
    wireshark::assert_no_objection(lab, "proxy.pcapng", judge, options);
    let capture = lab.path("serve.pcapng").display().to_string();
    let server = serve_tls(lab, &["--pcap", &capture, "--metrics", METRICS]);
    for name in ["small", "middling", "bulk"] {
        assert_downloads(lab, name);
    }
    assert_wrk(lab, 16);
    for words in [
        "-n 400 -c 8 -m 10 https://10.78.0.7/small",
        "-n 12 -c 4 -m 3 https://10.78.0.7/middling",
        "-n 100 -c 8 --h1 https://10.78.0.7/small",
    ] {
        assert_h2load(lab, words);
    }
    if let Some(metric) = metric {
        let samples = samples(lab);
        assert!(sum(&samples, metric) > 0.0, "{options}: {samples:?}");
    }
    server.end();
    wireshark::assert_no_objection(lab, "serve.pcapng", judge, options);
}

#[test]
fn losses_are_repaired() {
    for options in [
        "--delay 5ms --loss 0.1%",
        "--delay 5ms --loss 1%",
        "--delay 5ms --loss 5%",
    ] {
        assert_path!(Carrier::Packet, options, Some(RETRANSMITTED));
    }
}

#[test]
fn losses_are_repaired_by_af_xdp() {
    for options in [
        "--delay 5ms --loss 1%",
        "--delay 50ms --loss 0.5% --reorder 5%",
    ] {
        assert_path!(Carrier::Xdp, options, Some(RETRANSMITTED));
    }
}

#[test]
fn other_orders_and_copies_are_put_right() {
    for (options, metric) in [
        ("--delay 10ms --reorder 10%", Some(REORDERED)),
        ("--delay 10ms --jitter 8ms", None),
        ("--delay 10ms --duplicate 5%", Some(DUPLICATED)),
        ("--delay 10ms --corrupt 1%", Some(RETRANSMITTED)),
    ] {
        assert_path!(Carrier::Packet, options, metric);
    }
}

#[test]
fn long_and_narrow_paths_are_filled() {
    for (options, metric) in [
        ("--delay 5ms", None),
        ("--delay 50ms", None),
        ("--delay 100ms", None),
        // A queue this short drops bursts, as a policer does.
        ("--delay 10ms --rate 20mbit --queue 10", Some(RETRANSMITTED)),
        (
            "--delay 50ms --rate 10mbit --queue 20 --loss 0.5%",
            Some(RETRANSMITTED),
        ),
    ] {
        assert_path!(Carrier::Packet, options, metric);
    }
}

/// A token bucket at the client, in both directions, drops what comes too fast, without a queue that would slow it
/// down.
#[test]
fn policers_are_survived() {
    softclock_testing::require!("tshark", "nft", "wrk", "h2load");
    let lab = lab!(Carrier::Packet, "--delay 10ms");
    for hook in ["ingress", "egress"] {
        let rules = format!(
            "add table netdev {hook}\n\
             add chain netdev {hook} police {{ type filter hook {hook} device client priority 0; }}\n\
             add rule netdev {hook} police limit rate over 400/second burst 20 packets counter drop\n"
        );
        let output = lab.client().command("nft").arg(rules).output();
        let output = output.expect("it is installed");
        assert!(output.status.success(), "{output:?}");
    }
    exchange(&lab, "a policer", Some(RETRANSMITTED));
    let rules = lab.run_at_client("nft list ruleset");
    let counters = rules.matches("counter packets").count();
    assert_eq!(counters, 2, "{rules}");
    assert!(!rules.contains("counter packets 0 "), "{rules}");
}

#[test]
fn packets_of_all_lengths_are_exchanged() {
    softclock_testing::require!("tshark");
    for (carrier, lengths) in [
        (Carrier::Tap, &[576, 1280, 3000, 9000][..]),
        (Carrier::Packet, &[576, 1280, 1500, 3000, 9000]),
        // A frame must fit into a chunk.
        (Carrier::Xdp, &[576, 1280, 1500, 3000]),
    ] {
        for &bytes in lengths {
            let lab = lab!(carrier);
            exchange_packets_of(&lab, bytes, &format!("{carrier:?}, {bytes} bytes"));
        }
    }
}

/// Exchanges files in both directions over a link with this MTU. Wireshark judges the captures of the stack, in which
/// both ends have sent the longest packets, and no longer ones.
fn exchange_packets_of(lab: &Lab, bytes: u16, name: &str) {
    let mut options = lab.set_mtu(bytes);
    fs::write(lab.path("middling"), content(LARGE / 4)).expect("a directory");
    let capture = |capture: &str| lab.path(capture).display().to_string();
    options.extend(["--pcap".into(), capture("proxy.pcapng")]);
    let arguments: Vec<&str> = options.iter().map(String::as_str).collect();
    let proxy = lab.proxy(&arguments);
    echo_bodies(lab);
    assert_returns(lab, "middling");
    proxy.end();
    wireshark::assert_no_objection(lab, "proxy.pcapng", Judge::Good, name);
    wireshark::assert_announced(lab, "proxy.pcapng", bytes - 40, name);
    options.pop();
    options.push(capture("serve.pcapng"));
    let arguments: Vec<&str> = options.iter().map(String::as_str).collect();
    let server = lab.serve(&arguments);
    assert_downloads(lab, "middling");
    server.end();
    wireshark::assert_no_objection(lab, "serve.pcapng", Judge::Good, name);
    wireshark::assert_announced(lab, "serve.pcapng", bytes - 40, name);
}

/// Metrics that count the effects of a path on the server's segments.
const RETRANSMITTED: &str = "softclock_tcp_retransmitted_segments_total";
const REORDERED: &str = "softclock_tcp_events_total{event=\"reordering\"}";
const DUPLICATED: &str = "softclock_tcp_events_total{event=\"duplicate\"}";
