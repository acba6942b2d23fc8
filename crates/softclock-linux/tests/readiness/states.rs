//! Tests of events for readable and writable descriptors.

use std::io::{Read, Write};
use std::os::fd::AsFd;

use softclock_linux::file::raise_descriptor_limit;

use super::*;

pub(crate) fn a_new_descriptor_reports_its_state(mut poller: Poller) {
    let (here, mut there) = pair();
    poller.add(here.as_fd(), Token(7)).unwrap();
    assert_eq!(wait(&mut poller), [(Token(7), Readiness::WRITABLE)]);
    poller.remove(here.as_fd()).unwrap();
    there.write_all(b"x").unwrap();
    poller.add(here.as_fd(), Token(8)).unwrap();
    let both = Readiness::READABLE | Readiness::WRITABLE;
    assert_eq!(wait(&mut poller), [(Token(8), both)]);
}

pub(crate) fn reading_is_reported_by_edges(mut poller: Poller) {
    let (mut here, mut there) = pair();
    poller.add(here.as_fd(), Token(7)).unwrap();
    wait(&mut poller);
    assert_eq!(look(&mut poller), []);
    for _ in 0..3 {
        there.write_all(b"xy").unwrap();
        assert!(wait(&mut poller)[0].1.contains(Readiness::READABLE));
        assert_eq!(look(&mut poller), [], "unread, but already reported");
        assert_eq!(here.read(&mut [0; 9]).unwrap(), 2);
        poller.rearm(here.as_fd(), Readiness::READABLE);
        assert_eq!(look(&mut poller), []);
    }
}

pub(crate) fn writing_is_reported_by_edges(mut poller: Poller) {
    let (mut here, mut there) = pair();
    there.set_nonblocking(true).unwrap();
    poller.add(here.as_fd(), Token(7)).unwrap();
    wait(&mut poller);
    for _ in 0..3 {
        while here.write(&[0; 4096]).is_ok() {}
        poller.rearm(here.as_fd(), Readiness::WRITABLE);
        assert_eq!(look(&mut poller), []);
        while there.read(&mut [0; 4096]).is_ok() {}
        assert!(wait(&mut poller)[0].1.contains(Readiness::WRITABLE));
        assert_eq!(look(&mut poller), []);
    }
}

pub(crate) fn events_come_in_batches(mut poller: Poller) {
    let pairs: Vec<_> = (0..BATCH + 10).map(|_| pair()).collect();
    for (token, (here, _)) in (0..).zip(&pairs) {
        poller.add(here.as_fd(), Token(token)).unwrap();
    }
    let mut tokens = Vec::new();
    while tokens.len() < pairs.len() {
        tokens.extend(wait(&mut poller).iter().map(|(token, _)| token.0));
    }
    tokens.sort_unstable();
    assert!(tokens.into_iter().eq(0..pairs.len() as u64));
    assert_eq!(look(&mut poller), []);
}

/// More descriptors than the submission queue of io_uring has entries.
pub(crate) fn many_descriptors(mut poller: Poller) {
    let count = match poller.mechanism() {
        Mechanism::Select => 400,
        _ => 5_000,
    };
    if raise_descriptor_limit() < 2 * count as u64 + 100 {
        softclock_testing::skip!("no {} descriptors", 2 * count);
    }
    let mut pairs: Vec<_> = (0..count).map(|_| pair()).collect();
    for (token, (here, _)) in (0..).zip(&pairs) {
        poller.add(here.as_fd(), Token(token)).unwrap();
    }
    until_all(&mut poller, count, Readiness::WRITABLE);
    for _ in 0..2 {
        for (_, there) in &mut pairs {
            there.write_all(b"x").unwrap();
        }
        until_all(&mut poller, count, Readiness::READABLE);
        for (here, _) in &mut pairs {
            here.read_exact(&mut [0]).unwrap();
            poller.rearm(here.as_fd(), Readiness::READABLE);
        }
    }
    for (here, _) in &pairs {
        poller.remove_closing(here.as_fd()).unwrap();
    }
}

pub(crate) fn what_may_be_pending_is_pending(mut poller: Poller) {
    let (here, mut there) = pair();
    poller.add(here.as_fd(), Token(7)).unwrap();
    assert!(poller.is_pending());
    wait(&mut poller);
    there.write_all(b"x").unwrap();
    assert!(poller.is_pending());
    wait(&mut poller);
    let knows = poller.mechanism() == Mechanism::IoUring;
    assert_ne!(poller.is_pending(), knows);
}
