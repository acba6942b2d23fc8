//! Limits by client address: connections, and streams of HTTP/2.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};

use crate::own_stack::client;
use crate::server::{Server, metric, until};
use crate::tls::{self, Session};

/// The number of the address that is limited.
const HERE: u8 = 1;

/// A connection from another address of this machine; `None` if the server has reset it already.
fn connect_from(source: [u8; 4], server: SocketAddr) -> Option<TcpStream> {
    // The programs that other tests start meanwhile must not have copies.
    let flags = SocketFlags::CLOEXEC;
    let stream = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None);
    let stream = stream.expect("a socket");
    bind(&stream, &SocketAddr::from((source, 0))).expect("an address of ours");
    match connect(&stream, &server) {
        Err(Errno::CONNRESET) => return None,
        connected => connected.expect("a listening server"),
    }
    let stream = TcpStream::from(stream);
    let limit = Some(Duration::from_secs(20));
    stream.set_read_timeout(limit).expect("a time-out");
    Some(stream)
}

/// Whether a request over this connection is answered.
fn is_answered(stream: &mut TcpStream) -> bool {
    let request = b"HEAD / HTTP/1.1\r\nHost: t\r\n\r\n";
    // The reset may arrive before or after the request is sent.
    if stream.write_all(request).is_err() {
        return false;
    }
    let mut answer = Vec::new();
    let mut byte = [0];
    while !answer.ends_with(b"\r\n\r\n") {
        if !stream.read(&mut byte).is_ok_and(|read| read == 1) {
            return false;
        }
        answer.push(byte[0]);
    }
    answer.starts_with(b"HTTP/1.1 200")
}

#[test]
fn one_address_has_so_many_connections() {
    let options = ["--max-client-connections", "3", "--threads", "2"];
    let options = [&options[..], &["--metrics", "127.0.0.1:0"]].concat();
    let server = Server::start(None, &options);
    let try_connect = |from| connect_from(client(from), server.address());
    let connect = |from| try_connect(from).expect("a connection that lasts");
    let mut held: Vec<_> = (0..3).map(|_| connect(HERE)).collect();
    assert!(held.iter_mut().all(is_answered));
    for _ in 0..20 {
        let is_answered = try_connect(HERE).is_some_and(|mut stream| is_answered(&mut stream));
        assert!(!is_answered, "one too many");
    }
    assert!(is_answered(&mut connect(HERE + 1)), "another client");
    assert!(held.iter_mut().all(is_answered), "those from before go on");
    let refused = metric(
        server.metrics(),
        "softclock_limits_reached_total{limit=\"client_connections\"}",
    );
    assert_eq!(refused, 20.0);
    let cause = Ipv4Addr::from(client(HERE));
    server.until_logged(&format!("cause={cause}"));
    let log = server.log();
    assert!(log.matches("connection reset").count() < 20, "{log}");
    // Each connection that ends releases its place, however it ends.
    for way in 0..20 {
        let mut leaving = held.remove(0);
        match way % 4 {
            0 => {}
            1 => leaving
                .write_all(b"GET / HTTP/1.1\r\nHost: t\r\n\r\n")
                .unwrap(),
            2 => leaving.write_all(b"nonsense\r\n\r\n").unwrap(),
            _ => set_socket_linger(&leaving, Some(Duration::ZERO)).unwrap(),
        }
        drop(leaving);
        let mut next = None;
        until("a place", || {
            next = try_connect(HERE);
            next.as_mut().is_some_and(is_answered)
        });
        held.extend(next);
    }
}

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// The beginning of a connection whose client takes no bytes of any response.
fn preface() -> Vec<u8> {
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    // SETTINGS_INITIAL_WINDOW_SIZE 0.
    bytes.extend(frame(4, 0, 0, &[0, 4, 0, 0, 0, 0]));
    bytes
}

/// `GET https://t/` by HPACK's static table.
fn get(stream: u32) -> Vec<u8> {
    let end = 0x4 | 0x1;
    frame(HEADERS, end, stream, &[0x82, 0x84, 0x87, 0x01, 0x01, b't'])
}

/// The next frame of a stream: its kind and payload.
fn next_of(stream: u32, from: &mut impl Read) -> (u8, Vec<u8>) {
    loop {
        let mut head = [0; 9];
        from.read_exact(&mut head).expect("a frame");
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        from.read_exact(&mut payload).expect("its payload");
        if head[5..] == stream.to_be_bytes() {
            return (head[3], payload);
        }
    }
}

const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const REFUSED_STREAM: [u8; 4] = [0, 0, 0, 7];
const CANCEL: [u8; 4] = [0, 0, 0, 8];

#[test]
fn one_address_has_so_many_streams_over_all_connections() {
    softclock_testing::require!("openssl");
    let directory = tls::with_site(&[("site/index.html", &[b'x'; 100_000])]);
    let options = ["--max-client-streams", "5", "--metrics", "127.0.0.1:0"];
    let server = tls::start(&directory, &options);
    let mut sessions: Vec<_> = (0..2)
        .map(|_| Session::open(server.address(), &["-alpn", "h2"]))
        .collect();
    for session in &mut sessions {
        session.send(&preface());
    }
    let [one, other] = &mut sessions[..] else {
        unreachable!("two");
    };
    let ask = |session: &mut Session, stream| {
        session.send(&get(stream));
        next_of(stream, session.output())
    };
    for stream in [1, 3, 5] {
        assert_eq!(ask(one, stream).0, HEADERS);
    }
    for stream in [1, 3] {
        assert_eq!(ask(other, stream).0, HEADERS);
    }
    let refused = (RST_STREAM, REFUSED_STREAM.to_vec());
    assert_eq!(ask(other, 5), refused);
    assert_eq!(ask(one, 7), refused);
    // A cancelled stream makes room for one of the other connection.
    one.send(&frame(RST_STREAM, 0, 1, &CANCEL));
    let mut stream = 5;
    until("a place", || {
        stream += 2;
        ask(other, stream).0 == HEADERS
    });
    assert_eq!(ask(one, 9), refused);
    let name = "softclock_limits_reached_total{limit=\"client_streams\"}";
    assert!(metric(server.metrics(), name) >= 1.0);
}
