//! Parts of HTTP/2 that do not reach upstreams.

use std::sync::{Mutex, mpsc};
use std::thread::sleep;
use std::time::Duration;

use crate::h2_frames::{
    DATA, END_HEADERS, END_STREAM, HEADERS, Http2, Outcome, PING, RST_STREAM, SETTINGS,
    WINDOW_UPDATE, block, frame, request,
};
use crate::server::{Server, directory, until};
use crate::tls::make_certificate;
use crate::upstream::{Upstream, free_addresses, proxy};
use tempfile::TempDir;

/// A proxy that also listens for TLS, at its second address, and the directory of its certificate.
pub(crate) fn tls_proxy(upstreams: &[&str], options: &[&str]) -> (Server, TempDir) {
    let directory = directory(&[]);
    let (cert, key) = make_certificate(&directory);
    let tls = [
        "--listen",
        "tls:127.0.0.1:0",
        "--tls-cert",
        &cert,
        "--tls-key",
        &key,
    ];
    (proxy(upstreams, &[&tls[..], options].concat()), directory)
}

/// Fields and paths that an upstream could misread, or that lead above its prefix, are refused.
#[test]
fn what_http_1_clients_could_not_send_reaches_no_upstream() {
    let upstream = Upstream::saying("hello");
    let (proxy, directory) = tls_proxy(&[&format!("{}/prefix", upstream.url())], &[]);
    let cert = directory.path().join("cert.pem");
    let connect = || Http2::connect(proxy.addresses()[1], &cert);
    for (target, host, name) in [
        ("*", "test", "x"),
        ("PRI", "test", "x"),
        ("/\u{fc}", "test", "x"),
        ("/", "a b", "x"),
        ("/", "u@test", "x"),
        ("/", "a,b", "x"),
        ("/", "test/", "x"),
        ("/", "test", "a\"b"),
    ] {
        let mut fields = vec![
            (&b":method"[..], &b"GET"[..]),
            (b":scheme", b"https"),
            (b":path", target.as_bytes()),
            (name.as_bytes(), b"v"),
        ];
        for host_name in [&b":authority"[..], b"host"] {
            let place = if host_name == b"host" {
                fields.len()
            } else {
                3
            };
            fields.insert(place, (host_name, host.as_bytes()));
            let mut client = connect();
            client.send(&request(1, &fields));
            let outcome = client.outcome(1);
            let is_refused = matches!(outcome, Outcome::Status(400) | Outcome::Reset(1));
            assert!(is_refused, "{target} {host} {name}: {outcome:?}");
            fields.remove(place);
        }
    }
    assert!(upstream.seen().is_empty(), "{:?}", upstream.seen());
    let mut client = connect();
    let head = block(&[
        (b":method", b"POST"),
        (b":scheme", b"https"),
        (b":path", b"/a"),
        (b":authority", b"test"),
    ]);
    let trailers = block(&[(b"x-sum", b"1"), (b"a\"b", b"2")]);
    client.send(&frame(HEADERS, END_HEADERS, 1, &head));
    client.send(&frame(DATA, 0, 1, b"body"));
    client.send(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &trailers));
    assert_eq!(client.outcome(1), Outcome::Status(200));
    let seen = upstream.seen().pop().unwrap();
    assert_eq!(
        (&*seen.line, &*seen.body),
        ("POST /prefix/a HTTP/1.1", &b"body"[..])
    );
    assert_eq!(seen.trailers, [("x-sum".into(), "1".into())]);
    // As many trailers as HTTP/1 does not allow either.
    let names: Vec<_> = (0..101).map(|index| format!("x-{index}")).collect();
    let trailers: Vec<_> = (names.iter())
        .map(|name| (name.as_bytes(), &b"v"[..]))
        .collect();
    client.send(&frame(HEADERS, END_HEADERS, 3, &head));
    client.send(&frame(DATA, 0, 3, b"body"));
    let trailers = frame(HEADERS, END_HEADERS | END_STREAM, 3, &block(&trailers));
    client.send(&trailers);
    let outcome = client.outcome(3);
    assert!(matches!(outcome, Outcome::Status(400)), "{outcome:?}");
    assert_eq!(upstream.seen().len(), 1);
}

/// The head of a POST whose body follows in DATA frames.
fn post(stream: u32) -> Vec<u8> {
    post_to("/up", stream)
}

fn post_to(path: &str, stream: u32) -> Vec<u8> {
    let head = block(&[
        (b":method", b"POST"),
        (b":scheme", b"https"),
        (b":authority", b"test"),
        (b":path", path.as_bytes()),
    ]);
    frame(HEADERS, END_HEADERS, stream, &head)
}

/// A body is complete only after END_STREAM, also if the client resets the stream with NO_ERROR (RFC 9113, section 8.1).
#[test]
fn an_upload_that_its_client_aborts_is_not_passed_on_as_whole() {
    // What the upstream answers before the end of the request, the flags of the last DATA frame, and whether the upload
    // is complete.
    let early = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nbegun";
    for (answer, flags, is_whole) in [("", 0, false), (early, 0, false), (early, END_STREAM, true)]
    {
        let (tell, told) = mpsc::channel();
        let upstream = Upstream::start(move |connection| {
            connection.head();
            connection.send(answer.as_bytes());
            let begun = connection.body(9).expect("the first chunk");
            tell.send(begun).unwrap();
            tell.send(connection.rest()).unwrap();
        });
        let (proxy, directory) = tls_proxy(&[&upstream.url()], &["--upload-buffer", "1"]);
        let cert = directory.path().join("cert.pem");
        let mut client = Http2::connect(proxy.addresses()[1], &cert);
        client.send(&[post(1), frame(DATA, 0, 1, b"body")].concat());
        assert_eq!(told.recv().unwrap(), b"4\r\nbody\r\n");
        if !answer.is_empty() {
            assert_eq!(client.outcome(1), Outcome::Status(200));
        }
        let reset = frame(RST_STREAM, 0, 1, &[0; 4]);
        client.send(&[frame(DATA, flags, 1, b"more"), reset].concat());
        let rest = told.recv().unwrap();
        let text = String::from_utf8_lossy(&rest);
        assert_eq!(rest.ends_with(b"0\r\n\r\n"), is_whole, "{answer}: {text}");
    }
}

/// An upload whose response has ended is in progress until the client has sent all.
#[test]
fn an_upload_that_outlasts_its_response_keeps_the_connection() {
    let (tell, told) = mpsc::channel();
    let upstream = Upstream::start(move |connection| {
        connection.head();
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        tell.send(connection.rest()).unwrap();
    });
    let options = ["--upload-buffer", "1", "--idle-timeout", "1"];
    let (proxy, directory) = tls_proxy(&[&upstream.url()], &options);
    let cert = directory.path().join("cert.pem");
    let mut client = Http2::connect(proxy.addresses()[1], &cert);
    client.send(&[post(1), frame(DATA, 0, 1, b"x")].concat());
    assert_eq!(client.outcome(1), Outcome::Status(200));
    for _ in 0..30 {
        sleep(Duration::from_millis(100));
        assert!(client.send(&frame(DATA, 0, 1, b"x")));
    }
    assert!(client.send(&frame(DATA, END_STREAM, 1, b"y")));
    let rest = told.recv().unwrap();
    let text = String::from_utf8_lossy(&rest);
    assert_eq!(rest.iter().filter(|&&byte| byte == b'x').count(), 31);
    assert!(text.ends_with("y\r\n0\r\n\r\n"), "{text}");
}

/// RFC 9110, section 10.1.1.
#[test]
fn a_client_that_waits_to_be_asked_is_asked() {
    let upstream = Upstream::saying("ok");
    let head = block(&[
        (b":method", b"POST"),
        (b":scheme", b"https"),
        (b":authority", b"test"),
        (b":path", b"/up"),
        (b"expect", b"100-continue"),
    ]);
    let head = frame(HEADERS, END_HEADERS, 1, &head);
    let [silent] = free_addresses();
    let silent = format!("http://{silent}");
    for upload_buffer in ["0", "1000"] {
        let options = ["--upload-buffer", upload_buffer];
        let (proxy, directory) = tls_proxy(&[&upstream.url()], &options);
        let cert = directory.path().join("cert.pem");
        let mut client = Http2::connect(proxy.addresses()[1], &cert);
        client.send(&head);
        assert_eq!(client.outcome(1), Outcome::Status(100));
        client.send(&frame(DATA, END_STREAM, 1, b"body"));
        assert_eq!(client.outcome(1), Outcome::Status(200));
        let seen = upstream.seen().pop().unwrap();
        assert_eq!((&*seen.body, seen.header("expect")), (&b"body"[..], None));
        // A client that does not wait is not asked.
        let mut client = Http2::connect(proxy.addresses()[1], &cert);
        client.send(&[&head[..], &frame(DATA, END_STREAM, 1, b"body")].concat());
        assert_eq!(client.outcome(1), Outcome::Status(200));
        // Nor is one whose request would reach no upstream.
        let (proxy, directory) = tls_proxy(&[&silent], &options);
        let cert = directory.path().join("cert.pem");
        let mut client = Http2::connect(proxy.addresses()[1], &cert);
        client.send(&head);
        assert_eq!(client.outcome(1), Outcome::Status(502));
    }
}

/// Sends DATA on these streams until there is no window for more. Returns the window left of the connection.
fn use_up_the_windows<const N: usize>(client: &mut Http2, streams: [u32; N]) -> i64 {
    let (mut connection, mut windows) = (65_535, streams.map(|stream| (stream, 65_535)));
    let mut rounds = 0;
    while rounds < 10 {
        rounds += 1;
        // The answer to a PING follows the updates that are due.
        client.send(&frame(PING, 0, 0, &[0; 8]));
        loop {
            let frame = client.next().expect("an answer");
            match (frame.kind, frame.stream) {
                (PING, _) => break,
                (WINDOW_UPDATE, 0) => connection += number(&frame.payload),
                (kind @ (WINDOW_UPDATE | SETTINGS), stream) => {
                    let more = match kind {
                        WINDOW_UPDATE => number(&frame.payload),
                        _ => initial_window(&frame.payload) - 65_535,
                    };
                    let those = windows.iter_mut();
                    let those = those.filter(|(own, _)| kind == SETTINGS || *own == stream);
                    those.for_each(|(_, window)| *window += more);
                }
                _ => {}
            }
        }
        for (stream, window) in &mut windows {
            while let bytes @ 1.. = connection.min(*window).min(16_384) {
                assert!(client.send(&frame(DATA, 0, *stream, &vec![b'x'; bytes as usize])));
                connection -= bytes;
                *window -= bytes;
                rounds = 0;
            }
        }
        sleep(Duration::from_millis(100));
    }
    connection
}

/// The window of each stream by these settings.
fn initial_window(settings: &[u8]) -> i64 {
    let mut settings = settings.chunks(6);
    let window = settings.find(|setting| setting[..2] == [0, 4]);
    window.map_or(65_535, |window| number(&window[2..]))
}

fn number(bytes: &[u8]) -> i64 {
    u32::from_be_bytes(bytes.try_into().expect("four bytes")).into()
}

/// A client cannot send the body of one request while other bodies, which their upstream does not read, use up the
/// window of the connection (RFC 9113, section 5.2.1).
#[test]
fn a_client_without_a_window_is_not_late() {
    let (go_on, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let upstream = Upstream::start(move |connection| {
        let head = connection.head().expect("a request");
        if head.line.starts_with("POST /short ") {
            let body = connection.body(15).expect("a chunk and the end");
            assert_eq!(body, b"5\r\nshort\r\n0\r\n\r\n");
            connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        } else {
            let _ = wait.lock().unwrap().recv();
            connection.rest();
        }
    });
    let (proxy, directory) = tls_proxy(&[&upstream.url()], &["--body-timeout", "2"]);
    let cert = directory.path().join("cert.pem");
    let mut client = Http2::connect(proxy.addresses()[1], &cert);
    client.send(&[post(1), post(3)].concat());
    assert_eq!(use_up_the_windows(&mut client, [1, 3]), 0);
    client.send(&[post_to("/short", 5), post_to("/short", 7)].concat());
    sleep(Duration::from_secs(3));
    drop(go_on);
    loop {
        let frame = client.next().expect("an update");
        assert!(frame.stream < 5, "an answer to a request without its body");
        if (frame.kind, frame.stream) == (WINDOW_UPDATE, 0) {
            break;
        }
    }
    client.send(&frame(DATA, END_STREAM, 5, b"short"));
    assert_eq!(client.outcome(5), Outcome::Status(200));
    assert_eq!(client.outcome(7), Outcome::Status(408), "it has a window");
}

/// An upload that its upstream stops reading, after an answer, ends later than its client.
#[test]
fn a_connection_that_has_ended_counts_no_longer() {
    let (go_on, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let upstream = Upstream::start(move |connection| {
        connection.head();
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        let _ = wait.lock().unwrap().recv();
    });
    let options = ["--max-client-connections", "1", "--upload-buffer", "1"];
    let (proxy, directory) = tls_proxy(&[&upstream.url()], &options);
    let cert = directory.path().join("cert.pem");
    let mut client = Http2::connect(proxy.addresses()[1], &cert);
    client.send(&post(1));
    use_up_the_windows(&mut client, [1]);
    drop(client);
    until("there is room for another one", || {
        let mut client = proxy.connect();
        // Refused without an upstream, as it names no host.
        client.try_send(b"GET / HTTP/1.1\r\n\r\n") && !client.rest().is_empty()
    });
    drop(go_on);
}
