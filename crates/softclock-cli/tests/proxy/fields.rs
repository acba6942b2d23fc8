//! Header fields on their way, the log and the metrics.

use std::fs;

use crate::client::Client;
use crate::server::{directory, until};
use crate::upstream::{Upstream, proxy};

#[test]
fn upstreams_learn_who_asked_and_how() {
    let upstream = Upstream::saying("x");
    let plain = proxy(&[&upstream.url()], &["--via", "edge"]);
    let fields = [
        "X-Forwarded-For: 198.51.100.7",
        "X-Forwarded-Proto: https",
        "Connection: X-Secret",
        "X-Secret: 1",
        "Keep-Alive: 9",
        "Via: 1.0 before",
    ];
    let mut client = plain.connect();
    client.ask("GET", "/", &fields);
    let address = client.another().local_addr().unwrap().ip();
    let through = format!("198.51.100.7, {address}");
    let seen = upstream.seen().pop().unwrap();
    for (name, value) in [
        ("host", Some("test")),
        ("x-forwarded-for", Some(through.as_str())),
        ("x-forwarded-proto", Some("http")),
        ("x-forwarded-host", Some("test")),
        ("via", Some("1.0 before, 1.1 edge")),
        ("x-secret", None),
        ("keep-alive", None),
        ("connection", None),
    ] {
        assert_eq!(seen.header(name), value, "{name}");
    }
    let rewriting = proxy(&[&upstream.url()], &["--rewrite-host"]);
    rewriting.connect().ask("GET", "/", &[]);
    let seen = upstream.seen().pop().unwrap();
    let host = upstream.url().replace("http://", "");
    assert_eq!(seen.header("host"), Some(host.as_str()));
    assert_eq!(seen.header("x-forwarded-host"), Some("test"));
}

#[test]
fn an_absolute_target_names_the_host() {
    let upstream = Upstream::saying("x");
    let proxy = proxy(&[&upstream.url()], &[]);
    proxy.connect().ask("GET", "http://other:81/p?q", &[]);
    let seen = upstream.seen().pop().unwrap();
    assert_eq!(
        (seen.line.as_str(), seen.header("host")),
        ("GET /p?q HTTP/1.1", Some("other:81"))
    );
}

#[test]
fn a_response_s_own_connection_fields_stay_there() {
    let upstream = Upstream::answering(
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: X-Hop\r\nX-Hop: 1\r\nKeep-Alive: 5\r\n\
         Upgrade: h2c\r\nProxy-Authenticate: x\r\nServer: own\r\nSet-Cookie: a\r\n\r\nx",
    );
    let proxy = proxy(&[&upstream.url()], &[]);
    let reply = proxy.connect().ask("GET", "/", &[]);
    for name in [
        "connection",
        "x-hop",
        "keep-alive",
        "upgrade",
        "proxy-authenticate",
    ] {
        assert_eq!(reply.header(name), None, "{name}");
    }
    assert_eq!(
        (reply.header("server"), reply.header("set-cookie")),
        (Some("own"), Some("a"))
    );
}

#[test]
fn the_log_and_the_metrics_name_the_upstream() {
    let directory = directory(&[]);
    let log = directory.path().join("log");
    let upstream = Upstream::saying("x");
    let url = upstream.url();
    let proxy = proxy(
        &[&url],
        &[
            "--access-log",
            log.to_str().unwrap(),
            "--log-format",
            "json",
            "--metrics",
            "127.0.0.1:0",
        ],
    );
    let mut client = proxy.connect();
    client.ask("GET", "/a", &[]);
    client.ask("GET", "/b", &[]);
    let metrics = Client::connect(proxy.metrics()).get("/metrics");
    for (name, value) in [
        ("requests_total", 2),
        ("failures_total", 0),
        ("retries_total", 0),
        ("connections_total", 1),
        ("active", 0),
        ("idle_connections", 1),
        ("up_threads", 1),
        ("response_seconds_count", 2),
    ] {
        let line = format!("softclock_upstream_{name}{{upstream=\"{url}\"}} {value}\n");
        assert!(
            metrics.text().contains(&line),
            "{line} in {}",
            metrics.text()
        );
    }
    let named = format!("\"upstream\":\"{url}\",\"upstream_us\":");
    until("two lines", || {
        let log = fs::read_to_string(&log).unwrap_or_default();
        log.lines().filter(|line| line.contains(&named)).count() == 2
    });
}

/// RFC 9110, section 7.6.2.
#[test]
fn forwards_are_counted_where_the_client_limits_them() {
    let upstream = Upstream::saying("x");
    let proxy = proxy(&[&upstream.url()], &[]);
    let mut client = proxy.connect();
    let mut ask = |method, number| {
        let field = format!("Max-Forwards: {number}");
        client.ask(method, "/", &[&field])
    };
    let answered = ["OPTIONS", "TRACE"].map(|method| ask(method, "0").status);
    assert_eq!((answered, upstream.seen().len()), ([200, 501], 0));
    for (method, number, passed) in [
        ("OPTIONS", "7", "6"),
        ("TRACE", "1", "0"),
        ("OPTIONS", "many", "many"),
        ("GET", "0", "0"),
    ] {
        assert_eq!(ask(method, number).text(), "x", "{method} {number}");
        let seen = upstream.seen().pop().unwrap();
        assert_eq!(seen.header("max-forwards"), Some(passed), "{method}");
    }
}

/// RFC 9110, section 15.5.22.
#[test]
fn a_426_names_the_protocols_to_upgrade_to() {
    let upstream = Upstream::answering(
        "HTTP/1.1 426 Upgrade Required\r\nUpgrade: x/1\r\nConnection: upgrade\r\n\
         Content-Length: 1\r\n\r\nx",
    );
    let proxy = proxy(&[&upstream.url()], &[]);
    let mut client = proxy.connect();
    for _ in 0..2 {
        let reply = client.ask("GET", "/", &[]);
        assert_eq!((reply.status, reply.text()), (426, "x"));
        let fields = ["upgrade", "connection"].map(|name| reply.header(name));
        assert_eq!(fields, [Some("x/1"), Some("upgrade")]);
    }
    client.send(b"GET / HTTP/1.0\r\nHost: h\r\n\r\n");
    let reply = client.reply("GET");
    assert_eq!((reply.status, reply.header("upgrade")), (426, None));
}
