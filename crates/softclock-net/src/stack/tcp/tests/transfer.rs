//! Bytes over good and bad paths.

use proptest::prelude::*;

use super::*;
use crate::stack::tests::simulation::Cable;
use crate::tcp::listen::CookieUse;
use crate::tcp::segment;
use crate::tcp::send::ClockUnit;

/// Sends a stream from each end to the other, and closes. Returns what each end has read.
pub(super) fn exchange(
    pair: &mut Pair,
    ids: [TcpId; 2],
    streams: [&[u8]; 2],
    most: Duration,
) -> [Vec<u8>; 2] {
    let mut written = [0, 0];
    let mut read = [Vec::new(), Vec::new()];
    let mut is_done = [false, false];
    let mut is_closed = [false, false];
    pair.run_until(most, |pair| {
        for number in 0..2 {
            let (id, now) = (ids[number], pair.now);
            let rest = &streams[number][written[number]..];
            let host = &mut pair.hosts[number];
            if !rest.is_empty() {
                let piece = Bytes::copy_from_slice(&rest[..rest.len().min(30_000)]);
                match host.tcp_write(now, id, piece) {
                    Ok(bytes) => written[number] += bytes,
                    Err(TcpError::WouldBlock) => {}
                    Err(error) => panic!("{error}"),
                }
            } else if !is_closed[number] {
                is_closed[number] = true;
                host.tcp_shutdown_write(now, id).unwrap();
            }
            while !is_done[number] {
                match pair.read(number, id) {
                    Ok(bytes) if bytes.is_empty() => is_done[number] = true,
                    Ok(bytes) => read[number].extend(bytes),
                    Err(TcpError::WouldBlock) => break,
                    Err(error) => panic!("{error}"),
                }
            }
        }
        is_done == [true, true]
    });
    assert_eq!(
        is_done,
        [true, true],
        "{:?} at {:?}",
        read.each_ref().map(Vec::len),
        pair.now
    );
    read
}

/// A path that loses, repeats, delays and damages frames, by a seed.
pub(super) fn bad_path(seed: u64) -> Fate {
    let mut cable = Cable {
        random: seed,
        delayed: Vec::new(),
    };
    alloc::boxed::Box::new(move |_, frame| {
        cable.carry(START, true, frame.clone());
        let mut delays = Vec::new();
        for (at, _, carried) in cable.delayed.drain(..) {
            *frame = carried;
            delays.push(at.since(START) * 7);
        }
        delays
    })
}

fn over_a_bad_path(architecture: Architecture, seed: u64, lengths: [usize; 2]) {
    let mut pair = Pair::new(architecture);
    let ids = pair.connected();
    pair.fate = bad_path(seed);
    let streams = lengths.map(stream);
    let both = [&streams[0][..], &streams[1][..]];
    let read = exchange(&mut pair, ids, both, Duration::from_secs(3600));
    assert!(
        read[0] == streams[1] && read[1] == streams[0],
        "seed {seed}"
    );
    pair.run(Duration::from_secs(200));
    let memory = pair.hosts.each_ref().map(|host| host.tcp_memory());
    assert_eq!(memory, [0, 0], "seed {seed}");
}

#[test]
fn a_long_transfer_is_intact_and_fast() {
    for architecture in Architecture::ALL {
        let mut pair = Pair::new(architecture);
        let ids = pair.connected();
        let bytes = stream(3_000_000);
        let start = pair.now;
        let read = exchange(&mut pair, ids, [&bytes, b""], Duration::from_secs(60));
        assert!(read[1] == bytes);
        let took = pair.now.since(start);
        assert!(took < Duration::from_secs(2), "{took:?}");
        let stats = pair.hosts[0].tcp_stats(ids[0]).unwrap();
        assert_eq!(stats.sent.retransmissions, 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Loss, duplication, reordering and damage: every byte arrives once and in order, in all architectures.
    #[test]
    fn streams_arrive_intact_over_a_bad_path(
        seed in 1..u64::MAX,
        lengths in [0..60_000usize, 0..60_000usize],
    ) {
        for architecture in Architecture::ALL {
            over_a_bad_path(architecture, seed, lengths);
        }
    }
}

#[test]
fn a_closed_window_is_probed_until_it_opens() {
    let mut pair = Pair::new(Architecture::SoftLrp);
    let [client, server] = pair.connected();
    let bytes = stream(400_000);
    let mut written = 0;
    for _ in 0..20 {
        pair.write_rest(0, client, &bytes, &mut written);
        pair.run(Duration::from_secs(1));
    }
    assert!(written < bytes.len(), "the reader does not read");
    pair.run(Duration::from_secs(600));
    assert_eq!(pair.state(0, client), Some(State::Established));
    assert!(pair.hosts[0].tcp_stats(client).unwrap().sent.window_probes > 3);
    pair.transfer([client, server], &bytes, written);
}

#[test]
fn an_owner_that_does_not_come_does_not_delay_acknowledgments() {
    let mut pair = Pair::new(Architecture::SoftLrp);
    let [client, server] = pair.connected();
    pair.write(0, client, &stream(1000));
    pair.run(ms(60));
    assert_eq!(pair.hosts[1].tcp_counts().late_owners, 1);
    let stats = pair.hosts[0].tcp_stats(client).unwrap();
    assert_eq!((stats.sent.timeouts, stats.sent.retransmissions), (0, 0));
    assert_eq!(pair.read(1, server).unwrap().len(), 1000);
}

#[test]
fn lazily_segments_wait_for_the_owner() {
    let mut pair = Pair::new(Architecture::SoftLrp);
    pair.delay = ms(50);
    let listener = pair.listen(10);
    let client = pair.connect();
    pair.run(ms(500));
    let (server, _) = pair.hosts[1].tcp_accept(pair.now, listener).unwrap();
    let before = pair.hosts[1].tcp_counts().segments_received;
    pair.write(0, client, b"hello");
    pair.run(ms(51));
    assert_eq!(pair.hosts[1].tcp_counts().segments_received, before);
    assert_eq!(pair.read(1, server).unwrap(), b"hello");
    assert_eq!(pair.hosts[1].tcp_counts().segments_received, before + 1);
}

#[test]
fn connections_take_turns() {
    let mut pair = Pair::new(Architecture::SoftLrp);
    let listener = pair.listen(10);
    let clients = [(); 3].map(|()| pair.connect());
    pair.run(ms(100));
    for _ in 0..3 {
        pair.hosts[1].tcp_accept(pair.now, listener).unwrap();
    }
    for client in clients {
        pair.write(0, client, &stream(5000));
    }
    let mut ports = Vec::new();
    while let Some(frame) = pair.hosts[0].next_frame() {
        ports.push(u16::from_be_bytes([frame[34], frame[35]]));
    }
    assert!(ports.len() >= 9);
    let (first, second) = (&ports[..3], &ports[3..6]);
    assert_eq!(first, second);
    assert!(first[0] != first[1] && first[1] != first[2]);
}

#[test]
fn memory_for_all_is_bounded_and_each_makes_progress() {
    let mut pair = Pair::with(|_, settings| {
        settings.tcp.memory = 20_000;
        settings.tcp.least_memory = 4_000;
    });
    let ids = pair.connected();
    let streams = [stream(300_000), stream(100_000)];
    let both = [&streams[0][..], &streams[1][..]];
    let read = exchange(&mut pair, ids, both, Duration::from_secs(1000));
    assert_eq!(read.each_ref().map(Vec::len), [100_000, 300_000]);
    assert!(read[0] == streams[1] && read[1] == streams[0]);
}

#[test]
fn a_report_of_a_narrow_path_shortens_segments() {
    let mut pair = Pair::new(Architecture::SoftLrp);
    let ids = pair.connected();
    // A router behind the first host carries 1000 bytes, and reports longer packets.
    let router = link::Answering::new(2, 1);

    let reports = alloc::rc::Rc::new(core::cell::RefCell::new(Vec::new()));
    let to_send = reports.clone();
    pair.fate = alloc::boxed::Box::new(move |from, frame| {
        if from == 0 && frame.len() > 1014 {
            to_send.borrow_mut().push(router.too_big(frame, 1000));
            return vec![];
        }
        vec![Duration::ZERO]
    });
    let bytes = stream(50_000);
    let mut written = 0;
    let mut received = Vec::new();
    let is_done = pair.run_until(Duration::from_secs(3), |pair| {
        let now = pair.now;
        for report in reports.borrow_mut().drain(..) {
            pair.hosts[0].on_frame(now, now, report, Verify::Yes);
        }
        pair.write_rest(0, ids[0], &bytes, &mut written);
        pair.read_all(1, ids[1], &mut received);
        received.len() == bytes.len()
    });
    assert!(is_done && received == bytes, "{} bytes", received.len());
    assert_eq!(pair.hosts[0].tcp_stats(ids[0]).unwrap().sent.timeouts, 0);
}

#[test]
fn a_path_that_loses_long_packets_without_a_report_is_escaped() {
    let mut pair = Pair::new(Architecture::SoftLrp);
    let ids = pair.connected();
    pair.fate = alloc::boxed::Box::new(|from, frame| match from == 0 && frame.len() > 1300 {
        true => vec![],
        false => vec![Duration::ZERO],
    });
    let bytes = stream(20_000);
    let read = exchange(&mut pair, ids, [&bytes, b""], Duration::from_secs(60));
    assert!(read[1] == bytes);
}

/// Fields of a segment near those that the connection expects.
fn near(number: u32) -> impl Strategy<Value = u32> {
    prop_oneof![
        4 => Just(number),
        3 => (-5i32..5).prop_map(move |by| number.wrapping_add(by as u32)),
        2 => (-100_000i32..100_000).prop_map(move |by| number.wrapping_add(by as u32)),
        1 => any::<u32>(),
    ]
}

proptest! {
    /// No segment of a third host makes a stack panic, or takes memory beyond the limits.
    #[test]
    fn any_segment_is_handled(
        architecture in prop::sample::select(&Architecture::ALL[..]),
        segments in prop::collection::vec(
            (near(0), near(0), 0..512u16, any::<u16>(), 0..1500usize, 0..8u8, any::<bool>()), 1..60),
    ) {
        let mut pair = Pair::new(architecture);
        let [client, server] = pair.connected();
        pair.write(1, server, &stream(20_000));
        let link = link::Answering::new(1, 2);
        let from = pair.hosts[0].tcp_local(client).unwrap();
        for (seq, ack, flags, window, length, action, has_options) in segments {
            let connection = pair.hosts[0].tcp_connection(client).map(|connection| connection.numbers());
            let (next, expected) = connection.unwrap_or_default();
            let header = segment::Header {
                source_port: from.port(),
                destination_port: 80,
                sequence: next + seq,
                acknowledgment: expected + ack,
                flags: segment::Flags(flags),
                window,
                urgent: 0,
            };
            let mut options = segment::Options::default();
            if has_options {
                options.timestamps = Some(segment::Timestamps { value: seq, echo: ack });
                options.sack.push(segment::SackBlock { start: expected + seq, end: expected + ack });
            }
            let frame = link.frame(&header, &options, &stream(length));
            pair.hosts[1].on_frame(pair.now, pair.now, frame, Verify::Yes);
            match action {
                0 => drop(pair.read(1, server)),
                1 => drop(pair.hosts[1].tcp_write(pair.now, server, Bytes::from_static(b"more"))),
                2 => drop(pair.hosts[1].tcp_shutdown_write(pair.now, server)),
                3 => pair.run(Duration::from_millis(window.into())),
                _ => {}
            }
        }
        pair.run(Duration::from_secs(10));
        prop_assert!(pair.hosts[1].tcp_memory() < 1 << 20);
        pair.hosts[1].tcp_close(pair.now, server);
        pair.hosts[0].tcp_close(pair.now, client);
        pair.run(Duration::from_secs(3000));
        let left: usize = pair.hosts.iter().flat_map(Host::tcp_states).map(|(_, count)| count).sum();
        prop_assert_eq!(left, 0);
        prop_assert_eq!(pair.hosts.each_ref().map(|host| host.tcp_memory()), [0, 0]);
        prop_assert!(pair.hosts.iter().all(|host| host.next_timeout().is_none()));
    }
}

/// The clock of the peer passes half of its range in 36 minutes.
#[test]
fn time_stamps_of_microseconds_survive_a_long_pause() {
    let mut pair = Pair::with(|_, settings| {
        settings.tcp.connection.send.clock = ClockUnit::Microseconds;
    });
    let ids = pair.connected();
    pair.run(Duration::from_secs(40 * 60));
    pair.transfer(ids, &stream(1000), 0);
    let sent = pair.hosts[0].tcp_stats(ids[0]).unwrap().sent;
    assert_eq!((sent.timeouts, sent.retransmissions), (0, 0));
}

/// The peer would drop what follows the handshake, if the clock of the connection were another.
#[test]
fn connections_have_the_clock_of_the_handshake() {
    let mut pair = Pair::with(|_, _| {});
    pair.now = Instant::from_ns(10 * 24 * 3600 * 1_000_000_000);
    let mut own = crate::tcp::settings::Settings::default();
    own.send.clock = ClockUnit::Microseconds;
    let settings = TcpListenSettings {
        connection: Some(own.clone()),
        ..TcpListenSettings::with_backlog(10)
    };
    let listener = pair.hosts[1].tcp_listen("10.0.0.2:80".parse().unwrap(), settings);
    let remote = "10.0.0.2:80".parse().unwrap();
    let client = pair.hosts[0].tcp_connect(pair.now, None, remote, Some(own));
    let client = client.unwrap();
    pair.run(ms(100));
    let (server, _) = pair.hosts[1]
        .tcp_accept(pair.now, listener.unwrap())
        .unwrap();
    for (host, id) in [(0, client), (1, server)] {
        pair.hosts[host].tcp_change(pair.now, id, |settings| {
            settings.send.clock = ClockUnit::Microseconds;
        });
        pair.write(host, id, b"data");
        pair.run(ms(100));
        assert_eq!(
            pair.read(1 - host, [client, server][1 - host]).unwrap(),
            b"data"
        );
    }
}

/// A receiver that sends no data measures no round trip after the handshake.
#[test]
fn the_receive_buffer_grows_whatever_the_handshake_was() {
    for (cookies, lost) in [(CookieUse::Always, None), (CookieUse::Never, Some(0))] {
        let mut pair = Pair::with(|_, settings| settings.tcp.listen.cookies = cookies);
        pair.delay = ms(50);
        let mut number = 0;
        pair.fate = alloc::boxed::Box::new(move |host, _| {
            let is_lost = host == 1 && lost == Some(number);
            number += usize::from(host == 1);
            match is_lost {
                true => vec![],
                false => vec![Duration::ZERO],
            }
        });
        let listener = pair.listen(10);
        let client = pair.connect();
        pair.run(Duration::from_secs(2));
        let (server, _) = pair.hosts[1].tcp_accept(pair.now, listener).unwrap();
        pair.transfer([client, server], &stream(5_000_000), 0);
        let connection = pair.hosts[1].tcp_connection(server).unwrap();
        assert!(connection.receive_buffer() > 128 << 10, "{cookies:?}");
    }
}
