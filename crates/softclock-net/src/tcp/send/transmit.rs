//! The choice of the next segment.

use softclock_core::Instant;

use super::scoreboard::{Record, RecordState};
use super::timers::Wait;
use super::{Fin, Flight, Phase, Sender, Spurious, Timer, Transmit, TransmitKind};
use super::{RetransmissionCause, SendEvent};
use crate::tcp::seq::Seq;

/// What could be sent next.
#[derive(Clone, Copy, Debug)]
enum Candidate {
    /// The lost record of this index.
    Lost(usize),
    /// So many new bytes, and FIN or not.
    New(u32, bool),
}

impl Sender {
    /// Returns the next segment to send now, and counts it as sent. `None` if there is nothing to send, or the windows
    /// are full, or the pacer lets it wait: then [`next_timeout`](Self::next_timeout) says until when.
    ///
    /// Takes constant time, apart from a search among the segments in flight.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Transmit> {
        self.paced_at = Instant::FAR_FUTURE;
        if self.waits_since == Instant::FAR_FUTURE && !self.is_all_acked() {
            self.waits_since = now;
        }
        // Probes are rare, and waiting is what they are to end: neither the pacer nor the congestion window holds them.
        if core::mem::take(&mut self.flags.probes_window) {
            return self.window_probe();
        }
        // An acknowledgment since the timer expired can have brought a selective one, or a loss.
        let probes_tail = core::mem::take(&mut self.flags.probes_tail)
            && (self.flight.as_ref()).is_some_and(|flight| self.may_probe_tail(flight));
        if probes_tail {
            let probe = self.tail_probe(now);
            if probe.is_some() {
                return probe;
            }
        }
        let Some(candidate) = self.candidate(now) else {
            if let Some(pacer) = self.pace.pacer() {
                pacer.on_no_data();
            }
            return None;
        };
        if self.pace.is_at_rest() {
            self.pace.begin();
            self.update_pace();
        }
        let allowed_at = self.pace.begin().next_send(now);
        // The first segment that is sent again is not paced: it takes the place of a lost one, so it adds no burst.
        let is_urgent = self.flags.forces_retransmission
            && matches!(candidate, Candidate::Lost(_))
            && !self.pace.is_stated();
        if allowed_at > now && !is_urgent {
            self.paced_at = allowed_at;
            return None;
        }
        match candidate {
            Candidate::Lost(index) => self.resend(index, TransmitKind::Retransmission, now),
            Candidate::New(length, fin) => Some(self.send_new(length, fin, TransmitKind::New, now)),
        }
    }

    /// Losses are repaired before new data is sent, except while a timeout is in doubt (RFC 5682, 3.1, step 2).
    fn candidate(&mut self, now: Instant) -> Option<Candidate> {
        // A timeout that was taken back leaves nothing to test.
        let is_testing = self.phase == Phase::Loss
            && (self.flight.as_ref()).is_some_and(|flight| flight.spurious == Spurious::Testing);
        if is_testing && let Some(new) = self.new_segment(now) {
            return Some(new);
        }
        let lost = self.lost_segment();
        if lost.is_some() {
            return lost;
        }
        let has_lost = self
            .flight
            .as_ref()
            .is_some_and(|flight| flight.board.lost() > 0);
        match has_lost || is_testing {
            true => None,
            false => self.new_segment(now),
        }
    }

    fn lost_segment(&mut self) -> Option<Candidate> {
        let window = self.congestion_window();
        let most = u32::from(self.mss);
        let flight = self.flight.as_deref_mut()?;
        let index = flight.board.next_lost()?;
        let length = flight.board.records.get(index)?.length.min(most);
        let has_room = fits(flight.in_flight(), length, window);
        (has_room || self.flags.forces_retransmission).then_some(Candidate::Lost(index))
    }

    fn new_segment(&mut self, now: Instant) -> Option<Candidate> {
        let (length, fin) = self.fitting(now)?;
        let in_flight = self.in_flight();
        if fits(in_flight, length, self.congestion_window()) {
            return Some(Candidate::New(length, fin));
        }
        // The congestion window is the limit: what is acknowledged of this flight lets it grow (RFC 7661, 4).
        let next = self.next;
        if let Some(flight) = self.flight.as_deref_mut() {
            flight.limited_until = next;
        }
        None
    }

    /// The longest new segment that the data, the peer's window, its avoidance of silly windows (RFC 9293, 3.8.6.2.1)
    /// and Nagle's rule allow, with FIN or not. Sets the persist timer if the peer's window is all that hinders an
    /// otherwise idle sender.
    fn fitting(&mut self, now: Instant) -> Option<(u32, bool)> {
        if !self.has_unsent() {
            let in_flight = self.in_flight();
            if let Some(flight) = self.flight.as_deref_mut() {
                flight.sampler.on_app_limited(in_flight);
            }
            return None;
        }
        let allowed = self.allowed();
        if allowed.is_none() {
            self.await_window(now);
        }
        allowed
    }

    /// The longest new segment that may leave, see [`fitting`](Self::fitting). Changes nothing.
    pub(super) fn allowed(&self) -> Option<(u32, bool)> {
        let unsent = self.unsent();
        let has_fin = self.fin == Fin::Queued;
        let most = u32::from(self.mss);
        let open = self.open_window();
        let length = unsent.min(most).min(open);
        let is_last = length == unsent;
        // FIN takes a position in the window, too.
        let fin = has_fin && is_last && length < open;
        let is_short = length < most && !fin;
        let is_allowed = match is_short {
            false => true,
            true if length == 0 => false,
            // Silly windows: a piece of the queue only if it is a large part of the largest window seen.
            true if !is_last => length >= self.most_window / 2 || self.flags.overrides_avoidance,
            // Nagle: the short end waits while another short segment is under way.
            true => !self.limits.has_nagle || self.short_end.is_at_or_before(self.una),
        };
        is_allowed.then_some((length, fin))
    }

    /// With nothing in flight, no acknowledgment will come unless the peer opens its window, and that can get lost.
    fn await_window(&mut self, now: Instant) {
        let open = self.open_window();
        let is_window_closed = open < self.unsent() || self.fin == Fin::Queued && open == 0;
        let is_idle = self.flight.is_none() && self.timer != Timer::Persist;
        if is_idle && is_window_closed {
            self.set_timer(Timer::Persist, now);
        }
    }

    fn send_new(&mut self, length: u32, fin: bool, kind: TransmitKind, now: Instant) -> Transmit {
        let seq = self.next;
        let in_flight = self.in_flight();
        let (una, has_sack) = (self.una, self.limits.has_sack);
        let is_first = self.flight.is_none();
        let flight = (self.flight).get_or_insert_with(|| Flight::new(una, has_sack));
        let bytes = length + u32::from(fin);
        let record = Record {
            seq,
            length: bytes,
            sent: now,
            snapshot: flight.sampler.on_sent(now, in_flight),
            state: RecordState::InFlight,
            transmissions: 1,
            has_fin: fin,
        };
        flight.board.push(record);
        self.next += bytes;
        if length < u32::from(self.mss) {
            self.short_end = self.next;
        }
        if fin {
            self.fin = Fin::Sent;
        }
        self.flags.overrides_avoidance = false;
        self.flags.has_probed_window = false;
        self.controller.on_sent(now, bytes, in_flight);
        self.on_sent(bytes, now);
        if is_first || self.timer != Timer::Retransmission {
            self.set_timer(Timer::Retransmission, now);
        }
        if kind == TransmitKind::New {
            self.set_early(now, Wait::Sent);
        }
        Transmit {
            cwr: core::mem::take(&mut self.flags.reports_reduction),
            ..self.describe(seq, length, fin, kind)
        }
    }

    fn resend(&mut self, index: usize, kind: TransmitKind, now: Instant) -> Option<Transmit> {
        let most = u32::from(self.mss);
        let reading = self.limits.clock.reading(now);
        let in_flight = self.in_flight();
        let flight = self.flight.as_deref_mut()?;
        flight.board.cut(index, most, most);
        let snapshot = flight.sampler.on_sent(now, in_flight);
        let record = flight.board.resend(index, now, snapshot)?;
        self.flags.forces_retransmission = false;
        self.flags.has_put_off_timeout = false;
        self.stats.retransmissions = self.stats.retransmissions.wrapping_add(1);
        if kind == TransmitKind::Retransmission {
            self.undo.on_resent(reading);
        }
        self.controller.on_sent(now, record.length, in_flight);
        self.controller.on_retransmitted(record.length);
        self.on_sent(record.length, now);
        // The first segment is on its way again: its acknowledgment takes another round trip, which can be longer than
        // the rest of the timeout.
        if self.timer != Timer::Retransmission || record.seq == self.una {
            self.set_timer(Timer::Retransmission, now);
        }
        let payload = record.payload();
        Some(Transmit {
            cause: Some(self.cause(kind, record.seq)),
            ..self.describe(record.seq, payload, record.has_fin, kind)
        })
    }

    /// Why the record at this position is sent again.
    fn cause(&self, kind: TransmitKind, seq: Seq) -> RetransmissionCause {
        let narrowed = self.flight.as_ref().and_then(|flight| flight.narrowed);
        match (kind, self.phase) {
            (TransmitKind::Probe, _) => RetransmissionCause::TailProbe,
            _ if narrowed.is_some_and(|end| seq.is_before(end)) => RetransmissionCause::PathMtu,
            (_, Phase::Loss) => RetransmissionCause::Timeout,
            _ if self.limits.has_sack => RetransmissionCause::Rack,
            _ => RetransmissionCause::Duplicates,
        }
    }

    fn on_sent(&mut self, bytes: u32, now: Instant) {
        self.stats.segments = self.stats.segments.wrapping_add(1);
        if let Some(pacer) = self.pace.pacer() {
            pacer.on_sent(now, bytes);
        }
        if let (Phase::Recovery, Some(flight)) = (self.phase, self.flight.as_deref_mut()) {
            flight.reduction.on_sent(bytes);
        }
    }

    /// RFC 8985, 7.3: a new segment if there is one and the peer's window takes it, else the last one again.
    fn tail_probe(&mut self, now: Instant) -> Option<Transmit> {
        let is_new = self.fitting(now);
        let probe = match is_new {
            Some((length, fin)) => self.send_new(length, fin, TransmitKind::Probe, now),
            None => {
                let most = u32::from(self.mss);
                let flight = self.flight.as_deref_mut()?;
                let mut last = flight.board.records.len().checked_sub(1)?;
                // Of a segment that has become too long, the end.
                let record = flight.board.records.get(last);
                let payload = record.map_or(0, Record::payload);
                if flight.board.cut(last, payload.saturating_sub(most), most) {
                    last += 1;
                }
                self.resend(last, TransmitKind::Probe, now)?
            }
        };
        self.stats.tail_probes = self.stats.tail_probes.wrapping_add(1);
        self.events.note(SendEvent::TailProbe);
        self.tail_probe.begin(self.next, is_new.is_none());
        // RFC 8985, 7.3: behind the probe, only the retransmission timer remains.
        if let Some(flight) = self.flight.as_deref_mut() {
            flight.early = None;
        }
        self.set_timer(Timer::Retransmission, now);
        Some(probe)
    }

    /// One byte beyond the window, or FIN if no bytes are left (RFC 9293, 3.8.6.1). It does not count as sent, since a
    /// receiver without room drops it.
    fn window_probe(&mut self) -> Option<Transmit> {
        let length = self.unsent().min(1);
        let fin = length == 0 && self.fin == Fin::Queued;
        if length == 0 && !fin {
            return None;
        }
        self.flags.has_probed_window = true;
        self.stats.window_probes = self.stats.window_probes.wrapping_add(1);
        self.events.note(SendEvent::WindowProbe);
        Some(self.describe(self.next, length, fin, TransmitKind::WindowProbe))
    }

    fn describe(&self, seq: Seq, length: u32, fin: bool, kind: TransmitKind) -> Transmit {
        Transmit {
            seq,
            length,
            push: length > 0 && seq + length == self.queue.end(),
            fin,
            cwr: false,
            kind,
            cause: None,
        }
    }
}

/// Whether a segment fits into the congestion window. One can always be in flight.
fn fits(in_flight: u32, length: u32, window: u32) -> bool {
    in_flight == 0 || in_flight.saturating_add(length) <= window
}
