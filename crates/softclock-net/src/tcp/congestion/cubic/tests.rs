use super::*;
use proptest::prelude::*;

const MSS: u16 = 1_460;
const SEGMENT: f64 = 1_460.0;

/// RFC 9438 in floating point and in segments, to compare with.
struct Reference {
    window: f64,
    w_max: f64,
    k: f64,
    estimate: f64,
    prior: f64,
}

impl Reference {
    fn new(window: f64, w_max: f64) -> Self {
        let k = ((w_max - window).max(0.0) / 0.4).cbrt();
        Self {
            window,
            w_max: w_max.max(window),
            k,
            estimate: window,
            prior: w_max,
        }
    }

    fn curve(&self, seconds: f64) -> f64 {
        0.4 * (seconds - self.k).powi(3) + self.w_max
    }

    fn on_ack(&mut self, seconds: f64, srtt: f64, segments: f64) {
        let target = self
            .curve(seconds + srtt)
            .clamp(self.window, 1.5 * self.window);
        let cubic = self.window + (target - self.window) / self.window * segments;
        let alpha = if self.estimate < self.prior {
            3.0 * 0.3 / 1.7
        } else {
            1.0
        };
        self.estimate += alpha * segments / self.window;
        self.window = match self.curve(seconds) < self.estimate {
            true => self.window.max(self.estimate),
            false => cubic,
        };
    }
}

/// Runs both for some seconds from `begin` on, with acknowledgments of two segments each, spread over the round trip.
/// Returns the greatest difference between the windows, in segments.
fn greatest_difference(begin: Instant, w_max: u32, srtt: Duration, seconds: f64) -> f64 {
    let bytes = w_max * u32::from(MSS);
    let mut cubic = Cubic::default();
    cubic.advance(begin, true);
    cubic.on_reduction(bytes, true);
    let mut window = Cubic::reduced(bytes);
    let mut reference = Reference::new(f64::from(window) / SEGMENT, f64::from(w_max));
    let (mut now, mut greatest) = (0.0, 0f64);
    while now < seconds {
        cubic.advance(begin + Duration::from_secs_f64(now), true);
        window = cubic.on_ack(window, 2 * u32::from(MSS), srtt, MSS);
        reference.on_ack(now, srtt.as_secs_f64(), 2.0);
        greatest = greatest.max((f64::from(window) / SEGMENT - reference.window).abs());
        now += srtt.as_secs_f64() * 2.0 / reference.window;
    }
    greatest
}

#[test]
fn the_window_is_that_of_the_rfc_in_floating_point() {
    for (w_max, ms, seconds) in [
        (100, 100, 30.0),
        (1_000, 100, 25.0),
        (1_000, 10, 12.0),
        (20, 200, 30.0),
        (5_000, 50, 20.0),
    ] {
        let srtt = Duration::from_millis(ms);
        let difference = greatest_difference(Instant::ORIGIN, w_max, srtt, seconds);
        assert!(
            difference < 0.1,
            "{w_max} segments, {ms} ms: {difference} segments"
        );
    }
}

#[test]
fn the_curve_rises_alike_at_any_time_of_the_clock() {
    // Microseconds are kept modulo 2^32: they wrap at 4295 s.
    for seconds in [60, 2_100, 2_150, 3_000, 4_280, 60_000, 60_000_000] {
        let begin = Instant::ORIGIN + Duration::from_secs(seconds);
        let difference = greatest_difference(begin, 100, Duration::from_millis(100), 30.0);
        assert!(difference < 0.1, "at {seconds} s: {difference} segments");
    }
}

#[test]
fn the_window_returns_to_its_former_size_after_k() {
    let bytes = 1_000 * u32::from(MSS);
    let mut cubic = Cubic::default();
    cubic.on_reduction(bytes, true);
    let mut window = Cubic::reduced(bytes);
    let srtt = Duration::from_millis(100);
    // K is the cube root of 300 / 0.4: 9.09 s.
    for ms in (0..9_086).step_by(10) {
        cubic.advance(Instant::from_ns(ms * 1_000_000), true);
        window = cubic.on_ack(window, window / 10, srtt, MSS);
    }
    assert!(f64::from(cubic.curve.k) / 65_536.0 - 9.0856 < 0.001);
    assert!(
        (f64::from(window) / f64::from(bytes) - 1.0).abs() < 0.001,
        "{window} of {bytes}"
    );
}

#[test]
fn the_window_is_at_least_that_of_reno_on_a_short_path() {
    let bytes = 100 * u32::from(MSS);
    let (mut cubic, srtt) = (Cubic::default(), Duration::from_millis(1));
    cubic.on_reduction(bytes, true);
    let mut window = Cubic::reduced(bytes);
    let rounds = |cubic: &mut Cubic, window: &mut u32, from: u64, to: u64| {
        for round in from..to {
            cubic.advance(Instant::from_ns(round * 1_000_000), true);
            *window = cubic.on_ack(*window, *window, srtt, MSS);
        }
    };
    // Below the former window by 9/17 of a segment in a round trip, and above by one.
    rounds(&mut cubic, &mut window, 0, 34);
    assert!(
        (f64::from(window) / SEGMENT - 70.0 - 18.0).abs() < 0.1,
        "{window}"
    );
    rounds(&mut cubic, &mut window, 34, 157);
    let expected = 100.0 + 157.0 - 30.0 * 17.0 / 9.0;
    assert!(
        (f64::from(window) / SEGMENT - expected).abs() < 1.0,
        "{window} {expected}"
    );
}

#[test]
fn a_flow_that_loses_below_its_former_window_leaves_room() {
    let mut cubic = Cubic::default();
    cubic.on_reduction(1_000_000, true);
    assert_eq!(cubic.curve.w_max, 1_000_000);
    cubic.on_reduction(800_000, true);
    assert_eq!((cubic.curve.w_max, cubic.curve.prior), (680_000, 800_000));
    cubic.on_reduction(700_000, true);
    assert_eq!(cubic.curve.w_max, 700_000);
    cubic.on_reduction(600_000, false);
    assert_eq!(cubic.curve.w_max, 600_000);
}

#[test]
fn after_a_timeout_the_curve_begins_at_its_plateau() {
    for is_in_recovery in [false, true] {
        let mut cubic = Cubic::default();
        match is_in_recovery {
            false => cubic.on_timeout(1_000_000, true),
            true => {
                cubic.on_reduction(1_000_000, true);
                cubic.on_timeout_in_recovery();
            }
        }
        let window = cubic.on_ack(700_000, 1_460, Duration::from_millis(100), MSS);
        assert_eq!((cubic.curve.k, cubic.curve.w_max), (0, 700_000));
        assert!((700_000..701_460).contains(&window));
    }
}

#[test]
fn pauses_do_not_advance_the_curve() {
    let (mut busy, mut pausing) = (Cubic::default(), Cubic::default());
    let srtt = Duration::from_millis(50);
    let (mut window, mut other) = (700_000, 700_000);
    for cubic in [&mut busy, &mut pausing] {
        cubic.on_reduction(1_000_000, true);
    }
    for step in 0..200 {
        busy.advance(Instant::from_ns(step * 10_000_000), true);
        window = busy.on_ack(window, 100_000, srtt, MSS);
        // Ten minutes without use after each 10 ms of use.
        let at = Instant::from_ns(step * 600_010_000_000);
        pausing.advance(at, true);
        other = pausing.on_ack(other, 100_000, srtt, MSS);
        pausing.advance(at + Duration::from_secs(600), false);
    }
    assert_eq!(window, other);
}

#[test]
fn times_that_go_back_do_not_advance_the_curve() {
    let mut cubic = Cubic::default();
    cubic.on_reduction(1_000_000, true);
    cubic.on_ack(700_000, 1_460, Duration::ZERO, MSS);
    for ms in [100, 50, 100] {
        cubic.advance(Instant::from_ns(ms * 1_000_000), true);
    }
    assert_eq!(cubic.curve.elapsed_us, 100_000);
}

#[test]
fn restoring_continues_the_former_curve() {
    let (mut cubic, srtt) = (Cubic::default(), Duration::from_millis(50));
    cubic.on_reduction(1_000_000, true);
    let mut window = 700_000;
    for step in 0..100 {
        cubic.advance(Instant::from_ns(step * 10_000_000), true);
        window = cubic.on_ack(window, 100_000, srtt, MSS);
    }
    let before = (cubic, window);
    let curve = cubic.curve();
    cubic.on_reduction(window, true);
    cubic.on_ack(Cubic::reduced(window), 1_460, srtt, MSS);
    cubic.restore(curve);
    let (mut kept, mut window) = before;
    let mut other = window;
    for step in 100..200 {
        for (cubic, window) in [(&mut kept, &mut window), (&mut cubic, &mut other)] {
            cubic.advance(Instant::from_ns(step * 10_000_000), true);
            *window = cubic.on_ack(*window, 100_000, srtt, MSS);
        }
    }
    assert!(window.abs_diff(other) <= 1, "{window} {other}");
}

proptest! {
    #[test]
    fn cube_roots_are_rounded_down(value in any::<u128>(), bits in 32..128u32) {
        let value = (value >> bits).min(u128::from(u32::MAX).pow(3));
        let root = u128::from(cube_root(value));
        prop_assert!(root.pow(3) <= value && (root + 1).pow(3) > value);
    }

    #[test]
    fn the_curve_is_that_of_the_rfc(
        w_max in 1..1u32 << 30, below in 0.0..0.9, seconds in 0.0..1_000.0f64, mss in 100..9_000u16,
    ) {
        let window = (f64::from(w_max) * (1.0 - below)) as u32;
        let curve = Curve { w_max, k: time_to(w_max - window, mss), ..Curve::default() };
        let segment = f64::from(mss);
        let reference = Reference::new(f64::from(window) / segment, f64::from(w_max) / segment);
        let expected = (reference.curve(seconds) * segment).clamp(0.0, f64::from(u32::MAX));
        let got = f64::from(w_cubic(&curve, (seconds * 65_536.0) as u64, mss));
        // A tick of 15 us by the slope of the curve, for the time and for K, and a byte.
        let slope = 1.2 * (seconds - reference.k).powi(2) * segment;
        prop_assert!((got - expected).abs() <= 3.0 * slope / 65_536.0 + 2.0, "{got} {expected}");
    }

    #[test]
    fn any_acknowledgments_keep_the_window_and_raise_it_by_at_most_half(
        acks in prop::collection::vec((any::<u64>(), any::<u32>(), any::<u64>(), 0..20u8), 1..60),
        start in 1..1u32 << 30, mss in 1..u16::MAX,
    ) {
        let (mut cubic, mut window) = (Cubic::default(), start);
        for (ns, acked, srtt, event) in acks {
            match event {
                0 => cubic.on_reduction(acked, true),
                1 => cubic.on_timeout(acked, true),
                2 => cubic.restore(cubic.curve()),
                _ => cubic.advance(Instant::from_ns(ns), event % 2 == 0),
            }
            let grown = cubic.on_ack(window, acked, Duration::from_nanos(srtt), mss);
            let most = window.saturating_add(window / 2).saturating_add(1).max(cubic.curve.estimate);
            prop_assert!(grown >= window && grown <= most, "{window} {grown}");
            window = grown.min(1 << 30);
        }
    }
}
