//! Tests of batched sends over the kernel.

use std::os::fd::{AsFd, OwnedFd};

use proptest::prelude::*;
use softclock_testing::lab::Namespace;

use super::super::super::common::testing::{loopbacks, until_readable};
use super::super::super::{local_addr, set_dscp};
use super::super::{BindOptions, RecvBatch, RecvOptions, bind, connect, recv_batch, send_segments};
use super::*;
use crate::clock::ThreadClock;

fn socket(address: SocketAddr) -> (OwnedFd, SocketAddr) {
    let receive = RecvOptions {
        ecn: true,
        ..RecvOptions::default()
    };
    let options = BindOptions {
        receive,
        ..BindOptions::default()
    };
    let socket = bind(address, &options).unwrap();
    let address = local_addr(socket.as_fd()).unwrap();
    (socket, address)
}

/// Sends all of `batch`, and returns the number of calls.
fn send_all(fd: &OwnedFd, batch: &[Transmit<'_>], joins: &Cell<bool>) -> usize {
    let (mut rest, mut calls) = (batch, 0);
    while !rest.is_empty() {
        let sent = send_batch(fd.as_fd(), rest, 0, joins).unwrap();
        rest = &rest[sent..];
        calls += 1;
    }
    calls
}

fn receive(fd: &OwnedFd, count: usize) -> Vec<(Vec<u8>, SocketAddr, Option<Ecn>)> {
    let clock = ThreadClock::new();
    let mut batch = RecvBatch::new(64, 4_000);
    let mut received = Vec::new();
    while received.len() < count {
        until_readable(fd.as_fd());
        recv_batch(fd.as_fd(), &mut batch, &clock).unwrap();
        let seen = |one: super::super::Datagram<'_>| (one.payload.to_vec(), one.source, one.ecn);
        received.extend(batch.datagrams().map(seen));
    }
    received
}

#[test]
fn datagrams_arrive_one_by_one_in_order() {
    for address in loopbacks() {
        let ((here, from), (there, to)) = (socket(address), socket(address));
        let bytes: Vec<u8> = (0..30_000).map(|at| ((at * 7) >> 3) as u8).collect();
        // Of equal length with a shorter last, then of other lengths, and an empty one.
        let mut payloads: Vec<&[u8]> = bytes.chunks(900).collect();
        payloads.extend([&b"short"[..], b"longer", b"", b"longer", b"tail"]);
        let batch: Vec<_> = payloads
            .iter()
            .map(|payload| Transmit::to(to, payload))
            .collect();
        for joins in [true, false] {
            let joins = Cell::new(joins);
            send_all(&here, &batch, &joins);
            let received = receive(&there, payloads.len());
            let seen: Vec<&[u8]> = received.iter().map(|(payload, ..)| &payload[..]).collect();
            assert!(seen == payloads);
            assert!(received.iter().all(|(_, source, _)| *source == from));
        }
    }
}

#[test]
fn a_call_joins_many_datagrams() {
    for address in loopbacks() {
        let ((here, _), (_there, to)) = (socket(address), socket(address));
        let batch = [Transmit::to(to, &[7; 100]); 2 * MOST_DATAGRAMS];
        let joins = Cell::new(true);
        let calls = send_all(&here, &batch, &joins);
        if !joins.get() {
            println!("skipped: this kernel does not segment datagrams");
            continue;
        }
        assert_eq!(calls, 2);
        // As messages of their own, 32 fit into a call.
        assert_eq!(send_all(&here, &batch, &Cell::new(false)), 8);
    }
}

#[test]
fn each_datagram_has_its_own_facts() {
    for address in loopbacks() {
        let ((here, _), (one, to_one), (two, to_two)) =
            (socket(address), socket(address), socket(address));
        connect(here.as_fd(), to_one).unwrap();
        set_dscp(here.as_fd(), 46).unwrap();
        let mut marked = Transmit::to_peer(b"peer");
        marked.ecn = Some(Ecn::Ect0);
        marked.source = Some(address.ip());
        let mut other = Transmit::to(to_two, b"two!");
        other.ecn = Some(Ecn::Ce);
        let batch = [marked, Transmit::to_peer(b"same"), other];
        let sent = send_batch(here.as_fd(), &batch, 46, &Cell::new(true)).unwrap();
        assert_eq!(sent, 3);
        let seen: Vec<_> = receive(&one, 2)
            .into_iter()
            .map(|(_, _, ecn)| ecn)
            .collect();
        assert_eq!(seen, [Some(Ecn::Ect0), Some(Ecn::NotEct)]);
        assert_eq!(receive(&two, 1)[0].2, Some(Ecn::Ce));
    }
}

#[test]
fn datagrams_longer_than_the_mtu_are_fragmented() {
    let namespace = match Namespace::new() {
        Ok(namespace) => namespace,
        Err(reason) => softclock_testing::skip!("{reason}"),
    };
    namespace.run("ip link set lo mtu 1500 up").unwrap();
    let send = || {
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let ((here, _), (there, to)) = (socket(address), socket(address));
        let error = send_segments(here.as_fd(), &[7; 6_000], 3_000, Some(to)).unwrap_err();
        assert!(
            is_without_segments(&error) && exceeds_mtu(&error),
            "{error}"
        );
        let joins = Cell::new(true);
        assert_eq!(
            send_all(&here, &[Transmit::to(to, &[7; 3_000]); 5], &joins),
            1
        );
        assert_eq!(receive(&there, 5).len(), 5);
        assert!(joins.get(), "shorter ones can be joined");
    };
    namespace.inside(send).unwrap();
}

#[test]
fn an_error_does_not_hide_what_was_sent() {
    for address in loopbacks() {
        let ((here, _), (there, to)) = (socket(address), socket(address));
        let joins = Cell::new(true);
        let batch = [
            Transmit::to(to, b"good"),
            Transmit::to_peer(b"no peer"),
            Transmit::to(to, b"later"),
        ];
        assert_eq!(send_batch(here.as_fd(), &batch, 0, &joins).unwrap(), 1);
        assert!(send_batch(here.as_fd(), &batch[1..], 0, &joins).is_err());
        assert_eq!(send_batch(here.as_fd(), &batch[2..], 0, &joins).unwrap(), 1);
        assert_eq!(receive(&there, 2).len(), 2);
        assert_eq!(send_batch(here.as_fd(), &[], 0, &joins).unwrap(), 0);
        assert!(joins.get());
    }
}

proptest! {
    #[test]
    fn joined_datagrams_can_be_cut_apart(lengths in prop::collection::vec(0usize..70_000, 1..100)) {
        let bytes = vec![0; 70_000];
        let to = SocketAddr::from(([127, 0, 0, 1], 9));
        // Few different lengths, so that many are equal.
        let length = |length: &usize| length % 3 * 1_000;
        let batch: Vec<_> = lengths.iter().map(|at| Transmit::to(to, &bytes[..length(at)])).collect();
        let count = joined(&batch);
        prop_assert!((1..=MOST_SEGMENTS).contains(&count));
        let together: Vec<u8> = batch[..count].iter().flat_map(|one| one.payload).copied().collect();
        prop_assert!(count == 1 || together.len() <= MOST_BYTES);
        if count > 1 {
            let cut = together.chunks(batch[0].payload.len());
            prop_assert!(cut.eq(batch[..count].iter().map(|one| one.payload)));
        }
    }
}
