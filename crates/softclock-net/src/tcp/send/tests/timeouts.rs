//! Retransmission timeouts, and the user timeout.

use super::bench::Bench;
use super::*;

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
