//! The contract of UDP sockets.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::time::Duration;

use softclock::net::{BindOptions, Ecn, RecvBatch, RecvOptions, Transmit, UdpSocket};
use softclock_testing::lab::Namespace;

use super::{INTERFACE, IS_KERNEL, IS_SHARED, IS_STACK, LOOPBACK, PACING, paced, settled};

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

#[test]
fn trains_of_datagrams_longer_than_the_mtu_are_fragmented() {
    let namespace = match Namespace::new() {
        Ok(namespace) => namespace,
        Err(reason) => softclock_testing::skip!("{reason}"),
    };
    namespace.run("ip link set lo mtu 1500 up").unwrap();
    let send = || {
        softclock::Runtime::new().unwrap().block_on(async {
            let address = ([127, 0, 0, 1], 0);
            let (one, two) = (
                UdpSocket::bind(address).unwrap(),
                UdpSocket::bind(address).unwrap(),
            );
            let there = two.local_addr().unwrap();
            let bytes = [7; 5 * 3_000];
            one.send_train(&bytes, 3_000, Some(there)).await.unwrap();
            let batch = [Transmit::to(there, &bytes[..3_000]); 5];
            assert_eq!(one.send_batch(&batch).await.unwrap(), 5);
            for _ in 0..10 {
                let mut buffer = [0; 4_000];
                assert_eq!(two.recv_from(&mut buffer).await.unwrap().0, 3_000);
            }
        });
    };
    namespace.inside(send).unwrap();
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

fn two(address: SocketAddr) -> (UdpSocket, UdpSocket) {
    let socket = || UdpSocket::bind(address).unwrap();
    (socket(), socket())
}

pub(super) async fn a_connected_socket_hears_its_peer_only(address: SocketAddr) {
    let (one, peer) = two(address);
    let stranger = UdpSocket::bind(address).unwrap();
    let error = one.peer_addr().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotConnected);
    let (here, there) = (one.local_addr().unwrap(), peer.local_addr().unwrap());
    one.connect(there).unwrap();
    settled(address).await;
    assert_eq!(one.peer_addr().unwrap(), there);
    assert_eq!(one.local_addr().unwrap(), here);
    stranger.try_send_to(b"stranger", here).unwrap();
    peer.try_send_to(b"peer", here).unwrap();
    let mut buffer = [0; 16];
    assert_eq!(one.recv(&mut buffer).await.unwrap(), 4);
    assert_eq!(&buffer[..4], b"peer");
    let short = Duration::from_millis(2);
    assert!(
        softclock::timeout(short, one.recv(&mut buffer))
            .await
            .is_err()
    );
    one.send(b"reply").await.unwrap();
    assert_eq!(peer.recv_from(&mut buffer).await.unwrap(), (5, here));
}

/// The scope of an address that is not link-local has no meaning (RFC 4007).
pub(super) async fn scopes_of_global_addresses_are_ignored(address: SocketAddr) {
    let scoped = |address: SocketAddr| match address {
        SocketAddr::V6(v6) => SocketAddrV6::new(*v6.ip(), v6.port(), 0, LOOPBACK).into(),
        v4 => v4,
    };
    let (one, peer) = two(scoped(address));
    let (here, there) = (one.local_addr().unwrap(), peer.local_addr().unwrap());
    let again = UdpSocket::bind(scoped(here)).unwrap_err();
    assert_eq!(again.kind(), ErrorKind::AddrInUse);
    one.connect(scoped(there)).unwrap();
    settled(address).await;
    assert_eq!(one.peer_addr().unwrap(), there);
    peer.send_to(b"peer", scoped(here)).await.unwrap();
    let mut buffer = [0; 16];
    assert_eq!(one.recv(&mut buffer).await.unwrap(), 4);
    drop(one);
    UdpSocket::bind(here).unwrap();
}

pub(super) async fn datagrams_are_received_and_sent_without_waiting(address: SocketAddr) {
    let (one, other) = two(address);
    let (here, there) = (one.local_addr().unwrap(), other.local_addr().unwrap());
    let mut buffer = [0; 16];
    let error = other.try_recv_from(&mut buffer).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    let short = Duration::from_millis(2);
    assert!(softclock::timeout(short, other.readable()).await.is_err());
    assert!(one.try_send(b"to no peer").is_err());
    one.connect(there).unwrap();
    one.writable().await;
    assert_eq!(one.try_send(b"first").unwrap(), 5);
    assert_eq!(one.try_send_to(b"second", there).unwrap(), 6);
    let mut lengths = Vec::new();
    while lengths.len() < 2 {
        other.readable().await;
        match other.try_recv_from(&mut buffer) {
            Ok((length, source)) => {
                assert_eq!(source, here);
                lengths.push(length);
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    }
    assert_eq!(lengths, [5, 6]);
    other.connect(here).unwrap();
    let error = other.try_recv(&mut buffer).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    assert!(softclock::timeout(short, other.readable()).await.is_err());
    let mut batch = RecvBatch::new(4, 100);
    assert!(other.try_recv_batch(&mut batch).is_err());
    one.try_send(b"third").unwrap();
    settled(address).await;
    other.readable().await;
    assert_eq!(other.try_recv_batch(&mut batch).unwrap(), 1);
    assert_eq!(batch.get(0).unwrap().payload, b"third");
}

pub(super) async fn options_of_datagrams_are_set_or_refused(address: SocketAddr) {
    let (one, other) = two(address);
    one.set_dscp(46).unwrap();
    assert_eq!(
        one.set_dscp(64).unwrap_err().kind(),
        ErrorKind::InvalidInput
    );
    one.set_ecn(Ecn::Ect0).unwrap();
    assert_eq!((one.dscp().unwrap(), one.ecn().unwrap()), (46, Ecn::Ect0));
    one.set_hop_limit(9).unwrap();
    assert_eq!(one.hop_limit().unwrap(), 9);
    let error = one.set_hop_limit(0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert_eq!((other.hop_limit().unwrap(), other.dscp().unwrap()), (64, 0));
    assert_eq!(
        (one.multicast_hops().unwrap(), one.multicast_loop().unwrap()),
        (1, true)
    );
    one.set_multicast_hops(2).unwrap();
    assert_eq!(one.multicast_hops().unwrap(), 2);
    match one.set_multicast_loop(false) {
        Ok(()) => assert!(!one.multicast_loop().unwrap()),
        Err(error) => {
            assert!(IS_SHARED.get());
            assert_eq!(error.kind(), ErrorKind::Unsupported);
        }
    }
    let results = [
        one.set_send_buffer_bytes(50_000),
        one.set_recv_buffer_bytes(60_000),
        one.set_broadcast(true),
        one.set_multicast_interface(LOOPBACK),
        one.send_buffer_bytes().map(drop),
        one.broadcast().map(drop),
    ];
    if IS_KERNEL.get() {
        assert!(results.iter().all(Result::is_ok), "{results:?}");
        assert_eq!(one.send_buffer_bytes().unwrap(), 100_000);
        assert_eq!(one.recv_buffer_bytes().unwrap(), 120_000);
        assert!(one.broadcast().unwrap());
    } else if IS_STACK.get() {
        let kinds = results.map(|result| result.unwrap_err().kind());
        assert_eq!(kinds, [ErrorKind::Unsupported; 6]);
    }
    one.send_to(b"x", other.local_addr().unwrap())
        .await
        .unwrap();
    assert_eq!(other.recv_from(&mut [0; 16]).await.unwrap().0, 1);
}

pub(super) async fn members_receive_what_is_sent_to_their_group(address: SocketAddr) {
    let (group, any) = match address {
        SocketAddr::V4(_) => (
            [239, 255, 77, 2].into(),
            IpAddr::from(Ipv4Addr::UNSPECIFIED),
        ),
        SocketAddr::V6(_) => ("ff02::5c:2".parse().unwrap(), Ipv6Addr::UNSPECIFIED.into()),
    };
    let interface = if IS_KERNEL.get() { INTERFACE.get() } else { 0 };
    let member = UdpSocket::bind((any, 0)).unwrap();
    if let Err(error) = member.join_multicast(group, interface) {
        assert!(!IS_KERNEL.get());
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        return;
    }
    assert!(!IS_SHARED.get());
    let again = member.join_multicast(group, interface).unwrap_err();
    assert_eq!(again.kind(), ErrorKind::AddrInUse);
    assert!(member.join_multicast(address.ip(), interface).is_err());

    let sender = UdpSocket::bind((any, 0)).unwrap();
    if IS_KERNEL.get() {
        sender.set_multicast_interface(interface).unwrap();
    }
    // For this host only.
    sender.set_multicast_hops(0).unwrap();
    let all = SocketAddr::new(group, member.local_addr().unwrap().port());
    match sender.send_to(b"all", all).await {
        // The loopback interface may have no route to groups of IPv6.
        Err(error) if error.kind() == ErrorKind::NetworkUnreachable => {
            assert!(interface == LOOPBACK && address.is_ipv6());
            return;
        }
        sent => assert_eq!(sent.unwrap(), 3),
    }
    let mut buffer = [0; 16];
    assert_eq!(member.recv_from(&mut buffer).await.unwrap().0, 3);
    // The kernel delivers to all sockets of the port while any socket of the host is a member, and IPv4 on the loopback
    // interface also without the loop.
    let is_silent = async |buffer: &mut [u8]| {
        let received = member.recv_from(buffer);
        let waited = softclock::timeout(Duration::from_millis(2), received).await;
        !IS_STACK.get() || waited.is_err()
    };
    sender.set_multicast_loop(false).unwrap();
    sender.send_to(b"not here", all).await.unwrap();
    assert!(is_silent(&mut buffer).await);
    member.leave_multicast(group, interface).unwrap();
    sender.set_multicast_loop(true).unwrap();
    sender.send_to(b"to no member", all).await.unwrap();
    assert!(is_silent(&mut buffer).await);
    let left = member.leave_multicast(group, interface).unwrap_err();
    assert_eq!(left.kind(), ErrorKind::AddrNotAvailable);
}

pub(super) async fn only_sockets_of_the_kernel_have_descriptors(address: SocketAddr) {
    let (one, other) = two(address);
    assert_eq!(one.as_kernel_fd().is_some(), IS_KERNEL.get());
    let one = match one.into_std() {
        Ok(one) => {
            assert!(IS_KERNEL.get());
            // Of whatever mode it was, the runtime makes it nonblocking.
            one.set_nonblocking(false).unwrap();
            UdpSocket::from_std(one).unwrap()
        }
        Err(error) => {
            assert!(!IS_KERNEL.get());
            assert_eq!(error.error().kind(), ErrorKind::Unsupported);
            error.into_socket()
        }
    };
    let here = one.local_addr().unwrap();
    let short = Duration::from_millis(2);
    let mut buffer = [0; 16];
    assert!(
        softclock::timeout(short, one.recv_from(&mut buffer))
            .await
            .is_err()
    );
    other.send_to(b"hello", here).await.unwrap();
    assert_eq!(one.recv_from(&mut buffer).await.unwrap().0, 5);
}

/// Sends all of `batch`.
async fn send_all(socket: &UdpSocket, batch: &[Transmit<'_>]) {
    let mut rest = batch;
    while !rest.is_empty() {
        let sent = socket.send_batch(rest).await.unwrap();
        assert!((1..=rest.len()).contains(&sent));
        rest = &rest[sent..];
    }
}

pub(super) async fn a_batch_is_sent_in_order(address: SocketAddr) {
    let (one, other) = two(address);
    let (here, there) = (one.local_addr().unwrap(), other.local_addr().unwrap());
    let bytes: Vec<u8> = (0..20_000).map(|i| ((i * 31) >> 3) as u8).collect();
    // Many of the same length, then of others.
    let mut payloads: Vec<&[u8]> = bytes.chunks(700).collect();
    payloads.extend([&b"longer"[..], b"short", b"longer", b"", b"longer"]);
    let batch: Vec<_> = payloads
        .iter()
        .map(|payload| Transmit::to(there, payload))
        .collect();
    send_all(&one, &batch).await;
    let mut buffer = [0; 2_000];
    for expected in payloads {
        let (length, source) = other.recv_from(&mut buffer).await.unwrap();
        assert!(&buffer[..length] == expected && source == here);
    }
    assert_eq!(one.send_batch(&[]).await.unwrap(), 0);
    let error = one.send_batch(&[Transmit::to_peer(b"no peer")]).await;
    assert!(error.is_err());
    one.connect(there).unwrap();
    let batch = [Transmit::to_peer(b"to the peer"); 2];
    assert_eq!(one.try_send_batch(&batch).unwrap(), 2);
    for _ in batch {
        assert_eq!(other.recv_from(&mut buffer).await.unwrap().0, 11);
    }
}

pub(super) async fn a_batch_is_sent_with_the_ecn_fields(address: SocketAddr) {
    let receive = RecvOptions {
        ecn: true,
        ..RecvOptions::default()
    };
    let options = BindOptions {
        receive,
        ..BindOptions::default()
    };
    let other = UdpSocket::bind_with(address, &options).unwrap();
    let there = other.local_addr().unwrap();
    let one = UdpSocket::bind(address).unwrap();
    one.set_dscp(46).unwrap();
    one.set_ecn(Ecn::Ect1).unwrap();
    let fields = [
        None,
        Some(Ecn::Ce),
        Some(Ecn::NotEct),
        Some(Ecn::Ect0),
        None,
    ];
    let batch = fields.map(|ecn| {
        let mut datagram = Transmit::to(there, b"x");
        datagram.ecn = ecn;
        datagram
    });
    send_all(&one, &batch).await;
    settled(address).await;
    let mut received = RecvBatch::new(8, 100);
    assert_eq!(other.recv_batch(&mut received).await.unwrap(), 5);
    let expected = fields.map(|ecn| ecn.or(Some(Ecn::Ect1)));
    assert!(received.datagrams().map(|one| one.ecn).eq(expected));
}

pub(super) async fn a_batch_is_sent_from_the_stated_source(address: SocketAddr) {
    let any = match address {
        SocketAddr::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let server = UdpSocket::bind((any, 0)).unwrap();
    let there = SocketAddr::new(address.ip(), server.local_addr().unwrap().port());
    let client = UdpSocket::bind(address).unwrap();
    client.send_to(b"question", there).await.unwrap();
    let mut received = RecvBatch::new(2, 100);
    server.recv_batch(&mut received).await.unwrap();
    let question = received.get(0).unwrap();
    let mut answer = Transmit::to(question.source, b"answer");
    answer.source = question.destination;
    send_all(&server, &[answer, answer]).await;
    for _ in 0..2 {
        let received = client.recv_from(&mut [0; 16]).await.unwrap();
        assert_eq!(received, (6, there));
    }
    if IS_KERNEL.get() || IS_STACK.get() {
        // An address of documentation, which is not that of this host.
        answer.source = Some(match address {
            SocketAddr::V4(_) => [198, 51, 100, 1].into(),
            SocketAddr::V6(_) => "2001:db8:ffff::1".parse().unwrap(),
        });
        assert!(server.send_batch(&[answer]).await.is_err());
    }
}
