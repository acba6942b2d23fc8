//! A link in a namespace of its own, which changes and ends.

use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use softclock_testing::lab::Namespace;
use softclock_testing::skip;

use super::*;
use crate::link::two::two;

/// A monitor of the link `near`, with addresses or without.
fn monitor(near: &Namespace, has_addresses: bool) -> LinkMonitor {
    let open = || {
        let link = Link::named("near").unwrap();
        match has_addresses {
            true => LinkMonitor::with_addresses(&link).unwrap(),
            false => LinkMonitor::open(&link).unwrap(),
        }
    };
    near.inside(open).unwrap()
}

/// The changes since the last call. The kernel has reported those that `ip` has made when `ip` ends.
fn changes(monitor: &LinkMonitor) -> Vec<LinkChange> {
    let mut changes = Vec::new();
    loop {
        match monitor.receive(|change| changes.push(change)) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return changes,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_link_ends_once() {
    let [near, _far] = two!();
    near.run("ip link add name other type veth peer name rehto")
        .unwrap();
    let monitor = monitor(&near, false);
    for words in [
        "ip link set near down",
        "ip link set near name nearer",
        "ip link set nearer up",
        "ip addr add 10.79.0.1/24 dev nearer",
        "ip link delete other",
    ] {
        near.run(words).unwrap();
        assert_eq!(changes(&monitor), [], "{words}");
    }
    near.run("ip link delete nearer").unwrap();
    assert_eq!(changes(&monitor), [LinkChange::Deleted]);
}

#[test]
fn a_link_that_leaves_its_bridge_has_not_ended() {
    let [near, _far] = two!();
    if near.run("ip link add name bridge type bridge").is_err() {
        skip!("there are no bridges here");
    }
    let monitor = monitor(&near, false);
    near.run("ip link set near master bridge").unwrap();
    near.run("ip link set near nomaster").unwrap();
    assert_eq!(changes(&monitor), []);
}

#[test]
fn a_link_ends_where_it_was_when_it_is_moved() {
    let [near, far] = two!();
    let monitor = monitor(&near, false);
    near.run(&format!("ip link set near netns {}", far.id()))
        .unwrap();
    assert_eq!(changes(&monitor), [LinkChange::Deleted]);
}

#[test]
fn changes_of_addresses_are_reported() {
    let [near, _far] = two!();
    near.run("ip link add name other type veth peer name rehto")
        .unwrap();
    // The kernel would confirm a link-local address of its own at any time.
    near.run("ip link set near addrgenmode none").unwrap();
    near.run("ip addr flush dev near").unwrap();
    let monitor = monitor(&near, true);
    for words in [
        "ip addr add 10.79.0.1/24 dev near",
        "ip addr del 10.79.0.1/24 dev near",
        "ip addr add fd79::1/64 dev near nodad",
        "ip addr del fd79::1/64 dev near",
    ] {
        near.run(words).unwrap();
        // A worker of the kernel reports an address of IPv6.
        let end = Instant::now() + Duration::from_secs(10);
        let mut reported = changes(&monitor);
        while reported.is_empty() && Instant::now() < end {
            thread::sleep(Duration::from_millis(1));
            reported = changes(&monitor);
        }
        assert!(reported.contains(&LinkChange::Addresses), "{words}");
        assert!(!reported.contains(&LinkChange::Deleted), "{words}");
    }
    near.run("ip addr add 10.80.0.1/24 dev other").unwrap();
    assert_eq!(changes(&monitor), []);
}

/// The kernel says that it has lost messages, and goes on with those for which there is room again.
#[test]
fn lost_messages_are_an_error_once() {
    let [near, _far] = two!();
    let monitor = monitor(&near, false);
    let storm: String = (0..2000)
        .map(|number| format!("link set near alias {number}\n"))
        .collect();
    near.batch("ip", &storm).unwrap();
    let mut errors = Vec::new();
    loop {
        match monitor.receive(|change| panic!("{change:?}")) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => errors.push(error.raw_os_error()),
        }
    }
    assert_eq!(errors, [Some(Errno::NOBUFS.raw_os_error())]);
    near.run("ip link delete near").unwrap();
    assert_eq!(changes(&monitor), [LinkChange::Deleted]);
}

#[test]
fn any_bytes_are_read_without_a_panic() {
    for length in 0..64 {
        let bytes: Vec<u8> = (0u8..length).map(|at| at.wrapping_mul(37)).collect();
        for kind in [DELETE_LINK, NEW_ADDRESS, DELETE_ADDRESS] {
            assert_eq!(change(u32::MAX, kind, &bytes), None);
        }
    }
}
