//! Clients that close their sending side within a response or a tunnel: the proxy keeps serving them, but waits less
//! long for a silent upstream.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::client::Client;
use crate::h2_frames::{DATA, Http2, RST_STREAM, frame, get};
use crate::http2::tls_proxy;
use crate::server::{Server, until};
use crate::upstream::{Connection, Upstream, proxy};

const REQUEST: &[u8] = b"GET /events HTTP/1.1\r\nHost: h\r\n\r\n";
const PART_OF_UPLOAD: &[u8] = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\npart";
const UPGRADE: &[u8] = b"GET / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n";
const EVENTS: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\
                        Transfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n";
const SWITCH: &[u8] =
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nfirst";

const METRICS: [&str; 2] = ["--metrics", "127.0.0.1:0"];

/// An upstream that sends `beginning`, and counts its open connections from the proxy.
fn silent(beginning: &'static [u8]) -> (Upstream, Arc<AtomicUsize>) {
    let open = Arc::new(AtomicUsize::new(0));
    let upstream = Upstream::start({
        let open = open.clone();
        move |connection: &mut Connection| {
            connection.request();
            open.fetch_add(1, SeqCst);
            connection.send(beginning);
            connection.rest();
            open.fetch_sub(1, SeqCst);
            if beginning == SWITCH {
                // A tunnel passes the end on, and this side stays silent.
                sleep(Duration::from_secs(30));
            }
        }
    });
    (upstream, open)
}

fn begun(proxy: &Server, request: &[u8]) -> Client {
    let mut client = proxy.connect();
    client.send(request);
    assert!([101, 200].contains(&client.head().status));
    let mut begun = Vec::new();
    while !begun.ends_with(b"first") {
        let mut byte = [0];
        client.read_exact(&mut byte);
        begun.extend(byte);
    }
    client
}

#[test]
fn an_upstream_that_is_silent_after_the_client_s_end_is_freed() {
    for (request, beginning, ahead) in [
        (REQUEST, EVENTS, REQUEST),
        (REQUEST, EVENTS, PART_OF_UPLOAD),
        (UPGRADE, SWITCH, b""),
    ] {
        let (upstream, open) = silent(beginning);
        let proxy = proxy(&[&upstream.url()], &METRICS);
        let _stays = begun(&proxy, request);
        let mut leaves = begun(&proxy, request);
        // More bytes to read ahead, with the end behind them.
        leaves.send(ahead);
        leaves.close_sending();
        until("one of two is given up", || {
            proxy.reached("half_closed_timeout") == 1.0
        });
        leaves.rest();
        until("its connection is closed", || open.load(SeqCst) == 1);
    }
}

#[test]
fn an_upstream_s_end_frees_a_silent_client_of_a_tunnel() {
    let upstream = Upstream::start(|connection| {
        connection.request();
        connection.send(SWITCH);
        connection.close_sending();
        connection.rest();
    });
    let proxy = proxy(&[&upstream.url()], &METRICS);
    let _client = begun(&proxy, UPGRADE);
    until("the tunnel is closed", || {
        proxy.reached("half_closed_timeout") == 1.0
    });
}

#[test]
fn a_client_that_has_ended_its_side_is_served_while_something_comes() {
    for (request, beginning, piece) in [
        (REQUEST, EVENTS, &b"4\r\nmore\r\n"[..]),
        (UPGRADE, SWITCH, b"more"),
    ] {
        let upstream = Upstream::start(move |connection| {
            connection.request();
            connection.send(beginning);
            // Longer in total than the limit of each silence.
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_secs(7) {
                sleep(Duration::from_millis(500));
                connection.send(piece);
            }
            connection.send(b"4\r\nlast\r\n0\r\n\r\n");
            connection.close_sending();
            connection.rest();
        });
        let proxy = proxy(&[&upstream.url()], &METRICS);
        let mut client = begun(&proxy, request);
        client.close_sending();
        let rest = client.rest();
        assert!(rest.ends_with(b"last\r\n0\r\n\r\n"));
        assert_eq!(proxy.reached("half_closed_timeout"), 0.0);
    }
}

#[test]
fn half_closing_clients_are_kept_where_that_is_asked_for() {
    for (request, beginning) in [(REQUEST, EVENTS), (UPGRADE, SWITCH)] {
        let upstream = Upstream::start(move |connection| {
            connection.request();
            connection.send(beginning);
            // Longer than the limit of silence without the option.
            sleep(Duration::from_secs(7));
            connection.send(b"0\r\n\r\n");
        });
        let proxy = proxy(&[&upstream.url()], &["--half-close"]);
        let mut client = begun(&proxy, request);
        client.close_sending();
        assert!(client.rest().ends_with(b"0\r\n\r\n"));
    }
}

#[test]
fn an_http_2_client_that_leaves_frees_upstreams() {
    let (upstream, open) = silent(EVENTS);
    let (proxy, directory) = tls_proxy(&[&upstream.url()], &[]);
    let connect = || Http2::connect(proxy.addresses()[1], &directory.path().join("cert.pem"));
    for is_reset in [true, false] {
        let mut client = connect();
        client.send(&get(1, "/events"));
        while client.next().expect("content").kind != DATA {}
        let stays = is_reset.then(|| {
            assert!(client.send(&frame(RST_STREAM, 0, 1, &[0, 0, 0, 8])));
            client
        });
        until("its connection is closed", || open.load(SeqCst) == 0);
        drop(stays);
    }
}
