//! Limits that connections share, when they are reached.

use super::link::Answering;
use super::*;
use crate::tcp::listen::CookieUse;
use crate::tcp::segment::{Flags, Header, Options};

/// Owners that write before they read on, while unread bytes take the memory for all.
#[test]
fn unread_bytes_do_not_keep_a_connection_from_writing() {
    let mut pair = Pair::with(|number, settings| {
        if number == 1 {
            (settings.tcp.memory, settings.tcp.least_memory) = (64_000, 4_000);
        }
    });
    let listener = pair.listen(10);
    let clients = [(); 2].map(|()| pair.connect());
    pair.run(ms(100));
    for client in clients {
        pair.write(0, client, &stream(35_000));
    }
    pair.run(Duration::from_secs(10));
    let servers = clients.map(|_| pair.hosts[1].tcp_accept(pair.now, listener).unwrap().0);
    assert!(
        pair.hosts[1].tcp_memory() > 60_000,
        "no more than a little is free"
    );
    for _ in 0..3 {
        for server in servers {
            assert_eq!(pair.write(1, server, &stream(10_000)), 4_000);
            assert!(pair.hosts[1].tcp_wait(pair.now, server, Interest::WRITABLE));
        }
        pair.run(Duration::from_secs(1));
        let woken: Vec<_> = core::iter::from_fn(|| pair.hosts[1].tcp_next_woken()).collect();
        assert_eq!(woken, servers.map(TcpWoken::Connection));
        for client in clients {
            assert_eq!(pair.read(0, client).unwrap().len(), 4_000);
        }
    }
}

/// A probe of the peer of a connection: a keep-alive, or one of a closed window.
fn probe(pair: &Pair, id: TcpId) -> Vec<u8> {
    let connection = pair.hosts[0].tcp_connection(id).unwrap();
    let (acknowledgment, expected) = connection.numbers();
    let header = Header {
        source_port: 80,
        destination_port: connection.flow().local.1,
        sequence: expected - 1,
        acknowledgment,
        flags: Flags::ACK,
        window: 1000,
        ..Header::default()
    };
    Answering::new(2, 1).frame(&header, &Options::default(), b"")
}

#[test]
fn probes_are_answered_beyond_the_limit_of_challenges() {
    let mut pair = Pair::with(|_, settings| {
        settings.tcp.shared.challenges.per_second = 2;
        settings.tcp.connection.has_timestamps = false;
    });
    pair.listen(10);
    let clients = [(); 10].map(|()| pair.connect());
    pair.run(ms(100));
    // Each connection answers one in 500 ms.
    for (wait, answers) in [(ms(100), 10), (ms(500), 0), (ms(500), 10)] {
        let before = pair.sent[0];
        for client in clients {
            let frame = probe(&pair, client);
            pair.hosts[0].on_frame(pair.now, pair.now, frame, Verify::Yes);
        }
        pair.run(wait);
        assert_eq!(pair.sent[0] - before, answers);
    }
}

#[test]
fn a_handshake_beyond_the_limit_of_connections_is_reset() {
    for cookies in [CookieUse::Never, CookieUse::Always] {
        let mut pair = Pair::with(|number, settings| {
            settings.tcp.listen.cookies = cookies;
            if number == 1 {
                settings.tcp.most_connections = 1;
            }
        });
        pair.listen(10);
        let clients = [(); 2].map(|()| pair.connect());
        pair.run(ms(100));
        assert_eq!(pair.state(0, clients[0]), Some(State::Established));
        let reset = Err(TcpError::Failed(Error::Reset));
        assert_eq!(pair.read(0, clients[1]), reset);
        assert_eq!(pair.hosts[1].drops().of(DropReason::TcpMemory), 1);
    }
}

#[test]
fn a_connection_in_time_wait_stays_while_the_backlog_is_full() {
    let mut pair = Pair::with(|_, settings| settings.tcp.connection.has_timestamps = false);
    let listener = pair.listen(1);
    let client = pair.connect();
    pair.run(ms(100));
    let (server, _) = pair.hosts[1].tcp_accept(pair.now, listener).unwrap();
    let connection = pair.hosts[1].tcp_connection(server).unwrap();
    let (flow, (_, expected)) = (*connection.flow(), connection.numbers());
    for (host, id) in [(1, server), (0, client)] {
        pair.hosts[host].tcp_close(pair.now, id);
        pair.run(ms(100));
    }
    assert!(pair.hosts[1].tcp_time_wait(&flow).0);
    pair.connect();
    pair.run(ms(100));
    let header = Header {
        source_port: flow.remote.1,
        destination_port: flow.local.1,
        sequence: expected + 100_000,
        flags: Flags::SYN,
        window: 1000,
        ..Header::default()
    };
    let syn = Answering::new(1, 2).frame(&header, &Options::default(), b"");
    for is_full in [true, false] {
        pair.hosts[1].on_frame(pair.now, pair.now, syn.clone(), Verify::Yes);
        pair.hosts[1].process(pair.now, 8);
        assert_eq!(pair.hosts[1].tcp_time_wait(&flow).0, is_full);
        pair.hosts[1].tcp_accept(pair.now, listener);
    }
}
