//! Request bodies: the resources that slow clients hold, and the time for which they hold them.

use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::{self, sleep};
use std::time::Duration;

use crate::client::Client;
use crate::server::{Server, until};
use crate::upstream::{Upstream, proxy};

/// The head of a request with a body of `length` bytes.
pub(crate) fn post(target: &str, length: usize) -> Vec<u8> {
    format!("POST {target} HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n").into()
}

fn reached(proxy: &Server, limit: &str) -> u64 {
    let metrics = Client::connect(proxy.metrics()).get("/metrics");
    let start = format!("softclock_limits_reached_total{{limit=\"{limit}\"}} ");
    let mut lines = metrics.text().lines();
    let value = lines.find_map(|line| line.strip_prefix(&start));
    value
        .expect("the limit has a metric")
        .parse()
        .expect("a number")
}

#[test]
fn slow_beginnings_leave_upstreams_to_others() {
    let upstream = Upstream::saying("ok");
    let proxy = proxy(&[&upstream.url()], &["--max-requests", "2"]);
    let chunked = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n";
    let mut slow: Vec<_> = (0..10).map(|_| proxy.connect()).collect();
    for (place, client) in slow.iter_mut().enumerate() {
        match place % 2 {
            0 => client.send(&[&post("/", 3)[..], b"x"].concat()),
            _ => client.send(chunked),
        }
    }
    for _ in 0..20 {
        assert_eq!(proxy.connect().ask("GET", "/", &[]).text(), "ok");
    }
    assert_eq!(upstream.seen().len(), 20, "the slow ones wait");
    for (place, client) in slow.iter_mut().enumerate() {
        client.send(if place % 2 == 0 {
            b"yz"
        } else {
            b"2\r\nyz\r\n0\r\n\r\n"
        });
        assert_eq!(client.reply("POST").text(), "ok");
    }
    let seen = upstream.seen();
    assert!(seen[20..].iter().all(|request| request.body == b"xyz"));
}

#[test]
fn a_body_that_stops_is_a_408() {
    let upstream = Upstream::saying("ok");
    let options = ["--body-timeout", "0.3", "--metrics", "127.0.0.1:0"];
    let proxy = proxy(&[&upstream.url()], &options);
    let mut client = proxy.connect();
    client.send(&[&post("/", 10)[..], b"half"].concat());
    let reply = client.reply("POST");
    assert_eq!(
        (reply.status, reply.header("connection")),
        (408, Some("close"))
    );
    assert!(client.rest().is_empty(), "the connection ends");
    assert_eq!(
        (upstream.connections(), reached(&proxy, "body_timeout")),
        (0, 1)
    );
    proxy.until_logged("limit=\"body_timeout\"");
}

#[test]
fn a_body_that_stops_behind_its_beginning_frees_the_upstream() {
    let is_over = Arc::new(AtomicBool::new(false));
    let upstream = Upstream::start({
        let is_over = is_over.clone();
        move |connection| {
            connection.head();
            connection.rest();
            is_over.store(true, SeqCst);
        }
    });
    let options = [
        "--body-timeout",
        "0.3",
        "--upload-buffer",
        "4",
        "--max-fails",
        "1",
    ];
    let proxy = proxy(&[&upstream.url()], &options);
    let mut client = proxy.connect();
    client.send(&[&post("/", 10)[..], b"half"].concat());
    assert_eq!(client.reply("POST").status, 408);
    until("its connection is closed", || is_over.load(SeqCst));
    assert!(
        !proxy.log().contains("left out"),
        "it is not the upstream's fault"
    );
}

#[test]
fn a_client_that_waits_to_be_asked_holds_no_upstream() {
    let upstream = Upstream::saying("ok");
    let proxy = proxy(&[&upstream.url()], &["--max-requests", "1"]);
    let head = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n";
    let mut waiting = proxy.connect();
    waiting.send(head);
    assert_eq!(waiting.head().status, 100);
    // The upstream was checked to be up, and its connection serves others meanwhile.
    assert_eq!(proxy.connect().ask("GET", "/", &[]).text(), "ok");
    waiting.send(b"up");
    assert_eq!(waiting.reply("POST").text(), "ok");
    assert_eq!((upstream.connections(), upstream.seen().len()), (1, 2));
}

#[test]
fn a_client_is_not_asked_while_no_upstream_is_free() {
    let upstream = Upstream::start(|connection| {
        connection.request();
        connection.rest();
    });
    let proxy = proxy(&[&upstream.url()], &["--max-requests", "1"]);
    let mut first = proxy.connect();
    first.send(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    until("the first request arrives", || upstream.seen().len() == 1);
    let mut waiting = proxy.connect();
    waiting
        .send(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
    assert_eq!(waiting.reply("POST").status, 503);
}

/// Also of one that came in several reads, and its trailers.
#[test]
fn a_whole_beginning_is_sent_again() {
    let bad = Upstream::start(|connection| {
        connection.request();
    });
    let good = Upstream::saying("good");
    let proxy = proxy(&[&bad.url(), &good.url()], &["--max-fails", "0"]);
    let mut client = proxy.connect();
    let body = vec![b'x'; 10_000];
    let mut sent = Vec::new();
    for _ in 0..2 {
        client.send(b"PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
        for piece in body.chunks(2_500) {
            sleep(Duration::from_millis(20));
            client.send(format!("{:x}\r\n", piece.len()).as_bytes());
            client.send(&[piece, b"\r\n"].concat());
        }
        client.send(b"0\r\nX-Sum: 7\r\n\r\n");
        sent.push(client.reply("PUT").text().to_owned());
    }
    assert_eq!(sent, ["good", "good"]);
    assert!(!bad.seen().is_empty(), "it was tried");
    for request in bad.seen().iter().chain(&good.seen()) {
        assert!(request.body == body);
        assert_eq!(request.trailers, [("x-sum".to_owned(), "7".to_owned())]);
    }
}

/// Sends a piece each second, until the proxy closes the connection.
fn trickle(mut stream: TcpStream, bytes: usize, seconds: usize) {
    for _ in 0..seconds {
        if stream.write_all(&vec![b'x'; bytes]).is_err() {
            return;
        }
        sleep(Duration::from_secs(1));
    }
}

/// Takes as long as the window of the least rate, so all cases are one test.
#[test]
fn uploads_have_a_least_rate() {
    let upstream = Upstream::start(|connection| {
        while let Some(request) = connection.head() {
            let length = request
                .header("content-length")
                .map(|text| text.parse().unwrap());
            if request.line.contains("/late ") {
                sleep(Duration::from_secs(33));
            }
            if connection.body(length.unwrap_or(0)).is_none() {
                return;
            }
            connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        }
    });
    let options = [
        "--upload-buffer",
        "1000",
        "--min-upload-rate",
        "100",
        "--metrics",
        "127.0.0.1:0",
        "--response-timeout",
        "120",
    ];
    let proxy = proxy(&[&upstream.url()], &options);
    // Length of the body, bytes sent at once, bytes a second after that, and the expected status.
    let large = 20 << 20;
    let cases = [
        ("/beginning", 10_000, 0, 9, 408),
        ("/behind", 10_000, 1_500, 9, 408),
        ("/fast", 1_500 + 34 * 150, 1_500, 150, 200),
        // This upstream takes nothing for longer than the window.
        ("/late", large, large - 20, 20, 200),
    ];
    thread::scope(|scope| {
        for (target, length, first, rate, status) in cases {
            let proxy = &proxy;
            scope.spawn(move || {
                let mut client = proxy.connect();
                client
                    .another()
                    .set_read_timeout(Some(Duration::from_secs(60)))
                    .unwrap();
                let another = client.another();
                let sending = thread::spawn(move || {
                    let mut stream = another;
                    stream.write_all(&post(target, length)).unwrap();
                    stream.write_all(&vec![b'x'; first]).unwrap();
                    trickle(stream, rate, (length - first).div_ceil(rate).min(40));
                });
                let reply = client.reply("POST");
                assert_eq!(reply.status, status, "{target}: {}", reply.text());
                assert_eq!(reply.header("connection").is_some(), status == 408);
                sending.join().unwrap();
            });
        }
    });
    assert_eq!(reached(&proxy, "upload_rate"), 2);
    proxy.until_logged("limit=\"upload_rate\"");
}
