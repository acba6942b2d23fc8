//! Handshakes.

use core::net::IpAddr;

use super::*;
use crate::stack::BindError;

#[test]
fn a_connection_is_opened_and_bytes_go_both_ways_in_all_architectures_and_versions() {
    for architecture in Architecture::ALL {
        for remote in ["10.0.0.2:80", "[2001:db8::2]:80"] {
            let mut pair = Pair::new(architecture);
            let remote = remote.parse().unwrap();
            let settings = TcpListenSettings::default();
            let listener = pair.hosts[1].tcp_listen(remote, settings).unwrap();
            assert!(pair.hosts[1].tcp_wait_accept(listener));
            let client = pair.hosts[0]
                .tcp_connect(START, None, remote, None)
                .unwrap();
            assert_eq!(pair.state(0, client), Some(State::SynSent));
            assert!(pair.hosts[0].tcp_wait(START, client, Interest::WRITABLE));
            pair.run(ms(100));
            let woken = pair.hosts[0].tcp_next_woken();
            assert_eq!(woken, Some(TcpWoken::Connection(client)));
            let woken = pair.hosts[1].tcp_next_woken();
            assert_eq!(woken, Some(TcpWoken::Listener(listener)));
            let (server, from) = pair.hosts[1].tcp_accept(pair.now, listener).unwrap();
            assert_eq!(Some(from), pair.hosts[0].tcp_local(client));
            assert_eq!(pair.hosts[1].tcp_remote(server), Some(from));

            assert_eq!(pair.read(1, server), Err(TcpError::WouldBlock));
            assert!(pair.hosts[1].tcp_wait(pair.now, server, Interest::READABLE));
            assert_eq!(pair.write(0, client, b"to"), 2);
            pair.run(ms(100));
            let woken = pair.hosts[1].tcp_next_woken();
            assert_eq!(woken, Some(TcpWoken::Connection(server)));
            assert_eq!(pair.read(1, server).unwrap(), b"to");
            pair.write(1, server, b"and fro");
            pair.run(ms(100));
            assert_eq!(pair.read(0, client).unwrap(), b"and fro");
            let drops = pair.hosts.each_ref().map(|host| host.drops().total());
            assert_eq!(drops, [0, 0], "{:?}", pair.hosts);
        }
    }
}

#[test]
fn a_port_without_listener_refuses() {
    for architecture in Architecture::ALL {
        let mut pair = Pair::new(architecture);
        let client = pair.connect();
        assert!(pair.hosts[0].tcp_wait(START, client, Interest::WRITABLE));
        pair.run(ms(100));
        assert_eq!(
            pair.hosts[0].tcp_next_woken(),
            Some(TcpWoken::Connection(client))
        );
        let failed = TcpError::Failed(Error::Refused);
        assert_eq!(pair.read(0, client), Err(failed));
        assert_eq!(pair.state(0, client), Some(State::Closed));
        assert_eq!(pair.hosts[1].tcp_counts().resets_sent, 1);
        pair.hosts[0].tcp_close(pair.now, client);
        assert_eq!(pair.state(0, client), None);
    }
}

/// Several hosts would answer (RFC 9293, 3.9.2.3).
#[test]
fn a_connection_is_to_a_single_host() {
    let connect = |prefix: &str, remote: &str| {
        let settings = StackSettings::new(LinkAddress([2, 0, 0, 0, 0, 1]), 1500);
        let routes = Routes::new(vec![prefix.parse().unwrap()], vec![]).unwrap();
        let mut host: Host = Stack::new(settings, routes, HashKey([1, 7]));
        let remote = (remote.parse::<IpAddr>().unwrap(), 80).into();
        let opened = host.tcp_connect(START, None, remote, None);
        (opened.err(), host.next_frame().is_some())
    };
    for [prefix, remote] in [
        ["10.0.0.1/24", "10.0.0.255"],
        ["10.0.0.1/24", "255.255.255.255"],
        ["10.0.0.1/24", "224.0.0.1"],
        ["2001:db8::1/64", "ff02::1"],
    ] {
        let refused = (Some(BindError::Remote), false);
        assert_eq!(connect(prefix, remote), refused, "{remote}");
    }
    // The last address of a prefix without one for all hosts.
    assert_eq!(connect("10.0.0.0/31", "10.0.0.1"), (None, true));
}

#[test]
fn a_host_that_does_not_answer_is_given_up_after_the_retries() {
    let mut pair = Pair::new(Architecture::SoftLrp);
    pair.fate = alloc::boxed::Box::new(|_, frame| match frame[12..14] == [8, 6] {
        true => vec![Duration::ZERO],
        false => vec![],
    });
    let client = pair.connect();
    pair.run(Duration::from_secs(60));
    assert_eq!(pair.state(0, client), Some(State::SynSent));
    pair.run(Duration::from_secs(240));
    assert_eq!(pair.read(0, client), Err(TcpError::Failed(Error::TimedOut)));
    assert_eq!(pair.hosts[0].tcp_counts().segments_sent, 8);
}

/// Between two retransmissions, and before the first.
#[test]
fn a_host_that_does_not_answer_is_given_up_after_a_time() {
    for (limit, sent) in [(2500, 2), (400, 1)] {
        let mut pair = Pair::with(|_, settings| {
            settings.tcp.connection.connect_timeout = Some(ms(limit));
        });
        pair.fate = alloc::boxed::Box::new(|_, frame| match frame[12..14] == [8, 6] {
            true => vec![Duration::ZERO],
            false => vec![],
        });
        let client = pair.connect();
        pair.run(ms(limit - 50));
        assert_eq!(pair.state(0, client), Some(State::SynSent));
        // A timer of a handshake may be late by some milliseconds.
        pair.run(ms(150));
        assert_eq!(pair.read(0, client), Err(TcpError::Failed(Error::TimedOut)));
        assert_eq!(pair.hosts[0].tcp_counts().segments_sent, sent);
    }
}

#[test]
fn a_lost_segment_of_a_handshake_is_sent_again() {
    for lost in 1..8 {
        let mut pair = Pair::new(Architecture::SoftLrp);
        let mut number = 0;
        pair.fate = alloc::boxed::Box::new(move |_, _| {
            number += 1;
            if number == lost {
                vec![]
            } else {
                vec![Duration::ZERO]
            }
        });
        let listener = pair.listen(10);
        let client = pair.connect();
        let is_open = pair.run_until(Duration::from_secs(10), |pair| {
            pair.state(0, client) == Some(State::Established)
        });
        assert!(is_open, "without frame {lost}");
        // Data completes a handshake whose acknowledgment was lost.
        pair.write(0, client, b"hello");
        pair.run(Duration::from_secs(5));
        let (server, _) = pair.hosts[1].tcp_accept(pair.now, listener).unwrap();
        assert_eq!(pair.read(1, server).unwrap(), b"hello");
    }
}

/// A filter on the path refuses the connection, and says so: the SYN-ACK is not sent again.
#[test]
fn an_error_about_a_syn_ack_ends_its_handshake() {
    for (architecture, hard_errors_abort) in Architecture::ALL
        .into_iter()
        .flat_map(|architecture| [true, false].map(|aborts| (architecture, aborts)))
    {
        let mut pair = Pair::with(|_, settings| {
            settings.architecture = architecture;
            settings.tcp.connection.hard_errors_abort = hard_errors_abort;
        });
        let listener = pair.listen(10);
        pair.connect();
        let half_open = |pair: &Pair| pair.hosts[1].tcp_report().in_state(State::SynReceived);
        assert!(pair.run_until(ms(100), |pair| half_open(pair) == 1));
        pair.settle();
        let (_, _, syn_ack) = pair.flying.pop().unwrap();
        // Neither host hears the other any more.
        pair.flying.clear();
        pair.fate = alloc::boxed::Box::new(|_, _| vec![]);

        let report = |pair: &mut Pair, quoted: &[u8]| {
            let report = link::Answering::new(9, 2).prohibited(quoted);
            pair.hosts[1].on_frame(pair.now, pair.now, report, Verify::Yes);
            pair.settle();
            half_open(pair)
        };
        let mut forged = syn_ack.clone();
        // The sequence number is one of no SYN-ACK.
        forged[14 + 20 + 7] ^= 1;
        assert_eq!(report(&mut pair, &forged), 1);
        assert_eq!(pair.hosts[1].drops().of(DropReason::IcmpIgnored), 1);
        let left = usize::from(!hard_errors_abort);
        assert_eq!(report(&mut pair, &syn_ack), left, "{architecture:?}");
        pair.run(ms(2500));
        let stats = pair.hosts[1].tcp_listener_stats(listener).unwrap();
        assert_eq!(stats.retransmitted > 0, !hard_errors_abort);
    }
}

#[test]
fn both_ends_may_open_at_the_same_time() {
    for architecture in Architecture::ALL {
        let mut pair = Pair::new(architecture);
        let ends = ["10.0.0.1:7000", "10.0.0.2:8000"].map(|end| end.parse().unwrap());
        let mut ids = Vec::new();
        for number in 0..2 {
            let (local, remote) = (Some(ends[number]), ends[1 - number]);
            ids.push(
                pair.hosts[number]
                    .tcp_connect(START, local, remote, None)
                    .unwrap(),
            );
        }
        pair.run(Duration::from_secs(3));
        let states = [pair.state(0, ids[0]), pair.state(1, ids[1])];
        assert_eq!(states, [Some(State::Established); 2]);
        pair.write(0, ids[0], b"hello");
        pair.write(1, ids[1], b"world");
        pair.run(ms(100));
        assert_eq!(pair.read(0, ids[0]).unwrap(), b"world");
        assert_eq!(pair.read(1, ids[1]).unwrap(), b"hello");
    }
}

#[test]
fn a_full_backlog_keeps_clients_waiting_until_the_owner_accepts() {
    for architecture in Architecture::ALL {
        let mut pair = Pair::new(architecture);
        let listener = pair.listen(2);
        let clients: Vec<_> = (0..4).map(|_| pair.connect()).collect();
        pair.run(ms(500));
        let open = |pair: &Pair| {
            let states = clients.iter().map(|&id| pair.state(0, id).unwrap());
            states.filter(|&state| state == State::Established).count()
        };
        let mut accepted = 0;
        for _ in 0..20 {
            pair.run(Duration::from_secs(1));
            while pair.hosts[1].tcp_accept(pair.now, listener).is_some() {
                accepted += 1;
            }
        }
        assert_eq!((open(&pair), accepted), (4, 4), "{architecture:?}");
    }
}

#[test]
fn a_flood_of_syns_is_answered_by_cookies_and_leaves_clients_a_way() {
    let mut pair = Pair::new(Architecture::SoftLrp);
    let mut settings = TcpListenSettings::with_backlog(10);
    settings.listen.get_or_insert_default().half_open = 16;
    let remote = "10.0.0.2:80".parse().unwrap();
    let listener = pair.hosts[1].tcp_listen(remote, settings).unwrap();
    // SYNs whose senders never answer.
    for frame in link::Answering::new(9, 2).syns(200, remote) {
        pair.hosts[1].on_frame(pair.now, pair.now, frame, Verify::Yes);
        pair.hosts[1].process(pair.now, 10);
    }
    let client = pair.connect();
    pair.run(ms(500));
    assert_eq!(pair.state(0, client), Some(State::Established));
    let stats = pair.hosts[1].tcp_listener_stats(listener).unwrap();
    assert_eq!(
        (stats.cookies_sent, stats.cookies_accepted),
        (200 - 16 + 1, 1)
    );
    let (server, _) = pair.hosts[1].tcp_accept(pair.now, listener).unwrap();
    pair.write(0, client, b"through");
    pair.run(ms(500));
    assert_eq!(pair.read(1, server).unwrap(), b"through");
}

#[test]
fn an_unattended_listener_sends_no_cookies() {
    for architecture in LAZY_OR_EARLY {
        let mut pair = Pair::new(architecture);
        let listener = listen_with_cookies(&mut pair, 50_000);
        let flood = |pair: &mut Pair| {
            flood(pair);
            let stats = pair.hosts[1].tcp_listener_stats(listener).unwrap();
            let discarded = pair.hosts[1].tcp_counts().handshakes_discarded;
            (stats.cookies_sent, discarded)
        };
        assert_eq!(flood(&mut pair), (400 - 16, 0), "{architecture:?}");
        pair.run(ms(1100));
        let waiting = match architecture {
            Architecture::EarlyDemux => 0,
            _ => 256,
        };
        assert_eq!(
            flood(&mut pair),
            (400 - 16, 400 - waiting),
            "{architecture:?}"
        );
        // Sixteen of those that waited are half open.
        assert!(pair.hosts[1].tcp_wait_accept(listener));
        pair.hosts[1].process(pair.now, 1000);
        let stats = pair.hosts[1].tcp_listener_stats(listener).unwrap();
        let sent = 400 - 16 + waiting.saturating_sub(16);
        assert_eq!(stats.cookies_sent, sent, "{architecture:?}");
        // The owner waits, and is woken.
        let client = pair.connect();
        pair.run(ms(100));
        assert_eq!(pair.state(0, client), Some(State::Established));
        let (cookies, _) = flood(&mut pair);
        assert_eq!(cookies, sent + 1 + 400 - 16, "{architecture:?}");
        assert_eq!(pair.hosts[1].tcp_counts().cookies_withheld, 0);
    }
}

const LAZY_OR_EARLY: [Architecture; 3] = [
    Architecture::EarlyDemux,
    Architecture::SoftLrp,
    Architecture::NiLrp,
];

/// A listener with 16 half-open connections, and so many cookies a second.
fn listen_with_cookies(pair: &mut Pair, cookies_per_second: u32) -> TcpListenerId {
    let mut settings = TcpListenSettings::with_backlog(10);
    let listen = settings.listen.get_or_insert_default();
    listen.half_open = 16;
    listen.cookies_per_second = cookies_per_second;
    let local = "10.0.0.2:80".parse().unwrap();
    pair.hosts[1].tcp_listen(local, settings).unwrap()
}

/// Sends 400 SYNs, each of which is processed as far as it may be.
fn flood(pair: &mut Pair) {
    let remote = "10.0.0.2:80".parse().unwrap();
    for frame in link::Answering::new(9, 2).syns(400, remote) {
        pair.hosts[1].on_frame(pair.now, pair.now, frame, Verify::Yes);
        pair.hosts[1].process(pair.now, 10);
    }
}

#[test]
fn cookies_are_limited_per_second() {
    for architecture in LAZY_OR_EARLY {
        let mut pair = Pair::new(architecture);
        let listener = listen_with_cookies(&mut pair, 2000);
        pair.hosts[1].tcp_wait_accept(listener);
        flood(&mut pair);
        let sent = |pair: &Pair| {
            let stats = pair.hosts[1].tcp_listener_stats(listener).unwrap();
            stats.cookies_sent
        };
        assert_eq!(sent(&pair), 20, "{architecture:?}: those of 10 ms");
        // All but those that are half open or answered, and lazily the first that waits.
        let first = u64::from(architecture != Architecture::EarlyDemux);
        let withheld = pair.hosts[1].tcp_counts().cookies_withheld;
        assert_eq!(withheld, 400 - 16 - 20 - first, "{architecture:?}");
        // Without further frames a timer goes on with those that wait.
        pair.run(ms(50));
        let waiting = match architecture {
            Architecture::EarlyDemux => 0,
            _ => 100,
        };
        assert_eq!(sent(&pair), 20 + waiting, "{architecture:?}");
        pair.run(ms(450));
        let waiting = match architecture {
            Architecture::EarlyDemux => 0,
            _ => 256,
        };
        assert_eq!(sent(&pair), 20 + waiting, "{architecture:?}");
        assert!(!pair.hosts[1].has_work());
    }
}

#[test]
fn a_proven_peer_goes_before_a_flood_of_syns() {
    for (architecture, proven_peers) in LAZY_OR_EARLY
        .into_iter()
        .flat_map(|architecture| [0, 16].map(|proven_peers| (architecture, proven_peers)))
    {
        let mut pair = Pair::with(|_, settings| {
            settings.architecture = architecture;
            settings.tcp.shared.proven_peers = proven_peers;
        });
        let listener = listen_with_cookies(&mut pair, 1);
        let open = |pair: &mut Pair| {
            pair.hosts[1].tcp_wait_accept(listener);
            let client = pair.connect();
            pair.run(ms(500));
            pair.hosts[1].tcp_accept(pair.now, listener);
            pair.state(0, client) == Some(State::Established)
        };
        assert!(open(&mut pair), "before the flood");
        let told = pair.hosts[1].tcp_next_peer_change();
        let is_told = architecture == Architecture::NiLrp && proven_peers > 0;
        let added = told.map(|change| change.added);
        let expected = is_told.then(|| "10.0.0.1".parse().unwrap());
        assert_eq!(added, expected, "{architecture:?}");
        assert_eq!(pair.hosts[1].tcp_next_peer_change(), None);
        flood(&mut pair);
        assert_eq!(open(&mut pair), proven_peers > 0, "{architecture:?}");
    }
}

#[test]
fn proven_peers_over_ipv6_go_before_others_that_came_earlier() {
    let mut pair = Pair::new(Architecture::SoftLrp);
    let mut settings = TcpListenSettings::with_backlog(10);
    let listen = settings.listen.get_or_insert_default();
    listen.half_open = 1;
    listen.cookies_per_second = 1;
    let local = "[2001:db8::2]:80".parse().unwrap();
    let listener = pair.hosts[1].tcp_listen(local, settings).unwrap();
    pair.hosts[1].tcp_wait_accept(listener);
    let open = |pair: &mut Pair| {
        pair.hosts[0]
            .tcp_connect(pair.now, None, local, None)
            .unwrap()
    };
    let first = open(&mut pair);
    pair.run(ms(500));
    assert_eq!(pair.state(0, first), Some(State::Established));
    // One is half open, one gets the only cookie, and the others wait.
    let mut others = host(9, |_| {});
    for _ in 0..5 {
        others.tcp_connect(pair.now, None, local, None).unwrap();
    }
    let pass = |from: &mut Host, to: &mut Host, now| {
        while let Some(frame) = from.next_link_frame() {
            for frame in offload::on_the_wire(&frame, false) {
                to.on_frame(now, now, frame, Verify::Yes);
            }
        }
        to.process(now, 10);
    };
    let now = pair.now;
    // The question for the link address, the answer, and the SYNs.
    pass(&mut others, &mut pair.hosts[1], now);
    pass(&mut pair.hosts[1], &mut others, now);
    pass(&mut others, &mut pair.hosts[1], now);
    let second = open(&mut pair);
    pair.run(ms(100));
    assert_eq!(pair.state(0, second), Some(State::Established));
    pair.hosts[1].tcp_close_listener(pair.now, listener);
    assert!(pair.hosts[1].drops().of(DropReason::Closed) >= 3);
}

#[test]
fn a_flood_to_a_listener_that_does_not_accept_costs_only_the_demultiplexer() {
    let mut pair = Pair::new(Architecture::SoftLrp);
    let listener = pair.listen(1);
    let _client = pair.connect();
    pair.run(ms(100));
    let mut link = link::Answering::new(9, 2);
    let sent = pair.hosts[1].tcp_counts().segments_sent;
    for frame in link.syns(1000, "10.0.0.2:80".parse().unwrap()) {
        pair.hosts[1].on_frame(pair.now, pair.now, frame, Verify::Yes);
    }
    assert_eq!(
        pair.hosts[1].process(pair.now, 10_000),
        0,
        "no work is done for them"
    );
    assert_eq!(pair.hosts[1].tcp_counts().segments_sent, sent);
    assert_eq!(
        pair.hosts[1].drops().of(DropReason::ChannelFull),
        1000 - 256
    );
    assert!(pair.hosts[1].tcp_accept(pair.now, listener).is_some());
    assert!(pair.hosts[1].has_work());
}

#[test]
fn a_connection_to_the_stack_itself_works() {
    for architecture in Architecture::ALL {
        let mut pair = Pair::new(architecture);
        let listener = pair.listen(10);
        let now = pair.now;
        let remote = "10.0.0.2:80".parse().unwrap();
        let client = pair.hosts[1].tcp_connect(now, None, remote, None).unwrap();
        pair.run(ms(100));
        let (server, _) = pair.hosts[1].tcp_accept(pair.now, listener).unwrap();
        pair.write(1, client, &stream(5000));
        pair.run(ms(100));
        assert_eq!(pair.read(1, server).unwrap(), stream(5000));
        assert_eq!(pair.sent, [0, 0], "no frame leaves the host");
    }
}
