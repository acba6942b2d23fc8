//! Requests that are refused before they are parsed completely.

use std::thread;
use std::time::Duration;

use crate::client::{Client, Response};
use crate::server::{Server, directory};

const GOOD: &str = "GET /f HTTP/1.1\r\nHost: t\r\n\r\n";

/// A smuggled request, which must never be answered.
const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nHost: t\r\n\r\n";

fn server() -> (tempfile::TempDir, Server) {
    let directory = directory(&[("f", b"file"), ("smuggled", b"smuggled")]);
    let server = Server::start(Some(directory.path()), &[]);
    (directory, server)
}

/// A refusal is the last response, complete, and followed by the end.
fn refusal(client: &mut Client, method: &str) -> Response {
    let response = client.response(method);
    assert_eq!(response.header("connection"), Some("close"));
    assert_eq!(response.header("server"), Some("softclock"));
    assert!(response.header("date").is_some());
    assert_eq!(String::from_utf8_lossy(&client.rest()), "");
    response
}

const BAD_HEADS: &[(&str, u16)] = &[
    (
        "POST /f HTTP/1.1\r\nHost: t\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        400,
    ),
    (
        "POST /f HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\nContent-Length: 6\r\n\r\n0\r\n\r\n",
        400,
    ),
    (
        "POST /f HTTP/1.1\r\nHost: t\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx",
        400,
    ),
    (
        "POST /f HTTP/1.1\r\nHost: t\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx",
        400,
    ),
    (
        "POST /f HTTP/1.1\r\nHost: t\r\nContent-Length: 1, 1\r\n\r\nx",
        400,
    ),
    (
        "POST /f HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        501,
    ),
    (
        "POST /f HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        501,
    ),
    (
        "POST /f HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
        400,
    ),
    (
        "POST /f HTTP/1.0\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        400,
    ),
    ("GET /f HTTP/1.1\r\nHost: t\r\nX: a\rb\r\n\r\n", 400),
    ("GET /f HTTP/1.1\r\nHost: t\r\nX: a\r\n b\r\n\r\n", 400),
    ("GET /f HTTP/1.1\nHost: t\n\n", 400),
    ("GET /f HTTP/1.1\r\nHost: t\r\nX : a\r\n\r\n", 400),
    ("GET /f HTTP/1.1\r\nHost: t\r\n: a\r\n\r\n", 400),
    ("GET /f HTTP/1.1\r\nHost: t\r\nX: \0\r\n\r\n", 400),
    ("GET /f HTTP/1.1\r\n\r\n", 400),
    ("GET /f HTTP/1.1\r\nHost: t\r\nHost: u\r\n\r\n", 400),
    ("GET /f HTTP/2.0\r\nHost: t\r\n\r\n", 505),
    ("GET /f\r\n", 400),
    ("GET  /f HTTP/1.1\r\nHost: t\r\n\r\n", 400),
    ("G\x01T /f HTTP/1.1\r\nHost: t\r\n\r\n", 400),
    ("\r\n\r\nGET /f HTTP/1.1\r\nHost: t\r\n\r\n", 400),
];

#[test]
fn after_the_responses_before_and_with_the_last_word() {
    let (_directory, server) = server();
    for &(bad, status) in BAD_HEADS {
        for before in [0, 1, 3] {
            let mut client = server.connect();
            client.send(format!("{}{bad}{SMUGGLED}", GOOD.repeat(before)).as_bytes());
            for _ in 0..before {
                assert_eq!(client.response("GET").text(), "file", "{bad:?}");
            }
            let response = refusal(&mut client, "POST");
            assert_eq!(response.status, status, "{bad:?}");
        }
    }
}

#[test]
fn whatever_the_pieces() {
    let (_directory, server) = server();
    for &(bad, status) in BAD_HEADS {
        let mut client = server.connect();
        let stream = format!("{GOOD}{bad}{SMUGGLED}");
        for piece in stream.as_bytes().chunks(11) {
            // The refusal may arrive before everything is sent.
            if !client.try_send(piece) {
                break;
            }
        }
        assert_eq!(client.response("GET").text(), "file", "{bad:?}");
        assert_eq!(refusal(&mut client, "POST").status, status, "{bad:?}");
    }
}

#[test]
fn without_a_page_for_head_requests() {
    let (_directory, server) = server();
    // An empty line may come before the head (RFC 9112, section 2.2).
    for pieces in [
        &["HEAD /f HTTP/1.1\r\n\r\n"][..],
        &["\r\nHEAD /f HTTP/1.1\r\n\r\n"],
        &["\r\n", "HEAD /f HTTP/1.1\r\n\r\n"],
    ] {
        let mut client = server.connect();
        for piece in pieces {
            client.send(piece.as_bytes());
            thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(refusal(&mut client, "HEAD").status, 400);
    }
}

#[test]
fn not_after_a_response_that_ends_the_connection() {
    let (_directory, server) = server();
    let mut client = server.connect();
    client.send(b"GET /f HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n\0\0\0");
    let response = client.response("GET");
    assert_eq!((response.status, response.text()), (200, "file"));
    assert_eq!(client.rest(), b"");
}

#[test]
fn broken_chunks_end_the_connection() {
    let (_directory, server) = server();
    for body in [
        "x\r\n",
        "2\r\nabc\r\n0\r\n\r\n",
        "2\r\nab\n0\r\n\r\n",
        "0\r\nHost: x\r\n\r\n",
    ] {
        let mut client = server.connect();
        let head = "GET /f HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n";
        client.send(format!("{head}{body}{SMUGGLED}").as_bytes());
        let answers = client.rest();
        let answers = String::from_utf8_lossy(&answers);
        assert!(answers.matches("HTTP/1.1 ").count() <= 1, "{answers}");
        assert!(!answers.contains("smuggled"), "{answers}");
    }
}

#[test]
fn bodies_are_skipped_to_the_next_request() {
    let (_directory, server) = server();
    let inner = SMUGGLED.len();
    let sized = format!("GET /f HTTP/1.1\r\nHost: t\r\nContent-Length: {inner}\r\n\r\n{SMUGGLED}");
    let chunked = format!(
        "GET /f HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n\
        {inner:x};x=y\r\n{SMUGGLED}\r\n0\r\nT: {}\r\n\r\n",
        "t"
    );
    let mut client = server.connect();
    client.send(format!("{sized}{chunked}\r\n{GOOD}").as_bytes());
    for _ in 0..3 {
        assert_eq!(client.response("GET").text(), "file");
    }
}

#[test]
fn long_heads() {
    let options = ["--max-line", "1000", "--max-head", "3000"];
    let server = Server::start(None, &options);
    let line = |n: usize| format!("GET /?{} HTTP/1.1\r\nHost: t\r\n\r\n", "a".repeat(n));
    let head = |n: usize| format!("GET / HTTP/1.1\r\nHost: t\r\nX: {}\r\n\r\n", "a".repeat(n));
    let fields = |n: usize| format!("GET / HTTP/1.1\r\nHost: t\r\n{}\r\n", "a: b\r\n".repeat(n));
    let fixed = head(0).len();
    for (request, status) in [
        (line(1_000 - 15), 200),
        (line(1_000 - 14), 414),
        (line(1_000_000), 414),
        (head(3_000 - fixed), 200),
        (head(3_001 - fixed), 431),
        (head(1_000_000), 431),
        (fields(99), 200),
        (fields(100), 431),
    ] {
        let mut client = server.connect();
        client.send(request.as_bytes());
        let start = &request[..request.len().min(50)];
        match status {
            200 => assert_eq!(client.response("GET").status, 200, "{start}"),
            _ => assert_eq!(refusal(&mut client, "GET").status, status, "{start}"),
        }
    }
}

#[test]
fn limits_by_default_and_beyond() {
    let request = |n: usize| format!("GET / HTTP/1.1\r\nHost: t\r\nX: {}\r\n\r\n", "a".repeat(n));
    let status = |server: &Server, n: usize| {
        let mut client = server.connect();
        client.send(request(n).as_bytes());
        client.response("GET").status
    };
    let server = Server::start(None, &[]);
    let fixed = request(0).len();
    assert_eq!(status(&server, 65_536 - fixed), 200);
    assert_eq!(status(&server, 65_537 - fixed), 431);
    let server = Server::start(None, &["--max-head", "1000000"]);
    assert_eq!(status(&server, 1_000_000 - fixed), 200);
    assert_eq!(status(&server, 1_000_001 - fixed), 431);
    let server = Server::start(None, &["--max-fields", "200"]);
    let fields = |n: usize| {
        let lines = "a: b\r\n".repeat(n);
        let mut client = server.connect();
        client.send(format!("GET / HTTP/1.1\r\nHost: t\r\n{lines}\r\n").as_bytes());
        client.response("GET").status
    };
    assert_eq!((fields(199), fields(200)), (200, 431));
}
