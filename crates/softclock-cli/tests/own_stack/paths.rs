//! Paths that lose, delay, reorder, repeat and damage packets, and links of other lengths of packets. The bytes are right,
//! and no connection is reset.

use std::fs;

use crate::lab::{Carrier, LARGE, Lab, content, lab};
use crate::transfers::{assert_downloads, assert_returns, echo_bodies};
use crate::wireshark::{self, Judge};

/// Exchanges files in both directions over a path with these options of `softclock wan`.
macro_rules! assert_path {
    ($carrier:expr, $options:expr) => {{
        softclock_testing::require!("tshark");
        let lab = lab!($carrier, $options);
        exchange(&lab, $options);
    }};
}

/// Exchanges files in both directions, and has Wireshark judge the captures of the stack.
fn exchange(lab: &Lab, options: &str) {
    let judge = match options.contains("corrupt") {
        true => Judge::Damaged,
        false => Judge::Bad,
    };
    let bytes = content(200_000);
    fs::write(lab.path("middling"), bytes).expect("a directory");
    let capture = lab.path("proxy.pcapng").display().to_string();
    let proxy = lab.proxy(&["--pcap", &capture]);
    echo_bodies(lab);
    for name in ["small", "middling"] {
        assert_returns(lab, name);
    }
    proxy.end();
    wireshark::assert_no_objection(lab, "proxy.pcapng", judge, options);
    let capture = lab.path("serve.pcapng").display().to_string();
    let server = lab.serve(&["--pcap", &capture]);
    for name in ["small", "middling"] {
        assert_downloads(lab, name);
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
        assert_path!(Carrier::Packet, options);
    }
    assert_path!(Carrier::Xdp, "--delay 5ms --loss 1%");
    assert_path!(Carrier::Xdp, "--delay 50ms --loss 0.5% --reorder 5%");
}

#[test]
fn other_orders_and_copies_are_put_right() {
    for options in [
        "--delay 10ms --reorder 10%",
        "--delay 10ms --jitter 8ms",
        "--delay 10ms --duplicate 5%",
        "--delay 10ms --corrupt 1%",
    ] {
        assert_path!(Carrier::Packet, options);
    }
}

#[test]
fn long_and_narrow_paths_are_filled() {
    for options in [
        "--delay 5ms",
        "--delay 50ms",
        "--delay 100ms",
        // A queue so short that it is a policer.
        "--delay 10ms --rate 20mbit --queue 10",
        "--delay 50ms --rate 10mbit --queue 20 --loss 0.5%",
    ] {
        assert_path!(Carrier::Packet, options);
    }
}

/// A token bucket at the client, in both directions, drops what comes too fast, without a queue that would slow it down.
#[test]
fn policers_are_survived() {
    softclock_testing::require!("tshark", "nft");
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
    exchange(&lab, "a policer");
    let rules = lab.run_at_client("nft list ruleset");
    let counters = rules.matches("counter packets").count();
    assert_eq!(counters, 2, "{rules}");
    assert!(!rules.contains("counter packets 0 "), "{rules}");
}

#[test]
fn packets_of_all_lengths_are_exchanged() {
    for (carrier, lengths) in [
        (Carrier::Packet, &[576, 1280, 1500, 3000, 9000][..]),
        // A frame must fit into a chunk.
        (Carrier::Xdp, &[576, 1280, 1500, 3000]),
    ] {
        for &bytes in lengths {
            let lab = lab!(carrier);
            lab.set_mtu(bytes);
            fs::write(lab.path("middling"), content(LARGE / 4)).expect("a directory");
            let proxy = lab.proxy(&[]);
            echo_bodies(&lab);
            assert_returns(&lab, "middling");
            proxy.end();
            let _server = lab.serve(&[]);
            assert_downloads(&lab, "middling");
        }
    }
}
