//! Memory stays bounded, whoever does not read.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::Duration;

use crate::server::until;
use crate::upstream::{Upstream, proxy};

/// More than buffers and sockets on the way hold, less than a machine's memory.
const LENGTH: usize = 400 << 20;

/// What a proxy with one connection may use, all in all.
const BOUND_KB: u64 = 60 << 10;

/// Waits until a counter does not move for a while.
fn until_still(counter: &AtomicUsize) -> usize {
    let mut last = usize::MAX;
    until("back pressure", || {
        sleep(Duration::from_millis(300));
        let now = counter.load(Ordering::SeqCst);
        now > 0 && std::mem::replace(&mut last, now) == now
    });
    last
}

#[test]
fn a_client_that_does_not_read() {
    let sent = Arc::new(AtomicUsize::new(0));
    let counter = sent.clone();
    let upstream = Upstream::start(move |connection| {
        connection.request();
        connection.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {LENGTH}\r\n\r\n").as_bytes());
        while counter.load(Ordering::SeqCst) < LENGTH {
            connection.send(&[b'x'; 65_536]);
            counter.fetch_add(65_536, Ordering::SeqCst);
        }
    });
    let proxy = proxy(&[&upstream.url()], &[]);
    let mut client = proxy.connect();
    client.send(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(until_still(&sent) < LENGTH / 2);
    assert!(
        proxy.peak_resident_kb() < BOUND_KB,
        "{}",
        proxy.peak_resident_kb()
    );
    let reply = client.reply("GET");
    assert!(reply.is_complete && reply.body.iter().all(|&byte| byte == b'x'));
    assert!(
        proxy.peak_resident_kb() < BOUND_KB,
        "{}",
        proxy.peak_resident_kb()
    );
}

#[test]
fn an_upstream_that_does_not_read() {
    let goes_on = Arc::new(AtomicUsize::new(0));
    let gate = goes_on.clone();
    let upstream = Upstream::start(move |connection| {
        connection.head();
        while gate.load(Ordering::SeqCst) == 0 {
            sleep(Duration::from_millis(10));
        }
        let (mut buffer, mut left) = (vec![0; 1 << 16], LENGTH);
        while left > 0 {
            match connection.read(&mut buffer) {
                0 => return,
                n => left -= n,
            }
        }
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    });
    let proxy = proxy(&[&upstream.url()], &[]);
    let sent = Arc::new(AtomicUsize::new(0));
    let (counter, mut client) = (sent.clone(), proxy.connect());
    let uploading = std::thread::spawn(move || {
        client.send(
            format!("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {LENGTH}\r\n\r\n").as_bytes(),
        );
        while counter.load(Ordering::SeqCst) < LENGTH {
            client.send(&[b'x'; 65_536]);
            counter.fetch_add(65_536, Ordering::SeqCst);
        }
        client.reply("POST").text().to_owned()
    });
    assert!(until_still(&sent) < LENGTH / 2);
    goes_on.store(1, Ordering::SeqCst);
    assert_eq!(uploading.join().unwrap(), "ok");
    assert!(
        proxy.peak_resident_kb() < BOUND_KB,
        "{}",
        proxy.peak_resident_kb()
    );
}
