//! Connections between requests: small, and as quick and correct as any when the next one comes.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};

use crate::client::Client;
use crate::server::{Server, directory, noise};

/// Long enough that the server regards a connection as idle.
const REST: Duration = Duration::from_millis(200);

fn rested(server: &Server) -> Client {
    let mut client = server.connect();
    assert_eq!(client.get("/small").text(), "small");
    thread::sleep(REST);
    client
}

fn served(options: &[&str]) -> (tempfile::TempDir, Server) {
    let directory = directory(&[("small", b"small"), ("big", &noise(2_000_000))]);
    let server = Server::start(Some(directory.path()), options);
    (directory, server)
}

#[test]
fn idle_connections_are_small() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = 3 * COUNT as u64;
    if limit.maximum.is_some_and(|maximum| maximum < wanted) {
        softclock_testing::skip!("needs {wanted} descriptors");
    }
    if limit.current.is_some_and(|current| current < wanted) {
        let more = Rlimit {
            current: Some(wanted),
            ..limit
        };
        setrlimit(Resource::Nofile, more).unwrap();
    }
    for (kind, request) in [
        ("silent", &b""[..]),
        ("half a head", b"GET / HTTP/1.1\r\nHost: t\r\n"),
        ("idle", b"HEAD / HTTP/1.1\r\nHost: t\r\n\r\n"),
    ] {
        let bytes = bytes_a_connection(kind, request);
        assert!(bytes < 4_096, "{kind}: {bytes} bytes a connection");
    }
}

/// The memory that a server uses for each connection on which this was sent.
fn bytes_a_connection(kind: &str, request: &[u8]) -> u64 {
    let server = Server::start(None, &[]);
    assert_eq!(server.connect().get("/").status, 200);
    let before = server.resident_kb();
    let clients: Vec<_> = (0..COUNT)
        .map(|_| {
            let mut client = TcpStream::connect(server.address()).unwrap();
            client.write_all(request).unwrap();
            if request.ends_with(b"\r\n\r\n") {
                assert!(client.read(&mut [0; 1_000]).unwrap() > 0);
            }
            client
        })
        .collect();
    thread::sleep(REST);
    let bytes = (server.resident_kb().saturating_sub(before) << 10) / COUNT as u64;
    println!("{kind}: {bytes} bytes for each of {COUNT} connections");
    drop(clients);
    bytes
}

const COUNT: usize = 2_000;

/// No thread of an idle server wakes up, after any kind of request. Helper threads wait a while for more work before
/// they end, so this holds some time after the last request.
#[test]
fn an_idle_server_makes_no_wake_up() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let log = log.path().to_str().unwrap();
    let options = ["--threads", "2", "--metrics", "127.0.0.1:0", "--access-log"];
    let (_directory, server) = served(&[&options[..], &[log]].concat());
    let _idle: Vec<_> = (0..10).map(|_| rested(&server)).collect();
    assert_eq!(
        Client::connect(server.metrics()).get("/metrics").status,
        200
    );
    let begun = Instant::now();
    loop {
        let before = server.switches();
        thread::sleep(Duration::from_secs(3));
        if server.switches() == before {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(40), "it never rests");
    }
}

#[test]
fn requests_in_pieces_at_any_time() {
    let (directory, server) = served(&[]);
    let big = std::fs::read(directory.path().join("big")).unwrap();
    let mut client = server.connect();
    for ms in 0..40 {
        client.send(b"GET /small HTTP/1.1\r\nHost: t\r\n\r\nGET /big HTTP/1.1\r\nHo");
        assert_eq!(client.response("GET").text(), "small");
        thread::sleep(Duration::from_millis(ms));
        client.send(b"st: t\r\n\r\nGET /small HTTP/1.1\r\nHost: t\r\n\r\n");
        assert!(client.response("GET").body == big, "after {ms} ms");
        assert_eq!(client.response("GET").text(), "small");
        thread::sleep(Duration::from_millis(ms));
    }
}

#[test]
fn many_requests_at_once_after_a_rest() {
    let (_directory, server) = served(&[]);
    let mut client = rested(&server);
    // More requests than one read returns.
    let count = 3_000;
    let requests = b"GET /small HTTP/1.1\r\nHost: test\r\n\r\n".repeat(count);
    thread::scope(|scope| {
        let mut sender = client.another();
        scope.spawn(move || sender.write_all(&requests).unwrap());
        for _ in 0..count {
            assert_eq!(client.response("GET").text(), "small");
        }
    });
    thread::sleep(REST);
    assert_eq!(client.get("/small").text(), "small");
}

#[test]
fn bodies_and_refusals_after_a_rest() {
    let (_directory, server) = served(&[]);
    let mut client = rested(&server);
    client.send(b"POST /small HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\n\r\n");
    assert_eq!(client.response("POST").status, 405);
    let mut client = rested(&server);
    client.send(b"GET /small HTTP/1.1\r\nHost: t\r\n\r\nGET /small\r\n\r\n");
    assert_eq!(client.response("GET").text(), "small");
    assert_eq!(client.response("GET").status, 400);
    assert!(client.rest().is_empty());
    let mut client = rested(&server);
    client.send(b"GET /small HTTP/1.1\r\n\r\n");
    assert_eq!(client.response("GET").status, 400);
    assert!(client.rest().is_empty());
}

#[test]
fn the_client_closes_its_side_of_an_idle_connection() {
    let (_directory, server) = served(&[]);
    let mut client = rested(&server);
    client.send(b"GET /small HTTP/1.1\r\nHost: t\r\n\r\n");
    client.close_sending();
    assert_eq!(client.response("GET").text(), "small");
    assert!(client.rest().is_empty());
    let mut client = rested(&server);
    client.close_sending();
    assert!(client.rest().is_empty());
    rested(&server).reset();
    let mut client = rested(&server);
    client.send(b"GET /small HT");
    client.close_sending();
    assert!(client.rest().is_empty());
}

#[test]
fn a_server_that_ends_closes_idle_connections() {
    let (_directory, mut server) = served(&[]);
    let mut clients: Vec<_> = (0..20).map(|_| rested(&server)).collect();
    let mut silent = server.connect();
    let mut half = rested(&server);
    half.send(b"GET /small HTTP/1.1\r\n");
    thread::sleep(REST);
    server.signal(Signal::TERM);
    for client in clients.iter_mut().chain([&mut silent, &mut half]) {
        assert!(client.rest().is_empty());
    }
    assert_eq!(server.wait().code(), Some(0));
}

/// Requests arrive while the server shuts down: each is answered, or its connection is closed without a part of an
/// answer.
#[test]
fn requests_while_idle_connections_are_closed() {
    for delay in 0..10 {
        let (_directory, mut server) = served(&[]);
        let mut clients: Vec<_> = (0..20).map(|_| server.connect()).collect();
        for client in &mut clients {
            assert_eq!(client.get("/small").text(), "small");
        }
        thread::sleep(Duration::from_millis(3 * delay));
        server.signal(Signal::TERM);
        for client in &mut clients {
            if client.try_send(b"GET /small HTTP/1.1\r\nHost: t\r\n\r\n") {
                let rest = client.rest();
                assert!(rest.is_empty() || rest.ends_with(b"\r\n\r\nsmall"));
            }
        }
        assert_eq!(server.wait().code(), Some(0));
    }
}

#[test]
fn rests_count_for_the_idle_timeout() {
    let (_directory, server) = served(&["--idle-timeout", "1", "--head-timeout", "0.5"]);
    let mut client = server.connect();
    let begun = Instant::now();
    // Each request restarts the timeout.
    while begun.elapsed() < Duration::from_millis(1_500) {
        assert_eq!(client.get("/small").text(), "small");
        thread::sleep(REST);
    }
    assert!(client.rest().is_empty());
    let mut slow = rested(&server);
    slow.send(b"GET /small HTTP/1.1\r\n");
    assert_eq!(slow.response("GET").status, 408);
    assert!(slow.rest().is_empty());
}

/// Some clients send an empty line after a body (RFC 9112, section 2.2).
#[test]
fn an_empty_line_begins_no_request() {
    let (_directory, server) = served(&["--head-timeout", "0.2"]);
    let mut client = server.connect();
    // Each of them could be answered by a 408 in place of the next response.
    for line in ["\r\n", "\r"] {
        assert_eq!(client.get("/small").text(), "small");
        client.send(line.as_bytes());
        thread::sleep(5 * REST);
        client.send(&b"\r\n"[line.len()..]);
    }
    assert_eq!(client.get("/small").text(), "small");
    // Nor does it end the wait for the first one.
    let (_directory, server) = served(&["--first-byte-timeout", "0.2"]);
    let mut silent = server.connect();
    silent.send(b"\r\n");
    assert_eq!(silent.read(&mut [0]).expect("an end"), 0);
}
