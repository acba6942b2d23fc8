//! Captures in which packets go both ways.

use serde_json::Value;

use super::capture::{BEGIN_NS, Files, Packet};
use super::{PCAP, burst, json};
use crate::run;

/// Frames of UDP that leave a host each 120 us and come to it each 120 us: at 100 Mbit/s each direction is paced.
fn both_ways() -> Vec<Packet> {
    let frame = |from: u8, to: u8| {
        let mut frame = vec![2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, from];
        frame.extend([8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0]);
        frame.extend([10, 0, 0, from, 10, 0, 0, to, 0, 7, 0, 9, 0, 8, 0, 0]);
        frame
    };
    let packet = |at_us: u64, from, to| Packet {
        at_ns: BEGIN_NS + at_us * 1_000,
        bytes: 1_500,
        data: frame(from, to),
    };
    let pair = |index: u64| {
        // The host is 1; others are behind its link.
        let other = 2 + (index % 2) as u8;
        [
            packet(index * 120, 1, other),
            packet(index * 120 + 60, other, 1),
        ]
    };
    (0..500).flat_map(pair).collect()
}

fn burstiness(figures: &Value) -> u64 {
    figures["burstiness"]["max"].as_u64().expect("a number")
}

#[test]
fn each_direction_is_a_stream() {
    let files = Files::new();
    let file = files.write("capture.pcap", &PCAP.encode(&both_ways()));
    let rate = ["--rate", "100mbit"];
    let figures = json(burst([&file]).args(rate));
    let each = figures.as_array().expect("a list");
    let names: Vec<_> = each.iter().map(|each| &each["direction"]).collect();
    assert_eq!(names, ["from 02:00:00:00:00:01", "to 02:00:00:00:00:01"]);
    for figures in each {
        assert_eq!((burstiness(figures), &figures["packets"]), (1, &500.into()));
    }
    let both = json(burst([&file]).args(rate).args(["--direction", "both"]));
    assert!(burstiness(&both) > 400 && both["direction"].is_null());
    let one = json(burst([&file]).args(rate).args(["--filter", "src 10.0.0.1"]));
    assert_eq!((burstiness(&one), &one["direction"]), (1, &Value::Null));

    let means = json(&mut burst([&file]));
    assert_eq!(means[0]["rate_bps"], means[1]["rate_bps"]);
    assert_eq!(burstiness(&means[1]), 1, "by its own mean rate");
}

#[test]
fn the_output_says_so() {
    let files = Files::new();
    let file = files.write("capture.pcap", &PCAP.encode(&both_ways()));
    let (_, text) = run(burst([&file]).args(["--rate", "100mbit"]));
    let head = text.lines().next().expect("a line");
    for part in [".pcap from 02:00:00:00:00:01", "capture.pcap to 02:"] {
        assert!(head.contains(part), "{text}");
    }
    let note = "each direction is analysed by itself";
    assert_eq!(text.matches(note).count(), 1, "{text}");
    assert!(!text.contains("of unknown direction"), "{text}");
}
