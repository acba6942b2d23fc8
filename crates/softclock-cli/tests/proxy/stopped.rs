//! A proxy that was stopped for longer than its timeouts, while its upstreams were not late.

use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::Duration;

use crate::h2_frames::{DATA, END_HEADERS, END_STREAM, HEADERS, Http2, Outcome, block, frame, get};
use crate::http2::tls_proxy;
use crate::server::{mechanisms, metric, until};
use crate::upstream::{Upstream, proxy};

/// Time limit of an upstream's answer.
const LIMIT: Duration = Duration::from_millis(500);

/// An upstream that answers a request for each message that it gets.
fn waiting_upstream() -> (Upstream, mpsc::Sender<()>) {
    let (answer, answers) = mpsc::channel();
    let answers = Arc::new(Mutex::new(answers));
    let upstream = Upstream::start(move |connection| {
        while connection.request().is_some() {
            if answers.lock().unwrap().recv().is_err() {
                return;
            }
            connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood");
        }
    });
    (upstream, answer)
}

#[test]
fn answers_that_came_during_a_stop_are_passed_on() {
    for mechanism in mechanisms() {
        let (upstream, answer) = waiting_upstream();
        let options = ["--response-timeout", "0.5", "--events", mechanism];
        let options = [&options[..], &["--metrics", "127.0.0.1:0"]].concat();
        let proxy = proxy(&[&upstream.url()], &options);
        let mut clients: Vec<_> = (0..10).map(|_| proxy.connect()).collect();
        for client in &mut clients {
            client.send(b"GET / HTTP/1.1\r\nHost: t\r\n\r\n");
        }
        until("requests", || upstream.seen().len() == clients.len());
        proxy.while_stopped(|| {
            sleep(2 * LIMIT);
            (0..10).for_each(|_| answer.send(()).unwrap());
            sleep(LIMIT);
        });
        let statuses: Vec<_> = (clients.iter_mut())
            .map(|client| client.reply("GET").status)
            .collect();
        assert_eq!(statuses, [200; 10], "{mechanism}");
        let of_upstream = |name: &str| {
            let label = upstream.url();
            let name = format!("softclock_upstream_{name}{{upstream=\"{label}\"}}");
            metric(proxy.metrics(), &name)
        };
        assert_eq!(of_upstream("failures_total"), 0.0, "{mechanism}");
        assert_eq!(of_upstream("up_threads"), 1.0, "{mechanism}");
        assert_eq!(upstream.seen().len(), 10, "none was sent twice");
    }
}

#[test]
fn answers_that_did_not_come_are_504() {
    let (upstream, _answer) = waiting_upstream();
    let proxy = proxy(&[&upstream.url()], &["--response-timeout", "0.5"]);
    let mut client = proxy.connect();
    client.send(b"GET / HTTP/1.1\r\nHost: t\r\n\r\n");
    until("the request", || upstream.seen().len() == 1);
    proxy.while_stopped(|| sleep(2 * LIMIT));
    assert_eq!(client.reply("GET").status, 504);
}

/// In HTTP/1 and HTTP/2, different parts of the proxy read the body and judge its rate.
#[test]
fn bodies_that_came_during_a_stop_are_passed_on() {
    for mechanism in mechanisms() {
        let upstream = Upstream::saying("good");
        let options = ["--body-timeout", "0.5", "--events", mechanism];
        let (proxy, cert) = tls_proxy(&[&upstream.url()], &options);
        let mut plain: Vec<_> = (0..5).map(|_| proxy.connect()).collect();
        for client in &mut plain {
            client.send(b"POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 4\r\n\r\nbo");
        }
        let head = block(&[
            (b":method", b"POST"),
            (b":scheme", b"https"),
            (b":path", b"/"),
            (b":authority", b"test"),
        ]);
        let mut http2: Vec<_> = (0..5)
            .map(|_| {
                let mut client =
                    Http2::connect(proxy.addresses()[1], &cert.path().join("cert.pem"));
                client.send(&frame(HEADERS, END_HEADERS, 1, &head));
                client.send(&frame(DATA, 0, 1, b"bo"));
                // The answer to this request shows that the proxy has read everything before it.
                client.send(&get(3, "/"));
                assert_eq!(client.outcome(3), Outcome::Status(200), "{mechanism}");
                client
            })
            .collect();
        proxy.while_stopped(|| {
            sleep(2 * LIMIT);
            for client in &mut plain {
                client.send(b"dy");
            }
            for client in &mut http2 {
                client.send(&frame(DATA, END_STREAM, 1, b"dy"));
            }
            sleep(LIMIT);
        });
        for client in &mut plain {
            assert_eq!(client.reply("POST").status, 200, "{mechanism}");
        }
        for client in &mut http2 {
            assert_eq!(client.outcome(1), Outcome::Status(200), "{mechanism}");
        }
    }
}
