//! The contract of batched receives.

use std::cell::Cell;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU16;
use std::rc::Rc;
use std::time::Duration;

use softclock::TriggerState;
use softclock::net::{BindOptions, Ecn, RecvBatch, RecvOptions, UdpSocket};

use super::{IS_STACK, settled};

const SHORT: Duration = Duration::from_millis(2);

/// A socket that records these facts, and its address.
fn bound(address: SocketAddr, receive: RecvOptions) -> (UdpSocket, SocketAddr) {
    let options = BindOptions {
        receive,
        v6_only: Some(false),
        ..BindOptions::default()
    };
    let socket = UdpSocket::bind_with(address, &options).unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

fn plain(address: SocketAddr) -> (UdpSocket, SocketAddr) {
    bound(address, RecvOptions::default())
}

/// The wildcard address of this family.
fn any(address: SocketAddr) -> SocketAddr {
    let ip = match address {
        SocketAddr::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    (ip, 0).into()
}

fn payloads(batch: &RecvBatch) -> Vec<&[u8]> {
    let payloads = batch.datagrams().map(|datagram| datagram.payload);
    payloads.collect()
}

pub(super) async fn a_batch_waits_for_its_first_datagram(address: SocketAddr) {
    let ((one, _), (two, there)) = (plain(address), plain(address));
    let two = Rc::new(two);
    let receiver = softclock::spawn_local({
        let two = two.clone();
        async move {
            let mut batch = RecvBatch::new(4, 100);
            let received = two.recv_batch(&mut batch).await.unwrap();
            (received, batch)
        }
    });
    softclock::sleep(SHORT).await;
    assert!(!receiver.is_finished());
    one.send_to(b"first", there).await.unwrap();
    let (received, mut batch) = receiver.await;
    assert_eq!((received, payloads(&batch)), (1, vec![&b"first"[..]]));
    // Twice, since the batch was shorter than its capacity.
    for payload in [&b"second"[..], b"third"] {
        one.send_to(payload, there).await.unwrap();
        assert_eq!(two.recv_batch(&mut batch).await.unwrap(), 1);
        assert_eq!(payloads(&batch), [payload]);
    }
}

pub(super) async fn a_batch_has_datagrams_in_order_with_their_sources(address: SocketAddr) {
    let ((one, first), (two, second)) = (plain(address), plain(address));
    let (receiver, there) = plain(address);
    for number in 0..20u8 {
        let sender = if number % 3 == 0 { &two } else { &one };
        sender.send_to(&[number], there).await.unwrap();
    }
    let mut batch = RecvBatch::new(8, 100);
    settled(address).await;
    let mut next = 0;
    for expected in [8, 8, 4] {
        assert_eq!(receiver.recv_batch(&mut batch).await.unwrap(), expected);
        for datagram in batch.datagrams() {
            assert_eq!(datagram.payload, [next]);
            let source = if next % 3 == 0 { second } else { first };
            assert_eq!(datagram.source, source);
            next += 1;
        }
    }
    // Other receives continue behind a batch.
    one.send_to(b"a", there).await.unwrap();
    one.send_to(b"b", there).await.unwrap();
    settled(address).await;
    let mut single = RecvBatch::new(1, 100);
    assert_eq!(receiver.recv_batch(&mut single).await.unwrap(), 1);
    let mut buffer = [0; 2];
    let received = receiver.recv_from(&mut buffer).await.unwrap();
    assert_eq!((received, buffer[0]), ((1, first), b'b'));
}

pub(super) async fn long_datagrams_of_a_batch_are_cut_and_marked(address: SocketAddr) {
    let ((one, _), (two, there)) = (plain(address), plain(address));
    for payload in [&b"12345678"[..], b"", b"1234567", b"123456789"] {
        one.send_to(payload, there).await.unwrap();
    }
    let mut batch = RecvBatch::new(8, 8);
    settled(address).await;
    assert_eq!(two.recv_batch(&mut batch).await.unwrap(), 4);
    let seen = batch.datagrams().map(|one| (one.payload, one.is_truncated));
    let expected = [
        (&b"12345678"[..], false),
        (b"", false),
        (b"1234567", false),
        (b"12345678", true),
    ];
    assert!(seen.eq(expected));
}

pub(super) async fn a_batch_has_only_the_facts_asked_for(address: SocketAddr) {
    let (one, from) = plain(address);
    let (two, there) = bound(
        any(address),
        RecvOptions {
            destinations: false,
            ..RecvOptions::default()
        },
    );
    one.set_ecn(Ecn::Ect0).unwrap();
    let there = SocketAddr::new(address.ip(), there.port());
    one.send_to(b"plain", there).await.unwrap();
    let mut batch = RecvBatch::new(2, 100);
    two.recv_batch(&mut batch).await.unwrap();
    let seen = batch.get(0).unwrap();
    assert_eq!((seen.source, seen.destination), (from, None));
    assert_eq!(
        (seen.ecn, seen.received, seen.segment_bytes),
        (None, None, None)
    );
}

pub(super) async fn a_batch_has_the_destinations_at_a_wildcard(address: SocketAddr) {
    let ((one, from), (two, there)) = (plain(address), plain(any(address)));
    let there = SocketAddr::new(address.ip(), there.port());
    one.send_to(b"where?", there).await.unwrap();
    let mut batch = RecvBatch::new(2, 100);
    two.recv_batch(&mut batch).await.unwrap();
    let seen = batch.get(0).unwrap();
    assert_eq!((seen.source, seen.destination), (from, Some(address.ip())));
}

pub(super) async fn a_batch_has_the_ecn_fields(address: SocketAddr) {
    let ecn = RecvOptions {
        ecn: true,
        ..RecvOptions::default()
    };
    let ((one, _), (two, there)) = (plain(address), bound(address, ecn));
    let fields = [Ecn::NotEct, Ecn::Ect1, Ecn::Ect0, Ecn::Ce];
    for field in fields {
        one.set_ecn(field).unwrap();
        one.send_to(b"x", there).await.unwrap();
    }
    let mut batch = RecvBatch::new(8, 100);
    settled(address).await;
    assert_eq!(two.recv_batch(&mut batch).await.unwrap(), 4);
    assert!(batch.datagrams().map(|one| one.ecn).eq(fields.map(Some)));
}

pub(super) async fn a_batch_has_times_on_the_runtime_s_clock(address: SocketAddr) {
    let stamps = RecvOptions {
        time_stamps: true,
        ..RecvOptions::default()
    };
    let ((one, _), (two, there)) = (plain(address), bound(address, stamps));
    // The two clocks are related to about 1 us.
    let slack = Duration::from_millis(1).as_nanos() as u64;
    let mut batch = RecvBatch::new(2, 100);
    loop {
        let before = softclock::now();
        one.send_to(b"first", there).await.unwrap();
        let between = softclock::now();
        softclock::sleep(10 * SHORT).await;
        one.send_to(b"second", there).await.unwrap();
        settled(address).await;
        assert_eq!(two.recv_batch(&mut batch).await.unwrap(), 2);
        let after = softclock::now();
        let [first, second] = [0, 1].map(|index| batch.get(index).unwrap().received.unwrap());
        assert!(first.add_ns(slack) >= before);
        assert!(second > between.add_ns(slack) && second <= after.add_ns(slack));
        // The time is that of the arrival, not of the receive, once the kernel has switched the stamps on in the
        // background. The time limit of the test is that of this wait, too.
        if first <= between.add_ns(slack) {
            break;
        }
    }
}

pub(super) async fn joined_datagrams_of_a_batch_are_split(address: SocketAddr) {
    let gro = RecvOptions {
        gro: true,
        ecn: true,
        ..RecvOptions::default()
    };
    let options = BindOptions {
        receive: gro,
        ..BindOptions::default()
    };
    let two = match UdpSocket::bind_with(address, &options) {
        Err(error) if error.kind() == ErrorKind::Unsupported => softclock_testing::skip!("{error}"),
        socket => socket.unwrap(),
    };
    let there = two.local_addr().unwrap();
    let (one, from) = plain(address);
    one.set_ecn(Ecn::Ect1).unwrap();
    one.send_to(b"single", there).await.unwrap();
    let bytes: Vec<u8> = (0..2_500).map(|i| ((i * 31) >> 3) as u8).collect();
    one.send_train(&bytes, 1_000, Some(there)).await.unwrap();
    one.send_to(b"", there).await.unwrap();
    let mut batch = RecvBatch::new(8, RecvBatch::MOST_BYTES);
    settled(address).await;
    let slots = two.recv_batch(&mut batch).await.unwrap();
    // The payloads are the same, whether or not the kernel has joined them.
    let mut expected = vec![&b"single"[..]];
    expected.extend(bytes.chunks(1_000));
    expected.push(b"");
    assert!(payloads(&batch) == expected);
    let is_alike = |one: softclock::net::Datagram<'_>| {
        (one.source, one.ecn, one.is_truncated) == (from, Some(Ecn::Ect1), false)
    };
    assert!(batch.datagrams().all(is_alike));
    if slots == expected.len() {
        if IS_STACK.get() {
            // A stack of this process joins nothing.
            return;
        }
        softclock_testing::skip!("this kernel does not segment datagrams");
    }
    assert_eq!(slots, 3);
    assert_eq!(batch.get(1).unwrap().segment_bytes, NonZeroU16::new(1_000));
}

pub(super) async fn a_dropped_batch_receive_loses_nothing(address: SocketAddr) {
    let ((one, _), (two, there)) = (plain(address), plain(address));
    let mut batch = RecvBatch::new(4, 100);
    one.send_to(b"before", there).await.unwrap();
    assert_eq!(two.recv_batch(&mut batch).await.unwrap(), 1);
    let waiting = softclock::timeout(SHORT, two.recv_batch(&mut batch));
    assert!(waiting.await.is_err());
    assert!(batch.is_empty(), "no datagram is seen twice");
    one.send_to(b"after", there).await.unwrap();
    // Not polled: receives nothing.
    drop(two.recv_batch(&mut batch));
    assert_eq!(two.recv_batch(&mut batch).await.unwrap(), 1);
    assert_eq!(payloads(&batch), [b"after"]);
}

pub(super) async fn an_unreachable_peer_fails_one_batch(address: SocketAddr) {
    let ((one, here), (two, there)) = (plain(address), plain(address));
    drop(two);
    one.connect(there).unwrap();
    one.send(b"anyone?").await.unwrap();
    let mut batch = RecvBatch::new(4, 100);
    let error = one.recv_batch(&mut batch).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    assert!(batch.is_empty());
    let again = UdpSocket::bind(there).unwrap();
    again.send_to(b"here", here).await.unwrap();
    assert_eq!(one.recv_batch(&mut batch).await.unwrap(), 1);
}

pub(super) async fn a_receiver_of_batches_lets_others_run(address: SocketAddr) {
    let ((one, _), (two, there)) = (plain(address), plain(address));
    // Ten calls of 16 datagrams count as 50 calls, so at most three rounds fit into one poll. If the datagrams did not
    // count, it would be twelve.
    const ROUNDS: usize = 40;
    let turns = Rc::new(Cell::new(0));
    let counter = softclock::spawn_local({
        let turns = turns.clone();
        async move {
            loop {
                softclock::yield_now().await;
                turns.set(turns.get() + 1);
            }
        }
    });
    let mut batch = RecvBatch::new(16, 100);
    for _ in 0..ROUNDS {
        // Sent without the allowance.
        for _ in 0..160 {
            one.try_send_to(b"x", there).unwrap();
        }
        settled(address).await;
        for _ in 0..10 {
            assert_eq!(two.recv_batch(&mut batch).await.unwrap(), 16);
        }
    }
    counter.abort();
    assert!(turns.get() >= ROUNDS / 4, "{} turns", turns.get());
}

pub(super) async fn a_batch_is_one_trigger_state(address: SocketAddr) {
    let ((one, _), (two, there)) = (plain(address), plain(address));
    for _ in 0..5 {
        one.send_to(b"x", there).await.unwrap();
    }
    let before = receives();
    let mut batch = RecvBatch::new(5, 100);
    assert_eq!(two.recv_batch(&mut batch).await.unwrap(), 5);
    assert_eq!(receives(), before + 1);
}

pub(super) async fn a_short_batch_is_not_asked_for_more(address: SocketAddr) {
    const ROUNDS: u64 = 5;
    let ((one, _), (two, there)) = (plain(address), plain(address));
    let receiver = softclock::spawn_local(async move {
        let mut batch = RecvBatch::new(4, 100);
        loop {
            two.recv_batch(&mut batch).await.unwrap();
        }
    });
    // From here on the receiver waits.
    softclock::sleep(SHORT).await;
    let before = receives();
    for _ in 0..ROUNDS {
        one.send_to(b"x", there).await.unwrap();
        softclock::sleep(SHORT).await;
    }
    assert_eq!(receives(), before + ROUNDS);
    receiver.abort();
}

/// The number of calls that received so far.
fn receives() -> u64 {
    let triggers = softclock::statistics().triggers;
    triggers.of(TriggerState::Receive).count()
}

/// IPv4 datagrams at an IPv6 socket, which the carrier in memory does not have.
pub(super) async fn a_batch_of_a_dual_stack_socket_has_mapped_addresses(v6: SocketAddr) {
    let facts = RecvOptions {
        ecn: true,
        ..RecvOptions::default()
    };
    let (two, there) = bound(any(v6), facts);
    let mut batch = RecvBatch::new(4, 100);
    let v4 = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    for sender in [v4, v6] {
        let (one, from) = plain(sender);
        for field in [Ecn::Ce, Ecn::Ect0] {
            one.set_ecn(field).unwrap();
            let to = SocketAddr::new(sender.ip(), there.port());
            one.send_to(b"x", to).await.unwrap();
            assert_eq!(two.recv_batch(&mut batch).await.unwrap(), 1);
            let seen = batch.get(0).unwrap();
            assert_eq!(seen.source, SocketAddr::new(as_v6(from.ip()), from.port()));
            assert_eq!(seen.destination, Some(as_v6(sender.ip())));
            assert_eq!(seen.ecn, Some(field));
        }
    }
    // An IPv6 socket marks the IPv4 datagrams that it sends, too.
    let (one, _) = plain(any(v6));
    let (two, there) = bound(v4, facts);
    one.set_ecn(Ecn::Ect1).unwrap();
    let there = SocketAddr::new(as_v6(there.ip()), there.port());
    one.send_to(b"x", there).await.unwrap();
    two.recv_batch(&mut batch).await.unwrap();
    let seen = batch.get(0).unwrap();
    assert_eq!((seen.ecn, seen.source.is_ipv4()), (Some(Ecn::Ect1), true));
}

fn as_v6(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().into(),
        v6 => v6,
    }
}
