//! Captures (`--pcap`), as tcpdump and the project's own decoder read them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::process::{Signal, kill_process};
use softclock_testing::{in_part, require};
use softclock_wire::capture::{Decoded, Decoder};
use tempfile::TempDir;

use crate::lab::{ADDRESSES, ARCHITECTURES, Carrier, Lab, dropped, eventually, lab};

/// A directory, and the file of a capture in it.
fn file() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("echo.pcapng");
    (directory, path)
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of ASCII")
}

/// A frame of a capture, as tcpdump prints it.
#[derive(Debug)]
struct Frame {
    at_ns: u64,
    /// Whether it comes from the stack's link address.
    is_sent: bool,
    text: String,
}

/// Reads a capture by tcpdump, which complains about one that ends within a frame.
fn frames(lab: &Lab, path: &Path) -> Vec<Frame> {
    let mut command = lab.server.command("tcpdump");
    let options = ["-n", "-e", "-tt", "--time-stamp-precision=nano", "-r"];
    let output = command.args(options).arg(path).output();
    let output = output.expect("nsenter is installed");
    let errors = String::from_utf8_lossy(&output.stderr);
    let is_whole = output.status.success() && !errors.contains("truncated");
    assert!(is_whole, "{errors}");
    let frame = |line: &str| {
        let (time, text) = line.split_once(' ').expect("a time");
        Frame {
            at_ns: time.replace('.', "").parse().expect("nanoseconds"),
            is_sent: text.starts_with("02:00:00:00:00:07 >"),
            text: text.to_owned(),
        }
    };
    let lines = String::from_utf8(output.stdout).expect("text");
    lines.lines().map(frame).collect()
}

/// The captured and original length of each packet, by the project's decoder. The capture must be whole.
fn lengths(capture: &[u8]) -> Vec<(usize, u32)> {
    let mut rest = capture;
    let mut decoder = Decoder::new();
    let mut lengths = Vec::new();
    while !rest.is_empty() {
        let used = match decoder.decode(rest).expect("no damage") {
            Decoded::Packet(packet, used) => {
                lengths.push((packet.data.len(), packet.original_bytes));
                used
            }
            Decoded::Other(used) => used,
            Decoded::More(more) => panic!("cut off: {more} bytes for the next block"),
        };
        rest = &rest[used..];
    }
    lengths
}

/// The number of times that a text occurs in a file.
fn occurrences(capture: &[u8], text: &str) -> u64 {
    let windows = capture.windows(text.len());
    windows.filter(|bytes| *bytes == text.as_bytes()).count() as u64
}

/// Asserts that a capture has ping and datagram of an address, once each, both ways and in this order.
fn assert_answers(frames: &[Frame], address: &str) {
    let to = format!("> {address}: ICMP");
    let from = format!("{address} > ");
    let to_echo = format!("> {address}.7: UDP, length 13");
    let from_echo = format!("{address}.7 > ");
    let mut latest = 0;
    for (is_sent, words) in [
        (false, [&*to, "echo request"]),
        (true, [&*from, "echo reply"]),
        (false, [&*to_echo, "length 13"]),
        (true, [&*from_echo, "UDP, length 13"]),
    ] {
        let has_all = |frame: &&Frame| words.iter().all(|word| frame.text.contains(word));
        let found: Vec<_> = frames.iter().filter(has_all).collect();
        let [frame] = found[..] else {
            panic!("{words:?}: {frames:#?}");
        };
        assert_eq!(frame.is_sent, is_sent, "{frame:?}");
        assert!(frame.at_ns > latest, "{words:?}: {frames:#?}");
        latest = frame.at_ns;
    }
}

fn assert_a_capture_of_all(carrier: Carrier) {
    require!("tcpdump");
    for architecture in carrier.architectures() {
        let lab = lab!(carrier);
        let (_directory, path) = file();
        let since = std::time::SystemTime::now();
        let server = lab.serve(&["--architecture", architecture, "--pcap", text(&path)]);
        for address in ADDRESSES {
            assert_eq!(lab.ping(address, 1, ""), 1, "{address}");
            lab.assert_echo(address, b"are you there");
        }
        let summary = server.end_by(Signal::INT);
        let until = std::time::SystemTime::now();
        let frames = frames(&lab, &path);
        for address in ADDRESSES {
            assert_answers(&frames, address);
        }
        let ns = |time: std::time::SystemTime| {
            let time = time.duration_since(std::time::SystemTime::UNIX_EPOCH);
            time.expect("a clock that is set").as_nanos() as u64
        };
        // The clocks of the kernel and of the program may differ a little.
        let slack = 1_000_000;
        let is_now = |frame: &Frame| (ns(since) - slack..ns(until) + slack).contains(&frame.at_ns);
        assert!(frames.iter().all(is_now), "{frames:#?}");
        // Each frame that is counted, and no other.
        let sent = frames.iter().filter(|frame| frame.is_sent).count();
        assert_eq!(summary["frames_sent"], sent, "{summary}");
        assert_eq!(summary["frames_received"], frames.len() - sent, "{summary}");
        let file = fs::metadata(&path).expect("the file is there");
        assert_eq!(summary["capture"]["frames"], frames.len());
        assert_eq!(summary["capture"]["bytes"], file.len());
        assert_eq!(summary["capture"]["missed"], 0);
        assert!(summary["capture"]["end"].is_null(), "{summary}");
        assert_eq!(file.permissions().mode() & 0o777, 0o600);
    }
}

#[test]
fn a_capture_over_a_tap_device_has_all_frames() {
    assert_a_capture_of_all(Carrier::Tap);
}

#[test]
fn a_capture_by_af_packet_has_all_frames() {
    assert_a_capture_of_all(Carrier::Packet);
}

#[test]
fn a_capture_by_af_xdp_has_all_frames() {
    assert_a_capture_of_all(Carrier::Xdp);
}

/// Frames that sockets take from their rings are captured, too.
#[test]
fn a_capture_with_ni_lrp_has_all_frames() {
    assert_a_capture_of_all(Carrier::NiLrp);
}

#[test]
fn a_snaplen_cuts_frames() {
    let lab = lab!(Carrier::Tap);
    let (_directory, path) = file();
    let server = lab.serve(&["--pcap", text(&path), "--pcap-snaplen", "60"]);
    lab.assert_echo("10.78.0.7", &[7; 1000]);
    server.end();
    let lengths = lengths(&fs::read(&path).expect("a file"));
    let long = lengths.iter().filter(|&&frame| frame == (60, 1042)).count();
    assert_eq!(long, 2, "{lengths:?}");
    assert!(lengths.iter().all(|&(captured, _)| captured <= 60));
}

/// Datagrams that wait in the device while the server is stopped find its channel full when it goes on.
#[test]
fn frames_that_are_discarded_early_have_the_reason_as_a_comment() {
    for architecture in ARCHITECTURES {
        let lab = lab!(Carrier::Packet);
        let (_directory, path) = file();
        let server = lab.serve(&[
            "--architecture",
            architecture,
            "--channel",
            "1",
            "--pcap",
            text(&path),
        ]);
        let socket = lab.socket("10.78.0.7", 9);
        socket.send(b"first").expect("a datagram leaves");
        lab.assert_echo("10.78.0.7", b"are you there");
        kill_process(server.pid(), Signal::STOP).expect("our own child");
        for _ in 0..10 {
            socket.send(b"more").expect("a datagram leaves");
        }
        kill_process(server.pid(), Signal::CONT).expect("our own child");
        eventually(|| lab.ping("10.78.0.7", 1, "") == 1);
        let summary = server.end();
        let capture = fs::read(&path).expect("a file");
        let commented = occurrences(&capture, "dropped: channel_full");
        assert_eq!(commented, dropped(&summary, "channel_full"), "{summary}");
        // The eager ones have done the work for the frames of this batch before their sockets are full.
        assert_eq!(commented > 0, architecture == "soft-lrp", "{summary}");
        lengths(&capture);
    }
}

#[test]
fn a_capture_ends_at_its_limit_and_the_server_goes_on() {
    let lab = lab!(Carrier::Tap);
    let (_directory, path) = file();
    let mut server = lab.serve(&["--pcap", text(&path), "--pcap-limit", "4K"]);
    for _ in 0..5 {
        lab.assert_echo("10.78.0.7", &[7; 1000]);
    }
    let line = server.line();
    assert!(line.contains("--pcap") && line.contains("limit"), "{line}");
    let before = fs::read(&path).expect("a file");
    assert!((1000..=4096).contains(&before.len()));
    assert!(!lengths(&before).is_empty());
    lab.assert_answers();
    let summary = server.end();
    assert_eq!(fs::read(&path).expect("a file"), before);
    let end = &summary["capture"]["end"];
    assert_eq!(end, "the file has reached its limit", "{summary}");
    assert_eq!(summary["capture"]["bytes"], before.len());
}

#[test]
fn a_full_disk_ends_a_capture_and_the_server_goes_on() {
    require!("mount");
    let lab = lab!(Carrier::Tap);
    let (directory, path) = file();
    // Only in the mount namespace of the server.
    let mount = format!("mount -t tmpfs -o size=64k none {}", text(directory.path()));
    lab.configure(&mount);
    let mut server = lab.serve(&["--pcap", text(&path)]);
    for _ in 0..50 {
        lab.assert_echo("10.78.0.7", &[7; 1000]);
    }
    let line = server.line();
    let words = ["--pcap", text(&path), "No space left"];
    assert!(words.iter().all(|word| line.contains(word)), "{line}");
    lab.assert_answers();
    let copy = lab.server.command("cat").arg(&path).output();
    let capture = copy.expect("nsenter is installed").stdout;
    // Cut to whole frames.
    assert!(lengths(&capture).len() > 40);
    let (errors, summary) = server.end_with_errors();
    assert_eq!(errors, "", "said once");
    assert_eq!(summary["capture"]["bytes"], capture.len());
    let datagrams = summary["echo"]["datagrams"].as_u64();
    assert_eq!(datagrams, Some(50 + ADDRESSES.len() as u64));
}

#[test]
fn a_killed_server_leaves_a_capture_that_is_readable() {
    let lab = lab!(Carrier::Tap);
    let (_directory, path) = file();
    let server = lab.serve(&["--pcap", text(&path)]);
    lab.assert_echo("10.78.0.7", &[7; 1000]);
    // Both directions of the datagram: the writer is behind by milliseconds.
    let read = || fs::read(&path).expect("a file");
    eventually(|| {
        let lengths = lengths(&read());
        lengths.iter().filter(|frame| frame.1 == 1042).count() == 2
    });
    server.kill();
    lengths(&read());
}

#[test]
fn a_capture_overwrites_no_file() {
    let lab = lab!(Carrier::Tap);
    let (_directory, path) = file();
    fs::write(&path, "precious").expect("a file");
    let output = lab.command(&["--pcap", text(&path)]).output();
    let output = output.expect("nsenter is installed");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
    let words = ["--pcap", text(&path), "exists"];
    assert!(words.iter().all(|word| errors.contains(word)), "{errors}");
    assert_eq!(fs::read(&path).expect("a file"), b"precious");
}

/// Wireshark's own tools see what tcpdump does not print: directions, comments, the order of times.
#[test]
fn wireshark_reads_a_capture() {
    if !softclock_testing::have("tshark") {
        in_part!("tshark is not installed");
        return;
    }
    let lab = lab!(Carrier::Tap);
    let (_directory, path) = file();
    let server = lab.serve(&["--pcap", text(&path)]);
    lab.assert_answers();
    server.end();
    let mut command = lab.server.command("tshark");
    command.args(["-n", "-r"]).arg(&path);
    let fields = [
        "frame.packet_flags_direction",
        "eth.src",
        "frame.interface_name",
    ];
    command.args(["-T", "fields"]);
    fields.iter().for_each(|field| {
        command.args(["-e", field]);
    });
    let output = command.output().expect("nsenter is installed");
    let lines = String::from_utf8(output.stdout).expect("text");
    assert!(lines.lines().count() >= 8, "{lines}");
    for line in lines.lines() {
        let is_sent = line.contains("02:00:00:00:00:07");
        let direction = if is_sent { "0x00000002" } else { "0x00000001" };
        assert!(
            line.starts_with(direction) && line.ends_with("client"),
            "{line}"
        );
    }
}
