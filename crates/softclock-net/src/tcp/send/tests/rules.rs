//! Single rules, step by step.

use super::*;

/// A sender of segments of 1000 bytes, with a round trip of 40 ms.
struct Bench {
    sender: Sender,
    now: Instant,
}

impl Bench {
    fn new(settings: &SendSettings, options: &PeerOptions) -> Self {
        let now = at(1000);
        let mut sender = Sender::new(Seq(0), settings, options, 1 << 20, now);
        sender.on_handshake_rtt(now, ms(40));
        Self { sender, now }
    }

    fn plain() -> Self {
        let mut settings = SendSettings::default();
        settings.pacing.is_enabled = false;
        Self::new(&settings, &peer())
    }

    fn write(&mut self, bytes: usize) {
        self.sender.write(vec![7; bytes].into()).unwrap();
    }

    fn sent(&mut self) -> Vec<Transmit> {
        core::iter::from_fn(|| self.sender.poll_transmit(self.now)).collect()
    }

    fn starts(&mut self) -> Vec<u32> {
        self.sent().iter().map(|segment| segment.seq.0).collect()
    }

    fn pass(&mut self, millis: u64) {
        self.now += ms(millis);
    }

    fn ack(&mut self, to: u32, sack: &[(u32, u32)]) -> Acked {
        self.ack_with(to, sack, 1 << 20, None, false)
    }

    fn ack_with(
        &mut self,
        to: u32,
        sack: &[(u32, u32)],
        window: u32,
        echo: Option<u32>,
        ece: bool,
    ) -> Acked {
        let mut blocks = SackBlocks::default();
        for &(start, end) in sack {
            blocks.push(SackBlock {
                start: Seq(start),
                end: Seq(end),
            });
        }
        let ack = Ack {
            acknowledgment: Seq(to),
            window,
            sack: &blocks,
            echo,
            ece,
            carries_data: false,
            seq: Seq(0),
        };
        self.sender.on_ack(self.now, self.now, &ack)
    }

    /// Goes to the next timeout.
    fn wait(&mut self) -> TimerOutcome {
        self.now = self.sender.next_timeout().unwrap();
        self.sender.on_timer(self.now)
    }
}

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
fn a_segment_within_the_reordering_window_is_not_lost() {
    let mut bench = Bench::plain();
    bench.write(5000);
    assert_eq!(bench.starts().len(), 5);
    bench.pass(40);
    // One segment overtaken by one: a quarter of 40 ms is left to it.
    bench.ack(0, &[(1000, 2000)]);
    assert!(bench.sent().is_empty());
    assert_eq!(bench.sender.next_timeout(), Some(at(1050)));
    bench.pass(9);
    bench.ack(2000, &[]);
    assert_eq!(
        (
            bench.sender.stats().losses,
            bench.sender.stats().reorderings
        ),
        (0, 1)
    );
    // From now on, three duplicates are no proof of a loss.
    bench.ack(2000, &[(3000, 5000)]);
    bench.write(5000);
    assert_eq!(bench.starts(), [5000, 6000, 7000, 8000, 9000]);
    bench.pass(40);
    bench.ack(2000, &[(3000, 10_000)]);
    assert_eq!(bench.sender.stats().losses, 1, "late by now");
}

#[test]
fn a_segment_beyond_the_reordering_window_is_sent_again_by_its_timer() {
    let mut bench = Bench::plain();
    bench.write(5000);
    bench.sent();
    bench.pass(40);
    bench.ack(0, &[(1000, 2000)]);
    assert_eq!(bench.wait(), TimerOutcome::Retransmit);
    assert_eq!(bench.now, at(1050));
    assert_eq!(bench.starts(), [0]);
    assert_eq!(bench.sender.stats().recoveries, 1);
}

#[test]
fn three_duplicates_show_a_loss_where_no_reordering_was_seen() {
    let mut bench = Bench::plain();
    bench.write(8000);
    bench.sent();
    bench.pass(40);
    bench.ack(0, &[(1000, 4000)]);
    assert_eq!(bench.starts(), [0]);
}

#[test]
fn processing_late_makes_no_segment_late() {
    let mut bench = Bench::plain();
    bench.write(5000);
    bench.sent();
    // Both arrived after 40 ms, and are processed after 100 ms: before the second, nothing is lost.
    let arrived = bench.now + ms(40);
    bench.pass(100);
    for (to, sack) in [(0, Some((1000, 2000))), (5000, None)] {
        let mut blocks = SackBlocks::default();
        if let Some((start, end)) = sack {
            blocks.push(SackBlock {
                start: Seq(start),
                end: Seq(end),
            });
        }
        let ack = Ack {
            acknowledgment: Seq(to),
            window: 1 << 20,
            sack: &blocks,
            echo: None,
            ece: false,
            carries_data: false,
            seq: Seq(0),
        };
        bench.sender.on_ack(bench.now, arrived, &ack);
    }
    assert!(bench.sender.is_all_acked());
    assert_eq!(bench.sender.stats().losses, 0);
    assert_eq!(bench.sender.srtt(), Some(ms(40)));
}

#[test]
fn a_needless_retransmission_is_found_by_its_duplicate() {
    let mut bench = Bench::plain();
    bench.write(10_000);
    bench.sent();
    let window = bench.sender.congestion_window();
    bench.pass(40);
    bench.ack(0, &[(1000, 4000)]);
    assert_eq!(bench.starts(), [0]);
    bench.pass(5);
    bench.ack(10_000, &[]);
    assert!(bench.sender.congestion_window() < window);
    bench.pass(35);
    bench.ack(10_000, &[(0, 1000)]);
    assert!(bench.sender.congestion_window() >= window);
    assert_eq!(
        (bench.sender.stats().undone, bench.sender.stats().duplicates),
        (1, 1)
    );
}

#[test]
fn a_needless_recovery_is_found_by_the_echo_of_the_original() {
    let mut bench = Bench::plain();
    bench.write(10_000);
    bench.sent();
    let window = bench.sender.congestion_window();
    bench.pass(40);
    bench.ack_with(0, &[(1000, 4000)], 1 << 20, Some(1000), false);
    assert_eq!(bench.starts(), [0]);
    bench.pass(5);
    bench.ack_with(4000, &[], 1 << 20, Some(1000), false);
    assert_eq!(bench.sender.stats().undone, 1);
    assert!(bench.sender.congestion_window() >= window);
}

#[test]
fn after_a_timeout_an_original_that_arrives_shows_it_needless() {
    let mut bench = Bench::plain();
    bench.write(4000);
    bench.sent();
    assert_eq!(bench.wait(), TimerOutcome::Retransmit);
    assert_eq!(
        bench
            .sent()
            .iter()
            .map(|segment| segment.kind)
            .collect::<Vec<_>>(),
        [TransmitKind::Probe]
    );
    assert_eq!(bench.wait(), TimerOutcome::Retransmit);
    assert_eq!(bench.starts(), [0]);
    bench.pass(10);
    // The delayed acknowledgment of two originals, of which the first was sent again.
    bench.ack(2000, &[]);
    assert_eq!(bench.sender.stats().undone, 1);
    assert!(bench.sent().is_empty(), "the rest is under way");
}

#[test]
fn timeouts_back_off_and_end() {
    let settings = SendSettings {
        retries: 4,
        ..SendSettings::default()
    };
    let mut bench = Bench::new(
        &settings,
        &PeerOptions {
            is_sack_permitted: false,
            ..peer()
        },
    );
    bench.write(1000);
    bench.sent();
    let mut waits = vec![];
    let mut before = bench.now;
    loop {
        let outcome = bench.wait();
        waits.push(bench.now.since(before).as_millis());
        before = bench.now;
        if outcome == TimerOutcome::GiveUp {
            break;
        }
        assert_eq!(bench.starts(), [0]);
    }
    assert_eq!(waits, [240, 480, 960, 1920, 3840]);
}

/// A sender with a user timeout of 3 s.
fn impatient() -> Bench {
    let settings = SendSettings {
        user_timeout: Some(ms(3000)),
        ..SendSettings::default()
    };
    Bench::new(&settings, &peer())
}

/// Waits until the sender gives up, and returns the time since `start`.
fn gives_up_after(bench: &mut Bench, start: Instant) -> Duration {
    while bench.wait() != TimerOutcome::GiveUp {
        bench.sent();
    }
    bench.now.since(start)
}

#[test]
fn the_user_timeout_ends_a_connection_without_progress() {
    let mut bench = impatient();
    bench.pass(10_000);
    bench.write(1000);
    let start = bench.now;
    bench.sent();
    assert_eq!(gives_up_after(&mut bench, start), ms(3000));
}

#[test]
fn progress_begins_the_user_timeout_anew() {
    let mut bench = impatient();
    bench.write(2000);
    bench.sent();
    bench.pass(2000);
    assert_eq!(bench.sender.on_timer(bench.now), TimerOutcome::Retransmit);
    bench.sent();
    bench.ack(1000, &[]);
    bench.sent();
    // What arrives beyond a gap is no progress, and neither is a retransmission.
    let start = bench.now;
    bench.pass(1500);
    let _ = bench.sender.on_timer(bench.now);
    bench.sent();
    bench.ack(1000, &[]);
    assert_eq!(gives_up_after(&mut bench, start), ms(3000));
}

#[test]
fn the_user_timeout_ends_a_connection_whose_window_stays_closed() {
    let mut bench = impatient();
    bench.ack_with(0, &[], 0, None, false);
    bench.write(500);
    let start = bench.now;
    assert!(bench.sent().is_empty());
    let mut probes = 0;
    loop {
        match bench.wait() {
            TimerOutcome::GiveUp => break,
            _ => probes += bench.sent().len(),
        }
        // The peer is alive, but takes nothing.
        bench.ack_with(0, &[], 0, None, false);
    }
    assert_eq!(bench.now.since(start), ms(3000));
    assert!(probes >= 2, "{probes}");
}

#[test]
fn nothing_waits_in_an_idle_connection() {
    let mut bench = impatient();
    bench.write(1000);
    bench.sent();
    bench.pass(40);
    bench.ack(1000, &[]);
    assert_eq!(bench.sender.next_timeout(), None);
    bench.pass(100_000);
    assert!(bench.sent().is_empty());
    assert_eq!(bench.sender.next_timeout(), None);
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

#[test]
fn a_sliver_of_a_window_is_left_alone_until_the_persist_timer() {
    let mut bench = Bench::plain();
    bench.ack_with(0, &[], 8000, None, false);
    bench.write(5000);
    bench.sent();
    bench.pass(40);
    bench.ack_with(5000, &[], 300, None, false);
    bench.write(5000);
    assert!(bench.sent().is_empty());
    assert_eq!(bench.wait(), TimerOutcome::Retransmit);
    let sent = bench.sent();
    assert_eq!((sent[0].length, sent[0].kind), (300, TransmitKind::New));
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
    bench.ack_with(3000, &[], 2000, None, false);
    assert_eq!(
        bench.ack(3000u32.wrapping_sub(1 << 20), &[]).verdict,
        AckVerdict::Old
    );
    assert_eq!(
        bench.ack(2999u32.wrapping_sub(1 << 20), &[]).verdict,
        AckVerdict::TooOld
    );
    assert_eq!(
        (bench.sender.una(), bench.sender.window()),
        (Seq(3000), 2000)
    );
}

#[test]
fn congestion_is_reported_back_once_a_round_trip() {
    let options = PeerOptions {
        ecn: Ecn::Classic,
        ..peer()
    };
    let mut settings = SendSettings::default();
    settings.pacing.is_enabled = false;
    let mut bench = Bench::new(&settings, &options);
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
fn a_stated_rate_holds_back() {
    let mut bench = Bench::plain();
    bench.sender.set_rate(Some(100_000));
    bench.write(3000);
    assert_eq!(bench.starts(), [0]);
    let next = bench.sender.next_timeout().unwrap();
    assert_eq!(next.since(bench.now), ms(10));
    bench.wait();
    assert_eq!(bench.starts(), [1000]);
}

#[test]
fn bytes_that_wait_for_the_stated_rate_are_told_from_those_that_wait_for_the_peer() {
    let mut bench = Bench::plain();
    bench.sender.set_rate(Some(100_000));
    bench.write(3000);
    assert_eq!(bench.starts(), [0]);
    assert_eq!(bench.sender.held_back(), 2000);
    bench.pass(2);
    bench.ack_with(1000, &[], 0, None, false);
    assert!(bench.sent().is_empty());
    assert_eq!(bench.sender.held_back(), 0, "the window is closed");
    bench.ack(1000, &[]);
    assert!(bench.sent().is_empty());
    assert_eq!(bench.sender.held_back(), 2000);
    bench.wait();
    assert_eq!(bench.starts(), [1000]);
    assert_eq!(bench.sender.held_back(), 1000);
    bench.wait();
    assert_eq!(bench.starts(), [2000]);
    assert_eq!(bench.sender.held_back(), 0, "all is sent");

    // The rate of the window, below the stated one, is the path's.
    let mut bench = Bench::new(&SendSettings::default(), &peer());
    bench.sender.set_rate(Some(1_000_000_000));
    bench.write(25_000);
    assert_eq!(bench.sent().len(), 10);
    bench.pass(40);
    bench.ack(4000, &[]);
    bench.sent();
    assert_ne!(bench.sender.paced_at, Instant::FAR_FUTURE);
    assert_eq!(bench.sender.held_back(), 0);
}

/// The threshold after a loss within the first flight after the initial window, and how many segments leave at once.
fn after_a_loss(settings: &SendSettings, written: usize) -> (u32, Vec<u32>) {
    let mut bench = Bench::new(settings, &peer());
    bench.write(written);
    assert_eq!(bench.sent().len(), 10);
    bench.pass(40);
    bench.ack(4000, &[]);
    bench.sent();
    bench.ack(4000, &[(5000, 8000)]);
    let threshold = bench.sender.controller.slow_start_threshold();
    (threshold, bench.starts())
}

#[test]
fn a_loss_is_answered_as_if_nothing_were_held_back_by_pacing() {
    let paced = SendSettings::default();
    let mut unpaced = SendSettings::default();
    unpaced.pacing.is_enabled = false;
    // The window has grown to 14 segments.
    let (threshold, starts) = after_a_loss(&paced, 25_000);
    assert_eq!(threshold, 9_800);
    assert_eq!(after_a_loss(&unpaced, 25_000).0, threshold);
    // The first segment that is sent again waits for nothing.
    assert_eq!(starts.first(), Some(&4000));
    // Only what there is to send is held back.
    assert_eq!(after_a_loss(&paced, 13_000).0, 6_300);
    assert_eq!(after_a_loss(&unpaced, 13_000).0, 6_300);
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
