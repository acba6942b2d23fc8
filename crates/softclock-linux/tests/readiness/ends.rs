//! Tests of events for the ends of streams and for errors.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;

use super::*;

pub(crate) fn a_closed_peer_is_reported(mut poller: Poller) {
    let (mut here, there) = pair();
    poller.add(here.as_fd(), Token(7)).unwrap();
    wait(&mut poller);
    drop(there);
    let readiness = wait(&mut poller)[0].1;
    assert!(readiness.wakes_reader());
    let closed = Readiness::READ_CLOSED | Readiness::WRITE_CLOSED;
    assert!(readiness.contains(closed) || !tells_ends(&poller));
    assert_eq!(look(&mut poller), []);
    // After the owner has read the end and called rearm, the end is reported once more at most.
    assert_eq!(here.read(&mut [0]).unwrap(), 0);
    poller.rearm(here.as_fd(), Readiness::READABLE);
    look(&mut poller);
    assert_eq!(look(&mut poller), []);
}

pub(crate) fn a_half_closed_peer_is_reported(mut poller: Poller) {
    let (here, mut there) = pair();
    poller.add(here.as_fd(), Token(7)).unwrap();
    wait(&mut poller);
    there.write_all(b"x").unwrap();
    assert!(wait(&mut poller)[0].1.contains(Readiness::READABLE));
    there.shutdown(Shutdown::Write).unwrap();
    if tells_ends(&poller) {
        let readiness = wait(&mut poller)[0].1;
        assert!(readiness.contains(Readiness::READ_CLOSED));
        assert!(!readiness.contains(Readiness::WRITE_CLOSED));
    }
    assert_eq!(look(&mut poller), []);
}

pub(crate) fn a_reset_is_reported(mut poller: Poller) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    here.set_nonblocking(true).unwrap();
    let (there, _) = listener.accept().unwrap();
    poller.add(here.as_fd(), Token(7)).unwrap();
    wait(&mut poller);
    // Closing a socket with unread data resets the connection.
    here.write_all(b"x").unwrap();
    there.peek(&mut [0]).unwrap();
    drop(there);
    let readiness = wait(&mut poller)[0].1;
    assert!(readiness.contains(Readiness::ERROR) || !tells_ends(&poller));
    assert!(readiness.wakes_reader());
    let error = here.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

pub(crate) fn an_error_is_reported_once(mut poller: Poller) {
    let gone = UdpSocket::bind("127.0.0.1:0").unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_nonblocking(true).unwrap();
    socket.connect(gone.local_addr().unwrap()).unwrap();
    drop(gone);
    poller.add(socket.as_fd(), Token(7)).unwrap();
    wait(&mut poller);
    for _ in 0..2 {
        socket.send(b"x").unwrap();
        let readiness = wait(&mut poller)[0].1;
        assert!(readiness.contains(Readiness::ERROR) || !tells_ends(&poller));
        assert!(readiness.wakes_reader());
        // The kernel may wake the poller twice: for the error, and for the room in the send buffer.
        look(&mut poller);
        assert_eq!(look(&mut poller), []);
        let error = socket.recv(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        let error = socket.recv(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        poller.rearm(socket.as_fd(), Readiness::READABLE);
        assert_eq!(look(&mut poller), []);
    }
}
