//! Single rules of windows, buffers and the path, step by step, and any steps.

use super::bench::Bench;
use super::*;

#[test]
fn a_writer_is_woken_although_the_buffer_has_shrunk_since_its_last_write() {
    let mut settings = SendSettings::default();
    settings.pacing.is_enabled = false;
    (settings.buffer, settings.most_buffer) = (2000, 100_000);
    let mut bench = Bench::new(&settings, &peer());
    bench.write(5000);
    assert!(bench.sender.room() > 0, "twice ten segments");
    assert_eq!(bench.sent().len(), 5);
    while bench.sender.room() > 0 {
        bench.wait();
        bench.sent();
    }
    bench.sender.await_room();
    bench.pass(40);
    assert!(bench.ack(5000, &[]).room);
}

#[test]
fn an_idle_sender_is_small() {
    assert!(size_of::<Sender>() <= IDLE_BYTES);
    let bench = Bench::plain();
    assert!(bench.sender.flight.is_none() && bench.sender.next_timeout().is_none());
}

#[test]
fn a_short_segment_waits_for_another() {
    let mut bench = Bench::plain();
    bench.write(1500);
    assert_eq!(
        bench.starts(),
        [0, 1000],
        "only one short segment is under way"
    );
    bench.write(300);
    assert!(bench.sent().is_empty());
    bench.sender.set_nagle(false);
    let sent = bench.sent();
    assert_eq!(
        (sent[0].seq, sent[0].length, sent[0].push),
        (Seq(1500), 300, true)
    );
    bench.sender.set_nagle(true);
    bench.write(300);
    bench.sender.close();
    let sent = bench.sent();
    assert_eq!(
        (sent[0].length, sent[0].fin),
        (300, true),
        "nothing can follow FIN"
    );
}

/// A sender with 5000 bytes to send and a window of 300, which are less than a segment. Nothing is in flight.
fn with_a_sliver() -> Bench {
    let mut bench = Bench::plain();
    bench.ack_with(0, &[], 8000, None, false);
    bench.write(5000);
    bench.sent();
    bench.pass(40);
    bench.ack_with(5000, &[], 300, None, false);
    bench.write(5000);
    assert!(bench.sent().is_empty());
    bench
}

#[test]
fn a_sliver_of_a_window_is_left_alone_until_the_persist_timer() {
    let mut bench = with_a_sliver();
    assert_eq!(bench.wait(), TimerOutcome::Retransmit);
    let sent = bench.sent();
    assert_eq!((sent[0].length, sent[0].kind), (300, TransmitKind::New));
}

#[test]
fn a_sliver_of_a_window_is_used_though_the_peer_sends_all_the_time() {
    let mut bench = with_a_sliver();
    let mut sent = 0;
    for _ in 0..20 {
        bench.pass(100);
        if sent == 0 {
            bench.ack_with(5000, &[], 300, None, false);
        }
        let _ = bench.sender.on_timer(bench.now);
        sent += (bench.sent().iter())
            .map(|segment| segment.length)
            .sum::<u32>();
    }
    assert!(sent >= 300);
    assert_eq!(bench.sender.next(), Seq(5300));
}

#[test]
fn a_probe_that_was_taken_counts() {
    let mut bench = Bench::plain();
    bench.ack_with(0, &[], 0, None, false);
    bench.write(2000);
    assert!(bench.sent().is_empty());
    bench.wait();
    let probe = bench.sent()[0];
    assert_eq!((probe.length, probe.kind), (1, TransmitKind::WindowProbe));
    bench.pass(40);
    let acked = bench.ack_with(1, &[], 4000, None, false);
    assert_eq!((acked.bytes, acked.verdict), (1, AckVerdict::New));
    assert_eq!(bench.starts(), [1, 1001]);
}

#[test]
fn impossible_acknowledgments_change_nothing() {
    let mut bench = Bench::plain();
    bench.write(3000);
    bench.sent();
    assert_eq!(bench.ack(3001, &[]).verdict, AckVerdict::Future);
    bench.ack_with(2500, &[], 2000, None, false);
    bench.ack_with(3000, &[], 2000, None, false);
    for (acknowledgment, verdict) in [(2999, AckVerdict::Old), (0, AckVerdict::Old)] {
        assert_eq!(bench.ack(acknowledgment, &[]).verdict, verdict);
    }
    // Bytes that were never sent, within the largest window.
    assert_eq!(bench.ack(u32::MAX, &[]).verdict, AckVerdict::TooOld);
    assert_eq!(
        (bench.sender.una(), bench.sender.window()),
        (Seq(3000), 2000)
    );
}

#[test]
fn an_acknowledgment_further_back_than_the_largest_window_is_too_old() {
    const WINDOW: u32 = 1 << 20;
    let mut bench = Bench::plain();
    let mut acked = 0;
    while acked < 2 * WINDOW {
        bench.write(5000);
        assert!(!bench.sent().is_empty());
        acked += 5000;
        bench.ack_with(acked, &[], WINDOW, None, false);
    }
    assert_eq!(bench.ack(acked - WINDOW, &[]).verdict, AckVerdict::Old);
    assert_eq!(
        bench.ack(acked - WINDOW - 1, &[]).verdict,
        AckVerdict::TooOld
    );
}

#[test]
fn congestion_is_reported_back_once_a_round_trip() {
    let mut bench = Bench::with_ecn();
    bench.write(20_000);
    let count = bench.sent().len() as u32;
    let window = bench.sender.congestion_window();
    bench.pass(40);
    bench.ack_with(1000, &[], 1 << 20, None, true);
    let reduced = bench.sender.congestion_window();
    assert!(reduced < window);
    bench.ack_with(count * 1000 / 2, &[], 1 << 20, None, true);
    assert!(bench.sender.congestion_window() >= reduced);
    let flags: Vec<bool> = bench.sent().iter().map(|segment| segment.cwr).collect();
    assert!(flags[0] && flags[1..].iter().all(|flag| !flag), "{flags:?}");
}

#[test]
fn a_narrower_path_cuts_the_segments_in_flight() {
    let mut bench = Bench::plain();
    bench.write(3000);
    bench.sent();
    bench.sender.on_too_big(500);
    bench.pass(10);
    let sent = bench.sent();
    assert_eq!(sent.iter().map(|segment| segment.length).sum::<u32>(), 3000);
    assert!(sent.iter().all(|segment| segment.length == 500));
    assert_eq!(bench.sender.stats().recoveries, 0);
    bench.pass(40);
    bench.ack(3000, &[]);
    assert!(bench.sender.is_all_acked());
}

#[test]
fn a_narrower_path_gets_full_segments_and_a_fin_with_the_last() {
    let mut bench = Bench::plain();
    bench.write(3000);
    bench.sender.close();
    assert_eq!(bench.starts(), [0, 1000, 2000]);
    bench.sender.on_too_big(700);
    let sent = bench.sent();
    let shapes: Vec<_> = sent
        .iter()
        .map(|segment| (segment.seq.0, segment.length, segment.fin))
        .collect();
    assert_eq!(
        shapes,
        [
            (0, 700, false),
            (700, 700, false),
            (1400, 700, false),
            (2100, 700, false),
            (2800, 200, true)
        ]
    );
    // A further fall divides what the first has made, as far as it is too long.
    bench.sender.on_too_big(400);
    let lengths: Vec<_> = bench.sent().iter().map(|segment| segment.length).collect();
    assert_eq!(lengths, [400; 7], "the last one fits");
    bench
        .sender
        .flight
        .as_ref()
        .unwrap()
        .board
        .check(Seq(0), Seq(3001));
    bench.pass(40);
    assert!(bench.ack(3001, &[]).fin);
}

#[test]
fn a_narrower_path_leaves_what_has_arrived_and_what_fits() {
    let mut bench = Bench::plain();
    bench.write(4200);
    assert_eq!(bench.starts(), [0, 1000, 2000, 3000, 4000]);
    bench.pass(40);
    bench.ack(0, &[(2000, 3000)]);
    bench.sender.on_too_big(600);
    let sent = bench.sent();
    let ranges: Vec<_> = sent
        .iter()
        .map(|segment| (segment.seq.0, segment.length))
        .collect();
    // The range that has arrived separates the two that have not, and the last segment is short enough to be under way.
    assert_eq!(
        ranges,
        [
            (0, 600),
            (600, 600),
            (1200, 600),
            (1800, 200),
            (3000, 600),
            (3600, 400)
        ]
    );
    bench
        .sender
        .flight
        .as_ref()
        .unwrap()
        .board
        .check(Seq(0), Seq(4200));
}

#[test]
fn a_receiver_that_drops_what_it_had_acknowledged_gets_it_again() {
    let mut bench = Bench::plain();
    bench.write(5000);
    bench.sent();
    bench.pass(40);
    bench.ack(0, &[(1000, 5000)]);
    assert_eq!(bench.starts(), [0]);
    bench.pass(40);
    bench.ack(1000, &[]);
    assert!(bench.sent().is_empty());
    assert_eq!(bench.wait(), TimerOutcome::Retransmit);
    assert_eq!(bench.starts(), [1000]);
    bench.pass(40);
    bench.ack(2000, &[]);
    assert_eq!(bench.starts(), [2000, 3000]);
}

#[test]
fn a_tail_that_has_arrived_before_its_probe_is_sent_is_not_probed() {
    let mut bench = Bench::plain();
    bench.write(2000);
    assert_eq!(bench.starts(), [0, 1000]);
    assert_eq!(bench.wait(), TimerOutcome::Retransmit);
    bench.ack(0, &[(1000, 2000)]);
    assert!(bench.sent().is_empty());
    let flight = bench.sender.flight.as_ref().unwrap();
    flight.board.check(Seq(0), Seq(2000));
    // The other segment has the timer of the reordering window.
    assert_eq!(bench.wait(), TimerOutcome::Retransmit);
    assert_eq!(bench.starts(), [0]);
}

#[test]
fn the_buffer_refuses_and_calls_back() {
    let mut bench = Bench::plain();
    let room = bench.sender.room();
    bench.write(room);
    assert_eq!(bench.sender.room(), 0);
    assert!(bench.sender.write(vec![1].into()).is_err());
    let mut acked = Acked {
        bytes: 0,
        fin: false,
        room: false,
        verdict: AckVerdict::New,
    };
    let mut calls = 0;
    while !bench.sender.is_all_acked() {
        bench.sent();
        bench.pass(40);
        let next = bench.sender.next().0;
        acked = bench.ack(next, &[]);
        calls += u32::from(acked.room);
    }
    assert_eq!(calls, 1);
    assert!(!acked.fin);
    for _ in 0..room {
        if bench.sender.write(vec![1].into()).is_err() {
            break;
        }
    }
    assert!(bench.sender.queue.charged() as usize <= bench.sender.buffer() as usize + 128);
}

#[test]
fn a_write_does_not_take_the_call_of_another_writer_away() {
    let mut bench = Bench::plain();
    let room = bench.sender.room();
    bench.write(room);
    bench.sender.await_room();
    bench.sent();
    bench.pass(40);
    assert!(!bench.ack(1000, &[]).room, "too little");
    bench.write(10);
    let mut calls = 0;
    while !bench.sender.is_all_acked() {
        bench.sent();
        bench.pass(40);
        let next = bench.sender.next().0;
        calls += u32::from(bench.ack(next, &[]).room);
    }
    assert_eq!(calls, 1);
}

#[derive(Clone, Debug)]
enum Step {
    Write(usize),
    Poll(usize),
    Ack {
        to: u32,
        sack: Vec<(u32, u32)>,
        window: u32,
        echo: Option<u32>,
        bits: [bool; 2],
    },
    Timer(u64),
    Mss(u16),
    TooBig(u16),
    Close,
}

fn steps() -> impl Strategy<Value = Step> {
    let positions = || prop_oneof![8 => 0..40u32, 1 => any::<u32>()];
    let block = (positions(), positions());
    prop_oneof![
        6 => (1..6000usize).prop_map(Step::Write),
        8 => (1..20usize).prop_map(Step::Poll),
        12 => (
            positions(),
            prop::collection::vec(block, 0..4),
            prop_oneof![8 => Just(1 << 20), 1 => 0..3000u32, 1 => any::<u32>()],
            any::<Option<u32>>(),
            any::<[bool; 2]>(),
        ).prop_map(|(to, sack, window, echo, bits)| Step::Ack { to, sack, window, echo, bits }),
        6 => (0..3000u64).prop_map(Step::Timer),
        1 => any::<u16>().prop_map(Step::Mss),
        1 => any::<u16>().prop_map(Step::TooBig),
        1 => Just(Step::Close),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]
    #[test]
    fn no_acknowledgment_confuses_a_sender(
        start in any::<u32>(),
        has_sack in any::<bool>(),
        unit in 1..1500u32,
        steps in prop::collection::vec(steps(), 1..80),
    ) {
        let mut now = at(1000);
        let options = PeerOptions { is_sack_permitted: has_sack, ecn: Ecn::Classic, ..peer() };
        let mut sender = Sender::new(Seq(start), &SendSettings::default(), &options, 1 << 20, now);
        for step in steps {
            match step {
                Step::Write(bytes) => {
                    let _ = sender.write(vec![1; bytes].into());
                }
                Step::Poll(count) => for _ in 0..count {
                    sender.poll_transmit(now);
                },
                Step::Ack { to, sack, window, echo, bits } => {
                    // Positions are counted from SND.UNA in units, so that many are plausible.
                    let una = sender.una();
                    let place = |steps: u32| una + steps.wrapping_mul(unit);
                    let mut blocks = SackBlocks::default();
                    for (from, to) in sack {
                        blocks.push(SackBlock { start: place(from), end: place(to) });
                    }
                    let limit = sender.next();
                    let acknowledgment = place(to / 8).min(limit);
                    let ack = Ack {
                        acknowledgment, window, sack: &blocks, echo, ece: bits[0], carries_data: bits[1],
                        seq: Seq(to),
                    };
                    sender.on_ack(now, now, &ack);
                    prop_assert!(sender.una().is_at_or_before(sender.next()));
                }
                Step::Timer(millis) => {
                    now += ms(millis);
                    sender.on_timer(now);
                }
                Step::Mss(mss) => sender.set_mss(mss),
                Step::TooBig(mss) => sender.on_too_big(mss),
                Step::Close => sender.close(),
            }
            match &sender.flight {
                Some(flight) => flight.board.check(sender.una, sender.next),
                None => prop_assert_eq!(sender.una, sender.next),
            }
        }
    }
}

#[test]
fn nothing_is_probed_for_once_the_peer_has_taken_the_last_byte_or_fin() {
    for has_fin in [false, true] {
        let mut bench = Bench::plain();
        bench.ack_with(0, &[], 0, None, false);
        match has_fin {
            true => bench.sender.close(),
            false => bench.write(1),
        }
        assert!(bench.sent().is_empty());
        let _ = bench.wait();
        assert_eq!(bench.sent().len(), 1, "the probe");
        bench.pass(40);
        bench.ack_with(1, &[], 0, None, false);
        assert!(bench.sender.is_all_acked());
        assert_eq!(bench.sender.next_timeout(), None);
    }
}
