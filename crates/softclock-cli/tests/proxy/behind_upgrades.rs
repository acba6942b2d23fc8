//! Bytes that clients send behind a request for an upgrade, without waiting for the response.

use std::io::Write;
use std::sync::mpsc;
use std::thread::{self, sleep};
use std::time::Duration;

use crate::client::Client;
use crate::server::noise;
use crate::upstream::{Connection, Upstream, proxy};

const HEAD: &[u8] = b"GET /up HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n";
const SWITCH: &[u8] =
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n";
const REFUSE: &[u8] = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno";
const NEXT: &[u8] = b"GET /next HTTP/1.1\r\nHost: h\r\n\r\n";

/// Longer than any step takes here.
const PATIENCE: Duration = Duration::from_secs(20);

/// An upstream that answers 101 after a while, and reports the bytes that it has received by then.
fn switching(after: Duration) -> (Upstream, mpsc::Receiver<Vec<u8>>) {
    let (heard, rests) = mpsc::channel();
    let upstream = Upstream::start(move |connection| {
        if connection.request().is_some() {
            sleep(after);
            connection.send(SWITCH);
            let _ = heard.send(connection.rest());
        }
    });
    (upstream, rests)
}

/// Refuses upgrades, and answers all other requests.
fn refusing(connection: &mut Connection) {
    while let Some(request) = connection.request() {
        match request.header("upgrade") {
            Some(_) => connection.send(REFUSE),
            None => connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"),
        }
    }
}

#[test]
fn they_go_into_the_tunnel_in_order() {
    for after in [0, 100] {
        let (upstream, rests) = switching(Duration::from_millis(after));
        let proxy = proxy(&[&upstream.url()], &[]);
        for frames in [
            noise(60),
            noise(100_000),
            NEXT.to_vec(),
            // Ends within a head.
            NEXT[..20].to_vec(),
            [HEAD, NEXT, HEAD].concat(),
            [
                b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 99\r\n\r\nx",
                NEXT,
            ]
            .concat(),
        ] {
            let mut client = proxy.connect();
            client.send(&[HEAD, &frames].concat());
            assert_eq!(client.head().status, 101);
            client.send(b"last");
            client.close_sending();
            let rest = rests.recv_timeout(PATIENCE).unwrap();
            assert_eq!(rest.len(), frames.len() + 4);
            assert!(rest == [&frames, &b"last"[..]].concat());
            assert!(upstream.seen().iter().all(|seen| seen.line.contains("/up")));
        }
    }
}

#[test]
fn they_arrive_wherever_they_are_cut() {
    let (upstream, rests) = switching(Duration::ZERO);
    let proxy = proxy(&[&upstream.url()], &[]);
    let all = [HEAD, NEXT, &noise(40)].concat();
    for cut in (1..all.len()).step_by(7) {
        let mut client = proxy.connect();
        client.send(&all[..cut]);
        sleep(Duration::from_millis(2));
        client.send(&all[cut..]);
        assert_eq!(client.head().status, 101);
        client.close_sending();
        let rest = rests.recv_timeout(PATIENCE).unwrap();
        assert!(rest == all[HEAD.len()..], "cut at {cut}");
    }
}

#[test]
fn they_are_held_within_bounds() {
    const EACH: usize = 8 << 20;
    let (upstream, rests) = switching(Duration::from_secs(2));
    let proxy = proxy(&[&upstream.url()], &[]);
    let before = proxy.resident_kb();
    let frames = noise(EACH);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut client = proxy.connect();
                let mut sender = client.another();
                let sent = scope.spawn({
                    let frames = &frames;
                    move || sender.write_all(&[HEAD, frames].concat()).unwrap()
                });
                assert_eq!(client.head().status, 101);
                sent.join().unwrap();
                client.close_sending();
            });
        }
        while upstream.seen().len() < 8 {
            sleep(Duration::from_millis(5));
        }
        sleep(Duration::from_millis(500));
        let held_kb = proxy.resident_kb().saturating_sub(before);
        assert!(held_kb < 8 << 10, "{held_kb} KB held of 64 MB");
        for _ in 0..8 {
            assert!(rests.recv_timeout(PATIENCE).unwrap() == frames);
        }
    });
}

#[test]
fn they_are_the_next_request_when_the_upgrade_is_refused() {
    let upstream = Upstream::start(refusing);
    let proxy = proxy(&[&upstream.url()], &[]);
    let mut client = proxy.connect();
    // Each is a separate request, which the upstream receives as the proxy writes it.
    let body = b"POST /body HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc";
    client.send(&[HEAD, NEXT, HEAD, HEAD, body, &NEXT[..10]].concat());
    for status in [403, 200, 403, 403, 200] {
        assert_eq!(client.reply("GET").status, status);
    }
    client.send(&NEXT[10..]);
    assert_eq!(client.reply("GET").status, 200);
    let seen = upstream.seen();
    let lines: Vec<_> = seen.iter().map(|seen| seen.line.as_str()).collect();
    assert_eq!(
        lines,
        [
            "GET /up HTTP/1.1",
            "GET /next HTTP/1.1",
            "GET /up HTTP/1.1",
            "GET /up HTTP/1.1",
            "POST /body HTTP/1.1",
            "GET /next HTTP/1.1",
        ]
    );
    let is_passed = |request: &crate::upstream::Request| request.header("via").is_some();
    assert!(seen.iter().all(is_passed), "{seen:?}");
    assert_eq!(seen[4].body, b"abc");
}

#[test]
fn a_connection_is_kept_after_a_refused_upgrade() {
    let upstream = Upstream::start(refusing);
    let proxy = proxy(&[&upstream.url()], &[]);
    let mut client = proxy.connect();
    for _ in 0..3 {
        client.send(HEAD);
        assert_eq!(client.reply("GET").status, 403);
        // Longer than hyper waits for another request.
        sleep(Duration::from_millis(100));
    }
    client.send(NEXT);
    assert_eq!(client.reply("GET").text(), "ok");
}

#[test]
fn they_are_refused_as_a_request_that_is_none() {
    let upstream = Upstream::start(refusing);
    let proxy = proxy(&[&upstream.url()], &[]);
    for frames in [
        vec![0x81; 60],
        vec![0x81; 100_000],
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
    ] {
        let mut client = proxy.connect();
        client.send(&[HEAD, &frames].concat());
        let reply = client.reply("GET");
        assert_eq!((reply.status, reply.text()), (403, "no"));
        let status = client.reply("GET").status;
        assert!(matches!(status, 400 | 501 | 505), "{status}");
        client.close_sending();
        assert_eq!(client.rest(), b"");
    }
    assert!(upstream.seen().iter().all(|seen| seen.line.contains("/up")));
}

#[test]
fn a_refusal_that_closes_arrives() {
    let upstream = Upstream::answering(
        "HTTP/1.1 403 Forbidden\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno",
    );
    let proxy = proxy(&[&upstream.url()], &[]);
    for fields in ["", "Connection: close\r\n"] {
        let head = String::from_utf8(HEAD.to_vec()).unwrap();
        let head = head.replace("Host: h\r\n", &format!("Host: h\r\n{fields}"));
        let mut client = proxy.connect();
        client.send(&[head.as_bytes(), NEXT].concat());
        assert_eq!(client.reply("GET").text(), "no");
    }
    let mut client = proxy.connect();
    let head = String::from_utf8(HEAD.to_vec()).unwrap();
    let head = head.replace("Connection: ", "Connection: close, ");
    client.send(&[head.as_bytes(), &noise(100_000)].concat());
    assert_eq!(client.reply("GET").text(), "no");
    client.close_sending();
    assert_eq!(client.rest(), b"");
}

/// A request for an upgrade that is not passed on: the bytes behind it are HTTP, and 101 is not a valid answer.
#[test]
fn an_upgrade_that_is_not_passed_on_opens_no_tunnel() {
    for (version, fields, body) in [
        (
            "1.1",
            "Upgrade: echo\r\nConnection: upgrade\r\nContent-Length: 4\r\n",
            "GET ",
        ),
        (
            "1.1",
            "Upgrade: echo\r\nConnection: upgrade\r\nTransfer-Encoding: chunked\r\n",
            "4\r\nGET \r\n0\r\n\r\n",
        ),
        (
            "1.0",
            "Upgrade: echo\r\nConnection: upgrade, keep-alive\r\n",
            "",
        ),
        (
            "1.1",
            "Upgrade: h2c\r\nConnection: upgrade, http2-settings\r\nHTTP2-Settings: AAM\r\n",
            "",
        ),
        ("1.1", "Upgrade: echo, h2c\r\nConnection: upgrade\r\n", ""),
        ("1.1", "Upgrade: echo\r\n", ""),
        ("1.1", "Connection: upgrade\r\n", ""),
    ] {
        let request = format!("GET /up HTTP/{version}\r\nHost: h\r\n{fields}\r\n{body}");
        let bytes = [request.as_bytes(), NEXT].concat();
        let upstream = Upstream::saying("ok");
        let passing = proxy(&[&upstream.url()], &[]);
        let mut client = passing.connect();
        client.send(&bytes);
        for _ in 0..2 {
            assert_eq!(client.reply("GET").text(), "ok", "{request}");
        }
        let seen = upstream.seen();
        assert!(seen.iter().all(|seen| seen.header("upgrade").is_none()));
        assert_eq!(
            seen[0].body,
            if body.is_empty() { "" } else { "GET " }.as_bytes()
        );
        assert_eq!(
            (seen.len(), seen[1].line.as_str()),
            (2, "GET /next HTTP/1.1")
        );

        let upstream = Upstream::answering(SWITCH);
        let refusing = proxy(&[&upstream.url()], &[]);
        let mut client: Client = refusing.connect();
        client.send(&bytes);
        for _ in 0..2 {
            assert_eq!(client.reply("GET").status, 502, "{request}");
        }
    }
}
