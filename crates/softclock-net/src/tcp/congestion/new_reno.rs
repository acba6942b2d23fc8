//! Congestion avoidance by RFC 5681, 3.1, and its reduction.

/// Counts acknowledged bytes, and raises the window by one segment for each window of them (RFC 5681, equation 3 with
/// the byte counting of RFC 3465, 2.1).
///
/// ```
/// use softclock_net::tcp::congestion::new_reno::NewReno;
///
/// let mut reno = NewReno::default();
/// let window = reno.on_ack(10_000, 5_000, 1_000);
/// assert_eq!(reno.on_ack(window, 5_000, 1_000), 11_000);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NewReno {
    /// Acknowledged bytes that have not raised the window yet.
    credit: u32,
}

impl NewReno {
    /// Returns the window after `acked` bytes.
    pub fn on_ack(&mut self, window: u32, acked: u32, mss: u16) -> u32 {
        // A single acknowledgment counts for at most one window, so the window grows by at most one segment.
        self.credit = self.credit.saturating_add(acked.min(window));
        if self.credit < window {
            return window;
        }
        self.credit -= window;
        window.saturating_add(mss.into())
    }

    /// Returns the slow start threshold for a loss with these bytes in flight: half of them.
    pub const fn reduced(bytes: u32) -> u32 {
        bytes / 2
    }

    /// Forgets bytes counted before a reduction.
    pub fn reset(&mut self) {
        self.credit = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_window_grows_by_a_segment_for_each_window_of_bytes() {
        let (mut reno, mut window) = (NewReno::default(), 14_600);
        for round in 1..=100 {
            let mut left = window;
            while left > 0 {
                let acked = left.min(2_920);
                window = reno.on_ack(window, acked, 1_460);
                left -= acked;
            }
            // The growth within a round takes part of the credit of the next one, at most a segment a round.
            assert!(window <= 14_600 + round * 1_460);
            assert!(window >= 14_600 + (round - 1) * 1_460 * 9 / 10);
        }
    }

    proptest! {
        #[test]
        fn no_acknowledgment_raises_the_window_by_more_than_a_segment(
            acks in prop::collection::vec(any::<u32>(), 1..50), start in 1u32.., mss in 1u16..,
        ) {
            let (mut reno, mut window) = (NewReno::default(), start);
            for acked in acks {
                let grown = reno.on_ack(window, acked, mss);
                prop_assert!(grown >= window && grown - window <= u32::from(mss));
                window = grown;
            }
        }
    }
}
