//! Paths that take shorter packets than before.

use super::Sender;
use super::scoreboard::Record;

impl Sender {
    /// Sets the longest payload of a segment, with the length of all options already taken off. Longer segments in
    /// flight are cut when they are sent again.
    pub fn set_mss(&mut self, mss: u16) {
        self.mss = mss.max(1);
        self.controller.set_mss(self.mss);
    }

    /// Learns that the path is narrower than a segment in flight (RFC 1191, 8201): sets the longest payload, and takes
    /// the longer segments in flight for lost, without a response of congestion control. What is lost is divided anew,
    /// so that it leaves in full segments.
    pub fn on_too_big(&mut self, mss: u16) {
        self.set_mss(mss);
        let most = u32::from(self.mss);
        let Some(flight) = self.flight.as_deref_mut() else {
            return;
        };
        let mut has_longer = false;
        for index in 0..flight.board.records.len() {
            let payload = flight.board.records.get(index).map(Record::payload);
            if payload.is_some_and(|payload| payload > most) {
                has_longer = true;
                if flight.board.mark_lost(index) > 0 {
                    self.flags.forces_retransmission = true;
                    flight.narrowed = Some(self.next);
                }
            }
        }
        if has_longer {
            flight.board.divide_lost(most);
        }
    }
}
