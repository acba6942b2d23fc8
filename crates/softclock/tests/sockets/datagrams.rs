//! The contract of UDP sockets.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use softclock::net::UdpSocket;

use super::{PACING, paced};

pub(super) async fn datagrams_keep_their_bounds(address: SocketAddr) {
    let (one, two) = (
        UdpSocket::bind(address).unwrap(),
        UdpSocket::bind(address).unwrap(),
    );
    let (here, there) = (one.local_addr().unwrap(), two.local_addr().unwrap());
    one.send_to(b"first", there).await.unwrap();
    one.try_send_to(b"", there).unwrap();
    one.send_to(b"second", there).await.unwrap();
    let mut buffer = [0; 16];
    assert_eq!(two.recv_from(&mut buffer).await.unwrap(), (5, here));
    assert_eq!(two.recv_from(&mut buffer).await.unwrap(), (0, here));
    assert_eq!(two.recv_from(&mut buffer[..3]).await.unwrap(), (3, here));
    assert_eq!(&buffer[..3], b"sec");
    two.connect(here).unwrap();
    one.connect(there).unwrap();
    two.send(b"reply").await.unwrap();
    assert_eq!(one.recv(&mut buffer).await.unwrap(), 5);
}

pub(super) async fn trains_of_datagrams_keep_their_bounds(address: SocketAddr) {
    let (one, two) = (
        UdpSocket::bind(address).unwrap(),
        UdpSocket::bind(address).unwrap(),
    );
    let there = two.local_addr().unwrap();
    let bytes: Vec<u8> = (0..20_500).map(|i| ((i * 31) >> 3) as u8).collect();
    for pacing in [None, PACING.get(), Some(paced())] {
        one.set_pacing(pacing);
        one.send_train(&bytes, 1_000, Some(there)).await.unwrap();
        for expected in bytes.chunks(1_000) {
            let mut buffer = [0; 2_000];
            let (received, _) = two.recv_from(&mut buffer).await.unwrap();
            assert!(&buffer[..received] == expected);
        }
    }
    let error = one.send_train(&[7], 0, None).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
}

pub(super) async fn an_unreachable_peer_is_told_once(address: SocketAddr) {
    let (one, two) = (
        UdpSocket::bind(address).unwrap(),
        UdpSocket::bind(address).unwrap(),
    );
    let there = two.local_addr().unwrap();
    drop(two);
    one.connect(there).unwrap();
    one.send(b"anyone?").await.unwrap();
    let error = one.recv(&mut [0; 16]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    let short = Duration::from_millis(2);
    assert!(
        softclock::timeout(short, one.recv(&mut [0; 16]))
            .await
            .is_err()
    );
    let again = UdpSocket::bind(there).unwrap();
    again
        .send_to(b"here", one.local_addr().unwrap())
        .await
        .unwrap();
    assert_eq!(one.recv(&mut [0; 16]).await.unwrap(), 4);
}
