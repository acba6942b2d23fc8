//! A stack of several that has ended.

use super::*;
use crate::stack::absent::Route;

const SERVER: ([u8; 4], u16) = ([10, 0, 0, 1], 80);

/// A listener of a stack at port 80.
fn listen(stack: &mut Host) -> TcpListenerId {
    let settings = TcpListenSettings::default();
    stack.tcp_listen(SERVER.into(), settings).unwrap()
}

fn connect(group: &mut Group, count: usize) -> Vec<TcpId> {
    let now = group.now;
    let connect = |_| group.client.tcp_connect(now, None, SERVER.into(), None);
    let ids = (0..count).map(connect).collect::<Result<_, _>>().unwrap();
    group.settle();
    ids
}

/// Accepts what a listener has; each connection says which stack has it.
fn accept(group: &mut Group, number: usize, listener: TcpListenerId) -> usize {
    let now = group.now;
    let stack = &mut group.stacks[number];
    let mut accepted = 0;
    while let Some((id, _)) = stack.tcp_accept(now, listener) {
        let text = alloc::format!("{number}");
        stack.tcp_write(now, id, text.into_bytes().into()).unwrap();
        accepted += 1;
    }
    accepted
}

/// What the client reads from each connection: the number of a stack, or an error.
fn read(group: &mut Group, ids: &[TcpId]) -> Vec<Result<u8, TcpError>> {
    let now = group.now;
    let read = |&id| {
        let mut bytes = [0; 1];
        let count = group.client.tcp_read(now, id, &mut bytes)?;
        assert_eq!(count, 1);
        Ok(bytes[0] - b'0')
    };
    ids.iter().map(read).collect()
}

#[test]
fn the_flows_of_a_stack_that_has_ended_go_to_another_listener() {
    for has_queues in [false, true] {
        others_take_the_flows(has_queues);
    }
}

fn others_take_the_flows(has_queues: bool) {
    // The last stack has no listener, and is passed over when the one before it has ended.
    let mut group = match has_queues {
        true => Group::with_queues(4),
        false => Group::new(4),
    };
    let listeners: Vec<_> = group.stacks[..3].iter_mut().map(listen).collect();
    let before = connect(&mut group, 60);
    let of_stack: Vec<_> = (0..3)
        .map(|number| accept(&mut group, number, listeners[number]))
        .collect();
    assert!(of_stack.iter().all(|&count| count > 5), "{of_stack:?}");
    group.settle();
    let read_before = read(&mut group, &before);
    group.end(2);
    let after = connect(&mut group, 60);
    let more: Vec<_> = (0..2)
        .map(|number| accept(&mut group, number, listeners[number]))
        .collect();
    // Those of the ended stack are at the first one, and only those of the stack without a listener are refused.
    let refused = 60 - more.iter().sum::<usize>();
    assert!(refused > 5 && more[0] > more[1] + 5, "{more:?}");
    group.settle();
    let is_refused = |read: &Result<u8, _>| *read == Err(TcpError::Failed(Error::Refused));
    let read_after = read(&mut group, &after);
    assert_eq!(
        read_after.iter().filter(|read| is_refused(read)).count(),
        refused
    );
    // The connections of the ended stack are reset, and the others go on.
    let now = group.now;
    for &id in &before {
        let _ = group.client.tcp_write(now, id, b"more".as_slice().into());
    }
    group.settle();
    for (&id, on) in before.iter().zip(read_before) {
        let now = group.now;
        let result = group.client.tcp_read(now, id, &mut [0; 1]);
        match on {
            Ok(2) => assert_eq!(result, Err(TcpError::Failed(Error::Reset))),
            Ok(_) => assert_eq!(result, Err(TcpError::WouldBlock)),
            Err(error) => assert_eq!(error, TcpError::Failed(Error::Refused)),
        }
    }
}

#[test]
fn a_port_without_another_listener_is_refused() {
    let mut group = Group::new(3);
    let listener = listen(&mut group.stacks[1]);
    group.end(1);
    let ids = connect(&mut group, 30);
    for read in read(&mut group, &ids) {
        assert_eq!(read, Err(TcpError::Failed(Error::Refused)));
    }
    assert!(group.stacks[1].tcp_accept(group.now, listener).is_none());
}

#[test]
fn connections_stay_where_they_are_when_a_stack_begins_again() {
    for has_queues in [false, true] {
        connections_stay(has_queues);
    }
}

fn connections_stay(has_queues: bool) {
    let mut group = match has_queues {
        true => Group::with_queues(3),
        false => Group::new(3),
    };
    let listeners: Vec<_> = group.stacks.iter_mut().map(listen).collect();
    group.end(1);
    let early = connect(&mut group, 40);
    let of_early = [0, 2].map(|number| accept(&mut group, number, listeners[number]));
    assert_eq!(of_early.iter().sum::<usize>(), 40);
    group.begin_again();
    let again = listen(&mut group.stacks[1]);
    let late = connect(&mut group, 40);
    let of_late = [
        accept(&mut group, 0, listeners[0]),
        accept(&mut group, 1, again),
        accept(&mut group, 2, listeners[2]),
    ];
    assert!(of_late.iter().all(|&count| count > 5), "{of_late:?}");
    assert_eq!(of_late.iter().sum::<usize>(), 40);
    group.settle();
    // All segments find their connections, those that another stack has accepted, too.
    for ids in [early, late] {
        for read in read(&mut group, &ids) {
            assert!(matches!(read, Ok(0..=2)), "{read:?}");
        }
        let now = group.now;
        for &id in &ids {
            group
                .client
                .tcp_write(now, id, b"more".as_slice().into())
                .unwrap();
        }
        group.settle();
        let now = group.now;
        for &id in &ids {
            let result = group.client.tcp_read(now, id, &mut [0; 1]);
            assert_eq!(result, Err(TcpError::WouldBlock));
        }
    }
    let resets = group
        .stacks
        .iter()
        .map(|stack| stack.tcp_counts().resets_sent);
    assert_eq!(resets.sum::<u64>(), 0);
}

/// Segments that belong to no connection cost the other stacks little after a stack was replaced.
#[test]
fn a_flood_to_a_stack_that_began_again_is_searched_for_within_a_limit() {
    let mut group = Group::with_queues(3);
    let listeners: Vec<_> = group.stacks.iter_mut().map(listen).collect();
    group.end(1);
    let ids = connect(&mut group, 40);
    for number in [0, 2] {
        accept(&mut group, number, listeners[number]);
    }
    group.begin_again();
    listen(&mut group.stacks[1]);
    group.settle();
    let now = group.now;
    for &id in &ids {
        let more = b"more".as_slice().into();
        group.client.tcp_write(now, id, more).unwrap();
    }
    let replaced = &mut group.stacks[1];
    // Whether the stack begins a search for the connection of a segment.
    let mut is_searched = |now, frame: &[u8]| {
        replaced.on_frame(now, now, frame.to_vec(), Verify::Yes);
        let handed = replaced.next_handed();
        handed.is_some_and(|(_, handed)| matches!(handed.0.route, Route::Search(_)))
    };
    let frame = loop {
        let frame = group.client.next_frame().expect("a moved connection");
        if is_searched(now, &frame) {
            break frame;
        }
    };
    let searched = 1 + (1..3000).filter(|_| is_searched(now, &frame)).count();
    assert!((900..=1000).contains(&searched), "{searched}");
    let later = now + ms(1000);
    assert!(is_searched(later, &frame));
    let not_searched = 3000 - searched as u64;
    assert_eq!(replaced.drops().of(DropReason::HandoverFull), not_searched);
    assert_eq!(replaced.counts().demux_drops, not_searched);
    assert_eq!(replaced.tcp_counts().resets_sent, 0);
}

/// A report about a connection that another stack has accepted finds it.
#[test]
fn an_error_of_the_network_finds_a_connection_of_an_absent_stack() {
    let mut group = Group::new(3);
    group.end(1);
    let listener = listen(&mut group.stacks[2]);
    connect(&mut group, 30);
    let router = link::Answering::new(9, 1);
    let now = group.now;
    let mut found = 0;
    while let Some((id, _)) = group.stacks[2].tcp_accept(now, listener) {
        group.stacks[2]
            .tcp_write(now, id, vec![7; 1400].into())
            .unwrap();
        let long = group.stacks[2].next_frame().unwrap();
        group.stacks[0].on_frame(now, now, router.too_big(&long, 1000), Verify::Yes);
        group.stacks[0].process(now, 10);
        let (stack, frame) = group.stacks[0].next_handed().unwrap();
        assert_eq!(stack, 2);
        group.stacks[2].on_handed(now, frame.copied());
        group.stacks[2].process(now, 10);
        let short = group.stacks[2].next_frame().unwrap();
        assert!(short.len() <= 1014, "{}", short.len());
        found += 1;
        while group.stacks[2].next_frame().is_some() {}
    }
    assert!(found > 15, "{found}");
}
