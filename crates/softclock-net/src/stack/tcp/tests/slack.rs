//! A host that rests, and wakes up only when its timers can wait no longer.

use super::*;

/// A pair with connections whose frames are all lost from now on, and the ends at one host.
fn silenced(count: usize, host: usize, pair: &mut Pair) -> Vec<TcpId> {
    let listener = pair.listen(count);
    let connect = |_| {
        let client = pair.connect();
        pair.run(ms(20));
        client
    };
    let clients: Vec<_> = (0..count).map(connect).collect();
    let accept = |_| pair.hosts[1].tcp_accept(pair.now, listener).unwrap().0;
    let servers: Vec<_> = (0..count).map(accept).collect();
    pair.fate = alloc::boxed::Box::new(|_, _| vec![]);
    [clients, servers][host].clone()
}

fn dues(pair: &Pair, host: usize, ids: &[TcpId]) -> Vec<Instant> {
    let due = |&id| pair.hosts[host].tcp_connection(id)?.next_timeout();
    ids.iter().filter_map(due).collect()
}

/// Lets a host rest until its timers have all run, and returns how often it has woken up. Each must run at its time or
/// up to `slack` later.
fn wake_ups(pair: &mut Pair, host: usize, ids: &[TcpId], slack: Duration) -> usize {
    let first = dues(pair, host, ids);
    let last = *first.iter().max().unwrap();
    let mut wakes = 0;
    while let before = dues(pair, host, ids)
        && before.iter().any(|&due| due <= last)
    {
        let wake = pair.hosts[host].next_wake(pair.now).unwrap();
        assert!(wake.rough);
        let is_late = |&due: &Instant| due + slack + TICK < wake.earliest;
        assert!(!before.iter().any(is_late), "late at {wake:?}: {before:?}");
        pair.now = wake.earliest;
        pair.settle();
        let after = dues(pair, host, ids);
        assert!(after.iter().all(|&due| due > pair.now), "one is left");
        wakes += 1;
    }
    wakes
}

#[test]
fn retransmissions_of_several_connections_share_wake_ups() {
    let mut pair = Pair::with(|_, settings| {
        // Without it, there are no probes for the end of a flight.
        settings.tcp.connection.has_sack = false;
    });
    let ids = silenced(50, 0, &mut pair);
    for &id in &ids {
        pair.now += ms(1);
        pair.write(0, id, b"x");
        pair.settle();
    }
    let sent = pair.sent[0];
    // The timeouts are a little more than 200 ms, and end in the course of 50 ms. They cross the end of a slot of 1.05
    // s of the wheel, which takes one wake-up to move them.
    let wakes = wake_ups(&mut pair, 0, &ids, ms(30));
    assert_eq!(pair.sent[0] - sent, ids.len(), "each is sent again once");
    assert!(wakes <= 4, "{wakes}");
}

#[test]
fn delayed_acknowledgments_of_several_connections_share_wake_ups() {
    let mut pair = Pair::new(Architecture::EarlyDemux);
    let servers = silenced(20, 1, &mut pair);
    pair.fate = alloc::boxed::Box::new(|_, _| vec![Duration::ZERO]);
    let clients = pair.hosts[0].tcp.connections.ids();
    for &id in &clients {
        pair.run(Duration::from_micros(200));
        pair.write(0, TcpId(id), b"x");
    }
    pair.run(pair.delay);
    let sent = pair.sent[1];
    let wakes = wake_ups(&mut pair, 1, &servers, ms(5));
    assert_eq!(pair.sent[1] - sent, servers.len());
    // They are due in the course of 4 ms, and the first may wait for nearly as long.
    assert!(wakes <= 2, "{wakes}");
}

#[test]
fn a_host_that_is_awake_does_what_is_due_without_delay() {
    let mut pair = Pair::with(|_, settings| settings.tcp.connection.has_sack = false);
    let ids = silenced(2, 0, &mut pair);
    pair.write(0, ids[0], b"x");
    pair.settle();
    let due = dues(&pair, 0, &ids)[0];
    let host = &pair.hosts[0];
    assert!(host.next_wake(pair.now).unwrap().earliest >= due + ms(20));
    // The wheel rounds up to the next microsecond.
    pair.now = due + TICK;
    let host = &mut pair.hosts[0];
    assert!(host.next_wake(pair.now).unwrap().earliest <= pair.now);
    host.on_timer(pair.now);
    assert!(host.next_frame().is_some());
}

const TICK: Duration = Duration::from_micros(1);
