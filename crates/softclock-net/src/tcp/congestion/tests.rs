use super::*;
use alloc::vec;
use proptest::prelude::*;

const MSS: u16 = 1_000;

fn at(ms: u64) -> Instant {
    Instant::from_ns(ms * 1_000_000)
}

/// A controller with a sender that always fills the window, over a path of a constant round-trip time.
struct Path {
    control: Controller,
    now_ms: u64,
    rtt_ms: u64,
    una: u32,
    next: u32,
}

impl Path {
    fn new(settings: &CongestionSettings) -> Self {
        let control = Controller::new(settings.algorithm, settings, MSS);
        let mut path = Self {
            control,
            now_ms: 0,
            rtt_ms: 100,
            una: 0,
            next: 0,
        };
        path.send();
        path
    }

    fn in_flight(&self) -> u32 {
        self.next.wrapping_sub(self.una)
    }

    fn send(&mut self) {
        while self.in_flight() + u32::from(MSS) <= self.control.window() {
            let in_flight = self.in_flight();
            self.control.on_sent(at(self.now_ms), MSS.into(), in_flight);
            self.next = self.next.wrapping_add(MSS.into());
        }
    }

    fn acknowledge(&mut self, bytes: u32) {
        let in_flight = self.in_flight();
        self.una = self.una.wrapping_add(bytes);
        let rtt = Duration::from_millis(self.rtt_ms);
        self.control.on_ack(&CongestionAck {
            now: at(self.now_ms),
            arrived: at(self.now_ms),
            acked: bytes,
            in_flight,
            rtt: Some(rtt),
            srtt: Some(rtt),
            min_rtt: Some(rtt),
            rto: Duration::from_millis(2 * self.rtt_ms + 200),
            is_app_limited: false,
            una: Seq(self.una),
            next: Seq(self.next),
            is_in_recovery: false,
        });
    }

    /// Acknowledges all that is in flight, by two segments at a time, spread over a round trip, and sends on.
    fn round(&mut self) {
        let end = self.next;
        let start_ms = self.now_ms;
        let all = self.in_flight();
        let mut done = 0;
        while self.una != end {
            let bytes = (2 * u32::from(MSS)).min(end.wrapping_sub(self.una));
            done += bytes;
            self.now_ms = start_ms + self.rtt_ms * u64::from(done) / u64::from(all);
            self.acknowledge(bytes);
            self.send();
        }
    }

    fn lose(&mut self) {
        self.control
            .on_loss(at(self.now_ms), self.in_flight(), Seq(self.next));
    }

    /// Acknowledges all, at once, and ends the recovery.
    fn recover(&mut self) {
        self.acknowledge(self.in_flight());
        self.control.set_window_after_recovery(u32::MAX);
        self.control.on_recovered(at(self.now_ms));
        self.send();
    }
}

fn settings(algorithm: Algorithm) -> CongestionSettings {
    CongestionSettings {
        algorithm,
        ..CongestionSettings::default()
    }
}

const BOTH: [Algorithm; 2] = [Algorithm::NewReno, Algorithm::Cubic];

#[test]
fn the_initial_window_is_that_of_rfc_6928() {
    for (mss, window) in [
        (1_460, 14_600),
        (536, 5_360),
        (1_500, 14_600),
        (9_000, 18_000),
        (0, 10),
    ] {
        let mut settings = CongestionSettings::default();
        let control = Controller::new(Algorithm::Cubic, &settings, mss);
        assert_eq!(control.window(), window, "segments of {mss} bytes");
        settings.initial_segments = 3;
        let control = Controller::new(Algorithm::Cubic, &settings, mss);
        assert_eq!(control.window(), 3 * u32::from(mss.max(1)));
    }
    let mut control = Controller::new(Algorithm::Cubic, &CongestionSettings::default(), 1_460);
    control.set_mss(1_000);
    assert_eq!(control.window(), 10_000);
    control.on_handshake_loss();
    assert_eq!(control.window(), 1_000);
}

#[test]
fn slow_start_doubles_the_window_in_a_round_trip() {
    for algorithm in BOTH {
        for hystart in [true, false] {
            let mut path = Path::new(&CongestionSettings {
                hystart,
                ..settings(algorithm)
            });
            for doubled in 1..8 {
                path.round();
                assert_eq!(path.control.window(), 10_000 << doubled, "{algorithm:?}");
            }
            assert!(path.control.is_in_slow_start());
        }
    }
}

#[test]
fn an_acknowledgment_counts_for_two_segments_after_the_initial_slow_start() {
    // (hystart, limits, window after an acknowledgment of 8 segments)
    for (hystart, byte_counting_limit, hystart_limit, window) in [
        (true, 2, 0, 18_000),
        (true, 2, 4, 14_000),
        (false, 2, 0, 12_000),
        (false, 0, 4, 18_000),
    ] {
        let mut path = Path::new(&CongestionSettings {
            hystart,
            byte_counting_limit,
            hystart_limit,
            ..CongestionSettings::default()
        });
        path.acknowledge(8_000);
        assert_eq!(path.control.window(), window);
    }
}

#[test]
fn an_acknowledgment_counts_for_one_segment_after_a_timeout() {
    for (limit, window) in [(2, 2_000), (0, 5_000)] {
        let mut path = Path::new(&CongestionSettings {
            byte_counting_limit: limit,
            ..CongestionSettings::default()
        });
        path.control.on_timeout(at(1_000), 10_000, Seq(path.next));
        assert_eq!(
            (path.control.window(), path.control.slow_start_threshold()),
            (1_000, 7_000)
        );
        path.acknowledge(4_000);
        assert_eq!(path.control.window(), window);
    }
}

#[test]
fn a_loss_reduces_the_window_by_the_factor_of_the_algorithm() {
    for (algorithm, reduced) in [(Algorithm::NewReno, 40_000), (Algorithm::Cubic, 56_000)] {
        let mut path = Path::new(&settings(algorithm));
        (0..3).for_each(|_| path.round());
        path.lose();
        assert_eq!(
            (path.control.window(), path.control.slow_start_threshold()),
            (reduced, reduced)
        );
        assert!(!path.control.is_in_slow_start());
        // Further losses of the same window, and a mark, change nothing.
        path.lose();
        assert!(!path.control.on_ecn(
            at(path.now_ms),
            path.in_flight(),
            Seq(path.una),
            Seq(path.next)
        ));
        assert_eq!(path.control.window(), reduced);
        path.recover();
        assert_eq!(path.control.window(), reduced);
        path.lose();
        assert!(path.control.window() < reduced);
    }
}

#[test]
fn new_reno_grows_by_a_segment_in_a_round_trip() {
    let mut path = Path::new(&settings(Algorithm::NewReno));
    (0..3).for_each(|_| path.round());
    path.lose();
    path.recover();
    (0..20).for_each(|_| path.round());
    let window = path.control.window();
    assert!((59_000..=60_000).contains(&window), "{window}");
}

#[test]
fn slow_start_hands_over_to_congestion_avoidance_at_the_threshold() {
    let mut path = Path::new(&settings(Algorithm::NewReno));
    (0..3).for_each(|_| path.round());
    path.control
        .on_timeout(at(path.now_ms), path.in_flight(), Seq(path.next));
    assert_eq!(
        (path.control.window(), path.control.slow_start_threshold()),
        (1_000, 40_000)
    );
    path.una = path.next;
    path.send();
    let mut rounds = 0;
    while path.control.is_in_slow_start() {
        path.round();
        rounds += 1;
    }
    assert_eq!(path.control.slow_start_threshold(), 40_000);
    assert!((40_000..42_000).contains(&path.control.window()));
    // One segment for each acknowledgment of two: 1.5 times in a round trip.
    assert!((8..13).contains(&rounds), "{rounds}");
}

#[test]
fn rising_round_trip_times_end_slow_start_without_a_loss() {
    let mut path = Path::new(&CongestionSettings::default());
    (0..3).for_each(|_| path.round());
    path.rtt_ms = 120;
    let mut rounds = 0;
    while path.control.is_in_slow_start() {
        path.round();
        rounds += 1;
        assert!(rounds < 10);
    }
    // Once the rise is seen, five rounds grow the window by a quarter each, where 32 times would be usual.
    let window = path.control.window();
    assert_eq!(
        path.control.slow_start_threshold() / 10_000,
        window / 10_000
    );
    assert!((5..=7).contains(&rounds), "{rounds}");
    assert!(window < 80_000 * 6, "{window}");
    let before = window;
    path.round();
    assert!(path.control.window() - before <= 2_000);
}

#[test]
fn undo_restores_window_threshold_and_curve() {
    for algorithm in BOTH {
        let mut path = Path::new(&settings(algorithm));
        (0..3).for_each(|_| path.round());
        path.lose();
        path.recover();
        (0..30).for_each(|_| path.round());
        let (window, threshold) = (path.control.window(), path.control.slow_start_threshold());
        let mut kept = path.control.clone();
        path.lose();
        assert!(path.control.window() < window);
        assert!(path.control.undo());
        assert_eq!(
            (path.control.window(), path.control.slow_start_threshold()),
            (window, threshold)
        );
        // A second call has no effect.
        assert!(!path.control.undo());
        assert_eq!(path.control.window(), window);
        // Growth goes on as if nothing had happened, but for parts of a byte and Reno's count of bytes.
        (0..10).for_each(|_| path.round());
        core::mem::swap(&mut path.control, &mut kept);
        let undone = kept.window();
        path.now_ms -= 10 * path.rtt_ms;
        path.next = path.una.wrapping_add(window / 1_000 * 1_000);
        (0..10).for_each(|_| path.round());
        assert!(
            undone.abs_diff(path.control.window()) <= 1_000,
            "{undone} {}",
            path.control.window()
        );
    }
}

#[test]
fn undo_of_a_timeout_within_a_recovery_restores_the_time_before_both() {
    let mut path = Path::new(&CongestionSettings::default());
    (0..3).for_each(|_| path.round());
    path.lose();
    path.control
        .on_timeout(at(path.now_ms), path.in_flight(), Seq(path.next));
    assert_eq!(
        (path.control.window(), path.control.slow_start_threshold()),
        (1_000, 39_200)
    );
    path.control.undo();
    assert_eq!(
        (path.control.window(), path.control.slow_start_threshold()),
        (80_000, u32::MAX)
    );
    path.round();
    assert_eq!(path.control.window(), 160_000);
}

#[test]
fn timeouts_in_a_row_reduce_the_threshold_once() {
    let mut path = Path::new(&CongestionSettings::default());
    (0..3).for_each(|_| path.round());
    for _ in 0..5 {
        path.control
            .on_timeout(at(path.now_ms), path.in_flight(), Seq(path.next));
        assert_eq!(
            (path.control.window(), path.control.slow_start_threshold()),
            (1_000, 56_000)
        );
    }
    path.acknowledge(1_000);
    // Bytes were acknowledged, so the next one is another event. The window of two segments counts.
    path.control
        .on_timeout(at(path.now_ms), path.in_flight(), Seq(path.next));
    assert_eq!(
        (path.control.window(), path.control.slow_start_threshold()),
        (1_000, 2_000)
    );
}

#[test]
fn marks_reduce_the_window_once_in_a_round_trip_and_are_not_undone() {
    let mut path = Path::new(&CongestionSettings::default());
    (0..3).for_each(|_| path.round());
    let mark = |path: &mut Path| {
        path.control.on_ecn(
            at(path.now_ms),
            path.in_flight(),
            Seq(path.una),
            Seq(path.next),
        )
    };
    assert!(mark(&mut path));
    assert_eq!(path.control.window(), 56_000);
    assert!(!path.control.undo());
    assert_eq!(path.control.window(), 56_000);
    let end = path.next;
    while Seq(path.una).is_before(Seq(end)) {
        assert!(!mark(&mut path));
        path.lose();
        path.acknowledge(10_000);
        path.control.undo();
    }
    assert!((56_000..58_000).contains(&path.control.window()));
    // The receiver has not seen CWR yet, which is on the next segment.
    path.next = path.una.wrapping_add(56_000);
    assert!(path.una == end && !mark(&mut path));
    path.acknowledge(1);
    assert!(mark(&mut path));
    assert!(path.control.window() < 42_000);
}

#[test]
fn a_mark_with_the_last_acknowledgment_after_a_timeout_reduces_no_more() {
    let mut path = Path::new(&CongestionSettings::default());
    (0..3).for_each(|_| path.round());
    path.control
        .on_timeout(at(path.now_ms), path.in_flight(), Seq(path.next));
    path.recover();
    for is_answered in [false, true] {
        let (una, next) = (Seq(path.una), Seq(path.next));
        let now = at(path.now_ms);
        let is_reduced = path.control.on_ecn(now, path.in_flight(), una, next);
        assert_eq!(is_reduced, is_answered);
        path.acknowledge(1);
    }
}

#[test]
fn a_window_that_is_not_in_use_neither_grows_nor_counts_after_a_loss() {
    for algorithm in BOTH {
        let mut path = Path::new(&settings(algorithm));
        (0..5).for_each(|_| path.round());
        let window = path.control.window();
        // For three seconds the application sends ten segments in a round trip.
        for _ in 0..30 {
            path.una = path.next;
            path.control.on_sent(at(path.now_ms), 10_000, 0);
            path.next = path.next.wrapping_add(10_000);
            path.now_ms += 100;
            path.acknowledge(10_000);
        }
        assert_eq!(path.control.window(), window);
        path.next = path.next.wrapping_add(10_000);
        path.lose();
        assert_eq!(path.control.window(), 5_000);
        // Two of the ten had to be sent again: eight were carried.
        path.control.on_retransmitted(2_000);
        path.recover();
        assert_eq!(
            (path.control.window(), path.control.slow_start_threshold()),
            (4_000, 4_000)
        );
    }
}

#[test]
fn acknowledgments_of_a_limited_application_do_not_grow_the_window() {
    let mut path = Path::new(&CongestionSettings::default());
    let in_flight = path.in_flight();
    path.control.on_ack(&CongestionAck {
        now: at(1),
        arrived: at(1),
        acked: 2_000,
        in_flight,
        rtt: None,
        srtt: None,
        min_rtt: None,
        rto: Duration::from_secs(1),
        is_app_limited: true,
        una: Seq(2_000),
        next: Seq(10_000),
        is_in_recovery: false,
    });
    assert_eq!(path.control.window(), 10_000);
}

#[test]
fn a_window_is_halved_for_each_five_minutes_without_use() {
    let mut path = Path::new(&CongestionSettings::default());
    (0..5).for_each(|_| path.round());
    assert_eq!(path.control.window(), 320_000);
    path.una = path.next;
    let idle = |path: &mut Path, seconds: u64| {
        path.now_ms += seconds * 1_000;
        path.control.on_sent(at(path.now_ms), 1_000, 0);
        path.control.window()
    };
    assert_eq!(idle(&mut path, 298), 320_000);
    assert_eq!(idle(&mut path, 3), 160_000);
    assert_eq!(idle(&mut path, 600), 40_000);
    // Not below the initial window.
    assert_eq!(idle(&mut path, 86_400), 10_000);
}

#[test]
fn a_restart_after_idleness_takes_the_initial_window() {
    let settings = CongestionSettings {
        idle: IdlePolicy::Restart,
        ..CongestionSettings::default()
    };
    let mut path = Path::new(&settings);
    (0..5).for_each(|_| path.round());
    path.una = path.next;
    // The timeout is 400 ms.
    path.control.on_sent(at(path.now_ms + 400), 1_000, 0);
    assert_eq!(path.control.window(), 320_000);
    path.control.on_sent(at(path.now_ms + 801), 1_000, 0);
    assert_eq!(path.control.window(), 10_000);
}

#[test]
fn cubic_returns_to_the_window_of_a_loss_after_k() {
    let mut path = Path::new(&CongestionSettings::default());
    (0..6).for_each(|_| path.round());
    path.lose();
    path.recover();
    let start_ms = path.now_ms;
    // 640 segments, and 448 after the loss: K is the cube root of 192 / 0.4, 7.83 s. The curve is a segment below its
    // plateau a cube root of 1 / 0.4 earlier, at 6.47 s.
    while path.control.window() < 639_000 {
        path.round();
    }
    let seconds = (path.now_ms - start_ms) as f64 / 1e3;
    assert!((6.3..6.7).contains(&seconds), "{seconds}");
}

#[test]
fn segments_of_another_size_keep_a_window_in_use() {
    let mut path = Path::new(&CongestionSettings::default());
    (0..3).for_each(|_| path.round());
    path.control.set_mss(536);
    assert_eq!(path.control.window(), 80_000);
    path.control.on_timeout(at(path.now_ms), 0, Seq(path.next));
    path.control.set_mss(9_000);
    assert_eq!(path.control.window(), 9_000);
}

#[derive(Clone, Debug)]
enum Step {
    Sent(u32, u32),
    Ack {
        acked: u32,
        in_flight: u32,
        rtt: Option<u64>,
        una: u32,
        next: u32,
        flags: u8,
    },
    Loss(u32, u32),
    Mark(u32, u32),
    Timeout(u32),
    Recovered,
    Undo,
    Window(u32),
    Mss(u16),
    Retransmitted(u32),
}

fn step() -> impl Strategy<Value = Step> {
    let ack =
        (any::<[u32; 4]>(), any::<Option<u64>>(), any::<u8>()).prop_map(|(numbers, rtt, flags)| {
            let [acked, in_flight, una, next] = numbers;
            Step::Ack {
                acked,
                in_flight,
                rtt,
                una,
                next,
                flags,
            }
        });
    prop_oneof![
        6 => ack,
        2 => any::<(u32, u32)>().prop_map(|(bytes, flight)| Step::Sent(bytes, flight)),
        1 => any::<u32>().prop_map(|bytes| Step::Sent(bytes, 0)),
        1 => any::<(u32, u32)>().prop_map(|(flight, next)| Step::Loss(flight, next)),
        1 => any::<(u32, u32)>().prop_map(|(flight, next)| Step::Mark(flight, next)),
        1 => any::<u32>().prop_map(Step::Timeout),
        1 => Just(Step::Recovered),
        1 => Just(Step::Undo),
        1 => any::<u32>().prop_map(Step::Window),
        1 => any::<u16>().prop_map(Step::Mss),
        1 => any::<u32>().prop_map(Step::Retransmitted),
    ]
}

fn apply(control: &mut Controller, now: Instant, step: &Step) {
    match *step {
        Step::Sent(bytes, in_flight) => control.on_sent(now, bytes, in_flight),
        Step::Ack {
            acked,
            in_flight,
            rtt,
            una,
            next,
            flags,
        } => control.on_ack(&CongestionAck {
            now,
            arrived: now,
            acked,
            in_flight,
            rtt: rtt.map(Duration::from_nanos),
            srtt: rtt.map(Duration::from_micros),
            min_rtt: rtt.map(Duration::from_nanos),
            rto: Duration::from_nanos(rtt.unwrap_or(u64::MAX)),
            is_app_limited: flags.is_multiple_of(5),
            una: Seq(una),
            next: Seq(next),
            is_in_recovery: flags.is_multiple_of(7),
        }),
        Step::Loss(in_flight, next) => control.on_loss(now, in_flight, Seq(next)),
        Step::Mark(in_flight, next) => {
            control.on_ecn(now, in_flight, Seq(next) - in_flight, Seq(next));
        }
        Step::Timeout(in_flight) => control.on_timeout(now, in_flight, Seq(in_flight)),
        Step::Recovered => control.on_recovered(now),
        Step::Undo => {
            control.undo();
        }
        Step::Window(window) => control.set_window_after_recovery(window),
        Step::Mss(mss) => control.set_mss(mss),
        Step::Retransmitted(bytes) => control.on_retransmitted(bytes),
    }
}

proptest! {
    #[test]
    fn any_events_keep_the_window_within_its_bounds(
        steps in prop::collection::vec((any::<u64>(), step()), 1..150),
        reno in any::<bool>(), flags in any::<[bool; 3]>(), numbers in any::<[u8; 3]>(), mss in any::<u16>(),
    ) {
        let mut settings = settings(if reno { Algorithm::NewReno } else { Algorithm::Cubic });
        [settings.hystart, settings.fast_convergence, _] = flags;
        [settings.initial_segments, settings.byte_counting_limit, settings.hystart_limit] = numbers;
        settings.idle = if flags[2] { IdlePolicy::Restart } else { IdlePolicy::Validate };
        let mut control = Controller::new(settings.algorithm, &settings, mss);
        let mut least = u32::from(mss.max(1));
        for (ns, step) in steps {
            apply(&mut control, Instant::from_ns(ns), &step);
            if let Step::Mss(mss) = step {
                least = mss.max(1).into();
            }
            prop_assert!((least..=1 << 30).contains(&control.window()), "{step:?}: {control:?}");
            prop_assert!(control.slow_start_threshold() >= 2);
        }
    }

    #[test]
    fn undo_restores_any_window(
        before in prop::collection::vec(step(), 0..40), in_flight in any::<u32>(), is_timeout in any::<bool>(),
    ) {
        let mut control = Controller::new(Algorithm::Cubic, &CongestionSettings::default(), MSS);
        for step in before.iter().filter(|step| !matches!(step, Step::Mss(_))) {
            apply(&mut control, at(5), step);
        }
        control.on_recovered(at(6));
        let (window, threshold) = (control.window(), control.slow_start_threshold());
        match is_timeout {
            true => control.on_timeout(at(7), in_flight, Seq(in_flight)),
            false => control.on_loss(at(7), in_flight, Seq(in_flight)),
        }
        control.undo();
        prop_assert!(control.window() >= window && control.slow_start_threshold() >= threshold);
        prop_assert_eq!(control.slow_start_threshold(), threshold);
        // A loss leaves a window of two segments, even if it was one before.
        prop_assert!(control.window() == window || window < 2_000);
    }
}
