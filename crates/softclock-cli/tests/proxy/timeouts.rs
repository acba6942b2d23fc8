//! Slow upstreams.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::thread::{self, sleep};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, listen, socket_with};

use crate::own_stack::host;
use crate::upstream::{Upstream, proxy};

/// Longer than any timeout in these tests, shorter than the tests' own patience.
const LONG: Duration = Duration::from_secs(8);

const METRICS: &str = "--metrics=127.0.0.1:0";

/// A listener whose queue is full, so that connecting to it gets no answer. The returned streams keep the queue full.
pub(crate) fn full_listener() -> (OwnedFd, SocketAddr, Vec<TcpStream>) {
    let local = SocketAddr::from((host(), 0));
    // The programs that other tests start meanwhile must not have copies.
    let flags = SocketFlags::CLOEXEC;
    let listener = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None);
    let listener = listener.expect("a socket");
    bind(&listener, &local).expect("a free port");
    listen(&listener, 1).expect("a listener");
    let address = getsockname(&listener).expect("its address");
    let address = SocketAddr::try_from(address).expect("of TCP");
    let connect = || TcpStream::connect_timeout(&address, Duration::from_millis(300));
    let queued = std::iter::from_fn(|| connect().ok()).collect();
    (listener, address, queued)
}

#[test]
fn no_connection_in_time_is_a_504() {
    let (_listener, address, _queued) = full_listener();
    let silent = format!("http://{address}");
    let options = ["--connect-timeout", "0.2", METRICS];
    let alone = proxy(&[&silent], &options);
    let reply = alone.connect().ask("GET", "/", &[]);
    assert_eq!(reply.status, 504);
    let sentence = "the upstream did not accept a connection in time.";
    assert!(reply.text().contains(sentence), "{}", reply.text());
    alone.until_logged("no connection in time");
    assert_eq!(alone.reached("connect_timeout"), 1.0);
    // No upstream has seen the request, so another one may get it.
    let good = Upstream::saying("good");
    let both = proxy(&[&silent, &good.url()], &["--connect-timeout", "0.2"]);
    let mut client = both.connect();
    for _ in 0..2 {
        client.send(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody");
        assert_eq!(client.reply("POST").text(), "good");
    }
}

#[test]
fn no_first_byte_is_a_504() {
    let upstream = Upstream::start(|connection| {
        connection.request();
        sleep(LONG);
    });
    let proxy = proxy(&[&upstream.url()], &["--response-timeout", "0.2", METRICS]);
    let mut client = proxy.connect();
    let reply = client.ask("GET", "/", &[]);
    assert_eq!(reply.status, 504);
    assert!(
        reply.text().contains("did not answer in time"),
        "{}",
        reply.text()
    );
    assert_eq!(client.ask("GET", "/", &[]).status, 504);
    assert_eq!(proxy.reached("response_timeout"), 2.0);
}

#[test]
fn time_for_the_first_byte_starts_when_the_request_is_sent() {
    let upstream = Upstream::saying("ok");
    let options = ["--response-timeout", "1", "--upload-buffer", "0"];
    let proxy = proxy(&[&upstream.url()], &options);
    let mut client = proxy.connect();
    client.send(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\n");
    for byte in b"body" {
        sleep(Duration::from_millis(400));
        client.send(&[*byte]);
    }
    assert_eq!(client.reply("POST").text(), "ok");
}

#[test]
fn interim_heads_do_not_hurry_an_upload() {
    let upstream = Upstream::start(|connection| {
        connection
            .send(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n");
        connection.request();
        connection.send(b"HTTP/1.1 102 Processing\r\n\r\n");
        sleep(Duration::from_millis(600));
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    });
    let proxy = proxy(
        &[&upstream.url()],
        &[
            "--upstream-read-timeout",
            "0.2",
            "--response-timeout",
            "5",
            "--upload-buffer",
            "0",
        ],
    );
    let mut client = proxy.connect();
    client.send(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n");
    for byte in b"up" {
        sleep(Duration::from_millis(600));
        client.send(&[*byte]);
    }
    assert_eq!(client.reply("POST").text(), "ok");
}

#[test]
fn a_head_that_stops_is_a_504_and_a_body_is_cut_short() {
    for (part, status) in [
        ("HTTP/1.1 200 OK\r\nContent-", 504),
        ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", 200),
    ] {
        let upstream = Upstream::start(move |connection| {
            connection.request();
            connection.send(part.as_bytes());
            sleep(LONG);
        });
        let options = ["--upstream-read-timeout", "0.2", METRICS];
        let proxy = proxy(&[&upstream.url()], &options);
        let reply = proxy.connect().ask("GET", "/", &[]);
        assert_eq!((reply.status, reply.is_complete), (status, status == 504));
        assert_eq!(proxy.reached("upstream_read_timeout"), 1.0);
    }
}

#[test]
fn pauses_shorter_than_the_timeout_are_none() {
    let upstream = Upstream::start(|connection| {
        connection.request();
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n");
        for byte in b"slow" {
            sleep(Duration::from_millis(300));
            connection.send(&[*byte]);
        }
    });
    let proxy = proxy(
        &[&upstream.url()],
        &["--upstream-read-timeout", "1", "--response-timeout", "1"],
    );
    assert_eq!(proxy.connect().ask("GET", "/", &[]).text(), "slow");
}

#[test]
fn a_request_that_is_not_taken_is_a_504() {
    let upstream = Upstream::start(|connection| {
        connection.head();
        sleep(LONG);
    });
    let options = ["--upstream-send-timeout", "0.3", METRICS];
    let proxy = proxy(&[&upstream.url()], &options);
    let mut client = proxy.connect();
    let length = 1usize << 30;
    client
        .send(format!("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n").as_bytes());
    let mut upload = client.another();
    let sending = thread::spawn(move || {
        let chunk = [0; 1 << 16];
        let mut sent = 0;
        // The answer arrives long before the end, and the connection is closed with it.
        while sent < length && upload.write_all(&chunk).is_ok() {
            sent += chunk.len();
        }
        sent
    });
    let reply = client.reply("POST");
    assert_eq!(reply.status, 504);
    let sentence = "the upstream did not take the request in time.";
    assert!(reply.text().contains(sentence), "{}", reply.text());
    assert!(sending.join().unwrap() < length);
    proxy.until_logged("status=504");
    assert_eq!(proxy.reached("upstream_send_timeout"), 1.0);
}

#[test]
fn timeouts_of_zero_are_none() {
    let upstream = Upstream::start(|connection| {
        connection.request();
        sleep(Duration::from_millis(500));
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n");
        sleep(Duration::from_millis(500));
        connection.send(b"ok");
    });
    let off = [
        "connect-timeout",
        "upstream-send-timeout",
        "response-timeout",
        "upstream-read-timeout",
    ];
    let off: Vec<_> = off.iter().map(|name| format!("--{name}=0")).collect();
    let off: Vec<_> = off.iter().map(String::as_str).collect();
    let proxy = proxy(&[&upstream.url()], &off);
    assert_eq!(proxy.connect().ask("GET", "/", &[]).text(), "ok");
}
