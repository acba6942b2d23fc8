//! `softclock demo`.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

use softclock_testing::require;

use crate::{on_terminal, run, softclock};

const HIDE_CURSOR: &str = "\x1b[?25l";
const SHOW_CURSOR: &str = "\x1b[?25h";

/// As with `demo --plain | head -1`.
#[test]
fn a_reader_that_has_enough_is_no_error() {
    let mut command = softclock();
    command.args(["demo", "--seconds", "30", "--plain"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let begun = Instant::now();
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), &*errors), (Some(0), ""), "{line}");
    assert!(begun.elapsed() < Duration::from_secs(25));
}

#[test]
fn plain_lines_name_every_variant() {
    let begun = Instant::now();
    let (output, text) = run(softclock().args(["demo", "--seconds", "2", "--plain"]));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{text}{errors}");
    assert!(begun.elapsed() < Duration::from_secs(20));
    for part in [
        "no events",
        "soft timer",
        "timerfd",
        "signal",
        "p50",
        "p99",
        "of 50000",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(!text.contains('\x1b'), "nothing is drawn");
    assert!(text.contains("softclock serve"), "what to try next: {text}");
}

#[test]
fn output_that_is_no_terminal_is_plain() {
    let (output, text) = run(softclock().args(["demo", "--seconds", "1"]));
    assert_eq!(output.status.code(), Some(0));
    assert!(!text.contains('\x1b') && text.contains("soft timer"));
}

#[test]
fn the_interrupt_key_gives_the_cursor_back() {
    require!("script");
    let mut terminal = on_terminal("demo --seconds 60", &[]);
    let before = terminal.wait_for("soft timer");
    assert!(before.contains(HIDE_CURSOR));
    let begun = Instant::now();
    terminal.press(b"\x03");
    let (after, status) = terminal.end();
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert_eq!(status.code(), Some(130), "{after}");
    let last = after.rfind(SHOW_CURSOR).expect("the cursor is shown again");
    assert!(!after[last..].contains(HIDE_CURSOR));
}

#[test]
fn what_was_drawn_stays_and_is_summed_up() {
    require!("script");
    let (text, status) = on_terminal("demo --seconds 1", &[]).end();
    assert!(status.success(), "{text}");
    assert!(text.contains("late by") && text.contains(SHOW_CURSOR));
    let (_, summary) = text.rsplit_once(SHOW_CURSOR).unwrap();
    assert!(
        summary.contains("Without events the server answered"),
        "{summary}"
    );
    let (text, _) = on_terminal("demo --seconds 1", &[("TERM", "dumb")]).end();
    assert!(
        !text.contains('\x1b'),
        "a terminal that cannot draw: {text}"
    );
}
