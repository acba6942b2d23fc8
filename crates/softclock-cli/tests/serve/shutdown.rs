//! Shutdown of a server.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::h2_frames::{Http2, Outcome, get};
use crate::server::{Server, directory, noise};
use crate::tls::{self, with_site};

#[test]
fn a_download_in_progress_completes() {
    for options in [&[][..], &["--threads", "2"]] {
        let content = noise(20_000_000);
        let directory = directory(&[("big", &content)]);
        let mut server = Server::start(Some(directory.path()), options);
        let mut idle = server.connect();
        assert_eq!(idle.request("HEAD", "/big", &[]).status, 200);
        let mut silent = server.connect();
        let mut client = server.connect();
        client.send(b"GET /big HTTP/1.1\r\nHost: t\r\n\r\n");
        assert_eq!(client.head().status, 200);

        server.signal(Signal::TERM);
        assert!(idle.rest().is_empty(), "idle connections are closed");
        assert!(silent.rest().is_empty(), "and those without a request yet");
        assert_eq!(refusal(server.address()), io::ErrorKind::ConnectionRefused);

        let mut body = Vec::with_capacity(content.len());
        let mut buffer = vec![0; 1 << 18];
        while body.len() < content.len() {
            thread::sleep(Duration::from_millis(2));
            let read = client.read(&mut buffer).unwrap();
            assert!(read > 0, "cut after {} bytes", body.len());
            body.extend_from_slice(&buffer[..read]);
        }
        assert!(body == content);
        assert!(client.rest().is_empty(), "then the connection is closed");
        assert_eq!(server.wait().code(), Some(0));
    }
}

/// A client that ignores GOAWAY.
#[test]
fn an_idle_client_of_http_2_holds_no_end() {
    let directory = with_site(&[("site/small", b"small")]);
    let certificate = directory.path().join("cert.pem");
    for requests in [0, 1, 2] {
        let mut server = tls::start(&directory, &["--drain", "60"]);
        let mut client = Http2::connect(server.address(), &certificate);
        for request in 0..requests {
            client.send(&get(2 * request + 1, "/small"));
            assert_eq!(client.outcome(2 * request + 1), Outcome::Status(200));
        }
        server.signal(Signal::TERM);
        // Not after the 60 seconds, which are longer than this waits.
        assert_eq!(server.wait().code(), Some(0));
    }
}

/// The error of a connection to an address on which no thread listens.
fn refusal(address: SocketAddr) -> io::ErrorKind {
    let begun = Instant::now();
    loop {
        match TcpStream::connect(address) {
            // The connection waited to be accepted when the listener closed.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
            Err(error) => return error.kind(),
            Ok(_) => assert!(begun.elapsed() < Duration::from_secs(10), "still accepting"),
        }
    }
}

#[test]
fn an_idle_server_ends_at_once() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut server = Server::start(None, &["--threads", "2"]);
        let begun = Instant::now();
        server.signal(signal);
        assert_eq!(server.wait().code(), Some(0));
        assert!(begun.elapsed() < Duration::from_secs(2));
    }
}

#[test]
fn draining_has_its_time() {
    let directory = directory(&[("big", &[0; 20_000_000])]);
    let mut server = Server::start(Some(directory.path()), &["--drain", "0.3"]);
    let mut client = server.connect();
    client.send(b"GET /big HTTP/1.1\r\nHost: t\r\n\r\n");
    assert_eq!(client.head().status, 200);
    let begun = Instant::now();
    server.signal(Signal::TERM);
    assert_eq!(server.wait().code(), Some(0));
    let took = begun.elapsed();
    assert!((250..3_000).contains(&took.as_millis()), "{took:?}");
    assert!(client.rest().len() < 20_000_000);
}

/// The process ends with connections in any state, and writes all lines of the access log.
#[test]
fn a_second_signal_ends_at_once() {
    for threads in ["1", "2"] {
        let directory = directory(&[("big", &[0; 20_000_000]), ("small", b"small")]);
        let log = directory.path().join("log");
        let option = format!("--access-log={}", log.display());
        let options = ["--drain", "60", "--threads", threads, &option];
        let mut server = Server::start(Some(directory.path()), &options);
        let mut client = server.connect();
        client.send(b"GET /big HTTP/1.1\r\nHost: t\r\n\r\n");
        assert_eq!(client.head().status, 200);
        let mut others: Vec<_> = (0..8).map(|_| server.connect()).collect();
        for other in &mut others {
            assert_eq!(other.get("/small").text(), "small");
        }
        server.signal(Signal::TERM);
        thread::sleep(Duration::from_millis(300));
        server.signal(Signal::INT);
        assert_eq!(server.wait().code(), Some(1));
        let text = std::fs::read_to_string(&log).unwrap();
        assert_eq!(text.matches("GET /small").count(), 8, "{text}");
    }
}
