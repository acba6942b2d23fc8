//! Loss recovery: its beginning, its end, and its withdrawal.

use core::mem;

use softclock_core::Instant;

use super::ack::Event;
use super::delivery::Delivery;
use super::prr::{Progress, Reduction};
use super::rack::Detection;
use super::scoreboard::RecordState;
use super::{Flight, Phase, SendEvent, Sender, Spurious, TimerOutcome};

impl Sender {
    /// Ends a recovery when all that was in flight at its beginning has arrived.
    pub(super) fn finish_recovery(&mut self, flight: &mut Flight, event: &Event<'_>) {
        if self.phase == Phase::Open || self.una.is_before(flight.recovery_point) {
            return;
        }
        if self.phase == Phase::Recovery {
            // RFC 9937, 6.2: the reduction is complete.
            let threshold = self.controller.slow_start_threshold();
            self.controller.set_window_after_recovery(threshold);
        }
        self.controller.on_recovered(event.now);
        self.reordering.on_recovered();
        self.phase = Phase::Open;
        self.flags.is_at_recovery_point = self.una == flight.recovery_point;
        flight.spurious = Spurious::No;
        flight.presumed = 0;
        flight.duplicates = 0;
    }

    /// Begins a fast recovery if a loss was found, or if one that has just ended has lost what it has sent (RFC 5681,
    /// 4.3). Lets one that is under way go on.
    pub(super) fn recover(
        &mut self,
        flight: &mut Flight,
        delivery: &Delivery,
        event: &Event<'_>,
        detection: &Detection,
    ) {
        if self.phase == Phase::Open {
            let is_lost_beyond = mem::take(&mut flight.is_lost_beyond);
            // Segments that were only late have arrived by now.
            if detection.segments > 0 || is_lost_beyond && flight.board.misses_losses() {
                let size = self.next.since(self.una) - flight.board.sacked() + delivery.bytes;
                self.begin_recovery(flight, event.now, event.flight_before, size);
            }
        }
        flight.note_losses(detection);
        if self.phase == Phase::Recovery {
            flight.reduction.on_ack(Progress {
                delivered: delivery.bytes,
                in_flight: flight.in_flight(),
                threshold: self.controller.slow_start_threshold(),
                is_safe: event.is_advance() && detection.segments == 0,
                mss: self.mss.into(),
            });
        }
    }

    fn begin_recovery(&mut self, flight: &mut Flight, now: Instant, in_flight: u32, size: u32) {
        let in_flight = self.flight_with_paced(in_flight);
        self.controller.on_loss(now, in_flight, self.next);
        self.report_reduction();
        self.undo.arm(self.una, self.next);
        self.tail_probe.abandon();
        self.phase = Phase::Recovery;
        self.stats.recoveries = self.stats.recoveries.wrapping_add(1);
        self.events.note(SendEvent::Recovery);
        flight.begin_recovery(self.next);
        flight.reduction = Reduction::begin(size);
        self.flags.forces_retransmission = flight.board.lost() > 0;
    }

    /// RFC 8985, 6.3: segments that were late are lost now. Returns whether any is.
    pub(super) fn on_reordering_timer(&mut self, flight: &mut Flight, now: Instant) -> bool {
        let before = self.flight_size();
        let window = self.reordering.window(&self.situation(flight));
        let detection = flight.rack.detect(&mut flight.board, window, now);
        self.stats.losses = self.stats.losses.wrapping_add(detection.segments);
        flight.early = detection.again_at.map(|at| (at, super::Early::Reordering));
        if detection.segments > 0 && self.phase == Phase::Open {
            let size = self.next.since(self.una) - flight.board.sacked();
            self.begin_recovery(flight, now, before, size);
            flight.reduction.on_ack(Progress {
                delivered: 0,
                in_flight: flight.in_flight(),
                threshold: self.controller.slow_start_threshold(),
                is_safe: false,
                mss: self.mss.into(),
            });
        }
        flight.note_losses(&detection);
        detection.segments > 0
    }

    /// RFC 6298, 5.4 to 5.6, with the marking of RFC 8985, 6.3. `was_paced`: until now, the pacer held back what is next.
    pub(super) fn on_timeout(
        &mut self,
        flight: &mut Flight,
        now: Instant,
        was_paced: bool,
    ) -> TimerOutcome {
        // What has not left since it was found lost, as it waits for the pacer or was found just now, cannot have been
        // lost again: its timeout begins when it may leave.
        let front = flight.board.records.front();
        let is_lost = front.is_some_and(|record| record.state == RecordState::Lost);
        if is_lost && self.paced_at < Instant::FAR_FUTURE {
            self.set_timer(super::Timer::Retransmission, self.paced_at);
            return TimerOutcome::Nothing;
        }
        // Once, so that a link that takes nothing does not keep the connection for ever.
        let may_leave = was_paced || self.flags.forces_retransmission;
        if is_lost && may_leave && !mem::replace(&mut self.flags.has_put_off_timeout, true) {
            self.set_timer(super::Timer::Retransmission, now);
            return TimerOutcome::Retransmit;
        }
        self.flags.has_put_off_timeout = false;
        self.unanswered = self.unanswered.saturating_add(1);
        if self.unanswered > self.limits.retries {
            return TimerOutcome::GiveUp;
        }
        self.stats.timeouts = self.stats.timeouts.wrapping_add(1);
        self.events.note(SendEvent::Timeout);
        let in_flight = self.flight_with_paced(self.flight_size());
        self.mark_timed_out(flight, now);

        // RFC 5681, 3.1: the threshold is reduced once for each loss of a flight, the window by every timeout.
        let is_first =
            self.phase == Phase::Open || (self.phase == Phase::Loss && self.backoff == 0);
        match is_first {
            true => {
                self.controller.on_timeout(now, in_flight, self.next);
                self.report_reduction();
                self.undo.arm(self.una, self.next);
            }
            false => self.controller.on_timeout_in_recovery(self.next),
        }
        // A timeout in the midst of a recovery is hardly needless (RFC 5682, 3.1, step 1).
        flight.spurious = match self.phase {
            Phase::Recovery => Spurious::No,
            _ => Spurious::Suspected,
        };
        flight.begin_recovery(self.next);
        flight.early = None;
        flight.presumed = 0;
        flight.duplicates = 0;
        self.tail_probe.abandon();
        self.phase = Phase::Loss;
        self.backoff = self.backoff.saturating_add(1);
        self.flags.forces_retransmission = true;
        self.set_timer(super::Timer::Retransmission, now);
        TimerOutcome::Retransmit
    }

    /// Marks the first segment, and those that are late by now.
    fn mark_timed_out(&mut self, flight: &mut Flight, now: Instant) {
        let board = &mut flight.board;
        // The receiver has dropped what it had acknowledged, else it would have acknowledged further (RFC 2018, 8).
        let first = board.records.front().map(|record| record.state);
        if first == Some(RecordState::Sacked) {
            board.forget_sacked();
            self.events.note(SendEvent::Reneging);
        }
        let situation = self.situation(flight);
        let window = self.reordering.window(&situation);
        let board = &mut flight.board;
        for index in 0..board.records.len() {
            let late_at = board
                .records
                .get(index)
                .map(|record| flight.rack.late_at(record, window));
            if index == 0 || late_at.is_some_and(|at| at <= now) {
                board.mark_lost(index);
            }
        }
    }

    /// RFC 3522, and RFC 5682, 3.1: looks whether an acknowledgment after a timeout, or during a fast recovery, is for
    /// what was sent before.
    pub(super) fn look_for_needless_timeout(
        &mut self,
        flight: &mut Flight,
        delivery: &Delivery,
        event: &Event<'_>,
    ) {
        if self.phase == Phase::Open {
            return;
        }
        let is_for_original = event.is_advance()
            && delivery.has_retransmission
            && self.undo.is_for_original(event.ack.echo);
        if is_for_original {
            self.withdraw(flight, SendEvent::UndoneByTimestamps);
        } else if self.is_needless_timeout(flight, delivery, event) {
            self.withdraw(flight, SendEvent::UndoneByForwardRto);
        }
    }

    fn is_needless_timeout(
        &self,
        flight: &mut Flight,
        delivery: &Delivery,
        event: &Event<'_>,
    ) -> bool {
        let is_complete = flight.recovery_point.is_at_or_before(self.una);
        if self.phase != Phase::Loss || flight.spurious == Spurious::No || is_complete {
            return false;
        }
        // Without SACK, the first acknowledgment can cover originals that arrived before the timeout. Only a further
        // one, after new data, shows that others were under way.
        let is_conclusive = self.limits.has_sack || flight.spurious == Spurious::Testing;
        if delivery.has_original && is_conclusive {
            return true;
        }
        flight.spurious = match (event.is_advance(), flight.spurious) {
            (true, Spurious::Suspected) => Spurious::Testing,
            (false, Spurious::Testing) => Spurious::No,
            (_, spurious) => spurious,
        };
        false
    }

    /// Ends a recovery as needless: what was taken for lost is under way.
    fn withdraw(&mut self, flight: &mut Flight, event: SendEvent) {
        flight.board.unmark_lost();
        flight.is_lost_beyond = false;
        flight.spurious = Spurious::No;
        flight.presumed = 0;
        self.flags.forces_retransmission = false;
        self.backoff = 0;
        self.take_back(event);
    }

    /// The next new segment says that the window was reduced, for whatever reason (RFC 3168, 6.1.2).
    pub(super) fn report_reduction(&mut self) {
        self.flags.reports_reduction |= self.flags.has_ecn;
    }

    /// Takes the last reduction of the window back.
    pub(super) fn take_back(&mut self, event: SendEvent) {
        self.events.note(event);
        if self.phase == Phase::Recovery {
            self.reordering.on_reordered();
        }
        self.phase = Phase::Open;
        // A reduction for a mark of congestion since then stays, and is reported.
        self.flags.reports_reduction &= !self.controller.undo();
        self.undo.disarm();
        self.stats.undone = self.stats.undone.wrapping_add(1);
    }
}
