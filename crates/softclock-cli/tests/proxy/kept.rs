//! Connections kept for the next request.

use crate::client::Client;
use crate::server::{Server, until};
use crate::upstream::{Upstream, proxy};

/// The number of idle connections in the metrics.
fn idle(proxy: &Server) -> u32 {
    let page = Client::connect(proxy.metrics()).get("/metrics");
    let mut lines = page.text().lines();
    let line = lines.find(|line| line.starts_with("softclock_upstream_idle_connections{"));
    let (_, value) = line.expect("the metric").rsplit_once(' ').expect("a value");
    value.parse().expect("a number")
}

/// Answers of connections that are all busy at a time.
fn at_once(proxy: &Server, count: usize) {
    let mut clients: Vec<_> = (0..count).map(|_| proxy.connect()).collect();
    for client in &mut clients {
        client.send(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    }
    for client in &mut clients {
        assert_eq!(client.reply("GET").status, 200);
    }
}

/// Answers when `count` connections have sent a request.
fn answering_together(count: usize) -> Upstream {
    let barrier = std::sync::Barrier::new(count);
    Upstream::start(move |connection| {
        while connection.request().is_some() {
            barrier.wait();
            connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        }
    })
}

#[test]
fn as_many_as_allowed() {
    let upstream = answering_together(6);
    let keeping = proxy(
        &[&upstream.url()],
        &["--keep", "4", "--metrics", "127.0.0.1:0"],
    );
    at_once(&keeping, 6);
    assert_eq!((idle(&keeping), upstream.connections()), (4, 6));
    at_once(&keeping, 6);
    assert_eq!((idle(&keeping), upstream.connections()), (4, 8));
    assert_eq!(keeping.reached("kept_connections"), 4.0);

    let upstream = Upstream::saying("x");
    let none = proxy(&[&upstream.url()], &["--keep", "0"]);
    let mut client = none.connect();
    (0..3).for_each(|_| drop(client.ask("GET", "/", &[])));
    assert_eq!(upstream.connections(), 3);
}

#[test]
fn by_default_as_many_as_a_busy_proxy_uses() {
    let upstream = answering_together(100);
    let keeping = proxy(&[&upstream.url()], &["--threads", "1"]);
    at_once(&keeping, 100);
    at_once(&keeping, 100);
    assert_eq!(upstream.connections(), 100);
}

/// The connection by which the upstream was found to be reachable takes the request.
#[test]
fn a_client_that_waits_to_be_asked_costs_one_connection() {
    for keep in ["0", "4"] {
        let upstream = Upstream::saying("ok");
        let proxy = proxy(&[&upstream.url()], &["--keep", keep]);
        let mut client = proxy.connect();
        client.send(
            b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n",
        );
        assert_eq!(client.head().status, 100);
        client.send(b"up");
        assert_eq!(client.reply("POST").text(), "ok");
        assert_eq!(upstream.connections(), 1, "--keep {keep}");
    }
}

#[test]
fn no_longer_than_allowed() {
    let upstream = answering_together(3);
    let proxy = proxy(
        &[&upstream.url()],
        &["--keep-time", "0.3", "--metrics", "127.0.0.1:0"],
    );
    at_once(&proxy, 3);
    until("they are old", || idle(&proxy) == 0);
    at_once(&proxy, 3);
    assert_eq!(upstream.connections(), 6);
}

#[test]
fn an_upstream_that_closes_is_noticed_at_once() {
    let upstream = Upstream::start(|connection| {
        connection.request();
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        std::thread::sleep(std::time::Duration::from_millis(200));
    });
    let proxy = proxy(&[&upstream.url()], &["--metrics", "127.0.0.1:0"]);
    let mut client = proxy.connect();
    client.ask("GET", "/", &[]);
    until("it is closed", || idle(&proxy) == 0);
    // So a request that may not be repeated finds a working connection.
    client.send(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx");
    assert_eq!(client.reply("POST").status, 200);
}
