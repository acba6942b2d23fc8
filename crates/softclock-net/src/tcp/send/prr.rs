//! Proportional rate reduction (RFC 9937): how fast a fast recovery sends.

/// The state of one fast recovery.
///
/// The window falls to the slow-start threshold within a round trip, in proportion to the bytes that are delivered, not
/// by a pause of half a round trip. If losses take the flight below the threshold, it grows back to it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reduction {
    /// RecoverFS: the bytes that can be delivered in this recovery.
    flight: u32,
    delivered: u32,
    sent: u32,
    window: u32,
}

/// What an acknowledgment says to the reduction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    /// The bytes that it newly delivers.
    pub(super) delivered: u32,
    /// The bytes in flight after its losses are marked.
    pub(super) in_flight: u32,
    /// The slow-start threshold.
    pub(super) threshold: u32,
    /// Whether SND.UNA advanced and no further loss was found.
    pub(super) is_safe: bool,
    pub(super) mss: u32,
}

impl Reduction {
    pub(super) fn begin(flight: u32) -> Self {
        Self {
            flight: flight.max(1),
            ..Self::default()
        }
    }

    /// The bytes that can be in flight at present.
    pub(super) fn window(&self) -> u32 {
        self.window
    }

    pub(super) fn on_sent(&mut self, bytes: u32) {
        self.sent = self.sent.saturating_add(bytes);
    }

    /// RFC 9937, 6.2, for every acknowledgment during recovery, the one that begins it included.
    pub(super) fn on_ack(&mut self, progress: Progress) {
        let Progress {
            delivered,
            in_flight,
            threshold,
            is_safe,
            mss,
        } = progress;
        if delivered == 0 && self.window > 0 {
            return;
        }
        self.delivered = self.delivered.saturating_add(delivered);
        let mut more = if in_flight > threshold {
            let share = u64::from(self.delivered) * u64::from(threshold);
            let due = share.div_ceil(self.flight.into());
            due.saturating_sub(self.sent.into()) as u32
        } else {
            // Conservative by default; a segment more while the recovery goes well.
            let owed = self.delivered.saturating_sub(self.sent).max(delivered);
            let owed = owed.saturating_add(if is_safe { mss } else { 0 });
            owed.min(threshold - in_flight)
        };
        // The first acknowledgment always sends one segment: the fast retransmission.
        if self.sent == 0 && more == 0 {
            more = mss;
        }
        self.window = in_flight.saturating_add(more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_loss_halves_the_flight_over_one_round_trip() {
        let mss = 1000;
        let mut reduction = Reduction::begin(20 * mss);
        let (mut in_flight, mut sent) = (19 * mss, 0);
        for _ in 0..19 {
            in_flight -= mss;
            reduction.on_ack(Progress {
                delivered: mss,
                in_flight,
                threshold: 10 * mss,
                is_safe: false,
                mss,
            });
            while in_flight + mss <= reduction.window() {
                reduction.on_sent(mss);
                in_flight += mss;
                sent += 1;
            }
            assert!(sent * 2 <= 21);
        }
        assert!((9..=10).contains(&sent), "{sent}");
        assert!((9 * mss..=10 * mss).contains(&in_flight), "{in_flight}");
    }

    #[test]
    fn after_a_heavy_loss_each_safe_acknowledgment_sends_one_segment_more() {
        let mss = 1000;
        let mut reduction = Reduction::begin(20 * mss);
        reduction.on_ack(Progress {
            delivered: mss,
            in_flight: 2 * mss,
            threshold: 10 * mss,
            is_safe: false,
            mss,
        });
        assert_eq!(reduction.window(), 3 * mss);
        reduction.on_sent(mss);
        reduction.on_ack(Progress {
            delivered: mss,
            in_flight: 2 * mss,
            threshold: 10 * mss,
            is_safe: true,
            mss,
        });
        assert_eq!(reduction.window(), 4 * mss);
    }
}
