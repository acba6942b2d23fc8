//! Signals in rapid sequences.

use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Pid, Signal, kill_process};
use softclock_testing::KilledOnDrop;

use crate::server::{Server, directory, softclock, until};

#[test]
fn many_reloads_at_once_drop_no_connection() {
    let directory = directory(&[("f", b"file")]);
    let log = directory.path().join("access.log");
    let mut server = Server::start(
        Some(directory.path()),
        &["--access-log", &log.display().to_string()],
    );
    let mut client = server.connect();
    for round in 0..50 {
        for signal in [
            Signal::HUP,
            Signal::USR1,
            Signal::HUP,
            Signal::HUP,
            Signal::USR1,
        ] {
            server.signal(signal);
        }
        assert_eq!(client.get("/f").text(), "file", "round {round}");
        assert_eq!(server.connect().get("/f").text(), "file", "round {round}");
    }
    server.signal(Signal::TERM);
    assert_eq!(server.wait().code(), Some(0));
    assert!(!server.log().contains("panicked"), "{}", server.log());
}

#[test]
fn reloads_before_and_behind_the_end_do_not_keep_it_up() {
    for order in [
        [Signal::HUP, Signal::TERM],
        [Signal::TERM, Signal::HUP],
        [Signal::USR1, Signal::INT],
    ] {
        let mut server = Server::start(None, &[]);
        for signal in order {
            server.signal(signal);
        }
        server.wait();
        assert!(!server.log().contains("panicked"), "{}", server.log());
    }
}

#[test]
fn stopped_and_continued_it_goes_on() {
    let directory = directory(&[("f", b"file")]);
    let server = Server::start(Some(directory.path()), &[]);
    let mut client = server.connect();
    for _ in 0..20 {
        server.signal(Signal::STOP);
        client.send(b"GET /f HTTP/1.1\r\nHost: t\r\n\r\n");
        sleep(Duration::from_millis(5));
        server.signal(Signal::CONT);
        assert_eq!(client.response("GET").text(), "file");
    }
}

/// The start waits for the key, a pipe without contents.
#[test]
fn a_signal_ends_the_start() {
    let directory = directory(&[]);
    let pipe = directory.path().join("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    for signal in [Signal::INT, Signal::TERM] {
        let mut command = softclock();
        command.args(["serve", "--listen", "tls:127.0.0.1:0"]);
        command.arg("--tls-cert").arg(&pipe);
        command.arg("--tls-key").arg(&pipe);
        let mut server = KilledOnDrop::new(command.spawn().unwrap());
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let mut writer = None;
        until("it reads", || {
            writer = open(&pipe, flags, Mode::empty()).ok();
            writer.is_some()
        });
        kill_process(Pid::from_child(&server), signal).unwrap();
        let mut status = None;
        until("its end", || {
            status = server.try_wait().unwrap();
            status.is_some()
        });
        assert_eq!(status.unwrap().code(), Some(0));
    }
}
