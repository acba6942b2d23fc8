use super::*;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;

/// A log that collects lines for a second and has its own counts.
fn to_file(path: &Path) -> LineLog {
    let log = LogUse {
        name: "test",
        thread: "test",
        gather: Duration::from_secs(1),
        limit: Limit::AccessLog,
        counts: Box::leak(Box::default()),
    };
    LineLog::start(LogTarget::File(path.into()), log).unwrap()
}

/// The numbers of lines written, dropped and failed.
fn counted(log: &LineLog) -> (u64, u64, u64) {
    let counts = log.shared.log.counts;
    let [written, dropped, failed] =
        [&counts.written, &counts.dropped, &counts.failed].map(|count| count.load(Relaxed));
    (written, dropped, failed)
}

/// Drops the log and waits until its thread has ended.
fn end(log: LineLog) {
    let flusher = log.flusher();
    drop(log);
    until(|| !flusher.is_needed());
}

fn until(condition: impl Fn() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < LONG);
        thread::sleep(Duration::from_millis(5));
    }
}

const LONG: Duration = Duration::from_secs(30);

fn push(log: &LineLog, text: &str) {
    log.push(|line| {
        line.extend_from_slice(text.as_bytes());
        line.push(b'\n');
    });
}

/// 500 lines of a kilobyte.
fn push_more_than_a_pipe_holds(log: &LineLog) {
    let line = "x".repeat(1023);
    for _ in 0..500 {
        push(log, &line);
    }
}

#[test]
fn lines_are_written_within_about_a_second_and_at_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let log = to_file(&path);
    push(&log, "a");
    let begun = Instant::now();
    while fs::read_to_string(&path).unwrap() != "a\n" {
        assert!(begun.elapsed() < Duration::from_secs(5));
        thread::sleep(Duration::from_millis(10));
    }
    push(&log, "b");
    end(log);
    assert_eq!(fs::read_to_string(&path).unwrap(), "a\nb\n");
}

#[test]
fn a_renamed_file_keeps_the_lines_before() {
    let directory = tempfile::tempdir().unwrap();
    let (path, old) = (directory.path().join("log"), directory.path().join("old"));
    let log = to_file(&path);
    push(&log, "a");
    fs::rename(&path, &old).unwrap();
    log.reopen();
    let begun = Instant::now();
    while !path.exists() {
        assert!(begun.elapsed() < Duration::from_secs(5));
        thread::sleep(Duration::from_millis(1));
    }
    push(&log, "b");
    end(log);
    assert_eq!(fs::read_to_string(&old).unwrap(), "a\n");
    assert_eq!(fs::read_to_string(&path).unwrap(), "b\n");
}

#[test]
fn a_flush_writes_what_was_pushed_before() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let log = to_file(&path);
    for n in 1..=10 {
        push(&log, "a");
        log.flush(Duration::from_secs(10));
        assert_eq!(fs::read_to_string(&path).unwrap(), "a\n".repeat(n));
    }
    log.flush(Duration::from_secs(10));
}

#[test]
fn a_full_disk_costs_lines_only() {
    let log = to_file(Path::new("/dev/full"));
    push(&log, "a");
    push(&log, "b");
    assert_eq!(log.flush(LONG), 0);
    assert_eq!(counted(&log), (0, 0, 2));
}

/// Creates a named pipe; returns its path and its reader.
fn pipe(directory: &Path) -> (PathBuf, File) {
    let path = directory.join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&path).status();
    assert!(made.unwrap().success());
    // Opened for reading and writing, so that the call does not wait for a writer.
    let reader = File::options().read(true).write(true).open(&path).unwrap();
    (path, reader)
}

/// Like [`pipe`], without room for another byte.
fn full_pipe(directory: &Path) -> (PathBuf, File) {
    let (path, mut pipe) = pipe(directory);
    rustix::pipe::fcntl_setpipe_size(&pipe, PIPE_BYTES).unwrap();
    pipe.write_all(&[b'y'; PIPE_BYTES]).unwrap();
    (path, pipe)
}

const PIPE_BYTES: usize = 64 << 10;

#[test]
fn a_pipe_that_is_not_read_costs_lines_only() {
    let directory = tempfile::tempdir().unwrap();
    let (path, mut reader) = full_pipe(directory.path());
    let log = to_file(&path);
    let line = "x".repeat(1023);
    let all = CAPACITY / 1024 * 3;
    for _ in 0..all {
        push(&log, &line);
    }
    let left = log.flush(Duration::from_millis(10));
    let (written, dropped, failed) = counted(&log);
    assert!(written == 0 && left > 0 && dropped > 0 && failed == 0);
    assert_eq!(left + dropped, all as u64);
    // A reader appears.
    reader.read_exact(&mut [0; PIPE_BYTES]).unwrap();
    let mut lines = vec![0; left as usize * 1024];
    reader.read_exact(&mut lines).unwrap();
    assert!(lines.chunks(1024).all(|line| line.ends_with(b"x\n")));
    assert_eq!(log.flush(LONG), 0);
    assert_eq!(counted(&log), (left, dropped, 0));
}

#[test]
fn a_pipe_that_is_not_read_is_left_for_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let (path, mut reader) = full_pipe(directory.path());
    let log = to_file(&path);
    push_more_than_a_pipe_holds(&log);
    // The pipe takes a part of the lines: whole pages, as the batches that a thread makes of 500 lines fill them.
    reader.read_exact(&mut [0; PIPE_BYTES / 2]).unwrap();
    let written = PIPE_BYTES as u64 / 2 / 1024;
    let left = 500 - written;
    until(|| log.flush(Duration::from_millis(10)) == left);
    assert_eq!(counted(&log), (written, 0, 0));
    fs::remove_file(&path).unwrap();
    log.reopen();
    assert_eq!(log.flush(LONG), 0);
    assert_eq!(fs::metadata(&path).unwrap().len(), left * 1024);
    assert_eq!(counted(&log), (500, 0, 0));
}

/// The order arrives while the thread collects lines for which the pipe has no room.
#[test]
fn a_pipe_that_is_full_is_left_for_a_file_while_lines_gather() {
    let directory = tempfile::tempdir().unwrap();
    let (path, _filler) = full_pipe(directory.path());
    let log = to_file(&path);
    push(&log, &"x".repeat(1023));
    fs::remove_file(&path).unwrap();
    log.reopen();
    until(|| fs::metadata(&path).is_ok_and(|file| file.len() == 1024));
    assert_eq!(log.flush(LONG), 0);
    assert_eq!(counted(&log), (1, 0, 0));
}

#[test]
fn a_log_that_is_dropped_ends_though_nothing_takes_its_lines() {
    let directory = tempfile::tempdir().unwrap();
    let (path, _reader) = pipe(directory.path());
    let log = to_file(&path);
    push_more_than_a_pipe_holds(&log);
    let flusher = log.flusher();
    let counts = log.shared.log.counts;
    drop(log);
    until(|| !flusher.is_needed());
    let (written, failed) = (counts.written.load(Relaxed), counts.failed.load(Relaxed));
    assert!(failed > 0 && written + failed == 500);
}

#[test]
fn a_pipe_without_a_reader_is_written_once_it_has_one() {
    let directory = tempfile::tempdir().unwrap();
    let (path, reader) = pipe(directory.path());
    drop(reader);
    let log = to_file(&path);
    push(&log, "a");
    assert_eq!(log.flush(LONG), 0);
    assert_eq!(counted(&log), (0, 0, 1));
    let mut reader = File::options().read(true).write(true).open(&path).unwrap();
    push(&log, "b");
    assert_eq!(log.flush(LONG), 0);
    let mut line = [0; 2];
    reader.read_exact(&mut line).unwrap();
    assert_eq!(&line, b"b\n");
}
