//! The host's traffic over the interface that it shares with the stack.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::Duration;

use softclock_testing::beside;

use crate::lab::{ADDRESSES, Carrier, Lab, PATIENCE, assert_returned, lab};
use crate::load::{echoed, flooded, impatient_at};

/// The host's own addresses on the interface.
const HOST: [&str; 2] = ["10.78.0.2", "fd78::2"];

/// The host's traffic is the same with the server and without it.
#[test]
fn the_hosts_traffic_is_untouched() {
    for carrier in Carrier::SHARED {
        let lab = lab!(carrier);
        let server = lab.serve(&[]);
        lab.assert_answers();
        for address in HOST {
            for size in [0, 56, 1472, 5000] {
                let replies = lab.ping(address, 2, &format!("-s {size}"));
                assert_eq!(replies, 2, "{address} -s {size}");
            }
            let socket = lab.socket(address, 7);
            socket.send(b"hello").expect("a datagram leaves");
            let error = socket
                .recv(&mut [0; 16])
                .expect_err("the host has no echo service");
            assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
            assert_tcp(&lab, address);
            host_echoes(&lab, address, |port| {
                let socket = lab.socket(address, port);
                for bytes in [1, 1000, 1472, 20_000] {
                    assert_returned(&socket, &vec![7; bytes]);
                }
            });
        }
        let summary = server.end();
        assert_eq!(summary["echo"]["datagrams"], ADDRESSES.len());
    }
}

/// The link may lose the host's frames during a flood, as it would lose them to a flood of the host itself.
#[test]
fn the_hosts_traffic_goes_on_beside_a_flood() {
    for carrier in Carrier::SHARED {
        let lab = lab!(carrier);
        let server = lab.serve(&[]);
        lab.assert_answers();
        flooded(&lab, || {
            for address in HOST {
                assert_tcp(&lab, address);
                host_echoes(&lab, address, |port| {
                    let socket = impatient_at(&lab, address, port);
                    (0..20).for_each(|number| echoed(&socket, number));
                });
            }
        });
        lab.assert_answers();
        server.end();
    }
}

/// Calls `f` while a socket of the host at this address and port returns datagrams.
fn host_echoes(lab: &Lab, address: &str, f: impl FnOnce(u16)) {
    let bound = lab.server.inside(|| UdpSocket::bind((address, 0)));
    let socket = bound.and_then(|bound| bound).expect("its own address");
    let port = socket.local_addr().expect("it is bound").port();
    let pause = Some(Duration::from_millis(20));
    socket.set_read_timeout(pause).expect("a socket");
    let mut buffer = vec![0; 65_536];
    let echo = || {
        if let Ok((length, client)) = socket.recv_from(&mut buffer) {
            let _ = socket.send_to(&buffer[..length], client);
        }
    };
    beside([echo], || f(port));
}

/// Sends bytes in both directions of a connection between the client and the kernel of the host at this address.
fn assert_tcp(lab: &Lab, address: &str) {
    let bound = lab.server.inside(|| TcpListener::bind((address, 0)));
    let listener = bound.and_then(|bound| bound).expect("its own address");
    let local = listener.local_addr().expect("it is bound");
    let connected = lab.client().inside(|| connect(&local));
    let client = connected.and_then(|stream| stream).expect("it listens");
    let (host, _) = listener.accept().expect("a client");
    host.set_read_timeout(Some(PATIENCE)).expect("a socket");
    assert_arrives(&client, &host);
    assert_arrives(&host, &client);
}

fn connect(address: &SocketAddr) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

fn assert_arrives(mut from: &TcpStream, mut to: &TcpStream) {
    let sent: Vec<u8> = (0..TRANSFER).map(|i| ((i * 31) >> 3) as u8).collect();
    thread::scope(|scope| {
        scope.spawn(|| from.write_all(&sent).expect("it is open"));
        let mut received = vec![0; TRANSFER];
        to.read_exact(&mut received).expect("it is open");
        assert!(received == sent, "wrong bytes");
    });
}

/// The bytes in each direction of a connection.
const TRANSFER: usize = 10_000_000;
