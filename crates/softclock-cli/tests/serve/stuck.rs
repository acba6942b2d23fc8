//! Logs that nothing reads: the access log, and standard error.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, PipeReader, Read};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;

use crate::client::Client;
use crate::server::{Server, directory, softclock, until};

/// A named pipe.
fn pipe(directory: &Path) -> PathBuf {
    let path = directory.join("pipe");
    let made = Command::new("mkfifo").arg(&path).status().unwrap();
    assert!(made.success());
    path
}

/// Opens the pipe for reading and writing, so that this does not wait for a writer.
fn reader(path: &Path) -> File {
    File::options().read(true).write(true).open(path).unwrap()
}

/// Writes more lines than a pipe holds.
fn fill(server: &Server) {
    let long = format!("/{}", "x".repeat(2000));
    let mut client = server.connect();
    for _ in 0..100 {
        assert_eq!(client.get(&long).status, 404);
    }
}

/// A metric's value.
fn metric(server: &Server, name: &str) -> u64 {
    let page = Client::connect(server.metrics()).get("/metrics");
    let lines = page.text().lines();
    let values = lines.filter_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
    values.sum()
}

const WRITTEN: &str = "softclock_access_log_lines_total{outcome=\"written\"}";

const METRICS: [&str; 2] = ["--metrics", "127.0.0.1:0"];

#[test]
fn an_access_log_that_is_not_read_holds_no_end() {
    let directory = directory(&[("big", &[0; 20_000_000])]);
    let path = pipe(directory.path());
    let _reader = reader(&path);
    for log in [path.to_str().unwrap(), "-"] {
        for (threads, signals) in [("1", 1), ("2", 1), ("1", 2)] {
            let log = format!("--access-log={log}");
            let options = [&log, "--threads", threads, "--drain", "60"];
            let options = [&options[..], &METRICS].concat();
            let mut server = Server::start(Some(directory.path()), &options);
            fill(&server);
            let mut busy = server.connect();
            if signals > 1 {
                busy.send(b"GET /big HTTP/1.1\r\nHost: t\r\n\r\n");
                assert_eq!(busy.head().status, 200);
            }
            // A pipe that is full already takes no line.
            std::thread::sleep(std::time::Duration::from_millis(1500));
            assert!(metric(&server, WRITTEN) < 100);
            server.signal(Signal::TERM);
            if signals > 1 {
                std::thread::sleep(std::time::Duration::from_millis(300));
                server.signal(Signal::INT);
            }
            assert_eq!(server.wait().code(), Some(i32::from(signals > 1)));
            let told = server.log();
            assert!(told.contains("access log: lines are lost"), "{told}");
        }
    }
}

#[test]
fn an_access_log_without_a_reader_holds_no_start() {
    let directory = directory(&[]);
    let path = pipe(directory.path());
    let log = format!("--access-log={}", path.display());
    let server = Server::start(None, &[&log[..], METRICS[0], METRICS[1]]);
    server.until_logged("no program reads this pipe");
    assert_eq!(server.connect().get("/style.css").status, 200);
    server.until_logged("cannot write");
    let failed = "softclock_access_log_lines_total{outcome=\"failed\"}";
    assert_eq!(metric(&server, failed), 1);
    let mut lines = BufReader::new(reader(&path));
    assert_eq!(server.connect().get("/clock.svg").status, 200);
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    assert!(line.contains("/clock.svg"), "{line}");
}

#[test]
fn an_access_log_that_is_not_read_can_be_replaced() {
    let directory = directory(&[]);
    let path = pipe(directory.path());
    let _reader = reader(&path);
    let file = directory.path().join("softclock.toml");
    let other = directory.path().join("other.log");
    let write = |log: &Path| {
        let text = format!("access-log = \"{}\"\n", log.display());
        fs::write(&file, text).unwrap();
    };
    let has_line = |log: &Path, part: &str| {
        let text = fs::read_to_string(log);
        text.is_ok_and(|text| text.contains(part))
    };
    write(&path);
    let mut command = softclock();
    let needed = ["serve", "--listen", "127.0.0.1:0", "-v", "--config"];
    let command = command.args(needed).arg(&file).arg(directory.path());
    let mut server = Server::spawn(command);
    fill(&server);
    // Reopened, as after logrotate: the lines that the pipe did not take are in the file.
    fs::remove_file(&path).unwrap();
    server.signal(Signal::USR1);
    server.until_logged("reopened");
    assert_eq!(server.connect().get("/first").status, 404);
    until("the file", || {
        has_line(&path, "GET /xxx") && has_line(&path, "/first")
    });
    // A pipe in its place has no reader: the file stays.
    fs::rename(&path, directory.path().join("old")).unwrap();
    pipe(directory.path());
    server.signal(Signal::USR1);
    server.until_logged("writing to the old file");
    let _reader = reader(&path);
    server.signal(Signal::USR1);
    until("the pipe", || {
        server.log().matches("access log: reopened").count() == 2
    });
    fill(&server);
    write(&other);
    server.signal(Signal::HUP);
    server.until_logged("reloaded");
    until("the other log", || {
        assert_eq!(server.connect().get("/second").status, 404);
        has_line(&other, "/second")
    });
    server.signal(Signal::TERM);
    assert_eq!(server.wait().code(), Some(0));
}

/// Standard error is a pipe with this reader.
fn with_stderr(directory: &Path, options: &[&str]) -> (Server, PipeReader) {
    let (reader, writer) = std::io::pipe().unwrap();
    let mut command = softclock();
    command.args(["serve", "--listen", "127.0.0.1:0"]);
    let command = command.args(METRICS).args(options).arg(directory);
    (Server::spawn_with_stderr(command, writer), reader)
}

#[test]
fn a_standard_error_that_is_not_read_stops_nothing() {
    let directory = directory(&[("f", b"x"), ("big", &[0; 20_000_000])]);
    for (threads, signals) in [("1", 1), ("2", 1), ("1", 2)] {
        let options = ["-vvv", "--threads", threads, "--drain", "60"];
        let (mut server, reader) = with_stderr(directory.path(), &options);
        let dropped = "softclock_limits_reached_total{limit=\"log\"}";
        until("lines are dropped", || {
            let mut client = server.connect();
            for _ in 0..300 {
                assert_eq!(client.get("/f").text(), "x");
            }
            metric(&server, dropped) > 0
        });
        let mut busy = server.connect();
        if signals > 1 {
            busy.send(b"GET /big HTTP/1.1\r\nHost: t\r\n\r\n");
            assert_eq!(busy.head().status, 200);
        }
        server.signal(Signal::TERM);
        if signals > 1 {
            std::thread::sleep(std::time::Duration::from_millis(300));
            server.signal(Signal::INT);
        }
        assert_eq!(server.wait().code(), Some(i32::from(signals > 1)));
        drop(reader);
    }
}

#[test]
fn lines_that_were_dropped_are_told_when_there_is_room() {
    let directory = directory(&[("f", b"x")]);
    let (mut server, mut reader) = with_stderr(directory.path(), &["-vvv"]);
    let dropped = "softclock_limits_reached_total{limit=\"log\"}";
    until("lines are dropped", || {
        let mut client = server.connect();
        for _ in 0..300 {
            client.get("/f");
        }
        metric(&server, dropped) > 0
    });
    let read = std::thread::spawn(move || {
        let mut all = String::new();
        reader.read_to_string(&mut all).unwrap();
        all
    });
    // Until the thread has caught up, and once more so that it has something to write.
    std::thread::sleep(std::time::Duration::from_millis(500));
    server.connect().get("/f");
    server.signal(Signal::TERM);
    assert_eq!(server.wait().code(), Some(0));
    let log = read.join().unwrap();
    assert!(log.contains("lines of this log were dropped"));
    let last = log.lines().last().unwrap();
    assert!(last.ends_with("ended"), "{last}");
}
