//! `softclock burst`.

mod capture;
mod damage;
mod directions;
mod memory;
mod output;
mod tcpdump;

use std::ffi::OsStr;
use std::fs::File;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::{run, softclock};
use capture::{BEGIN_NS, Files, Format, Packet, bursts, packets};

const PCAP: Format = Format::PcapNanoseconds { big: false };

fn burst<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Command {
    let mut command = softclock();
    command.arg("burst").args(arguments);
    command
}

/// The figures of a successful run.
fn json(command: &mut Command) -> Value {
    let (output, text) = run(command.arg("--json"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{errors}");
    assert_eq!(errors, "");
    serde_json::from_str(&text).expect("JSON")
}

/// The lines on standard error of a run that ended with this status.
fn errors(output: &Output, status: i32) -> Vec<String> {
    let text = String::from_utf8(output.stderr.clone()).expect("text");
    assert_eq!(output.status.code(), Some(status), "{text}");
    let lines = text.lines();
    lines
        .map(|line| line.strip_prefix("softclock: ").expect(line).to_owned())
        .collect()
}

/// Fractions lose their last digit between binary and decimal.
fn assert_near(value: &Value, expected: f64) {
    let value = value.as_f64().expect("a number");
    assert!(
        (value / expected - 1.0).abs() < 1e-12,
        "{value}, not {expected}"
    );
}

#[test]
fn table_ii() {
    let files = Files::new();
    for (size, theory, switch) in [(1, 1, 1), (7, 4, 4), (70, 35, 36)] {
        let file = files.write("capture", &PCAP.encode(&bursts(size)));
        let figures = json(burst([&file]).args(["--rate", "5gbit"]));
        assert_eq!(figures["burstiness"]["max"], switch);
        assert_eq!(
            figures["trains"]["longest"],
            if size == 1 { 1 } else { size }
        );
        let line = ["--rate", "5gbit", "--line-rate", "10gbit"];
        let figures = json(burst([&file]).args(line));
        assert_eq!(figures["burstiness"]["max"], theory);
        assert_eq!(figures["burstiness"]["max_bytes"], theory * 9_000);
    }
}

#[test]
fn figures_have_names() {
    let files = Files::new();
    let file = files.write("capture", &PCAP.encode(&bursts(7)));
    let figures = json(burst([&file]).args(["--rate", "5gbit"]));
    assert_eq!(figures["packets"], 140);
    assert_eq!(figures["bytes"], 140 * 9_000);
    // 19 periods of 14 slots and 6 slots.
    let duration_ns = (19 * 14 + 6) * 7_200u64;
    assert_eq!(figures["duration_ns"], duration_ns);
    let rate_bps = (140 * 9_000 * 8_000_000_000u64).div_ceil(duration_ns);
    assert_eq!(figures["rate_bps"], rate_bps);
    // After the arrivals of a burst: 1, 2, 2, 3, 3, 4, 4.
    assert_near(&figures["burstiness"]["mean"], 19.0 / 7.0);
    assert_eq!(figures["trains"]["count"], 20);
    assert_near(&figures["gap"]["mean_ns"], duration_ns as f64 / 139.0);
    assert!(figures["gap"]["cv"].as_f64().is_some_and(|cv| cv > 1.0));
    let peak = &figures["peak_over_mean"];
    assert_eq!(peak["1ms"], 1.0, "one window is over");
    assert!(peak["100ms"].is_null(), "longer than the capture");
    assert_eq!(figures["time_reversals"], 0);
}

#[test]
fn all_formats_tell_the_same() {
    let files = Files::new();
    let file = |format: Format| files.write("capture", &format.encode(&bursts(7)));
    let exact = json(&mut burst([file(Format::EXACT[0])]));
    for format in Format::EXACT {
        assert_eq!(json(&mut burst([file(format)])), exact, "{format:?}");
    }
    for big in [false, true] {
        let figures = json(&mut burst([file(Format::PcapMicroseconds { big })]));
        assert_eq!(figures["packets"], 140);
        let coarse = figures["duration_ns"].as_u64().expect("a number");
        let fine = exact["duration_ns"].as_u64().expect("a number");
        assert!(coarse.abs_diff(fine) < 1_000 && coarse.is_multiple_of(1_000));
    }
}

#[test]
fn the_mean_rate_stands_in() {
    let files = Files::new();
    let capture = packets((0..1_001).map(|n| BEGIN_NS + n * 10_000), 1_250);
    let file = files.write("capture", &PCAP.encode(&capture));
    let figures = json(&mut burst([&file]));
    assert_eq!(figures["bottleneck"]["rate_bps"], 1_001_000_000);
    assert_eq!(figures["bottleneck"]["is_mean_rate"], true);
    assert_eq!(figures["burstiness"]["max"], 1);
    assert_eq!(figures["peak_over_mean"]["1ms"], 1.0);

    let one = files.write("one", &PCAP.encode(&packets([BEGIN_NS], 1_250)));
    let figures = json(&mut burst([&one]));
    assert_eq!(figures["packets"], 1);
    for name in ["rate_bps", "burstiness"] {
        assert!(figures[name].is_null(), "{name}");
    }
    let none = files.write("none", &PCAP.encode(&[]));
    assert_eq!(json(&mut burst([&none]))["packets"], 0);
    let (output, text) = run(&mut burst([&none]));
    assert!(
        output.status.success() && text.contains("no gaps"),
        "{text}"
    );
}

#[test]
fn lengths_are_the_original_ones_and_the_overhead() {
    let files = Files::new();
    let file = files.write("capture", &PCAP.encode(&bursts(1)));
    let figures = json(burst([&file]).args(["--overhead", "24"]));
    assert_eq!(figures["bytes"], 20 * 9_024);
    // 9000 bytes come each 14.4 us, which 9024 at the same rate do not fit into.
    let figures = json(burst([&file]).args(["--overhead", "24", "--rate", "5gbit"]));
    assert_eq!(figures["burstiness"]["max"], 2);
}

#[test]
fn trains_and_windows_are_options() {
    let files = Files::new();
    let file = files.write("capture", &PCAP.encode(&bursts(7)));
    let options = [
        "--train-gap",
        "7200ns",
        "--window",
        "100us",
        "--window",
        "1500ns",
    ];
    let figures = json(burst([&file]).args(options));
    assert_eq!(figures["trains"]["longest"], 1, "gaps are not below");
    let windows = figures["peak_over_mean"].as_object().expect("an object");
    assert_eq!(windows.keys().collect::<Vec<_>>(), ["100us", "1500ns"]);
}

#[test]
fn standard_input_needs_a_rate() {
    let files = Files::new();
    let file = files.write("capture", &PCAP.encode(&bursts(7)));
    let input = || File::open(&file).expect("a file");
    let figures = json(burst(["-", "--rate", "5gbit"]).stdin(input()));
    assert_eq!(figures["burstiness"]["max"], 4);
    assert_eq!(figures["name"], "standard input");
    let output = burst(["-"]).stdin(input()).output().expect("it runs");
    assert!(errors(&output, 2)[0].contains("give its rate with --rate"));
    let twice = burst(["-", "-", "--rate", "1mbit"])
        .output()
        .expect("it runs");
    assert!(errors(&twice, 2)[0].contains("only once"));
}

#[test]
fn filters_choose_packets() {
    let frame = |last: u8, port: u16| {
        let mut frame = vec![0; 12];
        frame.extend([8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0]);
        frame.extend([10, 0, 0, 1, 10, 0, 0, last, 0, 7]);
        frame.extend(port.to_be_bytes());
        frame
    };
    let packet = |index: u64| Packet {
        at_ns: BEGIN_NS + index * 1_000,
        bytes: 1_000,
        data: frame((index % 5) as u8, 80 + (index % 2) as u16),
    };
    let capture: Vec<_> = (0..100).map(packet).collect();
    let files = Files::new();
    let file = files.write("capture", &PCAP.encode(&capture));
    for (filter, count) in [
        ("", 100),
        ("dst 10.0.0.3", 20),
        ("dst 10.0.0.3 dport 81", 10),
        ("proto tcp", 0),
    ] {
        let figures = json(burst([&file]).args(["--filter", filter]));
        assert_eq!(figures["packets"], count, "{filter}");
        assert_eq!(figures["left_out"]["by_filter"], 100 - count);
    }
    let mut raw = PCAP.encode(&capture);
    raw[20] = 147;
    let raw = files.write("raw", &raw);
    let figures = json(burst([&raw]).args(["--filter", "proto udp"]));
    assert_eq!(figures["left_out"]["by_link"], 100, "a link without a name");
}

#[test]
fn files_stand_side_by_side_or_follow_each_other() {
    let files = Files::new();
    let first = files.write("a.pcap", &PCAP.encode(&packets([0, 1_000, 2_000], 100)));
    let second = packets([3_000, 2_500], 100);
    let second = files.write("b.pcapng", &Format::EXACT[3].encode(&second));
    let both: [&Path; 2] = [&first, &second];
    let figures = json(&mut burst(both));
    assert_eq!(
        (&figures[0]["packets"], &figures[1]["packets"]),
        (&3.into(), &2.into())
    );
    assert_eq!(figures[1]["time_reversals"], 1);

    let figures = json(burst(both).arg("--together"));
    assert_eq!(
        (&figures["packets"], &figures["duration_ns"]),
        (&5.into(), &3_000.into())
    );
    assert!(
        figures["name"]
            .as_str()
            .is_some_and(|name| name.ends_with("a.pcap and 1 more"))
    );
}
