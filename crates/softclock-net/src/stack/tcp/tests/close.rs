//! The ends of connections.

use super::*;
use crate::demux::{Flow, Transport};
use crate::tcp::settings::Linger;

fn end(pair: &mut Pair, host: usize, id: TcpId) {
    pair.hosts[host].tcp_shutdown_write(pair.now, id).unwrap();
}

fn in_time_wait(pair: &Pair, host: usize) -> usize {
    let flow = Flow {
        transport: Transport::Tcp,
        remote: ("10.0.0.2".parse().unwrap(), 1),
        local: ("10.0.0.1".parse().unwrap(), 1),
    };
    pair.hosts[host].tcp_time_wait(&flow).1
}

#[test]
fn the_end_that_closes_first_waits() {
    for architecture in Architecture::ALL {
        let mut pair = Pair::new(architecture);
        let [client, server] = pair.connected();
        pair.write(0, client, b"last words");
        end(&mut pair, 0, client);
        assert_eq!(pair.state(0, client), Some(State::FinWait1));
        pair.run(ms(100));
        assert_eq!(pair.state(0, client), Some(State::FinWait2));
        assert_eq!(pair.state(1, server), Some(State::CloseWait));
        assert_eq!(pair.read(1, server).unwrap(), b"last words");
        assert_eq!(pair.read(1, server).unwrap(), b"", "the end");
        // Half of the connection is open still.
        pair.write(1, server, b"an answer");
        pair.run(ms(100));
        assert_eq!(pair.read(0, client).unwrap(), b"an answer");
        end(&mut pair, 1, server);
        pair.run(ms(100));
        assert_eq!(pair.state(0, client), Some(State::TimeWait));
        assert_eq!(pair.state(1, server), Some(State::Closed));
        assert_eq!(pair.read(0, client).unwrap(), b"");
        assert_eq!((in_time_wait(&pair, 0), in_time_wait(&pair, 1)), (1, 0));
        pair.hosts[0].tcp_close(pair.now, client);
        pair.hosts[1].tcp_close(pair.now, server);
        assert_eq!(pair.state(0, client), None);
        pair.run(Duration::from_secs(61));
        assert_eq!(in_time_wait(&pair, 0), 0);
        assert_eq!(pair.hosts[0].next_timeout(), None, "no timer is left");
        assert_eq!(pair.hosts.each_ref().map(|host| host.tcp_memory()), [0, 0]);
    }
}

/// The owner has not closed it, and what arrived last came without a call of the owner.
#[test]
fn a_connection_in_time_wait_has_no_channel() {
    let mut pair = Pair::new(Architecture::SoftLrp);
    let [client, server] = pair.connected();
    end(&mut pair, 0, client);
    pair.run(ms(100));
    let has_channel = |pair: &Pair| {
        let endpoint = pair.hosts[0].tcp.connections.get(client.0);
        endpoint.expect("its owner is there").channel.has_storage()
    };
    pair.write(1, server, b"an answer");
    pair.run(ms(5));
    assert!(has_channel(&pair), "the answer waits in it");
    end(&mut pair, 1, server);
    pair.run(ms(100));
    assert_eq!(pair.state(0, client), Some(State::TimeWait));
    assert!(!has_channel(&pair));
    assert_eq!(pair.read(0, client).unwrap(), b"an answer");
}

#[test]
fn both_ends_may_close_at_the_same_time() {
    for architecture in Architecture::ALL {
        let mut pair = Pair::new(architecture);
        let [client, server] = pair.connected();
        end(&mut pair, 0, client);
        end(&mut pair, 1, server);
        pair.run(ms(100));
        assert_eq!(pair.state(0, client), Some(State::TimeWait));
        assert_eq!(pair.state(1, server), Some(State::TimeWait));
    }
}

#[test]
fn a_connection_ends_whichever_frames_of_its_end_are_lost() {
    for first in 0..2 {
        for lost in 0..6 {
            let mut pair = Pair::new(Architecture::SoftLrp);
            let ids = pair.connected();
            let mut number = 0;
            pair.fate = alloc::boxed::Box::new(move |_, _| {
                number += 1;
                if number - 1 == lost {
                    vec![]
                } else {
                    vec![Duration::ZERO]
                }
            });
            pair.hosts[first].tcp_close(pair.now, ids[first]);
            pair.run(ms(50 * lost));
            pair.hosts[1 - first].tcp_close(pair.now, ids[1 - first]);
            pair.run(Duration::from_secs(10));
            let left: usize = (0..2)
                .flat_map(|host| pair.hosts[host].tcp_states().collect::<Vec<_>>())
                .filter(|(state, _)| *state != State::TimeWait)
                .map(|(_, count)| count)
                .sum();
            assert_eq!(left, 0, "closed first by {first}, lost {lost}");
        }
    }
}

#[test]
fn a_segment_behind_the_last_acknowledgment_is_for_the_listener() {
    // With early demultiplexing the connection was found before, and the segment is dropped.
    let found_later = |architecture: &&Architecture| **architecture != Architecture::EarlyDemux;
    for &architecture in Architecture::ALL.iter().filter(found_later) {
        let mut pair = Pair::new(architecture);
        let [client, server] = pair.connected();
        end(&mut pair, 0, client);
        pair.run(ms(100));
        // The client's acknowledgment of the server's FIN arrives twice.
        pair.fate = alloc::boxed::Box::new(|from, _| vec![Duration::ZERO; 2 - from]);
        end(&mut pair, 1, server);
        pair.run(ms(100));
        assert_eq!(pair.state(1, server), Some(State::Closed));
        let report = pair.hosts[1].tcp_report();
        assert_eq!(report.counts.resets_sent, 1, "{architecture:?}");
    }
}

#[test]
fn closing_with_unread_bytes_resets() {
    for architecture in Architecture::ALL {
        let mut pair = Pair::new(architecture);
        let [client, server] = pair.connected();
        pair.write(0, client, b"not read");
        pair.run(ms(100));
        pair.hosts[1].tcp_close(pair.now, server);
        assert_eq!(pair.state(1, server), None);
        pair.run(ms(100));
        assert_eq!(pair.read(0, client), Err(TcpError::Failed(Error::Reset)));
        assert_eq!(pair.read(0, client), Ok(vec![]));
        let written = pair.hosts[0].tcp_write(pair.now, client, Bytes::from_static(b"x"));
        assert_eq!(written, Err(TcpError::Closed));
    }
}

#[test]
fn bytes_to_an_end_that_is_gone_are_answered_by_a_reset() {
    let mut pair = Pair::new(Architecture::SoftLrp);
    let [client, server] = pair.connected();
    pair.hosts[1].tcp_close(pair.now, server);
    pair.run(ms(100));
    assert_eq!(pair.state(0, client), Some(State::CloseWait));
    pair.write(0, client, b"too late");
    pair.run(ms(100));
    assert_eq!(pair.read(0, client), Err(TcpError::Failed(Error::Reset)));
}

#[test]
fn what_arrived_before_a_reset_can_be_read() {
    let mut pair = Pair::new(Architecture::SoftLrp);
    let [client, server] = pair.connected();
    pair.write(1, server, b"before");
    pair.run(ms(100));
    pair.hosts[1].tcp_abort(pair.now, server);
    pair.run(ms(100));
    assert_eq!(pair.read(0, client).unwrap(), b"before");
    assert_eq!(pair.read(0, client), Err(TcpError::Failed(Error::Reset)));
}

/// A kernel sends bytes in the call that writes them, so they leave before a reset that follows at once.
#[test]
fn what_was_written_before_a_reset_arrives() {
    for architecture in Architecture::ALL {
        for is_abort in [false, true] {
            let mut pair = Pair::new(architecture);
            let [client, server] = pair.connected();
            pair.write(0, client, b"not read");
            pair.run(ms(100));
            pair.write(1, server, b"the reason");
            match is_abort {
                true => pair.hosts[1].tcp_abort(pair.now, server),
                false => pair.hosts[1].tcp_close(pair.now, server),
            }
            pair.run(ms(100));
            assert_eq!(pair.read(0, client).unwrap(), b"the reason");
            assert_eq!(pair.read(0, client), Err(TcpError::Failed(Error::Reset)));
        }
    }
}

/// The peer would answer the SYN of a connection that does not exist any more.
#[test]
fn a_connection_that_ends_before_its_syn_has_left_sends_nothing() {
    for is_abort in [false, true] {
        // The only connection without owner is that of the first client, so that closing the second resets it.
        let mut pair = Pair::with(|_, settings| settings.tcp.most_orphans = 1);
        let [first, _server] = pair.connected();
        pair.hosts[0].tcp_close(pair.now, first);
        pair.run(ms(100));
        let client = pair.connect();
        match is_abort {
            true => pair.hosts[0].tcp_abort(pair.now, client),
            false => pair.hosts[0].tcp_close(pair.now, client),
        }
        assert!(pair.hosts[0].next_frame().is_none(), "{is_abort}");
        assert_eq!(pair.state(0, client), None);
    }
}

#[test]
fn a_closed_connection_sends_the_rest_of_its_bytes() {
    let mut pair = Pair::new(Architecture::SoftLrp);
    let [client, server] = pair.connected();
    let bytes = stream(60_000);
    assert_eq!(pair.write(0, client, &bytes), bytes.len());
    pair.hosts[0].tcp_close(pair.now, client);
    let mut received = Vec::new();
    pair.run_until(Duration::from_secs(5), |pair| {
        while let Ok(bytes) = pair.read(1, server) {
            if bytes.is_empty() {
                return true;
            }
            received.extend(bytes);
        }
        false
    });
    assert!(received == bytes);
}

#[test]
fn a_connection_without_owner_does_not_wait_forever() {
    let mut pair = Pair::new(Architecture::SoftLrp);
    let [client, _server] = pair.connected();
    pair.hosts[0].tcp_close(pair.now, client);
    pair.run(ms(100));
    // FIN-WAIT-2: the peer does not close.
    let count = |pair: &Pair| {
        pair.hosts[0]
            .tcp_states()
            .map(|(_, count)| count)
            .sum::<usize>()
    };
    assert_eq!(count(&pair), 1);
    pair.run(Duration::from_secs(61));
    assert_eq!(count(&pair), 0);
}

#[test]
fn too_many_connections_without_owner_are_reset() {
    let mut pair = Pair::with(|_, settings| settings.tcp.most_orphans = 1);
    let listener = pair.listen(10);
    let clients = [(); 3].map(|()| pair.connect());
    pair.run(ms(100));
    let servers = [(); 3].map(|()| pair.hosts[1].tcp_accept(pair.now, listener).unwrap().0);
    for client in clients {
        pair.hosts[0].tcp_close(pair.now, client);
    }
    pair.run(ms(100));
    assert_eq!(pair.hosts[0].tcp_counts().orphans_reset, 2);
    let results = servers.map(|server| pair.read(1, server));
    let failed = results.iter().filter(|result| result.is_err()).count();
    assert_eq!(failed, 2);
}

#[test]
fn a_connection_in_time_wait_gives_way_to_a_new_one() {
    let mut pair = Pair::new(Architecture::SoftLrp);
    let listener = pair.listen(10);
    let (local, remote) = (
        "10.0.0.1:7000".parse().unwrap(),
        "10.0.0.2:80".parse().unwrap(),
    );
    for _ in 0..3 {
        let now = pair.now;
        let client = pair.hosts[0]
            .tcp_connect(now, Some(local), remote, None)
            .unwrap();
        pair.run(ms(100));
        let (server, _) = pair.hosts[1].tcp_accept(pair.now, listener).unwrap();
        // The server closes first, and has the flow in TIME-WAIT.
        pair.hosts[1].tcp_close(pair.now, server);
        pair.run(ms(100));
        pair.hosts[0].tcp_close(pair.now, client);
        pair.run(ms(100));
        assert_eq!(in_time_wait(&pair, 1), 1);
    }
    assert_eq!(pair.hosts[1].tcp_counts().accepted, 3);
}

#[test]
fn a_peer_that_vanished_is_noticed_by_keep_alive() {
    let mut pair = Pair::with(|_, settings| {
        let keep_alive = &mut settings.tcp.connection.keep_alive;
        keep_alive.is_on = true;
        keep_alive.idle = Duration::from_secs(100);
        keep_alive.interval = Duration::from_secs(10);
        keep_alive.probes = 3;
    });
    let [client, server] = pair.connected();
    pair.run(Duration::from_secs(1000));
    assert_eq!(
        pair.state(0, client),
        Some(State::Established),
        "probes are answered"
    );
    assert_eq!(pair.state(1, server), Some(State::Established));
    pair.fate = alloc::boxed::Box::new(|_, _| vec![]);
    pair.run(Duration::from_secs(141));
    // The peer does not answer on the link, either, which is what the owner learns (RFC 1122, 4.2.3.9).
    let unreachable = TcpError::Failed(Error::Unreachable);
    assert_eq!(pair.read(0, client), Err(unreachable));
}

#[test]
fn a_writer_that_waits_for_room_is_woken_by_the_end_of_its_half() {
    let mut pair = Pair::new(Architecture::SoftLrp);
    let [client, _server] = pair.connected();
    let piece = || Bytes::from(vec![1; 10_000]);
    while pair.hosts[0].tcp_write(pair.now, client, piece()).is_ok() {}
    // The peer does not read.
    pair.run(Duration::from_secs(2));
    while pair.hosts[0].tcp_write(pair.now, client, piece()).is_ok() {}
    let host = &mut pair.hosts[0];
    while host.tcp_next_woken().is_some() {}
    host.tcp_wait(pair.now, client, Interest::WRITABLE);
    assert_eq!(host.tcp_next_woken(), None);
    host.tcp_shutdown_write(pair.now, client).unwrap();
    assert_eq!(host.tcp_next_woken(), Some(TcpWoken::Connection(client)));
}

/// Writes 40 000 bytes to a peer that reads 1000 of them every 5 s, closes at once, and returns those that are read.
fn read_slowly_after_close(linger: Linger) -> usize {
    let mut pair = Pair::with(|_, settings| {
        settings.tcp.connection.linger = linger;
        let receive = &mut settings.tcp.connection.receive;
        (receive.buffer_bytes, receive.most_buffer_bytes) = (4000, 4000);
    });
    let [client, server] = pair.connected();
    assert_eq!(pair.write(0, client, &stream(40_000)), 40_000);
    pair.hosts[0].tcp_close(pair.now, client);
    let mut received = 0;
    for _ in 0..60 {
        pair.run(Duration::from_secs(5));
        let mut piece = [0; 1000];
        match pair.hosts[1].tcp_read(pair.now, server, &mut piece) {
            Ok(0) => return received,
            Ok(read) => received += read,
            Err(TcpError::WouldBlock) => {}
            Err(error) => {
                assert_eq!(error, TcpError::Failed(Error::Reset));
                return received;
            }
        }
    }
    panic!("the connection does not end");
}

#[test]
fn a_closed_connection_stays_while_its_data_makes_progress() {
    assert_eq!(read_slowly_after_close(Linger::Background), 40_000);
    let within = Linger::AtMost(Duration::from_secs(100));
    assert!(read_slowly_after_close(within) < 40_000);
}
