//! Pacing, stated and by the window.

use super::bench::Bench;
use super::*;

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
fn what_the_stated_rate_holds_back_does_not_time_out_again() {
    let options = PeerOptions {
        mss: 1460,
        is_sack_permitted: false,
        ..peer()
    };
    let mut bench = Bench::new(&SendSettings::default(), &options);
    bench.sender.set_rate(Some(500));
    bench.write(3000);
    assert_eq!(bench.starts(), [0]);
    // A segment takes three seconds, and a timeout a quarter of one.
    for resent in 1..4 {
        while bench.starts().is_empty() {
            bench.wait();
            assert!(bench.sender.timeouts_in_a_row() <= resent);
        }
        assert_eq!(bench.sender.stats().retransmissions, u32::from(resent));
    }
}

/// The owner comes when the rate and the timeout have long let the segment leave.
#[test]
fn what_the_stated_rate_held_back_leaves_before_it_times_out() {
    let mut bench = Bench::plain();
    bench.write(10_000);
    assert_eq!(bench.sent().len(), 10);
    bench.pass(40);
    bench.sender.set_rate(Some(500));
    bench.ack(0, &[(2000, 10_000)]);
    assert_eq!(bench.starts(), [0]);
    bench.pass(40);
    bench.ack(1000, &[(2000, 10_000)]);
    assert!(bench.sent().is_empty(), "the rate holds it back");
    bench.pass(60_000);
    let outcome = bench.sender.on_timer(bench.now);
    assert_eq!(outcome, TimerOutcome::Retransmit);
    assert_eq!(bench.starts(), [1000]);
    assert_eq!(bench.sender.stats().timeouts, 0);
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
