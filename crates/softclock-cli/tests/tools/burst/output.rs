//! The output: text, JSON, drawing and page.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use softclock_testing::require;

use super::capture::{Files, bursts, packets, read};
use super::{PCAP, burst, errors};
use crate::{on_terminal, run};

#[test]
fn tables_and_a_histogram() {
    let files = Files::new();
    let paths = [1, 7, 70].map(|size| {
        let name = format!("bursts-of-{size}.pcap");
        files.write(&name, &PCAP.encode(&bursts(size)))
    });
    let (output, text) = run(burst(&paths).args(["--line-rate", "10gbit", "--rate", "5gbit"]));
    assert!(output.status.success() && output.stderr.is_empty());
    let row = |label: &str| -> Vec<&str> {
        let row = text
            .lines()
            .find_map(|line| line.trim().strip_prefix(label));
        row.expect(label).split_whitespace().collect()
    };
    assert_eq!(row("packets"), ["20", "140", "1400"]);
    assert_eq!(row("burstiness (most packets)"), ["1", "4", "35"]);
    assert_eq!(row("longest"), ["1", "7", "70"]);
    assert_eq!(row("5-10   us")[0], "0", "no gap of 7.2 us without bursts");
    assert!(text.contains('█') && !text.contains('\x1b') && !text.contains("note:"));
    for line in text.lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
}

#[test]
fn a_rate_that_is_too_low_is_noted() {
    let files = Files::new();
    let file = files.write("capture", &PCAP.encode(&bursts(1)));
    let (_, text) = run(burst([&file]).args(["--rate", "1gbit"]));
    assert!(
        text.contains("the rate is below the traffic's mean"),
        "{text}"
    );
    let (_, text) = run(burst([&file]).args(["--rate", "5gbit"]));
    assert!(!text.contains("note:"), "{text}");
    let backwards = files.write("backwards", &PCAP.encode(&packets([9_000, 0, 10_000], 60)));
    let (_, text) = run(&mut burst([&backwards]));
    assert!(
        text.contains("treated as simultaneous with it: 1\n"),
        "{text}"
    );
}

#[test]
fn output_that_cannot_be_written_is_an_error() {
    let files = Files::new();
    let file = files.write("capture", &PCAP.encode(&bursts(7)));
    for arguments in [&[][..], &["--json"]] {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = burst([&file])
            .args(arguments)
            .stdout(full)
            .output()
            .unwrap();
        assert!(errors(&output, 1)[0].starts_with("cannot write to standard output: "));
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = burst([&file])
            .args(arguments)
            .stdout(writer)
            .output()
            .unwrap();
        assert!(errors(&output, 0).is_empty());
    }
}

#[test]
fn drawings_and_pages() {
    let files = Files::new();
    let file = files.write("a<b>&.pcap", &PCAP.encode(&bursts(7)));
    let (svg, html) = (files.path("out.svg"), files.path("out.html"));
    let mut command = burst([&file]);
    command.arg("--svg").arg(&svg).arg("--html").arg(&html);
    let (output, _) = run(&mut command);
    assert!(output.status.success());
    let (svg, html) = (read(&svg), read(&html));
    for text in [&svg, &html] {
        assert!(text.contains("a&lt;b&gt;&amp;.pcap") && !text.contains("a<b>"));
        assert!(text.contains("Gaps between packets") && text.contains("virtual bottleneck queue"));
        assert!(!text.contains("NaN") && !text.contains("inf"));
    }
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    assert!(html.starts_with("<!DOCTYPE html>") && html.ends_with("</html>\n"));

    let none = files.write("none", &PCAP.encode(&[]));
    let (output, _) = run(burst([&none]).arg("--svg").arg(files.path("none.svg")));
    assert!(output.status.success());
    assert!(!files.read("none.svg").contains("NaN"));

    let (output, text) = run(burst([&file]).args(["--svg", "/proc/no/such"]));
    assert!(errors(&output, 1)[0].starts_with("cannot write /proc/no/such: "));
    assert!(
        text.contains("packets"),
        "the figures are told all the same"
    );
}

#[test]
fn progress_is_shown_on_a_terminal_and_goes_again() {
    require!("script", "mkfifo");
    let files = Files::new();
    let pipe = files.path("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("it runs").success());
    let arguments = format!("burst - --rate 5gbit < {}", pipe.display());
    let mut terminal = on_terminal(&arguments, &[]);
    let (enough, is_enough) = mpsc::channel();
    let writer = thread::spawn(move || trickle(&pipe, &is_enough));
    let during = terminal.wait_for("read");
    assert!(
        during.contains('\r') && !during.contains("packets"),
        "{during}"
    );
    enough.send(()).expect("a writer");
    writer.join().expect("no panic");
    let (after, status) = terminal.end();
    assert!(status.success(), "{after}");
    let erased = after.rfind("\r\x1b[K").expect("the line goes again");
    assert!(after[erased..].contains("traffic"), "{after}");
}

/// A capture that grows until it is enough.
fn trickle(pipe: &Path, is_enough: &Receiver<()>) {
    let mut pipe = OpenOptions::new().write(true).open(pipe).expect("a pipe");
    let capture = PCAP.encode(&bursts(1)[..1]);
    pipe.write_all(&capture).expect("a reader");
    while is_enough.recv_timeout(Duration::from_millis(20)).is_err() {
        let record = &capture[PCAP_HEADER_BYTES..];
        pipe.write_all(record).expect("a reader");
    }
}

const PCAP_HEADER_BYTES: usize = 24;
