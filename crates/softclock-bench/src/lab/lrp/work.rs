//! Computation of a known length, which does not depend on the time that other threads take in between.

use std::hint::black_box;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Computes for this much processor time, if the processor is as fast as at the first call, which takes 10 ms to
/// measure that.
pub fn compute(time: Duration) {
    if !time.is_zero() {
        turn((time.as_nanos() as f64 * turns_per_ns()) as u64);
    }
}

/// Measures the speed of the processor, so that [`compute`] has not to.
pub fn calibrate() {
    turns_per_ns();
}

fn turns_per_ns() -> f64 {
    static MEASURED: OnceLock<f64> = OnceLock::new();
    *MEASURED.get_or_init(|| {
        let one = || {
            let begun = Instant::now();
            turn(SAMPLE_TURNS);
            SAMPLE_TURNS as f64 / begun.elapsed().as_nanos() as f64
        };
        // Interruptions only make a sample slower.
        (0..SAMPLES).map(|_| one()).fold(0.0, f64::max)
    })
}

fn turn(turns: u64) {
    let mut state = 1u64;
    for _ in 0..turns {
        state = black_box(
            state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1),
        );
    }
}

const SAMPLE_TURNS: u64 = 10_000;
const SAMPLES: u32 = 500;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn computing_takes_its_time() {
        calibrate();
        let begun = Instant::now();
        compute(Duration::from_millis(2));
        assert!(begun.elapsed() >= Duration::from_millis(1));
    }
}
