//! Captures without a stack: their files, limits and failures.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::pin::pin;
use std::task::Waker;

use softclock_wire::capture::{Decoded, Decoder};

use super::*;

/// The lengths of the packets in a file, captured and original. The file must be whole.
fn lengths(path: &Path) -> Vec<(usize, u32)> {
    let file = fs::read(path).unwrap();
    let mut rest = &file[..];
    let mut decoder = Decoder::new();
    let mut lengths = Vec::new();
    while !rest.is_empty() {
        let used = match decoder.decode(rest) {
            Ok(Decoded::Packet(packet, used)) => {
                lengths.push((packet.data.len(), packet.original_bytes));
                used
            }
            Ok(Decoded::Other(used)) => used,
            other => panic!("{other:?}"),
        };
        rest = &rest[used..];
    }
    lengths
}

fn start(options: &CaptureOptions) -> Capture {
    Capture::start(options, "eth0", Instant::from_ns(5)).unwrap()
}

#[test]
fn a_dropped_capture_leaves_a_whole_file_that_only_its_owner_reads() {
    let directory = tempfile::tempdir().unwrap();
    let mut options = CaptureOptions::new(directory.path().join("a.pcapng"));
    options.snap_bytes = 60;
    let capture = start(&options);
    let copied = capture.copy(Instant::from_ns(7), &[1; 1500]);
    capture.on_received(&copied, &Drops::default(), &Drops::default());
    capture.on_sent(Instant::from_ns(9), &[2; 42]);
    drop(capture);
    assert_eq!(lengths(&options.path), [(60, 1500), (42, 42)]);
    let mode = fs::metadata(&options.path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn an_existing_file_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let options = CaptureOptions::new(directory.path().join("a.pcapng"));
    fs::write(&options.path, "precious").unwrap();
    let error = Capture::start(&options, "eth0", Instant::ORIGIN)
        .err()
        .unwrap();
    assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
    assert_eq!(fs::read(&options.path).unwrap(), b"precious");
}

#[test]
fn the_limit_ends_a_capture_before_the_frame_that_exceeds_it() {
    let directory = tempfile::tempdir().unwrap();
    let mut options = CaptureOptions::new(directory.path().join("a.pcapng"));
    options.limit_bytes = 4096;
    let capture = start(&options);
    for _ in 0..100 {
        capture.on_sent(Instant::from_ns(9), &[2; 1000]);
    }
    assert!(!capture.is_running());
    capture.finish();
    let mut cx = Context::from_waker(Waker::noop());
    let ended = pin!(std::future::poll_fn(|cx| capture.poll_ended(cx))).poll(&mut cx);
    assert!(matches!(ended, Poll::Ready(CaptureEnd::Limit)));
    let report = capture.report();
    assert_eq!((report.frames, report.missed), (3, 0));
    assert_eq!(fs::metadata(&options.path).unwrap().len(), report.bytes);
    assert_eq!(lengths(&options.path).len(), 3);
}

/// The writer cannot keep up with one that never waits, so frames are missed: the file tells how many.
#[test]
fn frames_that_find_the_buffer_full_are_counted_and_not_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let mut options = CaptureOptions::new(directory.path().join("a.pcapng"));
    options.buffer_bytes = 3000;
    let capture = start(&options);
    let mut sent = 0;
    while capture.report().missed == 0 {
        capture.on_sent(Instant::from_ns(9), &[2; 1000]);
        sent += 1;
    }
    capture.finish();
    let report = capture.report();
    assert_eq!(report.frames + report.missed, sent);
    assert_eq!(lengths(&options.path).len() as u64, report.frames);
    assert!(report.end.is_none());
}
