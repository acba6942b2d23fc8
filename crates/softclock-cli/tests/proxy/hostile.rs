//! Malicious responses of upstreams: the answer is 502, the client's connection stays open, and memory stays small.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::client::Client;
use crate::upstream::{Connection, Upstream, proxy};

/// An upstream that serves `/good`, and answers anything else by `answer`.
fn hostile(answer: impl Fn(&mut Connection) + Send + Sync + 'static) -> Upstream {
    Upstream::start(move |connection| {
        while let Some(request) = connection.request() {
            if request.line.starts_with("GET /good ") {
                connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood");
            } else {
                answer(connection);
                return;
            }
        }
    })
}

/// Sends a request that must fail, and then one that must succeed.
fn is_refused(client: &mut Client, name: &str) {
    let reply = client.ask("GET", "/bad", &[]);
    assert_eq!(reply.status, 502, "{name}: {reply:?}");
    assert_eq!(client.ask("GET", "/good", &[]).text(), "good", "{name}");
}

#[test]
fn heads_of_upstreams_that_no_client_should_see() {
    for (name, head) in [
        ("a NUL in a value", "X: a\0b"),
        ("a NUL in a name", "X\0: a"),
        ("a bare CR", "X: a\rSet-Cookie: b"),
        ("a space before a colon", "X : a"),
        ("a line without a colon", "X"),
        ("an empty name", ": a"),
        (
            "lengths that differ",
            "Content-Length: 1\r\nContent-Length: 2",
        ),
        ("a negative length", "Content-Length: -1"),
        (
            "a length beyond 64 bits",
            "Content-Length: 18446744073709551616",
        ),
        ("an unknown coding", "Transfer-Encoding: gzip, chunked"),
        (
            "a coding twice",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked, chunked",
        ),
    ] {
        let upstream = hostile(move |connection| {
            connection.send(format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n").as_bytes());
        });
        let proxy = proxy(&[&upstream.url()], &["--max-fails", "0"]);
        is_refused(&mut proxy.connect(), name);
    }
}

#[test]
fn status_lines_of_upstreams_that_no_client_should_see() {
    for line in [
        "HTTP/1.1 20 OK",
        "HTTP/1.1 2000 OK",
        "HTTP/1.1 -20 OK",
        "HTTP/2.0 200 OK",
        "HTTP/1.1  200 OK",
        "200 OK",
        "ICY 200 OK",
    ] {
        let upstream = hostile(move |connection| {
            connection.send(format!("{line}\r\nContent-Length: 0\r\n\r\n").as_bytes());
        });
        let proxy = proxy(&[&upstream.url()], &["--max-fails", "0"]);
        is_refused(&mut proxy.connect(), line);
    }
}

/// Sends `piece` for as long as the proxy takes it; counts the bytes.
fn endless(start: &'static str, piece: &'static str) -> (Upstream, Arc<AtomicUsize>) {
    let taken = Arc::new(AtomicUsize::new(0));
    let count = taken.clone();
    let upstream = hostile(move |connection| {
        connection.send(start.as_bytes());
        let piece = piece.repeat((16 << 10) / piece.len() + 1);
        // More than socket buffers hold.
        for _ in 0..4 << 10 {
            if !connection.try_send(piece.as_bytes()) {
                return;
            }
            count.fetch_add(piece.len(), Ordering::SeqCst);
        }
    });
    (upstream, taken)
}

#[test]
fn heads_of_upstreams_without_end_end_the_connection() {
    for (name, start, piece) in [
        ("a status line", "HTTP/1.1 200 ", "O"),
        ("a name", "HTTP/1.1 200 OK\r\n", "x"),
        ("a value", "HTTP/1.1 200 OK\r\nX: ", "y"),
        ("many fields", "HTTP/1.1 200 OK\r\n", "X: y\r\n"),
        ("empty values", "HTTP/1.1 200 OK\r\n", "X:\r\n"),
        ("empty lines before it", "", "\r\n"),
    ] {
        let (upstream, taken) = endless(start, piece);
        let proxy = proxy(&[&upstream.url()], &["--max-fails", "0", "--tries", "1"]);
        let before = proxy.resident_kb();
        is_refused(&mut proxy.connect(), name);
        let taken = taken.load(Ordering::SeqCst);
        assert!(taken < 32 << 20, "{name}: {taken} bytes were taken");
        let grown = proxy.peak_resident_kb().saturating_sub(before);
        assert!(grown < 16 << 10, "{name}: {grown} KB");
    }
}

#[test]
fn an_upstream_that_answers_more_than_it_was_asked_is_heard_once() {
    let forged = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged";
    for (name, answer) in [
        (
            "behind a body",
            "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfour",
        ),
        (
            "behind chunks",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nfour\r\n0\r\n\r\n",
        ),
        ("behind a 204", "HTTP/1.1 204 No Content\r\n\r\n"),
        (
            "behind a 304",
            "HTTP/1.1 304 Not Modified\r\nContent-Length: 4\r\n\r\n",
        ),
    ] {
        let upstream = hostile(move |connection| {
            connection.send(format!("{answer}{forged}").as_bytes());
        });
        let proxy = proxy(&[&upstream.url()], &[]);
        let mut client = proxy.connect();
        for _ in 0..3 {
            let reply = client.ask("GET", "/bad", &[]);
            assert!(!reply.body.ends_with(b"forged"), "{name}: {reply:?}");
            assert_eq!(client.ask("GET", "/good", &[]).text(), "good", "{name}");
        }
    }
}
