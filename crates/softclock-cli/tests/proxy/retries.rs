//! Which requests are tried again, and where.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use crate::client::Client;
use crate::server::until;
use crate::upstream::{Upstream, free_addresses, proxy};

/// An address on which no server listens.
fn nobody() -> String {
    let [address] = free_addresses();
    format!("http://{address}")
}

/// An upstream that closes each connection when a request has arrived.
fn closing() -> Upstream {
    Upstream::start(|connection| {
        connection.request();
    })
}

const POST: &[u8] = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody";
const PUT: &[u8] = b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody";
const CHUNKED_PUT: &[u8] =
    b"PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n";

#[test]
fn a_connection_closed_while_it_was_kept_is_replaced() {
    // Each connection answers once, and closes without announcing it.
    let upstream = Upstream::start(|connection| {
        connection.request();
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    });
    let proxy = proxy(&[&upstream.url()], &[]);
    let mut client = proxy.connect();
    for _ in 0..200 {
        assert_eq!(client.ask("GET", "/", &[]).text(), "ok");
    }
}

#[test]
fn a_request_lost_on_a_kept_connection_is_sent_again() {
    // The second request of a connection is read and not answered.
    let upstream = Upstream::start(|connection| {
        connection.request();
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        connection.request();
    });
    let proxy = proxy(&[&upstream.url()], &["--metrics", "127.0.0.1:0"]);
    let mut client = proxy.connect();
    assert_eq!(client.ask("GET", "/", &[]).status, 200);
    assert_eq!(client.ask("GET", "/", &[]).text(), "ok");
    assert_eq!((upstream.connections(), upstream.seen().len()), (2, 3));
    // The head was sent, so the upstream may have acted on the request.
    client.send(POST);
    assert_eq!(client.reply("POST").status, 502);
    assert_eq!(upstream.seen().len(), 4);
    let metrics = Client::connect(proxy.metrics()).get("/metrics");
    let retries = format!("retries_total{{upstream=\"{}\"}} 1\n", upstream.url());
    assert!(metrics.text().contains(&retries), "{}", metrics.text());
}

#[test]
fn a_short_body_lost_on_a_kept_connection_is_sent_again() {
    // The second request of a connection is read and not answered.
    let upstream = Upstream::start(|connection| {
        connection.request();
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        connection.request();
    });
    let proxy = proxy(&[&upstream.url()], &[]);
    let mut client = proxy.connect();
    assert_eq!(client.ask("GET", "/", &[]).status, 200);
    for (request, before) in [(PUT, 1), (CHUNKED_PUT, 3)] {
        client.send(request);
        assert_eq!(client.reply("PUT").text(), "ok");
        let seen = upstream.seen();
        assert_eq!(seen.len(), before + 2, "lost, and sent again");
        assert!(seen[before..].iter().all(|request| request.body == b"body"));
    }
    client.send(POST);
    assert_eq!(client.reply("POST").status, 502);
    assert_eq!(upstream.seen().len(), 6, "once");
}

#[test]
fn a_body_goes_on_where_its_first_piece_was_sent_again() {
    let bad = Upstream::start(|connection| {
        connection.head();
        connection.body(4);
    });
    let good = Upstream::saying("good");
    let proxy = proxy(&[&bad.url(), &good.url()], &["--upload-buffer", "4"]);
    let mut client = proxy.connect();
    client.send(b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nhalf");
    until("it is with the other", || good.connections() == 1);
    client.send(b" left");
    assert_eq!(client.reply("PUT").text(), "good");
    assert_eq!(good.seen()[0].body, b"half left");
}

#[test]
fn a_body_that_is_not_at_hand_is_not_sent_again() {
    let has_half = Arc::new(AtomicBool::new(false));
    let bad = Upstream::start({
        let has_half = has_half.clone();
        move |connection| {
            connection.head();
            connection.body(4);
            has_half.store(true, SeqCst);
            connection.body(5);
        }
    });
    let good = Upstream::saying("good");
    let proxy = proxy(&[&bad.url(), &good.url()], &["--upload-buffer", "4"]);
    let mut client = proxy.connect();
    client.send(b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nhalf");
    until("the first piece has come", || has_half.load(SeqCst));
    client.send(b" left");
    assert_eq!(client.reply("PUT").status, 502);
    assert!(good.seen().is_empty());
}

#[test]
fn what_may_be_repeated_goes_to_another() {
    let (bad, good) = (closing(), Upstream::saying("good"));
    let proxy = proxy(&[&bad.url(), &good.url()], &["--max-fails", "0"]);
    let mut client = proxy.connect();
    for method in ["GET", "OPTIONS", "PUT", "DELETE", "TRACE", "GET"] {
        let reply = client.ask(method, "/", &["Content-Length: 0"]);
        assert_eq!((reply.status, reply.text()), (200, "good"), "{method}");
    }
    assert!(!bad.seen().is_empty());
}

#[test]
fn a_try_on_a_connection_that_was_closed_counts() {
    // Closes its listener after the first connection, and that connection at the second request.
    let gone_later = || {
        let [address] = free_addresses();
        let listener = TcpListener::bind(address).unwrap();
        let served = thread::spawn(move || {
            let mut connection = listener.accept().unwrap().0;
            drop(listener);
            let mut head = BufReader::new(connection.try_clone().unwrap()).lines();
            let mut read = || {
                head.by_ref()
                    .any(|line| line.is_ok_and(|line| line.is_empty()))
            };
            assert!(read());
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
            connection.write_all(answer).unwrap();
            read()
        });
        (format!("http://{address}"), served)
    };
    let [(first, of_first), (second, of_second)] = [gone_later(), gone_later()];
    let proxy = proxy(&[&first, &second], &["--tries", "1"]);
    let mut client = proxy.connect();
    for status in [200, 200, 502] {
        assert_eq!(client.ask("GET", "/", &[]).status, status);
    }
    assert!(of_first.join().unwrap(), "it had it");
    drop(proxy);
    assert!(!of_second.join().unwrap(), "so had the other");
}

#[test]
fn what_may_not_is_sent_once() {
    let (bad, good) = (closing(), Upstream::saying("good"));
    let proxy = proxy(&[&bad.url(), &good.url()], &["--max-fails", "0"]);
    let mut client = proxy.connect();
    let mut statuses = Vec::new();
    for _ in 0..4 {
        client.send(POST);
        statuses.push(client.reply("POST").status);
    }
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 200, 502, 502]);
    assert_eq!((bad.seen().len(), good.seen().len()), (2, 2));
}

#[test]
fn nobody_has_seen_what_found_nobody() {
    let good = Upstream::saying("good");
    let proxy = proxy(&[&nobody(), &good.url()], &["--max-fails", "0"]);
    let mut client = proxy.connect();
    for _ in 0..4 {
        client.send(POST);
        assert_eq!(client.reply("POST").text(), "good");
    }
    assert!(good.seen().iter().all(|request| request.body == b"body"));
}

#[test]
fn tries_are_bounded() {
    let all: Vec<_> = (0..5).map(|_| closing()).collect();
    let urls: Vec<_> = all.iter().map(Upstream::url).collect();
    let urls: Vec<_> = urls.iter().map(String::as_str).collect();
    let proxy = proxy(&urls, &["--tries", "2"]);
    assert_eq!(proxy.connect().ask("GET", "/", &[]).status, 502);
    assert_eq!(all.iter().map(Upstream::connections).sum::<usize>(), 2);
}

#[test]
fn one_alive_is_found_however_many_are_dead() {
    let closing = [closing(), closing()];
    let good = Upstream::saying("good");
    let urls = [
        nobody(),
        closing[0].url(),
        nobody(),
        closing[1].url(),
        good.url(),
    ];
    let urls = urls.each_ref().map(String::as_str);
    let proxy = proxy(&urls, &["--fail-time", "0.05"]);
    let mut client = proxy.connect();
    let trials = || closing.each_ref().map(Upstream::connections);
    // Three failures leave one out, and each time that is over it is tried.
    while trials().iter().any(|&trials| trials < 10) {
        let reply = client.ask("GET", "/", &[]);
        assert_eq!((reply.status, reply.text()), (200, "good"));
    }
}

#[test]
fn who_breaks_off_its_bodies_is_left_out() {
    let bad = Upstream::answering(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nbad\r\nno\r\n",
    );
    let good = Upstream::saying("good");
    let options = ["--max-fails=3", "--fail-time=100", "--metrics=127.0.0.1:0"];
    let proxy = proxy(&[&bad.url(), &good.url()], &options);
    let ask = || proxy.connect().ask("GET", "/", &[]);
    let broken = (0..20).filter(|_| !ask().is_complete).count();
    assert_eq!((broken, bad.seen().len()), (3, 3));
    proxy.until_logged("left out for a while");
    assert_eq!(proxy.reached("max_fails"), 1.0);
}

/// The connection of a request with Expect is opened before the body is read. It has carried no request before.
#[test]
fn who_breaks_off_at_requests_with_expect_is_left_out() {
    for keep in ["0", "4"] {
        let upstream = closing();
        let options = ["--keep", keep, "--max-fails=1", "--metrics=127.0.0.1:0"];
        let proxy = proxy(&[&upstream.url()], &options);
        let mut client = proxy.connect();
        client.send(
            b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n",
        );
        assert_eq!(client.head().status, 100);
        client.send(b"up");
        assert_eq!(client.reply("POST").status, 502);
        assert_eq!(proxy.reached("max_fails"), 1.0, "--keep {keep}");
    }
}

#[test]
fn who_was_left_out_is_back_after_a_whole_response() {
    let upstream = Upstream::start(|connection| {
        while connection.request().is_some() {
            connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfi");
            match connection.number {
                0 => return,
                // Waits with the rest until the client leaves.
                1 => drop(connection.rest()),
                _ => connection.send(b"ne"),
            }
        }
    });
    let options = ["--max-fails", "1", "--metrics", "127.0.0.1:0"];
    let proxy = proxy(&[&upstream.url()], &options);
    let is_up = || {
        let metrics = Client::connect(proxy.metrics()).get("/metrics");
        let up = format!("up_threads{{upstream=\"{}\"}} 1\n", upstream.url());
        metrics.text().contains(&up)
    };
    assert!(is_up());
    assert!(!proxy.connect().ask("GET", "/", &[]).is_complete);
    assert!(!is_up());
    let mut slow = proxy.connect();
    slow.send(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(slow.head().status, 200);
    assert!(!is_up(), "for all that is known");
    assert_eq!(proxy.connect().ask("GET", "/", &[]).text(), "fine");
    assert!(is_up());
}

#[test]
fn who_fails_again_and_again_is_left_out_and_comes_back() {
    let good = Upstream::saying("good");
    let [address] = free_addresses();
    let proxy = proxy(
        &[&format!("http://{address}"), &good.url()],
        &["-v", "--max-fails", "2", "--fail-time", "0.2"],
    );
    let mut client = proxy.connect();
    for _ in 0..20 {
        assert_eq!(client.ask("GET", "/", &[]).text(), "good");
    }
    proxy.until_logged("left out for a while");
    let listener = TcpListener::bind(address).expect("the port it had");
    let back = std::thread::spawn(move || listener.accept().map(drop));
    // One request meets the closed connection: a failure, after which it is sent to the other upstream.
    while !back.is_finished() {
        assert_eq!(client.ask("GET", "/", &[]).text(), "good");
    }
}

#[test]
fn all_left_out_are_asked_all_the_same() {
    let upstream = Upstream::start(|connection| {
        while connection.request().is_some() {
            if connection.number >= 3 {
                connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
            } else {
                return;
            }
        }
    });
    let proxy = proxy(
        &[&upstream.url()],
        &["--max-fails", "1", "--fail-time", "100"],
    );
    let mut client = proxy.connect();
    let statuses: Vec<_> = (0..5).map(|_| client.ask("GET", "/", &[]).status).collect();
    assert_eq!(statuses, [502, 502, 502, 200, 200]);
}

#[test]
fn at_the_limit_of_requests_the_answer_is_503() {
    let upstream = Upstream::start(|connection| {
        connection.request();
        connection.rest();
    });
    let proxy = proxy(&[&upstream.url()], &["--max-requests", "1"]);
    let mut first = proxy.connect();
    first.send(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    until("the first request arrives", || upstream.seen().len() == 1);
    let reply = proxy.connect().ask("GET", "/", &[]);
    assert_eq!(
        (reply.status, reply.header("retry-after")),
        (503, Some("1"))
    );
    assert!(reply.text().contains("busy"));
}

#[test]
fn an_upload_behind_its_response_counts_as_a_request() {
    let upstream = Upstream::start(|connection| {
        connection.head();
        connection.send(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno");
        connection.rest();
    });
    let options = ["--max-requests", "1", "--upload-buffer", "4"];
    let proxy = proxy(&[&upstream.url()], &options);
    let mut first = proxy.connect();
    first.send(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nhalf");
    assert_eq!(first.reply("POST").text(), "no");
    let status = || proxy.connect().ask("GET", "/", &[]).status;
    assert_eq!((status(), upstream.connections()), (503, 1));
    first.send(b" left");
    until("the connection is free", || status() == 401);
}

#[test]
fn the_limit_of_requests_is_that_of_all_threads() {
    for limit in [2, CLIENTS] {
        let is_over = Arc::new(AtomicBool::new(false));
        let upstream = Upstream::start({
            let is_over = is_over.clone();
            move |connection| {
                while connection.request().is_some() {
                    until("all were answered or are here", || is_over.load(SeqCst));
                    connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
                }
            }
        });
        let limit_text = limit.to_string();
        let options = ["--threads", "4", "--max-requests", &limit_text];
        let proxy = proxy(&[&upstream.url()], &options);
        let (answer, answers) = mpsc::channel();
        thread::scope(|scope| {
            for _ in 0..CLIENTS {
                let (proxy, answer) = (&proxy, answer.clone());
                scope.spawn(move || answer.send(proxy.connect().ask("GET", "/", &[]).status));
            }
            let next = || answers.recv_timeout(Duration::from_secs(20)).unwrap();
            assert!((limit..CLIENTS).all(|_| next() == 503));
            until("those that may are there", || {
                upstream.seen().len() == limit
            });
            is_over.store(true, SeqCst);
            assert!((0..limit).all(|_| next() == 200));
        });
        assert_eq!(upstream.seen().len(), limit);
    }
}

#[test]
fn warnings_do_not_come_in_floods() {
    let begun = Instant::now();
    let proxy = proxy(&[&nobody()], &[]);
    let mut client = proxy.connect();
    for _ in 0..100 {
        assert_eq!(client.ask("GET", "/", &[]).status, 502);
    }
    let lines = proxy.log().matches("no response").count();
    let seconds = begun.elapsed().as_secs() as usize;
    assert!((1..=seconds + 2).contains(&lines), "{lines} in {seconds} s");
    until("the next one counts them", || {
        client.ask("GET", "/", &[]);
        proxy.log().contains("held_back=")
    });
}

#[test]
fn uploads_that_clients_break_off_are_no_warnings() {
    let upstream = Upstream::start(|connection| {
        connection.head();
        connection.rest();
    });
    let proxy = proxy(&[&upstream.url()], &["-vv", "--upload-buffer", "4"]);
    let mut client = proxy.connect();
    client.send(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nhalf");
    until("it has come", || upstream.connections() == 1);
    client.close_sending();
    let told = "no response: the client's body did not arrive";
    proxy.until_logged(told);
    let log = proxy.log();
    let line = log.lines().find(|line| line.contains(told));
    assert!(line.is_some_and(|line| line.contains("DEBUG")), "{log}");
}

/// As many ask at once, over several threads.
const CLIENTS: usize = 12;
