//! Paths that lose, delay, reorder, repeat and damage packets, and links of other lengths of packets. The bytes are right,
//! and no connection is reset.

use std::fs;

use crate::lab::{Carrier, LARGE, content, lab};
use crate::transfers::{assert_downloads, assert_returns, echo_bodies};
use crate::wireshark::{self, Judge};

/// Exchanges files in both directions over a path with these options of `softclock wan`, and has Wireshark judge the
/// capture of the stack.
macro_rules! assert_path {
    ($carrier:expr, $options:expr) => {{
        softclock_testing::require!("tshark");
        let lab = lab!($carrier, $options);
        let judge = match $options.contains("corrupt") {
            true => Judge::Damaged,
            false => Judge::Bad,
        };
        let bytes = content(200_000);
        fs::write(lab.path("middling"), bytes).expect("a directory");
        let capture = lab.path("proxy.pcapng").display().to_string();
        let proxy = lab.proxy(&["--pcap", &capture]);
        echo_bodies(&lab);
        for name in ["small", "middling"] {
            assert_returns(&lab, name);
        }
        proxy.end();
        wireshark::assert_no_objection(&lab, "proxy.pcapng", judge, $options);
        let capture = lab.path("serve.pcapng").display().to_string();
        let server = lab.serve(&["--pcap", &capture]);
        for name in ["small", "middling"] {
            assert_downloads(&lab, name);
        }
        server.end();
        wireshark::assert_no_objection(&lab, "serve.pcapng", judge, $options);
    }};
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
