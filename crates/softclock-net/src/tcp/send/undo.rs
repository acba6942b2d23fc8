//! Finds reductions of the congestion window that were needless: by the peer's reports of duplicates (RFC 3708), or by
//! the times that its acknowledgments echo (Eifel, RFC 3522).

use crate::tcp::seq::Seq;

/// The reduction that could still be taken back. It outlives flights, as reports of duplicates come late.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Undo {
    /// The range that was in flight at the reduction.
    start: Seq,
    end: Seq,
    /// The reading of the own clock at the first retransmission since.
    first_resent: Option<u32>,
    /// The retransmissions that were not reported as duplicates.
    unexplained: u16,
    is_armed: bool,
}

impl Undo {
    /// A reduction happens while the range from `una` to `next` is in flight.
    pub(super) fn arm(&mut self, una: Seq, next: Seq) {
        *self = Self {
            start: una,
            end: next,
            first_resent: None,
            unexplained: 0,
            is_armed: true,
        };
    }

    pub(super) fn disarm(&mut self) {
        self.is_armed = false;
    }

    /// A segment is sent again.
    pub(super) fn on_resent(&mut self, reading: u32) {
        self.first_resent = self.first_resent.or(Some(reading));
        self.unexplained = self.unexplained.saturating_add(1);
    }

    /// The peer received a range twice. Returns whether that explains the last retransmission, so that all were
    /// needless.
    pub(super) fn on_duplicate(&mut self, start: Seq, end: Seq) -> bool {
        let is_inside = self.start.is_at_or_before(start) && end.is_at_or_before(self.end);
        if !self.is_armed || !is_inside || self.unexplained == 0 {
            return false;
        }
        self.unexplained -= 1;
        self.unexplained == 0
    }

    /// Whether an acknowledgment of retransmitted bytes echoes a time before the first retransmission, so that it is
    /// for the original.
    pub(super) fn is_for_original(&self, echo: Option<u32>) -> bool {
        let is_earlier =
            |resent: u32| echo.is_some_and(|echo| (echo.wrapping_sub(resent) as i32) < 0);
        self.is_armed && self.first_resent.is_some_and(is_earlier)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn armed() -> Undo {
        let mut undo = Undo::default();
        undo.arm(Seq(100), Seq(300));
        undo.on_resent(50);
        undo.on_resent(60);
        undo
    }

    #[test]
    fn every_retransmission_must_be_explained() {
        let mut undo = armed();
        assert!(!undo.on_duplicate(Seq(0), Seq(100)), "before the range");
        assert!(!undo.on_duplicate(Seq(100), Seq(200)));
        assert!(undo.on_duplicate(Seq(200), Seq(300)));
        assert!(!undo.on_duplicate(Seq(200), Seq(300)), "a third copy");
    }

    #[test]
    fn an_echo_of_an_earlier_time_is_for_the_original() {
        let undo = armed();
        assert!(undo.is_for_original(Some(49)));
        assert!(!undo.is_for_original(Some(50)));
        assert!(!undo.is_for_original(None));
    }
}
