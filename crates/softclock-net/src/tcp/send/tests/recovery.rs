//! Losses: how they are found, and recoveries that prove needless.

use super::bench::Bench;
use super::*;

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
fn a_writer_has_room_for_what_a_recovery_sends() {
    let mut settings = SendSettings::default();
    settings.pacing.is_enabled = false;
    (settings.buffer, settings.most_buffer) = (2000, 100_000);
    let mut bench = Bench::new(&settings, &peer());
    bench.write(10_000);
    bench.sent();
    bench.pass(40);
    // The window falls to seven segments, and nothing leaves the buffer for a round trip.
    bench.ack(0, &[(1000, 4000)]);
    let mut starts = bench.starts();
    for end in (5000..=10_000).step_by(1000) {
        bench.write(bench.sender.room());
        bench.ack(0, &[(1000, end)]);
        starts.extend(bench.starts());
    }
    let new = [10_000, 11_000, 12_000, 13_000, 14_000, 15_000];
    assert_eq!(starts, [&[0], new.as_slice()].concat());
    assert!(bench.sender.room() > 0);
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
fn a_mark_is_reported_though_the_recovery_before_it_proves_needless() {
    let mut bench = Bench::with_ecn();
    bench.write(10_000);
    bench.sent();
    bench.pass(40);
    bench.ack(0, &[(1000, 4000)]);
    assert_eq!(bench.starts(), [0]);
    bench.pass(5);
    bench.ack(10_000, &[]);
    bench.write(10_000);
    assert!(bench.sent().iter().any(|segment| segment.cwr));
    bench.pass(40);
    let window = bench.sender.congestion_window();
    bench.ack_with(12_000, &[], 1 << 20, None, true);
    let reduced = bench.sender.congestion_window();
    assert!(reduced < window);
    // The report of the duplicate comes before the first segment with the smaller window.
    bench.ack(12_000, &[(0, 1000)]);
    assert_eq!(bench.sender.stats().undone, 1);
    assert_eq!(bench.sender.congestion_window(), reduced);
    bench.ack(16_000, &[]);
    assert!(bench.sent().iter().any(|segment| segment.cwr));
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

/// A sender whose peer has no selective acknowledgments.
fn without_sack() -> Bench {
    let mut settings = SendSettings::default();
    settings.pacing.is_enabled = false;
    let options = PeerOptions {
        is_sack_permitted: false,
        ..peer()
    };
    Bench::new(&settings, &options)
}

#[test]
fn retransmissions_without_sack_take_no_memory() {
    let mut bench = without_sack();
    let mut una = 0;
    bench.write(8000);
    bench.sent();
    for _ in 0..1000 {
        bench.write(bench.sender.room().min(4000));
        bench.pass(40);
        bench.sent();
        for _ in 0..3 {
            bench.ack(una, &[]);
        }
        bench.sent();
        bench.pass(40);
        una += 1000;
        bench.ack(una, &[]);
        bench.sent();
        let flight = bench.sender.flight.as_ref().expect("data is in flight");
        assert!(flight.board.resent.len() <= flight.board.records.len());
    }
    assert!(bench.sender.stats().retransmissions >= 500);
}

/// RFC 8985, 7.4.2, and RFC 3708: a probe is sent by timeout, so the report of its duplicate shows neither reordering
/// nor that the recovery is needless, whether it comes during the recovery or behind it.
#[test]
fn a_duplicate_of_a_probe_says_nothing_about_the_recovery_that_has_followed() {
    for is_late in [false, true] {
        let mut bench = Bench::plain();
        bench.write(10_000);
        bench.sent();
        assert_eq!(bench.wait(), TimerOutcome::Retransmit);
        assert_eq!(bench.starts(), [9000]);
        bench.pass(2);
        bench.ack(4000, &[(5000, 10_000)]);
        assert_eq!(bench.starts(), [4000]);
        let _ = bench.sender.take_events();
        bench.pass(38);
        match is_late {
            true => bench.ack(10_000, &[(9000, 10_000)]),
            false => bench.ack(4000, &[(9000, 10_000), (5000, 10_000)]),
        };
        let events = bench.sender.take_events();
        assert!(events.contains(SendEvent::Duplicate));
        assert!(!events.contains(SendEvent::ReorderingWindow));
        assert_eq!(bench.sender.stats().undone, 0);
    }
}

/// An owner that comes late: the retransmission timer has expired, too, when the acknowledgments are processed.
#[test]
fn a_loss_that_is_found_late_is_no_timeout() {
    for (sacked, later) in [(4000, 0), (2000, 20)] {
        let mut bench = Bench::plain();
        bench.write(10_000);
        bench.sent();
        bench.pass(300);
        bench.ack(0, &[(1000, sacked)]);
        // The reordering timer of a single segment expires together with that of the timeout.
        bench.pass(later);
        let outcome = bench.sender.on_timer(bench.now);
        assert_eq!(outcome, TimerOutcome::Retransmit);
        assert_eq!(bench.starts()[0], 0);
        assert_eq!(bench.sender.stats().timeouts, 0);
        assert_eq!(bench.sender.stats().recoveries, 1);
        // The timeout counts from the retransmission.
        assert!(
            bench
                .sender
                .next_timeout()
                .is_some_and(|due| due > bench.now)
        );
        assert_eq!(bench.wait(), TimerOutcome::Retransmit);
        assert_eq!(bench.sender.stats().timeouts, 1);
    }
}

/// RFC 5681, 4.3: losses in two successive windows of data reduce the window twice.
#[test]
fn a_loss_of_what_a_recovery_has_sent_reduces_the_window_again() {
    for is_reordering_seen in [false, true] {
        let mut bench = Bench::plain();
        if is_reordering_seen {
            bench.sender.reordering.on_reordered();
        }
        // With reordering, losses are found by a timer.
        let find = |bench: &mut Bench| {
            if is_reordering_seen {
                assert!(bench.sent().is_empty());
                assert_eq!(bench.wait(), TimerOutcome::Retransmit);
            }
        };
        bench.write(10_000);
        assert_eq!(bench.sent().len(), 10);
        bench.pass(40);
        bench.ack(0, &[(1000, 4000)]);
        find(&mut bench);
        assert_eq!(bench.starts(), [0]);
        bench.write(2000);
        bench.ack(0, &[(1000, 10_000)]);
        assert_eq!(bench.starts(), [10_000, 11_000]);
        assert_eq!(bench.sender.controller.slow_start_threshold(), 7000);
        // The retransmission is lost, and so is the first of the new segments.
        bench.pass(40);
        bench.ack(0, &[(11_000, 12_000), (1000, 10_000)]);
        find(&mut bench);
        assert_eq!(bench.starts(), [0, 10_000]);
        assert_eq!(bench.sender.stats().recoveries, 1);
        bench.pass(40);
        bench.ack(10_000, &[(11_000, 12_000)]);
        assert_eq!(bench.sender.stats().recoveries, 2);
        assert!(bench.sender.controller.slow_start_threshold() < 7000);
        assert!(bench.sent().is_empty(), "it is under way");
        bench.ack(12_000, &[]);
        assert!(bench.sender.congestion_window() < 7000);
        assert_eq!(bench.sender.stats().recoveries, 2);
    }
}

#[test]
fn a_mark_during_a_recovery_outlives_it() {
    let mut bench = Bench::with_ecn();
    bench.write(12_000);
    bench.sent();
    bench.pass(40);
    bench.ack(0, &[(1000, 4000)]);
    assert_eq!(bench.starts(), [0]);
    bench.ack_with(0, &[(1000, 6000)], 1 << 20, None, true);
    assert!(bench.sent().iter().any(|segment| segment.cwr));
    bench.pass(5);
    bench.ack(10_000, &[]);
    let reduced = bench.sender.congestion_window();
    bench.pass(35);
    bench.ack(10_000, &[(0, 1000)]);
    assert_eq!(bench.sender.stats().undone, 1);
    assert_eq!(bench.sender.congestion_window(), reduced);
}

/// RFC 3465, 2.3.
#[test]
fn after_a_timeout_in_a_recovery_an_acknowledgment_counts_for_one_segment() {
    let mut bench = without_sack();
    bench.write(10_000);
    bench.sent();
    bench.pass(40);
    for _ in 0..3 {
        bench.ack(0, &[]);
    }
    assert_eq!(bench.starts()[0], 0);
    assert_eq!(bench.sender.stats().recoveries, 1);
    let threshold = bench.sender.controller.slow_start_threshold();
    assert_eq!(bench.wait(), TimerOutcome::Retransmit);
    assert_eq!(bench.starts(), [0]);
    assert_eq!(bench.sender.stats().timeouts, 1);
    bench.pass(40);
    bench.ack(5000, &[]);
    assert_eq!(bench.sender.congestion_window(), 2000);
    assert_eq!(bench.sender.controller.slow_start_threshold(), threshold);
}

/// A link that takes nothing does not keep the connection for ever.
#[test]
fn a_timeout_of_what_never_leaves_is_put_off_once() {
    let mut bench = Bench::plain();
    bench.write(10_000);
    bench.sent();
    bench.pass(300);
    bench.ack(0, &[(1000, 4000)]);
    let mut outcome = TimerOutcome::Nothing;
    for _ in 0..100 {
        bench.pass(120_000);
        outcome = bench.sender.on_timer(bench.now);
        if outcome == TimerOutcome::GiveUp {
            return;
        }
    }
    panic!("it goes on: {outcome:?}");
}

/// They were taken for lost, and have arrived before they were sent again.
#[test]
fn late_segments_of_a_recovery_begin_no_other() {
    let mut bench = Bench::plain();
    bench.write(10_000);
    bench.sent();
    bench.pass(40);
    bench.ack(0, &[(1000, 4000)]);
    assert_eq!(bench.starts(), [0]);
    bench.write(2000);
    bench.ack(0, &[(1000, 10_000)]);
    assert_eq!(bench.starts(), [10_000, 11_000]);
    bench.pass(40);
    bench.ack(0, &[(11_000, 12_000), (1000, 10_000)]);
    bench.ack(0, &[(1000, 12_000)]);
    assert_eq!(bench.starts(), [0]);
    bench.pass(40);
    bench.ack(12_000, &[]);
    assert_eq!(bench.sender.stats().recoveries, 1);
    assert_eq!(bench.sender.controller.slow_start_threshold(), 7000);
}
