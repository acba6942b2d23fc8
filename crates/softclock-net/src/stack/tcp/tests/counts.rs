//! The counters of all connections.

use super::*;
use crate::tcp::listen::ListenSettings;
use crate::tcp::send::{RetransmissionCause, SendEvent};

/// Frames with more than a header that the first host sends.
fn is_data(host: usize, frame: &[u8]) -> bool {
    host == 0 && frame.len() > 200
}

/// Loses the frames with data of the first host that these numbers name, of those that are sent from now on.
fn lose(pair: &mut Pair, lost: &'static [usize]) {
    let mut number = 0;
    pair.fate = alloc::boxed::Box::new(move |host, frame| {
        let is_lost = is_data(host, frame) && lost.contains(&number);
        number += usize::from(is_data(host, frame));
        match is_lost {
            true => vec![],
            false => vec![Duration::ZERO],
        }
    });
}

fn sent_again(host: &Host) -> [u64; RetransmissionCause::ALL.len()] {
    RetransmissionCause::ALL.map(|cause| host.tcp_counts().retransmitted(cause))
}

#[test]
fn a_loss_is_sent_again_and_counted_once_by_its_cause() {
    let mut pair = Pair::new(Architecture::SoftLrp);
    let ids = pair.connected();
    pair.transfer(ids, &stream(100_000), 0);
    assert_eq!(sent_again(&pair.hosts[0]), [0; 5]);
    let blocks = pair.hosts[0].tcp_counts().sack_blocks;
    assert_eq!(blocks, 0);
    lose(&mut pair, &[10]);
    pair.transfer(ids, &stream(100_000), 0);
    let report = pair.hosts[0].tcp_report();
    let counts = &report.counts;
    assert_eq!(counts.retransmitted(RetransmissionCause::Rack), 1);
    assert_eq!(sent_again(&pair.hosts[0]).iter().sum::<u64>(), 1);
    assert_eq!(counts.of(SendEvent::Recovery), 1);
    assert_eq!(counts.of(SendEvent::Timeout), 0);
    assert!(counts.sack_blocks >= 3, "{counts:?}");
    let stats = pair.hosts[0].tcp_stats(ids[0]).unwrap();
    assert_eq!(stats.sent.retransmissions, 1);
}

#[test]
fn a_lost_end_is_a_tail_probe_and_a_lost_flight_a_timeout() {
    let mut pair = Pair::new(Architecture::SoftLrp);
    let ids = pair.connected();
    lose(&mut pair, &[0]);
    pair.transfer(ids, &stream(1000), 0);
    let counts = pair.hosts[0].tcp_counts();
    assert_eq!(counts.retransmitted(RetransmissionCause::TailProbe), 1);
    assert_eq!(counts.of(SendEvent::TailProbe), 1);
    assert_eq!(counts.of(SendEvent::Timeout), 0);
    // Its probe is lost, too.
    let mut pair = Pair::new(Architecture::SoftLrp);
    let ids = pair.connected();
    lose(&mut pair, &[0, 1]);
    pair.transfer(ids, &stream(1000), 0);
    let counts = pair.hosts[0].tcp_counts();
    assert_eq!(counts.retransmitted(RetransmissionCause::Timeout), 1);
    assert_eq!(counts.of(SendEvent::Timeout), 1);
    assert_eq!(sent_again(&pair.hosts[0]), [0, 0, 1, 1, 0]);
}

#[test]
fn without_selective_acknowledgments_duplicates_are_the_cause() {
    let mut pair = Pair::with(|_, settings| settings.tcp.connection.has_sack = false);
    let ids = pair.connected();
    lose(&mut pair, &[3]);
    pair.transfer(ids, &stream(100_000), 0);
    assert_eq!(sent_again(&pair.hosts[0]), [0, 1, 0, 0, 0]);
    assert_eq!(pair.hosts[0].tcp_counts().sack_blocks, 0);
}

#[test]
fn a_needless_recovery_is_counted_with_what_shows_it() {
    let mut pair = Pair::new(Architecture::SoftLrp);
    let ids = pair.connected();
    // One segment is overtaken by round trips of others: it arrives behind its own retransmission.
    let mut number = 0;
    pair.fate = alloc::boxed::Box::new(move |host, frame| {
        number += usize::from(is_data(host, frame));
        match is_data(host, frame) && number == 5 {
            true => vec![ms(60)],
            false => vec![Duration::ZERO],
        }
    });
    pair.transfer(ids, &stream(300_000), 0);
    pair.run(ms(200));
    let counts = pair.hosts[0].tcp_counts();
    assert_eq!(counts.of(SendEvent::Duplicate), 1, "{counts:?}");
    assert_eq!(counts.of(SendEvent::ReorderingWindow), 1);
    let undone = [
        SendEvent::UndoneByDuplicates,
        SendEvent::UndoneByTimestamps,
        SendEvent::UndoneByForwardRto,
    ];
    assert_eq!(undone.map(|event| counts.of(event)), [1, 0, 0]);
}

#[test]
fn cookies_and_full_queues_are_counted_beyond_the_life_of_a_listener() {
    let mut pair = Pair::new(Architecture::SoftLrp);
    let mut settings = TcpListenSettings::with_backlog(1);
    settings.listen.get_or_insert_default().half_open = 4;
    let remote = "10.0.0.2:80".parse().unwrap();
    let listener = pair.hosts[1].tcp_listen(remote, settings).unwrap();
    let mut flood = link::Answering::new(9, 2);
    for frame in flood.syns(20, remote) {
        pair.hosts[1].on_frame(pair.now, pair.now, frame, Verify::Yes);
        pair.hosts[1].process(pair.now, 10);
    }
    let report = pair.hosts[1].tcp_report();
    assert_eq!(report.listeners.cookies_sent, 16);
    assert_eq!(report.in_state(State::SynReceived), 4);
    // One is accepted by its cookie; the next finds the queue full.
    let _first = pair.connect();
    pair.run(ms(100));
    let report = pair.hosts[1].tcp_report();
    assert_eq!((report.listeners.cookies_accepted, report.waiting), (1, 1));
    for frame in flood.syns(300, remote) {
        pair.hosts[1].on_frame(pair.now, pair.now, frame, Verify::Yes);
    }
    pair.hosts[1].process(pair.now, 1000);
    let discarded = pair.hosts[1].tcp_counts().handshakes_discarded;
    assert_eq!(discarded, 300 - 256, "the rest waits for an accept");
    pair.hosts[1].tcp_close_listener(pair.now, listener);
    pair.run(ms(100));
    let report = pair.hosts[1].tcp_report();
    assert_eq!((report.listeners.cookies_sent, report.waiting), (17, 0));
    assert_eq!(report.in_state(State::SynReceived), 0);
}

#[test]
fn a_listener_has_the_settings_of_its_stack_unless_it_is_given_others() {
    for (of_stack, of_listener, half_open) in [(4, None, 4), (4, Some(6), 6)] {
        let change = |settings: &mut StackSettings| settings.tcp.listen.half_open = of_stack;
        let mut host = keyed_host(2, 2, change);
        let mut settings = TcpListenSettings::with_backlog(1);
        settings.listen = of_listener.map(|half_open| ListenSettings {
            half_open,
            ..ListenSettings::default()
        });
        let local = "10.0.0.2:80".parse().unwrap();
        host.tcp_listen(local, settings).unwrap();
        for frame in link::Answering::new(9, 2).syns(20, local) {
            host.on_frame(START, START, frame, Verify::Yes);
            host.process(START, 10);
        }
        let report = host.tcp_report();
        assert_eq!(report.in_state(State::SynReceived), half_open);
    }
}

#[test]
fn a_listener_has_little_room_while_its_owner_does_not_accept() {
    let mut pair = Pair::new(Architecture::NiLrp);
    let listener = pair.listen(1);
    let _first = pair.connect();
    pair.run(ms(100));
    let remote = "10.0.0.2:80".parse().unwrap();
    let mut flood = link::Answering::new(9, 2);
    for (number, frame) in (0..).zip(flood.syns(300, remote)) {
        let room = pair.hosts[1].tcp_syn_room(listener);
        let left = 256_usize.saturating_sub(number);
        assert_eq!(room.of_others, (left < 128).then_some(left));
        pair.hosts[1].on_frame(pair.now, pair.now, frame, Verify::Yes);
    }
    pair.hosts[1].process(pair.now, 1000);
    let room = |pair: &Pair| pair.hosts[1].tcp_syn_room(listener);
    assert_eq!(room(&pair).of_others, Some(0));
    pair.hosts[1].tcp_accept(pair.now, listener).unwrap();
    pair.hosts[1].process(pair.now, 1000);
    assert_eq!(room(&pair), SynRoom::default());
}

#[test]
fn states_add_up_to_the_connections() {
    let mut pair = Pair::new(Architecture::SoftLrp);
    let listener = pair.listen(10);
    let clients = [(); 4].map(|()| pair.connect());
    let sum = |host: &Host| -> usize { host.tcp_states().map(|(_, count)| count).sum() };
    assert_eq!(pair.hosts[0].tcp_report().in_state(State::SynSent), 4);
    pair.run(ms(100));
    let of = |host: &Host, state| host.tcp_report().in_state(state);
    let both = pair.hosts.each_ref();
    assert_eq!(both.map(|host| of(host, State::Established)), [4, 4]);
    assert_eq!(both.map(sum), [4, 4]);
    let servers = [(); 4].map(|()| pair.hosts[1].tcp_accept(pair.now, listener).unwrap().0);
    pair.hosts[0].tcp_close(pair.now, clients[0]);
    pair.hosts[0].tcp_abort(pair.now, clients[1]);
    pair.hosts[1]
        .tcp_shutdown_write(pair.now, servers[2])
        .unwrap();
    pair.run(ms(100));
    let [client, server] = pair.hosts.each_ref();
    assert_eq!(of(client, State::FinWait2), 1);
    assert_eq!(client.tcp_report().orphans, 1);
    assert_eq!(of(client, State::CloseWait), 1);
    assert_eq!(of(client, State::Established), 1);
    assert_eq!(of(server, State::CloseWait), 1);
    assert_eq!(of(server, State::FinWait2), 1);
    assert_eq!(
        of(server, State::Closed),
        1,
        "its owner has not seen the reset"
    );
    assert_eq!([client, server].map(sum), [3, 4]);
    for server in servers {
        pair.hosts[1].tcp_close(pair.now, server);
    }
    pair.hosts[0].tcp_close(pair.now, clients[2]);
    pair.hosts[0].tcp_close(pair.now, clients[3]);
    pair.run(ms(200));
    assert_eq!(
        pair.hosts.each_ref().map(|host| host.tcp_report().orphans),
        [0, 0]
    );
    pair.run(Duration::from_secs(70));
    assert_eq!(pair.hosts.each_ref().map(sum), [0, 0]);
}
