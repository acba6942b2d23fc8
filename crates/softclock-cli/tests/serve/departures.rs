//! Clients leave at every stage, and the server releases everything.

use std::thread;
use std::time::{Duration, Instant};

use crate::client::Client;
use crate::server::{Server, directory};

const REQUEST: &[u8] = b"GET /f HTTP/1.1\r\nHost: t\r\n\r\n";
const UPLOAD: &[u8] = b"POST /f HTTP/1.1\r\nHost: t\r\nContent-Length: 100000\r\n\r\nsome";

#[test]
fn resets_at_every_stage() {
    let directory = directory(&[("f", &[1; 5_000_000])]);
    let server = Server::start(Some(directory.path()), &[]);
    assert_eq!(server.connect().get("/f").status, 200);
    let before = until_descriptors(&server, |_| true);
    let stages: &[fn(&mut Client)] = &[
        |_| {},
        |client| client.send(b"G"),
        |client| client.send(&REQUEST[..REQUEST.len() - 1]),
        |client| client.send(REQUEST),
        |client| {
            client.send(REQUEST);
            assert_eq!(client.head().status, 200);
        },
        |client| {
            client.send(&REQUEST.repeat(10));
            client.read_exact(&mut vec![0; 1_000_000]);
        },
        |client| client.send(UPLOAD),
        |client| client.send(b"\0\0\0"),
        |client| {
            client.send(b"\0\0\0");
            assert_eq!(client.head().status, 400);
        },
        |client| {
            client.send(REQUEST);
            client.close_sending();
        },
    ];
    for stage in stages {
        for reset in [true, false] {
            for _ in 0..5 {
                let mut client = server.connect();
                stage(&mut client);
                if reset {
                    client.reset();
                }
            }
        }
    }
    assert_eq!(server.connect().get("/f").body.len(), 5_000_000);
    let after = until_descriptors(&server, |now| now <= before);
    assert!(after <= before, "{before} descriptors became {after}");
}

/// The number of descriptors, once it is as wanted or the time is over: lingering connections take two seconds.
fn until_descriptors(server: &Server, wanted: impl Fn(usize) -> bool) -> usize {
    let begun = Instant::now();
    thread::sleep(Duration::from_millis(50));
    loop {
        let now = server.descriptors();
        if wanted(now) || begun.elapsed() > Duration::from_secs(10) {
            return now;
        }
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn half_closed_clients_get_everything() {
    let content = vec![7; 3_000_000];
    let directory = directory(&[("f", &content), ("g", b"g")]);
    let server = Server::start(Some(directory.path()), &[]);
    let mut client = server.connect();
    let request = "GET /f HTTP/1.1\r\nHost: t\r\n\r\nGET /g HTTP/1.1\r\nHost: t\r\n\r\n";
    client.send(request.repeat(3).as_bytes());
    client.close_sending();
    for _ in 0..3 {
        assert!(client.response("GET").body == content);
        assert_eq!(client.response("GET").text(), "g");
    }
    assert_eq!(client.rest(), b"");
}

#[test]
fn half_a_request_and_a_half_close_are_nothing() {
    let server = Server::start(None, &[]);
    for part in ["", "GET", "GET / HTTP/1.1\r\nHost: t\r\n\r"] {
        let mut client = server.connect();
        client.send(part.as_bytes());
        client.close_sending();
        assert_eq!(client.rest(), b"", "{part:?}");
    }
}

#[test]
fn uploads_nobody_reads() {
    let directory = directory(&[("f", b"file")]);
    let server = Server::start(Some(directory.path()), &[]);
    let head = "GET /f HTTP/1.1\r\nHost: t\r\nContent-Length: 100000000\r\n\r\n";
    // One client waits for its answer, and one never stops sending.
    let mut client = server.connect();
    client.send(head.as_bytes());
    client.send(&[0; 1_000_000]);
    assert_eq!(client.response("GET").text(), "file");
    let mut client = server.connect();
    client.send(head.as_bytes());
    let begun = Instant::now();
    while client.try_send(&[0; 100_000]) {
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "it is read for ever"
        );
    }
    assert_eq!(server.connect().get("/f").text(), "file");
}

#[test]
fn clients_that_never_read_are_let_go() {
    let directory = directory(&[("f", &[1; 30_000_000])]);
    let server = Server::start(Some(directory.path()), &["--send-timeout", "0.3"]);
    let before = until_descriptors(&server, |_| true);
    let clients: Vec<_> = (0..20)
        .map(|_| {
            let mut client = server.connect();
            client.send(b"GET /f HTTP/1.1\r\nHost: t\r\n\r\n");
            client
        })
        .collect();
    let begun = Instant::now();
    let after = until_descriptors(&server, |now| now <= before);
    assert!(after <= before, "{after} descriptors, not {before}");
    assert!(begun.elapsed() > Duration::from_millis(200));
    drop(clients);
}
