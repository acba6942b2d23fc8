//! Which segments are acceptable, and which resets are believed.

use crate::tcp::seq::Seq;

/// How a connection answers a reset (RFC 5961, 3.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResetVerdict {
    /// It has exactly the sequence number that is expected next: the connection is aborted.
    Abort,
    /// It is in the window: the connection sends a challenge ACK, to which the other end answers with the exact
    /// sequence number if the reset was its own.
    Challenge,
    /// It is outside the window: it is dropped without an answer.
    Ignore,
}

impl ResetVerdict {
    /// Judges a reset by its sequence number.
    pub(super) const fn of(seq: Seq, next: Seq, window: u32) -> Self {
        match seq.is_within(next, Seq(next.0.wrapping_add(window))) {
            _ if seq.0 == next.0 => Self::Abort,
            true => Self::Challenge,
            false => Self::Ignore,
        }
    }
}

/// Whether a segment of `length` sequence numbers from `seq` on is acceptable to a receiver that expects `next` and has
/// a window of `window` (RFC 9293, 3.10.7.4, table 6). FIN counts as one sequence number.
pub(super) const fn is_acceptable(seq: Seq, length: u32, next: Seq, window: u32) -> bool {
    let edge = Seq(next.0.wrapping_add(window));
    match (length, window) {
        (0, 0) => seq.0 == next.0,
        (_, 0) => false,
        (0, _) => seq.is_within(next, edge),
        _ => {
            let last = Seq(seq.0.wrapping_add(length - 1));
            seq.is_within(next, edge) || last.is_within(next, edge)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn without_a_window_only_an_empty_segment_in_order_is_acceptable() {
        assert!(is_acceptable(Seq(7), 0, Seq(7), 0));
        assert!(!is_acceptable(Seq(7), 1, Seq(7), 0));
        assert!(!is_acceptable(Seq(8), 0, Seq(7), 0));
        assert_eq!(ResetVerdict::of(Seq(7), Seq(7), 0), ResetVerdict::Abort);
        assert_eq!(ResetVerdict::of(Seq(8), Seq(7), 0), ResetVerdict::Ignore);
    }

    proptest! {
        #[test]
        fn segments_are_acceptable_if_one_of_their_ends_is_in_the_window(
            next in any::<u32>(), window in 1..1u32 << 30, from in -1i64 << 29..1 << 30, length in 0..1u32 << 20,
        ) {
            let seq = Seq(next.wrapping_add(from as u32));
            let in_window = |at: i64| (0..i64::from(window)).contains(&at);
            let last = from + i64::from(length.max(1)) - 1;
            let is_expected = in_window(from) || in_window(last);
            prop_assert_eq!(is_acceptable(seq, length, Seq(next), window), is_expected);
            let verdict = match from {
                0 => ResetVerdict::Abort,
                _ if in_window(from) => ResetVerdict::Challenge,
                _ => ResetVerdict::Ignore,
            };
            prop_assert_eq!(ResetVerdict::of(seq, Seq(next), window), verdict);
        }
    }
}
