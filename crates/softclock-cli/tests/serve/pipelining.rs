//! Requests sent without waiting for answers.

use std::thread;
use std::time::Duration;

use crate::client::Client;
use crate::server::{Server, directory, noise};

/// A request, and its expected answer.
struct Exchange<'a> {
    request: String,
    method: &'a str,
    status: u16,
    body: &'a [u8],
}

fn exchange<'a>(
    method: &'a str,
    target: &str,
    line: &str,
    status: u16,
    body: &'a [u8],
) -> Exchange<'a> {
    let line = if line.is_empty() {
        String::new()
    } else {
        format!("{line}\r\n")
    };
    Exchange {
        request: format!("{method} {target} HTTP/1.1\r\nHost: t\r\n{line}\r\n"),
        method,
        status,
        body,
    }
}

fn mixed<'a>(small: &'a [u8], big: &'a [u8]) -> Vec<Exchange<'a>> {
    vec![
        exchange("GET", "/small", "", 200, small),
        exchange("HEAD", "/big", "", 200, b""),
        exchange("GET", "/small", "If-None-Match: *", 304, b""),
        exchange("GET", "/big", "", 200, big),
        exchange(
            "GET",
            "/big",
            "Range: bytes=70000-70009",
            206,
            &big[70_000..70_010],
        ),
        exchange(
            "GET",
            "/none",
            "",
            404,
            b"404 Not Found: nothing is here.\n",
        ),
        exchange("OPTIONS", "/", "", 204, b""),
        exchange("GET", "/small", "Range: bytes=1-1", 206, &small[1..2]),
        exchange("HEAD", "/none", "", 404, b""),
        exchange("GET", "/empty", "", 200, b""),
        exchange("GET", "/small", "", 200, small),
    ]
}

fn expect(client: &mut Client, exchanges: &[Exchange<'_>]) {
    for exchange in exchanges {
        let response = client.response(exchange.method);
        assert_eq!(response.status, exchange.status, "{}", exchange.request);
        assert!(response.body == exchange.body, "{}", exchange.request);
    }
}

#[test]
fn many_at_once() {
    let (small, big) = (noise(700), noise(900_000));
    let files: &[(&str, &[u8])] = &[("small", &small), ("big", &big), ("empty", b"")];
    let directory = directory(files);
    for cache in ["0", "8M"] {
        let server = Server::start(Some(directory.path()), &["--cache", cache]);
        let exchanges = mixed(&small, &big);
        let all: String = exchanges.iter().map(|e| e.request.as_str()).collect();
        thread::scope(|scope| {
            let mut client = server.connect();
            client.send(all.repeat(20).as_bytes());
            scope.spawn(move || {
                for _ in 0..20 {
                    expect(&mut client, &exchanges);
                }
            });
        });
    }
}

#[test]
fn split_at_every_byte() {
    let (small, big) = (noise(300), noise(80_000));
    let files: &[(&str, &[u8])] = &[("small", &small), ("big", &big), ("empty", b"")];
    let directory = directory(files);
    let server = Server::start(Some(directory.path()), &[]);
    let exchanges = mixed(&small, &big);
    let all: String = exchanges.iter().map(|e| e.request.as_str()).collect();
    let next = std::sync::atomic::AtomicUsize::new(1);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut client = server.connect();
                loop {
                    let at = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    if at >= all.len() {
                        return;
                    }
                    let (first, second) = all.as_bytes().split_at(at);
                    client.send(first);
                    thread::sleep(Duration::from_millis(1));
                    client.send(second);
                    expect(&mut client, &exchanges);
                }
            });
        }
    });
}

#[test]
fn byte_by_byte() {
    let (small, big) = (noise(300), noise(80_000));
    let files: &[(&str, &[u8])] = &[("small", &small), ("big", &big), ("empty", b"")];
    let directory = directory(files);
    let server = Server::start(Some(directory.path()), &[]);
    let mut client = server.connect();
    let exchanges = mixed(&small, &big);
    for byte in exchanges.iter().flat_map(|e| e.request.bytes()) {
        client.send(&[byte]);
    }
    expect(&mut client, &exchanges);
}

#[test]
fn the_last_request_may_close() {
    let directory = directory(&[("f", b"content")]);
    let server = Server::start(Some(directory.path()), &[]);
    let mut client = server.connect();
    let request = "GET /f HTTP/1.1\r\nHost: t\r\n";
    client.send(format!("{request}\r\n{request}Connection: close\r\n\r\n{request}\r\n").as_bytes());
    for _ in 0..2 {
        assert_eq!(client.response("GET").text(), "content");
    }
    assert!(client.rest().is_empty(), "nothing behind the last");
}

#[test]
fn responses_before_an_end_arrive_though_more_was_asked() {
    let content = noise(2_000_000);
    let directory = directory(&[("big", &content)]);
    let server = Server::start(Some(directory.path()), &[]);
    let get = "GET /big HTTP/1.1\r\nHost: t\r\n\r\n";
    // A body in several chunks that the site does not read ends the connection after the answer.
    let chunks = "2\r\nab\r\n".repeat(3);
    let post = format!(
        "POST /big HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}0\r\n\r\n"
    );
    // The server reads a malformed head together with the rest, and answers nothing behind the end.
    let malformed = "GET / bad HTTP/1.1\r\nHost: t\r\n";
    for (read, unread) in [("", get), (malformed, "X-More: 1\r\n\r\n")] {
        let mut client = server.connect();
        client.send(format!("{get}{post}{read}").as_bytes());
        thread::sleep(Duration::from_millis(50));
        // The server has begun its answer, and does not read these bytes.
        client.send(unread.as_bytes());
        let head = client.head();
        assert_eq!(head.status, 200);
        // So slowly that the server has finished before, and the rest is in its socket's buffer.
        let mut body = Vec::new();
        let mut piece = [0; 16 << 10];
        while body.len() < content.len() {
            thread::sleep(Duration::from_millis(3));
            let room = piece.len().min(content.len() - body.len());
            match client.read(&mut piece[..room]) {
                Ok(n @ 1..) => body.extend_from_slice(&piece[..n]),
                end => panic!("{end:?} after {} bytes", body.len()),
            }
        }
        assert!(body == content);
        assert_eq!(client.response("POST").status, 405);
    }
}

/// The first response is paced, so the rest of a body arrives while another one waits to be sent.
#[test]
fn what_was_read_while_a_response_waited_is_answered() {
    let (big, small) = (noise(300_000), noise(70_000));
    let directory = directory(&[("big", &big), ("small", &small), ("empty", b"")]);
    let server = Server::start(Some(directory.path()), &["--pace", "50mbit"]);
    let mut client = server.connect();
    client.send(b"GET /big HTTP/1.1\r\nHost: t\r\n\r\n");
    client.send(b"GET /small HTTP/1.1\r\nHost: t\r\nContent-Length: 3000\r\n\r\n");
    client.send(&[b'x'; 1500]);
    thread::sleep(Duration::from_millis(10));
    client.send(&[b'x'; 1500]);
    client.send(b"GET /empty HTTP/1.1\r\nHost: t\r\n\r\nPRI bad\r\n\r\n");
    assert!(client.response("GET").body == big);
    assert!(client.response("GET").body == small);
    assert_eq!(client.response("GET").status, 200);
    assert_eq!(client.response("GET").status, 400);
}
