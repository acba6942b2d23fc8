//! Memory stays bounded if a client or an upstream does not read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, sleep};
use std::time::Duration;

use crate::client::Client;
use crate::own_stack;
use crate::server::{Server, until};
use crate::upstream::{Connection, Upstream, proxy};

/// Stuck connections at a time; so many that their memory outweighs that of the idle proxy.
const CONNECTIONS: usize = 50;

/// More than the sockets on the way hold; in total less than a machine's memory.
const LENGTH: usize = 32 << 20;

static PIECE: [u8; 65_536] = [b'x'; 65_536];

/// Limit of the memory that each connection may add to the proxy: several times its buffers, and little beside its
/// body. On a stack, the buffers of both sockets are memory of the proxy, too.
fn bound_kb() -> u64 {
    match own_stack::is_chosen() {
        true => 3 << 10,
        false => 1 << 10,
    }
}

/// The bytes that all connections have sent together.
#[derive(Clone, Default)]
struct Sent(Arc<AtomicUsize>);

impl Sent {
    /// Sends a body as fast as the proxy takes it.
    fn send(&self, mut piece: impl FnMut(&[u8]) -> bool) {
        let mut left = LENGTH;
        while left > 0 && piece(&PIECE) {
            left -= PIECE.len();
            self.0.fetch_add(PIECE.len(), Ordering::SeqCst);
        }
    }

    /// Waits until the proxy takes no more bytes; most of each body is still unsent.
    fn until_still(&self) {
        let mut last = usize::MAX;
        until("back pressure", || {
            sleep(Duration::from_millis(300));
            let now = self.0.load(Ordering::SeqCst);
            now > 0 && std::mem::replace(&mut last, now) == now
        });
        assert!(last < CONNECTIONS * LENGTH / 2, "{last} bytes");
    }
}

/// Checks the limit of the memory that the stuck connections have added.
fn assert_bounded(proxy: &Server, before_kb: u64) {
    let each_kb = (proxy.peak_resident_kb() - before_kb) / CONNECTIONS as u64;
    assert!(each_kb < bound_kb(), "{each_kb} KB a connection");
}

#[test]
fn clients_that_do_not_read() {
    let sent = Sent::default();
    let counter = sent.clone();
    let upstream = Upstream::start(move |connection| {
        connection.request();
        connection.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {LENGTH}\r\n\r\n").as_bytes());
        counter.send(|piece| connection.try_send(piece));
    });
    let proxy = proxy(&[&upstream.url()], &[]);
    let before = proxy.peak_resident_kb();
    let mut clients: Vec<_> = (0..CONNECTIONS).map(|_| proxy.connect()).collect();
    for client in &mut clients {
        client.send(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    }
    sent.until_still();
    assert_bounded(&proxy, before);
    for client in &mut clients[..3] {
        let reply = client.reply("GET");
        assert!(reply.is_complete && reply.body.iter().all(|&byte| byte == b'x'));
    }
    assert_bounded(&proxy, before);
}

#[test]
fn upstreams_that_do_not_read() {
    let goes_on = Arc::new(AtomicBool::new(false));
    let gate = goes_on.clone();
    let upstream = Upstream::start(move |connection| {
        connection.head();
        while !gate.load(Ordering::SeqCst) {
            sleep(Duration::from_millis(10));
        }
        if read_body(connection) == LENGTH {
            connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        }
    });
    let proxy = proxy(&[&upstream.url()], &[]);
    let before = proxy.peak_resident_kb();
    let sent = Sent::default();
    let upload = |mut client: Client| {
        let sent = sent.clone();
        thread::spawn(move || {
            let head = format!("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {LENGTH}\r\n\r\n");
            client.send(head.as_bytes());
            sent.send(|piece| client.try_send(piece));
            client.reply("POST").text().to_owned()
        })
    };
    let uploads: Vec<_> = (0..CONNECTIONS).map(|_| upload(proxy.connect())).collect();
    sent.until_still();
    assert_bounded(&proxy, before);
    goes_on.store(true, Ordering::SeqCst);
    for upload in uploads {
        assert_eq!(upload.join().unwrap(), "ok");
    }
    assert_bounded(&proxy, before);
}

/// Reads so much, as fast as it comes.
fn read_body(connection: &mut Connection) -> usize {
    let (mut buffer, mut read) = (vec![0; 1 << 16], 0);
    while read < LENGTH {
        match connection.read(&mut buffer) {
            0 => break,
            n => read += n,
        }
    }
    read
}
