//! Signals in rapid sequences.

use std::thread::sleep;
use std::time::Duration;

use rustix::process::Signal;

use crate::server::{Server, directory};

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
