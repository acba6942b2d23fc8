//! Truncated, malformed and missing files: figures of the readable part, an error, and never a panic.

use std::path::Path;

use softclock_testing::require;

use super::capture::{Files, Format, packets};
use super::{PCAP, burst, errors};
use crate::run;

fn small(format: Format) -> Vec<u8> {
    let mut packets = packets([1_000, 2_000, 3_000], 60);
    for packet in &mut packets {
        packet.data = vec![1, 2, 3];
    }
    format.encode(&packets)
}

#[test]
fn cut_at_every_byte() {
    let files = Files::new();
    for format in [PCAP, Format::Pcapng { big: true }] {
        let whole = small(format);
        for length in 0..whole.len() {
            let cut = files.write("cut", &whole[..length]);
            let (output, text) = run(burst([&cut]).args(["--rate", "1gbit", "--json"]));
            match output.status.code() {
                Some(0) => assert!(output.stderr.is_empty()),
                _ => {
                    let errors = errors(&output, 1);
                    assert_eq!(errors.len(), 1, "{errors:?}");
                    let is_told = ["empty", "cut off"]
                        .iter()
                        .any(|what| errors[0].contains(what));
                    assert!(is_told, "{length} bytes: {errors:?}");
                }
            }
            let read = text.contains("\"packets\"");
            assert!(read || output.status.code() == Some(1), "{length} bytes");
        }
    }
}

#[test]
fn what_was_read_is_told() {
    let files = Files::new();
    let mut capture = small(PCAP);
    // Corrupts the length of the third record.
    capture[24 + 2 * 19 + 11] = 0xff;
    let damaged = files.write("damaged", &capture);
    let good = files.write("good", &small(PCAP));
    let both: [&Path; 2] = [&damaged, &good];
    let (output, text) = run(burst(both).arg("--json"));
    let lines = errors(&output, 1);
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(
        lines[0].contains("damaged: at byte 62: damaged: "),
        "{lines:?}"
    );
    let figures: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(
        (&figures[0]["packets"], &figures[1]["packets"]),
        (&2.into(), &3.into())
    );
    assert_eq!(figures[0]["errors"][0], lines[0]);
}

#[test]
fn what_cannot_be_read_is_told() {
    let files = Files::new();
    let cases: [(&[u8], &str); 4] = [
        (b"", "the file is empty"),
        (
            b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
            "neither a pcap nor a pcapng file",
        ),
        (b"\x1f\x8b\x08\x00\x00\x00\x00\x00", "a compressed file"),
        (
            &[
                0xa1, 0xb2, 0xc3, 0xd4, 0, 9, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
            ],
            "version 9.9",
        ),
    ];
    for (content, what) in cases {
        let file = files.write("file", content);
        let output = burst([&file]).output().expect("it runs");
        let lines = errors(&output, 1);
        assert!(lines[0].contains(what), "{lines:?}");
        assert!(output.stdout.is_empty());
    }
    for path in [files.path("missing"), files.path("")] {
        let output = burst([&path]).output().expect("it runs");
        let lines = errors(&output, 1);
        assert!(
            lines[0].starts_with(&path.display().to_string()),
            "{lines:?}"
        );
    }
}

#[test]
fn mistakes_are_one_line() {
    for (arguments, part) in [
        (&["x", "--rate", "5furlongs"][..], "unknown unit"),
        (&["x", "--rate", "0"], "out of range"),
        (
            &["x", "--filter", "colour red"],
            "'colour' is not a condition",
        ),
        (&["x", "--window", "0"], "a window must be longer than 0"),
        (&["x", "--overhead", "1mb"], "at most 65535"),
        (&[], "FILE"),
    ] {
        let output = burst(arguments).output().expect("it runs");
        let lines = errors(&output, 2);
        assert!(lines.len() == 1 && lines[0].contains(part), "{lines:?}");
    }
}

#[test]
fn a_pipe_by_name_needs_a_rate() {
    require!("mkfifo");
    let files = Files::new();
    let pipe = files.path("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("it runs").success());
    let output = burst([&pipe]).output().expect("it runs");
    assert!(errors(&output, 2)[0].contains("can be read only once"));
}
