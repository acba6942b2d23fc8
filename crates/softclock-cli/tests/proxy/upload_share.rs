//! Uploads longer than the upload buffer: the number of them that may hold an upstream, and the answers to the others.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::{self, sleep};
use std::time::Duration;

use crate::client::Client;
use crate::h2_frames::{
    DATA, END_HEADERS, END_STREAM, HEADERS, Http2, Outcome, RST_STREAM, block, frame, get,
};
use crate::http2::tls_proxy;
use crate::server::{Server, metric, until};
use crate::uploads::post;
use crate::upstream::{Upstream, proxy};

/// An upstream that answers "ok" when the body of a request has come, to `/late` when it may, and half of it to `/half`
/// at once.
struct Receiver {
    upstream: Upstream,
    /// The targets of all requests whose heads have arrived.
    begun: Arc<Mutex<Vec<String>>>,
    may_answer: Arc<AtomicBool>,
}

impl Receiver {
    fn start() -> Self {
        let (begun, may_answer) = (
            Arc::<Mutex<Vec<_>>>::default(),
            Arc::<AtomicBool>::default(),
        );
        let upstream = Upstream::start({
            let (begun, may_answer) = (begun.clone(), may_answer.clone());
            move |connection| {
                while let Some(request) = connection.head() {
                    let target = request.line.split(' ').nth(1).unwrap().to_owned();
                    begun.lock().unwrap().push(target.clone());
                    let length = request.header("content-length").unwrap_or("0");
                    if connection.body(length.parse().unwrap()).is_none() {
                        return;
                    }
                    let mut response = &b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"[..];
                    if target == "/half" {
                        let (half, rest) = response.split_at(response.len() - 1);
                        connection.send(half);
                        response = rest;
                    }
                    if target != "/" {
                        until("it may answer", || may_answer.load(SeqCst));
                    }
                    connection.send(response);
                }
            }
        });
        Self {
            upstream,
            begun,
            may_answer,
        }
    }

    fn begun(&self, target: &str) -> usize {
        let begun = self.begun.lock().unwrap();
        begun.iter().filter(|other| *other == target).count()
    }

    fn until_begun(&self, target: &str, count: usize) {
        until(target, || self.begun(target) >= count);
    }
}

/// Begins an upload of [`LENGTH`] bytes with more than is read before an upstream is taken.
fn begin(proxy: &Server, target: &str) -> Client {
    let mut client = proxy.connect();
    client.send(&[post(target, LENGTH), vec![b'x'; BEGINNING]].concat());
    client
}

/// Sends the rest of the body.
fn end(client: &mut Client) {
    client.send(&vec![b'x'; LENGTH - BEGINNING]);
}

#[test]
fn uploads_that_trickle_leave_half_of_the_upstream_to_others() {
    for threads in ["1", "2"] {
        let receiver = Receiver::start();
        let options = [
            "--threads",
            threads,
            "--max-requests",
            "4",
            "--connect-timeout",
            "2",
            "--metrics",
            "127.0.0.1:0",
        ];
        let proxy = proxy(&[&receiver.upstream.url()], &options);
        let slow: Vec<_> = (0..10).map(|_| begin(&proxy, "/slow")).collect();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            for client in &slow {
                let (mut stream, is_over) = (client.another(), &is_over);
                scope.spawn(move || {
                    for _ in 0..400 {
                        if is_over.load(SeqCst) || stream.write_all(b"x").is_err() {
                            return;
                        }
                        sleep(Duration::from_millis(50));
                    }
                });
            }
            receiver.until_begun("/slow", 2);
            let small = [post("/", 5), b"small".into()].concat();
            sleep(Duration::from_millis(200));
            let statuses: Vec<_> = (0..14)
                .flat_map(|_| {
                    let mut client = proxy.connect();
                    let got = client.ask("GET", "/", &[]).status;
                    client.send(&small);
                    [got, client.reply("POST").status]
                })
                .collect();
            assert_eq!(statuses, [200; 28]);
            assert_eq!(receiver.begun("/slow"), 2);
            // Waiting uploads wait no longer than for a connection.
            until("the others are refused", || proxy.reached("uploads") == 8.0);
            is_over.store(true, SeqCst);
        });
        proxy.until_logged("limit=\"uploads\"");
    }
}

#[test]
fn an_upload_that_waits_in_vain_is_told_when_to_come_again() {
    let receiver = Receiver::start();
    let options = ["--max-requests", "1", "--connect-timeout", "0.2"];
    let proxy = proxy(&[&receiver.upstream.url()], &options);
    let mut first = begin(&proxy, "/");
    receiver.until_begun("/", 1);
    let reply = begin(&proxy, "/").reply("POST");
    assert_eq!(
        (reply.status, reply.header("retry-after")),
        (503, Some("1"))
    );
    assert!(
        reply.text().contains("too many uploads"),
        "{}",
        reply.text()
    );
    // A client that waits for 100 Continue gets the same answer, and holds nothing meanwhile.
    let mut asked = proxy.connect();
    end(&mut first);
    assert_eq!(first.reply("POST").text(), "ok");
    first.send(&[post("/", LENGTH), vec![b'x'; BEGINNING]].concat());
    receiver.until_begun("/", 2);
    let head = String::from_utf8(post("/", LENGTH)).unwrap();
    let head = head.replace("\r\n\r\n", "\r\nExpect: 100-continue\r\n\r\n");
    asked.send(head.as_bytes());
    assert_eq!(
        asked.head().status,
        503,
        "the upstream's one place is taken"
    );
    end(&mut first);
    assert_eq!(first.reply("POST").text(), "ok");
    let mut asked = proxy.connect();
    asked.send(head.as_bytes());
    assert_eq!(asked.head().status, 100);
    asked.send(&vec![b'x'; LENGTH]);
    assert_eq!(asked.reply("POST").text(), "ok");
}

#[test]
fn an_upload_whose_body_has_come_makes_room_for_another() {
    let receiver = Receiver::start();
    let options = ["--max-requests", "6", "--connect-timeout", "60"];
    let proxy = proxy(&[&receiver.upstream.url()], &options);
    // One request whose response has not begun, one whose response is in progress, and one that still sends.
    let mut clients = ["/late", "/half", "/slow"].map(|target| begin(&proxy, target));
    for target in ["/late", "/half", "/slow"] {
        receiver.until_begun(target, 1);
    }
    let mut waiting = [(); 2].map(|()| begin(&proxy, "/next"));
    assert_eq!(proxy.connect().ask("GET", "/", &[]).status, 200);
    for (done, client) in clients[..2].iter_mut().enumerate() {
        assert_eq!(receiver.begun("/next"), done);
        end(client);
        receiver.until_begun("/next", done + 1);
    }
    receiver.may_answer.store(true, SeqCst);
    for client in clients[2..].iter_mut().chain(&mut waiting) {
        end(client);
    }
    for client in clients.iter_mut().chain(&mut waiting) {
        assert_eq!(client.reply("POST").text(), "ok");
    }
}

#[test]
fn clients_that_leave_give_their_turn_to_others() {
    let receiver = Receiver::start();
    let options = [
        "--max-requests",
        "4",
        "--connect-timeout",
        "60",
        "--metrics",
        "127.0.0.1:0",
    ];
    let proxy = proxy(&[&receiver.upstream.url()], &options);
    let are_open = |count| metric(proxy.metrics(), "softclock_connections_open") == count;
    let [first, second] = [(); 2].map(|()| begin(&proxy, "/slow"));
    receiver.until_begun("/slow", 2);
    let waits = begin(&proxy, "/leaves");
    assert_eq!(proxy.connect().ask("GET", "/", &[]).status, 200);
    let mut stays = begin(&proxy, "/");
    assert_eq!(proxy.connect().ask("GET", "/", &[]).status, 200);
    until("all but those that wait or upload are gone", || {
        are_open(4.0)
    });
    waits.reset();
    until("it is seen to have left", || are_open(3.0));
    assert_eq!(receiver.begun("/leaves"), 0);
    drop(first);
    receiver.until_begun("/", 3);
    end(&mut stays);
    assert_eq!(stays.reply("POST").text(), "ok");
    second.reset();
    let mut last = [(); 2].map(|()| begin(&proxy, "/slow"));
    receiver.until_begun("/slow", 4);
    receiver.may_answer.store(true, SeqCst);
    for client in &mut last {
        end(client);
        assert_eq!(client.reply("POST").text(), "ok");
    }
    assert_eq!(receiver.begun("/leaves"), 0);
}

#[test]
fn uploads_that_move_all_succeed() {
    let receiver = Receiver::start();
    let options = ["--max-requests", "6", "--connect-timeout", "60"];
    let proxy = proxy(&[&receiver.upstream.url()], &options);
    // As many as have room at once; then all that the upstream may have, which take turns.
    for count in [3, 6] {
        thread::scope(|scope| {
            for _ in 0..count {
                scope.spawn(|| {
                    let mut client = proxy.connect();
                    client.send(&post("/", 30 * BEGINNING));
                    for _ in 0..30 {
                        client.send(&[b'x'; BEGINNING]);
                        sleep(Duration::from_millis(5));
                    }
                    assert_eq!(client.reply("POST").text(), "ok");
                });
            }
        });
    }
}

#[test]
fn streams_of_one_client_share_the_places_too() {
    let receiver = Receiver::start();
    let options = [
        "--max-requests",
        "4",
        "--upload-buffer",
        "4",
        "--connect-timeout",
        "60",
    ];
    let (proxy, directory) = tls_proxy(&[&receiver.upstream.url()], &options);
    let mut client = Http2::connect(proxy.addresses()[1], &directory.path().join("cert.pem"));
    let targets = ["/late", "/slow", "/waits", "/leaves", "/last"];
    for (stream, target) in (1..).step_by(2).zip(targets) {
        let head = block(&[
            (b":method", b"POST"),
            (b":scheme", b"https"),
            (b":path", target.as_bytes()),
            (b":authority", b"test"),
            (b"content-length", b"9"),
        ]);
        client.send(&frame(HEADERS, END_HEADERS, stream, &head));
        client.send(&frame(DATA, 0, stream, b"begun"));
    }
    receiver.until_begun("/slow", 1);
    client.send(&get(21, "/"));
    assert_eq!(client.outcome(21), Outcome::Status(200));
    assert_eq!(receiver.begun("/waits"), 0);
    // All of its content has come, though the stream has not ended.
    client.send(&frame(DATA, 0, 1, b"over"));
    receiver.until_begun("/waits", 1);
    // One that waits leaves, and then one that has a place.
    client.send(&frame(RST_STREAM, 0, 7, &[0, 0, 0, 8]));
    client.send(&get(23, "/"));
    assert_eq!(client.outcome(23), Outcome::Status(200));
    client.send(&frame(RST_STREAM, 0, 3, &[0, 0, 0, 8]));
    receiver.until_begun("/last", 1);
    receiver.may_answer.store(true, SeqCst);
    client.send(&frame(DATA, END_STREAM, 1, b""));
    assert_eq!(client.outcome(1), Outcome::Status(200));
    for stream in [5, 9] {
        client.send(&frame(DATA, END_STREAM, stream, b"over"));
        assert_eq!(client.outcome(stream), Outcome::Status(200));
    }
    assert_eq!(receiver.begun("/leaves"), 0);
}

const LENGTH: usize = 1 << 20;

const BEGINNING: usize = 64 << 10;
