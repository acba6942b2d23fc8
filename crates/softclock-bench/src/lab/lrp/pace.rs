//! The polls of a receiver that still has packets.
//!
//! They empty the ring of the link, so that the packets of other receivers are not lost there among those of a flood, and
//! the flood's are discarded by their own channel. Their share of the time is limited, since this is the work that takes
//! the processor from receivers under overload.

/// Decides when a receiver with packets polls.
#[derive(Debug, Default)]
pub(super) struct Pace {
    next_ns: u64,
}

impl Pace {
    /// Whether a poll is due, at this time.
    pub(super) fn is_due(&self, now_ns: u64) -> bool {
        now_ns >= self.next_ns
    }

    /// Notes a poll, and whether it has found frames.
    pub(super) fn polled(&mut self, begun_ns: u64, ended_ns: u64, has_found: bool) {
        let pause = match has_found {
            true => (ended_ns - begun_ns) * (100 / SHARE_PERCENT - 1),
            false => PAUSE_NS,
        };
        self.next_ns = ended_ns + pause;
    }
}

/// The most of the processor's time.
const SHARE_PERCENT: u64 = 5;

/// The pause after a poll that has found nothing: no overload.
const PAUSE_NS: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polls_that_find_frames_take_their_share() {
        let mut pace = Pace::default();
        assert!(pace.is_due(0));
        pace.polled(1000, 2000, true);
        assert!(!pace.is_due(20_999) && pace.is_due(21_000));
        pace.polled(21_000, 22_000, false);
        assert!(!pace.is_due(1_000_000) && pace.is_due(1_022_000));
    }
}
