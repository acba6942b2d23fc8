//! CUBIC's congestion avoidance (RFC 9438), in integers.
//!
//! Windows are in bytes, times in ticks of 2^-16 s. The curve W_cubic(t) = C (t - K)^3 + W_max is computed in 128 bits,
//! exact but for the rounding of its result, and K by an integer cube root.

use core::time::Duration;

use softclock_core::Instant;

/// The state of CUBIC between reductions.
///
/// ```
/// use core::time::Duration;
/// use softclock_core::Instant;
/// use softclock_net::tcp::congestion::cubic::Cubic;
///
/// let mut cubic = Cubic::default();
/// // A loss with 100 segments in flight: the threshold is 70.
/// let mut window = Cubic::reduced(100_000);
/// cubic.on_reduction(100_000, true);
/// assert_eq!(window, 70_000);
/// // A round trip of 100 ms later, one window is acknowledged.
/// let srtt = Duration::from_millis(100);
/// for ms in [0, 100] {
///     cubic.advance(Instant::from_ns(ms * 1_000_000), true);
///     window = cubic.on_ack(window, window, srtt, 1_000);
/// }
/// assert!(window > 70_000 && window < 100_000);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cubic {
    curve: Curve,
    /// Microseconds of the last acknowledgment, modulo 2^32. Two acknowledgments between which the window is in use are
    /// far less than 2^32 us apart.
    last_us: u32,
    /// The part of the window's growth that is not a whole byte yet, times the window.
    credit: u32,
    /// Fraction of `curve.estimate`, in 2^-`ESTIMATE_BITS` bytes.
    estimate_part: u16,
    /// Whether congestion avoidance has begun since the last reduction.
    is_open: bool,
    /// Whether the last reduction was a timeout.
    is_after_timeout: bool,
}

/// The values that a spurious reduction restores (RFC 9438, 4.9).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Curve {
    /// W_max: the window at the last reduction, or less by fast convergence.
    w_max: u32,
    /// cwnd_prior: the window at the last reduction.
    prior: u32,
    /// K: the ticks from the beginning of congestion avoidance to the return to W_max.
    k: u32,
    /// t: microseconds of congestion avoidance in which the window was in use.
    elapsed_us: u32,
    /// W_est: the window that Reno would have.
    estimate: u32,
}

impl Cubic {
    /// Returns the slow start threshold for a reduction with these bytes in flight (RFC 9438, 4.6).
    pub const fn reduced(bytes: u32) -> u32 {
        (bytes as u64 * 7 / 10) as u32
    }

    /// Returns the values to restore if the reduction that follows is spurious.
    pub const fn curve(&self) -> Curve {
        self.curve
    }

    /// Restores the values before a spurious reduction.
    pub fn restore(&mut self, curve: Curve) {
        self.curve = curve;
        (self.credit, self.estimate_part) = (0, 0);
        // An estimate of 0 means that congestion avoidance had not begun.
        (self.is_open, self.is_after_timeout) = (curve.estimate != 0, false);
    }

    /// Records a reduction of a window with `bytes` in use. With `converges`, a flow that has not reached its former
    /// window again gives up a part of it to others (RFC 9438, 4.7).
    pub fn on_reduction(&mut self, bytes: u32, converges: bool) {
        let converged = (u64::from(bytes) * 85 / 100) as u32;
        self.curve = Curve {
            w_max: match converges && bytes < self.curve.w_max {
                true => converged,
                false => bytes,
            },
            prior: bytes,
            ..Curve::default()
        };
        (self.is_open, self.is_after_timeout) = (false, false);
        (self.credit, self.estimate_part) = (0, 0);
    }

    /// Records a timeout, after which the curve begins at its plateau (RFC 9438, 4.8).
    pub fn on_timeout(&mut self, bytes: u32, converges: bool) {
        self.on_reduction(bytes, converges);
        self.on_timeout_in_recovery();
    }

    /// Records a timeout during a recovery, whose reduction is recorded already.
    pub fn on_timeout_in_recovery(&mut self) {
        (self.is_open, self.is_after_timeout) = (false, true);
    }

    /// Advances the time to `at`. The interval since the last call counts for the curve only if the window was in use:
    /// a pause of the application does not raise the window (RFC 9438, 5.8).
    pub fn advance(&mut self, at: Instant, is_in_use: bool) {
        let us = (at.as_ns() / 1_000) as u32;
        let since = us.wrapping_sub(self.last_us);
        // Segments may be processed in another order than they arrived in.
        let is_earlier = since.wrapping_neg() <= MOST_EARLIER_US;
        if self.is_open && is_earlier {
            return;
        }
        self.last_us = us;
        if self.is_open && is_in_use {
            self.curve.elapsed_us = self.curve.elapsed_us.saturating_add(since);
        }
    }

    /// Returns the window after `acked` bytes in congestion avoidance.
    pub fn on_ack(&mut self, window: u32, acked: u32, srtt: Duration, mss: u16) -> u32 {
        if !self.is_open {
            self.open(window, mss);
        }
        // One acknowledgment counts for at most one window, as bytes beyond were sent for the window before.
        let acked = acked.min(window);
        let now = ticks_of_us(self.curve.elapsed_us.into());
        let target = self.target(window, now, srtt, mss);
        // RFC 9438, 4.4 and 4.5: by (target - cwnd) / cwnd for each acknowledged segment.
        let growth = u64::from(target - window) * u64::from(acked) + u64::from(self.credit);
        let divisor = u64::from(window.max(1));
        self.credit = (growth % divisor) as u32;
        let cubic = window.saturating_add((growth / divisor) as u32);
        self.grow_estimate(window, acked, mss);
        // RFC 9438, 4.3: where Reno would have a larger window than the curve, the window is Reno's.
        match w_cubic(&self.curve, now, mss) < self.curve.estimate {
            true => window.max(self.curve.estimate),
            false => cubic,
        }
    }

    /// Begins congestion avoidance (RFC 9438, 4.2).
    fn open(&mut self, window: u32, mss: u16) {
        self.is_open = true;
        let curve = &mut self.curve;
        (curve.elapsed_us, curve.estimate) = (0, window.max(1));
        // After a timeout, and after a slow start without loss, the curve begins at its plateau (4.8, 4.10).
        if self.is_after_timeout || curve.w_max <= window {
            (curve.w_max, curve.k) = (window, 0);
        } else {
            curve.k = time_to(curve.w_max - window, mss);
        }
    }

    /// Returns where the curve is a round trip later, at least the window and at most half above it (RFC 9438, 4.2).
    fn target(&self, window: u32, now: u64, srtt: Duration, mss: u16) -> u32 {
        let later = now.saturating_add(ticks_of_us(srtt.as_micros()));
        let most = window.saturating_add(window / 2);
        w_cubic(&self.curve, later, mss).clamp(window, most)
    }

    /// Raises W_est by alpha for each window of acknowledged bytes (RFC 9438, 4.3).
    fn grow_estimate(&mut self, window: u32, acked: u32, mss: u16) {
        let segments = (u64::from(acked) * u64::from(mss)) << ESTIMATE_BITS;
        let growth = segments / u64::from(window.max(1));
        // alpha = 3 (1 - beta) / (1 + beta) = 9 / 17, and 1 beyond the window of the last reduction.
        let growth = match self.curve.estimate < self.curve.prior {
            true => growth * 9 / 17,
            false => growth,
        } + u64::from(self.estimate_part);
        self.estimate_part = (growth & ((1 << ESTIMATE_BITS) - 1)) as u16;
        let bytes = (growth >> ESTIMATE_BITS) as u32;
        self.curve.estimate = self.curve.estimate.saturating_add(bytes);
    }
}

/// Returns W_cubic(t) in bytes (RFC 9438, equation 1), limited to what a window can be.
fn w_cubic(curve: &Curve, ticks: u64, mss: u16) -> u32 {
    let limit = i64::from(MOST_TICKS);
    let offset = (ticks.min(MOST_TICKS.into()) as i64 - i64::from(curve.k)).clamp(-limit, limit);
    let cubed = i128::from(offset).pow(3);
    // C = 2/5. The shift turns cubic ticks into cubic seconds.
    let rise = (cubed * 2 * i128::from(mss)) >> (3 * TICK_BITS);
    let bytes = i64::from(curve.w_max) + rise as i64 / 5;
    u32::try_from(bytes.max(0)).unwrap_or(u32::MAX)
}

/// Returns K (RFC 9438, equation 2): the ticks in which the curve rises by `bytes` to its plateau.
fn time_to(bytes: u32, mss: u16) -> u32 {
    let cubed = (u128::from(bytes) * 5) << (3 * TICK_BITS);
    cube_root(cubed / (2 * u128::from(mss.max(1)))).min(MOST_TICKS)
}

/// Returns the largest number of at most 32 bits whose cube is not above `value`, one bit at a time.
fn cube_root(value: u128) -> u32 {
    (0..32).rev().fold(0u32, |root, bit| {
        let more = root | 1 << bit;
        match u128::from(more).pow(3) <= value {
            true => more,
            false => root,
        }
    })
}

/// Returns a time in ticks, at most `MOST_TICKS`.
fn ticks_of_us(us: u128) -> u64 {
    let us = us.min(u128::from(MOST_TICKS) * 15) as u64;
    // 2^16 ticks of 1 000 000 us each, reduced.
    us * 1_024 / 15_625
}

/// An acknowledgment arrived at most so long before one that was processed earlier.
const MOST_EARLIER_US: u32 = 1_000_000;

/// A tick is 2^-16 s: 15 us, short against the time in which the curve changes by a byte.
const TICK_BITS: u32 = 16;

/// The longest time that matters, about 70 minutes, in which the curve exceeds every window.
const MOST_TICKS: u32 = 1 << 28;

/// Bits of the fraction of the estimate: a product of 32 and 16 bits still has room for them in 64.
const ESTIMATE_BITS: u32 = 12;

#[cfg(test)]
mod tests;
