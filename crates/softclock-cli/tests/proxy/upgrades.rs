//! Upgrades: a tunnel in both directions.

use std::sync::mpsc;
use std::time::Duration;

use rustix::process::Signal;

use crate::client::Client;
use crate::server::noise;
use crate::upstream::{Connection, Upstream, proxy};

const UPGRADE: [&str; 3] = ["Connection: Upgrade", "Upgrade: echo", "Sec-Key: k"];

/// Longer than any step takes here.
const PATIENCE: Duration = Duration::from_secs(20);

fn accept(connection: &mut Connection) {
    let request = connection.request().expect("a request");
    assert_eq!(request.header("upgrade"), Some("echo"));
    assert_eq!(request.header("connection"), Some("upgrade"));
    connection.send(
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nhello",
    );
}

fn upgraded(client: &mut Client) {
    let reply = client.ask("GET", "/chat", &UPGRADE);
    assert_eq!((reply.status, reply.header("upgrade")), (101, Some("echo")));
    assert_eq!(reply.header("connection"), Some("upgrade"));
    let mut hello = [0; 5];
    client.read_exact(&mut hello);
    assert_eq!(&hello, b"hello");
}

#[test]
fn bytes_pass_both_ways_until_each_side_ends() {
    let upstream = Upstream::start(|connection| {
        accept(connection);
        let mut buffer = vec![0; 10_000];
        loop {
            match connection.read(&mut buffer) {
                0 => break,
                n => connection.send(&buffer[..n]),
            }
        }
        connection.send(b"goodbye");
        connection.close_sending();
    });
    let proxy = proxy(&[&upstream.url()], &["--threads", "2"]);
    for _ in 0..3 {
        let mut client = proxy.connect();
        upgraded(&mut client);
        // Neither requests nor responses, and with line ends that HTTP would refuse.
        let frames = noise(300_000);
        for frame in frames.chunks(30_000) {
            client.send(frame);
            let mut echo = vec![0; frame.len()];
            client.read_exact(&mut echo);
            assert!(echo == frame);
        }
        client.close_sending();
        assert_eq!(client.rest(), b"goodbye");
    }
}

#[test]
fn an_upstream_s_end_leaves_the_other_direction_open() {
    let (heard, words) = mpsc::channel();
    let upstream = Upstream::start(move |connection| {
        accept(connection);
        connection.close_sending();
        heard.send(connection.rest()).unwrap();
        connection.send(b"never read");
    });
    let proxy = proxy(&[&upstream.url()], &[]);
    let mut client = proxy.connect();
    upgraded(&mut client);
    assert_eq!(client.rest(), b"");
    client.send(b"last words");
    client.close_sending();
    assert_eq!(words.recv_timeout(PATIENCE).unwrap(), b"last words");
}

#[test]
fn a_tunnel_in_which_nothing_passes_ends() {
    let (heard, rest) = mpsc::channel();
    let upstream = Upstream::start(move |connection| {
        accept(connection);
        heard.send(connection.rest()).unwrap();
    });
    let options = ["--tunnel-timeout", "0.2", "--metrics", "127.0.0.1:0"];
    let proxy = proxy(&[&upstream.url()], &options);
    let mut client = proxy.connect();
    upgraded(&mut client);
    assert_eq!(client.rest(), b"");
    assert_eq!(rest.recv_timeout(PATIENCE).unwrap(), b"");
    assert_eq!(proxy.reached("tunnel_timeout"), 1.0);
}

/// Sends received bytes back.
fn echo(connection: &mut Connection) {
    accept(connection);
    let mut buffer = vec![0; 10_000];
    while let n @ 1.. = connection.read(&mut buffer) {
        connection.send(&buffer[..n]);
    }
}

fn passes(client: &mut Client) {
    client.send(b"ping");
    let mut echo = [0; 4];
    client.read_exact(&mut echo);
    assert_eq!(&echo, b"ping");
}

#[test]
fn a_tunnel_goes_on_while_the_server_drains() {
    let upstream = Upstream::start(echo);
    for (drain, is_cut) in [("60", false), ("3", true)] {
        let mut proxy = proxy(&[&upstream.url()], &["--drain", drain]);
        let mut idle = proxy.connect();
        let mut client = proxy.connect();
        upgraded(&mut client);
        proxy.signal(Signal::TERM);
        assert_eq!(idle.rest(), b"", "the signal is known");
        passes(&mut client);
        if !is_cut {
            client.close_sending();
        }
        assert_eq!(proxy.wait().code(), Some(0));
        assert_eq!(proxy.log().contains("cut off: they took longer"), is_cut);
        assert_eq!(client.rest(), b"");
    }
}

#[test]
fn a_refused_upgrade_is_a_response_like_others() {
    let upstream = Upstream::answering("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno");
    let proxy = proxy(&[&upstream.url()], &[]);
    let mut client = proxy.connect();
    for _ in 0..2 {
        let reply = client.ask("GET", "/", &UPGRADE);
        assert_eq!((reply.status, reply.text()), (403, "no"));
    }
    assert_eq!(client.ask("GET", "/", &[]).status, 403);
}

#[test]
fn http_2_is_not_smuggled_past() {
    let upstream = Upstream::saying("ok");
    let proxy = proxy(&[&upstream.url()], &[]);
    let fields = [
        "Connection: Upgrade, HTTP2-Settings",
        "Upgrade: h2c",
        "HTTP2-Settings: AAMAAABkAAQAAP__",
    ];
    assert_eq!(proxy.connect().ask("GET", "/", &fields).text(), "ok");
    let seen = upstream.seen().pop().unwrap();
    assert_eq!(
        (seen.header("upgrade"), seen.header("http2-settings")),
        (None, None)
    );
}
