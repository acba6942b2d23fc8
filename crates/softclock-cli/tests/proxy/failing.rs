//! Misbehaving upstreams: each request gets one response, and a correct one.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;

use rustix::process::{Resource, Rlimit, Signal, getrlimit, prlimit};

use crate::client::Client;
use crate::server::{directory, until};
use crate::upstream::{Upstream, proxy};

/// The client's response to a GET whose upstream sends these bytes and closes.
fn status_after(bytes: &'static [u8]) -> (u16, String) {
    let upstream = Upstream::start(move |connection| {
        connection.request();
        connection.send(bytes);
    });
    let proxy = proxy(&[&upstream.url()], &[]);
    let mut client = proxy.connect();
    let reply = client.ask("GET", "/", &[]);
    assert!(reply.is_complete);
    if reply.status == 502 {
        // The client's connection stays usable.
        assert_eq!(client.ask("GET", "/", &[]).status, 502);
        proxy.until_logged("status=502");
    }
    (
        reply.status,
        String::from_utf8_lossy(&reply.body).into_owned(),
    )
}

#[test]
fn what_is_no_response_is_a_502() {
    for bytes in [
        &b""[..],
        b"garbage\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nxx",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.6\r\n",
    ] {
        let (status, page) = status_after(bytes);
        let text = String::from_utf8_lossy(bytes);
        assert_eq!(status, 502, "{text}");
        assert!(
            page.starts_with("502 Bad Gateway: the upstream"),
            "{text}: {page}"
        );
    }
}

#[test]
fn a_length_beside_chunks_does_not_count() {
    let (status, page) = status_after(
        b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    );
    assert_eq!((status, page.as_str()), (200, "ok"));
}

#[test]
fn huge_heads_are_refused() {
    let upstream = Upstream::start(|connection| {
        connection.request();
        connection.send(b"HTTP/1.1 200 OK\r\n");
        for i in 0..40_000 {
            connection.send(format!("X-{i}: {i}\r\n").as_bytes());
        }
        connection.send(b"Content-Length: 0\r\n\r\n");
    });
    let proxy = proxy(&[&upstream.url()], &[]);
    assert_eq!(proxy.connect().ask("GET", "/", &[]).status, 502);
}

#[test]
fn a_response_cut_short_is_cut_short() {
    for head in ["Content-Length: 100", "Transfer-Encoding: chunked"] {
        let upstream = Upstream::start(move |connection| {
            connection.request();
            connection.send(format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n5\r\nhello\r\n").as_bytes());
        });
        let proxy = proxy(&[&upstream.url()], &[]);
        let reply = proxy.connect().ask("GET", "/", &[]);
        assert!(reply.status == 200 && !reply.is_complete, "{reply:?}");
        assert_eq!(
            upstream.connections(),
            1,
            "a response that has begun is not tried again"
        );
        proxy.until_logged("the response ended too soon");
    }
}

/// HTTP/1.0 has no chunks, so a close in order would make the response complete (RFC 9112, section 8).
#[test]
fn a_response_cut_short_is_a_reset_for_http_1_0() {
    for (end, is_whole) in [("", false), ("0\r\n\r\n", true)] {
        let upstream = Upstream::start(move |connection| {
            connection.request();
            let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
            connection.send(format!("{head}5\r\nhello\r\n{end}").as_bytes());
        });
        let proxy = proxy(&[&upstream.url()], &[]);
        let mut client = proxy.connect();
        client.send(b"GET / HTTP/1.0\r\nHost: h\r\n\r\n");
        let mut response = Vec::new();
        let result = client.another().read_to_end(&mut response);
        let kind = result.map(|_| ()).map_err(|error| error.kind());
        let text = String::from_utf8_lossy(&response);
        match is_whole {
            true => assert!(kind.is_ok() && text.ends_with("hello"), "{kind:?}: {text}"),
            false => assert_eq!(kind, Err(ErrorKind::ConnectionReset), "{text}"),
        }
    }
}

/// Also at the end of the time in which a proxy waits for its clients.
#[test]
fn a_response_cut_short_by_the_end_is_a_reset_for_http_1_0() {
    let upstream = Upstream::start(|connection| {
        connection.request();
        connection.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n");
        connection.rest();
    });
    let mut proxy = proxy(&[&upstream.url()], &["--drain", "1"]);
    let mut client = proxy.connect();
    client.send(b"GET / HTTP/1.0\r\nHost: h\r\n\r\n");
    assert_eq!(client.head().status, 200);
    client.read_exact(&mut [0; 5]);
    proxy.signal(Signal::TERM);
    let result = client.another().read(&mut [0; 5]);
    assert_eq!(
        result.map_err(|error| error.kind()),
        Err(ErrorKind::ConnectionReset)
    );
    assert_eq!(proxy.wait().code(), Some(0));
}

/// A client of HTTP/1.0 that stops reading, too, whose response has neither a length nor chunks.
#[test]
fn a_client_that_reads_nothing_is_counted() {
    let upstream = Upstream::start(|connection| {
        connection.request();
        let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        let chunk = [b"10000\r\n", &[b'x'; 0x10000][..], b"\r\n"].concat();
        connection.send(head);
        while connection.try_send(&chunk) {}
    });
    let options = ["--send-timeout", "0.3", "--metrics", "127.0.0.1:0"];
    let proxy = proxy(&[&upstream.url()], &options);
    for (count, version) in [(1.0, "1.1"), (2.0, "1.0")] {
        let mut client = proxy.connect();
        client.send(format!("GET / HTTP/{version}\r\nHost: h\r\n\r\n").as_bytes());
        until(version, || proxy.reached("stalled_connection") == count);
    }
}

#[test]
fn broken_chunks_are_not_passed_on_as_whole() {
    let upstream = Upstream::start(|connection| {
        connection.request();
        connection
            .send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n");
        connection.rest();
    });
    let proxy = proxy(&[&upstream.url()], &[]);
    let reply = proxy.connect().ask("GET", "/", &[]);
    assert!(reply.status == 200 && !reply.is_complete, "{reply:?}");
}

#[test]
fn bytes_behind_a_response_end_its_connection() {
    let upstream = Upstream::start(|connection| {
        while connection.request().is_some() {
            connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged");
        }
    });
    let proxy = proxy(&[&upstream.url()], &[]);
    let mut client = proxy.connect();
    for _ in 0..5 {
        assert_eq!(client.ask("GET", "/", &[]).text(), "ok");
    }
    assert_eq!(upstream.connections(), 5);
}

#[test]
fn an_answer_before_the_end_of_a_request_counts() {
    let upstream = Upstream::start(|connection| {
        connection.head();
        connection.send(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 2\r\n\r\nno");
        connection.close_sending();
        // Closing with unread bytes would be a reset, which may overtake the answer.
        connection.rest();
    });
    let proxy = proxy(&[&upstream.url()], &["--upload-buffer", "5"]);
    let mut client = proxy.connect();
    client.send(b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n");
    let reply = client.reply("POST");
    assert_eq!((reply.status, reply.text()), (413, "no"));
    client.send(b"0\r\n\r\n");
    assert_eq!(client.ask("POST", "/", &["Content-Length: 0"]).status, 413);
    assert_eq!(
        upstream.connections(),
        2,
        "one that is not in step is not kept"
    );
}

#[test]
fn without_descriptors_the_answer_is_503_and_nobody_is_to_blame() {
    // No connection to it is kept, so that each request needs a descriptor.
    let upstream =
        Upstream::answering("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok");
    let options = ["--threads", "1", "--max-fails", "1", "--fail-time", "100"];
    let proxy = proxy(&[&upstream.url()], &options);
    let mut client = proxy.connect();
    assert_eq!(client.ask("GET", "/", &[]).text(), "ok");
    let maximum = getrlimit(Resource::Nofile).maximum;
    // The descriptors for standard input and output are in use.
    let current = Some(3);
    let limit = Rlimit { current, maximum };
    let old = prlimit(Some(proxy.pid()), Resource::Nofile, limit).expect("our own child");
    let reply = client.ask("GET", "/", &[]);
    assert_eq!(
        (reply.status, reply.header("retry-after")),
        (503, Some("1"))
    );
    assert!(reply.text().contains("the proxy is overloaded"));
    proxy.until_logged("no descriptors or memory: Too many open files");
    prlimit(Some(proxy.pid()), Resource::Nofile, old).expect("our own child");
    assert_eq!(client.ask("GET", "/", &[]).text(), "ok");
    assert!(!proxy.log().contains("left out"), "{}", proxy.log());
}

#[test]
fn a_client_that_leaves_ends_its_request() {
    let upstream = Upstream::start(|connection| {
        connection.request();
        connection.send(b"HTTP/1.1 200 OK\r\n\r\n");
        while connection.try_send(&[b'x'; 65_536]) {}
    });
    let proxy = proxy(&[&upstream.url()], &["--metrics", "127.0.0.1:0"]);
    let mut client = proxy.connect();
    client.send(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(client.head().status, 200);
    client.reset();
    until_idle(proxy.metrics(), &upstream);
}

#[test]
fn a_client_that_leaves_before_the_response_ends_its_request() {
    for begun in ["", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"] {
        let upstream = Upstream::start(move |connection| {
            connection.request();
            connection.send(begun.as_bytes());
            connection.rest();
        });
        let directory = directory(&[]);
        let socket = directory.path().join("socket");
        let listen = format!("unix:{}", socket.display());
        let options = ["--metrics", "127.0.0.1:0", "--listen", &listen];
        let proxy = proxy(&[&upstream.url()], &options);
        let mut client = proxy.connect();
        let request = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";
        client.send(request);
        until("the upstream has it", || upstream.seen().len() == 1);
        client.reset();
        until_idle(proxy.metrics(), &upstream);
        let mut local = UnixStream::connect(&socket).expect("a listening proxy");
        local.write_all(request).expect("room");
        until("the upstream has it", || upstream.seen().len() == 2);
        drop(local);
        until_idle(proxy.metrics(), &upstream);
    }
}

/// Waits until nothing is in progress with an upstream.
fn until_idle(metrics: SocketAddr, upstream: &Upstream) {
    let idle = format!(
        "softclock_upstream_active{{upstream=\"{}\"}} 0\n",
        upstream.url()
    );
    until("the upstream's connection is closed", || {
        let page = Client::connect(metrics).get("/metrics");
        page.text().contains(&idle)
    });
}
