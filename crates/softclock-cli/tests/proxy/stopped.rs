//! A proxy that was stopped for longer than its timeouts, while its upstreams were not late.

use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::Duration;

use crate::server::{mechanisms, metric, until};
use crate::upstream::{Upstream, proxy};

/// How long an upstream may take to answer.
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
