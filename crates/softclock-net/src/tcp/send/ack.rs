//! Acknowledgments.

use core::time::Duration;

use softclock_core::Instant;

use super::delivery::{Delivery, Facts};
use super::rack::{Detection, Situation};
use super::timers::Wait;
use super::tlp::ProbeEnd;
use super::{Ack, AckVerdict, Acked, Early, Fin, Flight, Phase, SendEvent, Sender, Timer};
use crate::tcp::congestion::CongestionAck;
use crate::tcp::segment::SackBlock;
use crate::tcp::seq::Seq;

/// What the steps of one acknowledgment share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event<'a> {
    pub(super) now: Instant,
    pub(super) arrived: Instant,
    pub(super) ack: &'a Ack<'a>,
    /// SND.UNA before.
    pub(super) una_before: Seq,
    /// The bytes sent and not acknowledged before (FlightSize of RFC 5681).
    pub(super) flight_before: u32,
    /// Whether it is a duplicate by RFC 5681, 2: without data, at SND.UNA, with the same window.
    is_duplicate: bool,
    /// Whether the peer's window had room before.
    was_open: bool,
    /// The range that has arrived twice (RFC 2883).
    twice: Option<SackBlock>,
}

impl Event<'_> {
    pub(super) fn is_advance(&self) -> bool {
        self.una_before.is_before(self.ack.acknowledgment)
    }
}

impl Sender {
    /// Processes the acknowledgment field, window and options of a segment. `arrived` is when the segment arrived,
    /// which can be long before `now`.
    ///
    /// Takes time in proportion to the segments that it acknowledges or shows to be lost.
    pub fn on_ack(&mut self, now: Instant, arrived: Instant, ack: &Ack<'_>) -> Acked {
        let verdict = self.judge(ack.acknowledgment);
        let mut acked = Acked {
            bytes: 0,
            fin: false,
            room: false,
            verdict,
        };
        if matches!(verdict, AckVerdict::Future | AckVerdict::TooOld) {
            return acked;
        }
        // The byte of a window probe was taken, so it counts as sent.
        if self.next.is_before(ack.acknowledgment) {
            self.take_probe(ack.acknowledgment);
        }
        let event = Event {
            now,
            arrived,
            ack,
            una_before: self.una,
            flight_before: self.flight_size(),
            is_duplicate: verdict == AckVerdict::Duplicate
                && !ack.carries_data
                && ack.window == self.window,
            was_open: self.open_window() > 0,
            twice: self.twice_arrived(ack),
        };
        if verdict != AckVerdict::Old {
            self.update_window(ack);
        }
        self.flags.is_at_recovery_point &= !event.is_advance();
        self.on_twice_arrived(&event);
        self.end_tail_probe(&event);
        if let Some(mut flight) = self.flight.take() {
            self.advance(&mut flight, &event);
            if !flight.board.is_empty() {
                self.flight = Some(flight);
            }
        }
        let more = ack.acknowledgment.since(event.una_before);
        self.acknowledged = self.acknowledged.saturating_add(more);
        self.una = self.una.max(ack.acknowledgment);
        self.reordering.on_advance(self.una);
        self.settle(&event, &mut acked);
        acked
    }

    /// Learns that a writer waits for room, so [`Acked::room`] says when there is some. A writer can find the buffer
    /// full without being refused: the buffer follows the congestion window, and so shrinks with it.
    pub fn await_room(&mut self) {
        self.flags.is_writer_waiting |= self.fin == Fin::Open && self.room() == 0;
    }

    /// Whether a peer that follows the protocol can acknowledge this position at present.
    pub(in crate::tcp) fn may_acknowledge(&self, acknowledgment: Seq) -> bool {
        let verdict = self.judge(acknowledgment);
        !matches!(verdict, AckVerdict::Future | AckVerdict::TooOld)
    }

    /// Compares an acknowledgment with the bytes in flight (RFC 9293, 3.10.7.4; RFC 5961, 5.2). One of bytes that were
    /// never sent is too old even within the largest window, as in Linux since 6.7. Otherwise an off-path attacker
    /// would need far fewer guesses during the first window.
    fn judge(&self, acknowledgment: Seq) -> AckVerdict {
        let probed = u32::from(self.flags.has_probed_window);
        if (self.next + probed).is_before(acknowledgment) {
            AckVerdict::Future
        } else if self.una.is_before(acknowledgment) {
            AckVerdict::New
        } else if acknowledgment == self.una {
            AckVerdict::Duplicate
        } else if acknowledgment.is_before(self.una - self.most_window.min(self.acknowledged)) {
            AckVerdict::TooOld
        } else {
            AckVerdict::Old
        }
    }

    fn take_probe(&mut self, acknowledgment: Seq) {
        self.flags.has_probed_window = false;
        if self.unsent() == 0 && self.fin == Fin::Queued {
            self.fin = Fin::Sent;
        }
        self.next = acknowledgment;
    }

    /// Takes the window of a segment that is not older than the last one (RFC 9293, 3.10.7.4). SND.WL2 is not stored:
    /// it is at most SND.UNA, and acknowledgments below SND.UNA do not get here.
    fn update_window(&mut self, ack: &Ack<'_>) {
        let is_newer =
            self.una.is_before(ack.acknowledgment) || self.window_seq.is_at_or_before(ack.seq);
        if is_newer {
            self.window = ack.window;
            self.window_seq = ack.seq;
            self.most_window = self.most_window.max(ack.window);
        }
    }

    /// The first block reports a duplicate if it lies below the acknowledgment, or in the second block (RFC 2883, 4).
    fn twice_arrived(&self, ack: &Ack<'_>) -> Option<SackBlock> {
        let blocks = ack.sack.as_slice();
        let first = *blocks.first().filter(|_| self.limits.has_sack)?;
        let is_valid = first.start.is_before(first.end) && first.end.is_at_or_before(self.next);
        let is_below = first.start.is_before(ack.acknowledgment);
        let is_in_second = blocks.get(1).is_some_and(|second| {
            second.start.is_at_or_before(first.start) && first.end.is_at_or_before(second.end)
        });
        (is_valid && (is_below || is_in_second)).then_some(first)
    }

    /// A segment arrived twice: a retransmission was needless, unless the network has duplicated a segment.
    fn on_twice_arrived(&mut self, event: &Event<'_>) {
        let Some(twice) = event.twice else {
            return;
        };
        self.stats.duplicates = self.stats.duplicates.wrapping_add(1);
        self.events.note(SendEvent::Duplicate);
        if self.stats.duplicates > self.stats.retransmissions {
            return;
        }
        // A probe is sent by timeout, and without a reduction, so its duplicate says nothing about reordering, nor
        // about what a recovery has sent again.
        if self.tail_probe.is_of(twice.end) {
            return;
        }
        let una = self.una.max(event.ack.acknowledgment);
        if self.reordering.on_duplicate(una, self.next) {
            self.events.note(SendEvent::ReorderingWindow);
        }
        if self.undo.on_duplicate(twice.start, twice.end) {
            self.take_back(SendEvent::UndoneByDuplicates);
        }
    }

    fn end_tail_probe(&mut self, event: &Event<'_>) {
        let is_bare = event.is_duplicate && event.ack.sack.as_slice().is_empty();
        let twice = event.twice.map(|twice| twice.end);
        let end = self
            .tail_probe
            .on_ack(event.ack.acknowledgment, twice, is_bare);
        // RFC 8985, 7.4.2: a loss was repaired so fast that it caused no recovery. It is congestion all the same.
        if end == ProbeEnd::Repair {
            self.events.note(SendEvent::TailRepair);
        }
        if end == ProbeEnd::Repair && self.phase == Phase::Open {
            let flight = self.flight_with_paced(event.flight_before);
            self.controller.on_loss(event.now, flight, self.next);
            let threshold = self.controller.slow_start_threshold();
            self.controller.set_window_after_recovery(threshold);
            self.controller.on_recovered(event.now);
            self.report_reduction();
            self.undo.disarm();
        }
    }

    /// The steps that concern segments in flight.
    fn advance(&mut self, flight: &mut Flight, event: &Event<'_>) {
        let delivery = self.deliver(flight, event);
        let rtt = self.sample(&delivery, event);
        self.una = self.una.max(event.ack.acknowledgment);
        if delivery.is_reordered {
            self.reordering.on_reordered();
            self.stats.reorderings = self.stats.reorderings.wrapping_add(1);
            self.events.note(SendEvent::Reordering);
        }
        flight.rack.on_delivery(&delivery, event.arrived);
        self.look_for_needless_timeout(flight, &delivery, event);
        self.finish_recovery(flight, event);
        self.grow(flight, &delivery, event, rtt);
        self.respond_to_ecn(event);
        let detection = self.look_for_losses(flight, event, &delivery);
        self.recover(flight, &delivery, event, &detection);
        self.set_timers(flight, event, &detection);
    }

    /// Marks what arrived.
    fn deliver(&mut self, flight: &mut Flight, event: &Event<'_>) -> Delivery {
        let ack = event.ack;
        let mut delivery = Delivery::new(Facts {
            arrived: event.arrived,
            least_rtt: self.rtt.least().unwrap_or_default(),
            echo: ack.echo,
            clock: self.limits.clock,
            forward: flight.rack.forward,
            recovery_point: flight.recovery_point,
        });
        flight.board.acknowledge(ack.acknowledgment, &mut delivery);
        if self.limits.has_sack {
            let una = self.una.max(ack.acknowledgment);
            let blocks = ack.sack.as_slice();
            flight.board.apply(blocks, una, self.next, &mut delivery);
        } else {
            self.presume(flight, &mut delivery, event);
        }
        let (arrived, least) = (event.arrived, self.rtt.least());
        let sample = flight.sampler.on_ack(arrived, delivery.segments, least);
        if let Some(sample) = sample {
            self.stats.delivery_rate = sample.bytes_per_second();
        }
        delivery
    }

    /// Without SACK, each duplicate acknowledgment stands for a segment that has arrived (RFC 9937, 6.1).
    fn presume(&mut self, flight: &mut Flight, delivery: &mut Delivery, event: &Event<'_>) {
        let mss = u32::from(self.mss);
        // After a timeout, duplicates may answer needless retransmissions. They would cause others if they made room,
        // unless new data was sent since then (RFC 6582, 4).
        let is_of_repeats = self.phase == Phase::Loss && self.next == flight.recovery_point;
        if event.is_advance() {
            let counted = flight.presumed.min(delivery.bytes);
            delivery.bytes = (delivery.bytes - counted).max(mss.min(delivery.bytes));
            flight.presumed -= counted;
            flight.duplicates = 0;
        } else if event.is_duplicate && !is_of_repeats {
            flight.duplicates = flight.duplicates.saturating_add(1);
            let most = flight.board.in_flight().saturating_sub(mss);
            let more = mss.min(most.saturating_sub(flight.presumed));
            flight.presumed += more;
            delivery.bytes += more;
        }
        flight.presumed = flight.presumed.min(flight.board.in_flight());
    }

    /// Takes samples of the round trip; returns that of the last segment.
    fn sample(&mut self, delivery: &Delivery, event: &Event<'_>) -> Option<Duration> {
        if let Some(least) = delivery.least_sample() {
            self.rtt.on_least(least, event.arrived);
        }
        // The echo is as old as the earliest segment that it acknowledges, but coarser. It serves where segments were
        // sent more than once (RFC 7323, 4).
        let echoed = || {
            let echo = event.ack.echo.filter(|_| event.is_advance())?;
            self.limits.clock.since(echo, event.arrived)
        };
        let sample = delivery.timeout_sample().or_else(echoed);
        if let Some(sample) = sample {
            self.rtt.on_sample(sample);
            // RFC 6298, 5: the timeout stays backed off until there is a sample (Karn).
            self.backoff = 0;
        }
        delivery.least_sample().or(sample)
    }

    pub(super) fn situation(&self, flight: &Flight) -> Situation {
        Situation {
            is_in_recovery: self.phase != Phase::Open,
            has_duplicates: flight.board.sacked_segments() >= DUPLICATE_THRESHOLD,
            least_rtt: self.rtt.least(),
            smoothed: self.rtt.smoothed(),
        }
    }

    /// Marks losses: by time with SACK, by duplicates and partial acknowledgments without (RFC 6582).
    fn look_for_losses(
        &mut self,
        flight: &mut Flight,
        event: &Event<'_>,
        delivery: &Delivery,
    ) -> Detection {
        let mut detection = Detection::default();
        if self.limits.has_sack {
            if delivery.bytes > 0 {
                let window = self.reordering.window(&self.situation(flight));
                detection = flight.rack.detect(&mut flight.board, window, event.arrived);
            } else if let Some((at, Early::Reordering)) = flight.early {
                detection.again_at = Some(at);
            }
        } else {
            // RFC 6582, 3.2, step 1: duplicates at the end of a recovery may answer what it has sent again.
            let is_third = self.phase == Phase::Open
                && flight.duplicates == DUPLICATE_THRESHOLD
                && !self.flags.is_at_recovery_point;
            // After a timeout, several are sent again at a time, each of which has an acknowledgment of its own.
            let front = flight.board.records.front();
            let is_resent = front.is_some_and(|record| record.transmissions > 1);
            let is_partial = match self.phase {
                Phase::Open => false,
                Phase::Recovery => event.is_advance(),
                Phase::Loss => event.is_advance() && !is_resent,
            };
            if (is_third || is_partial) && flight.board.mark_lost(0) > 0 {
                detection.segments = 1;
                // RFC 6582, 3.2, step 3: a partial acknowledgment sends the next one at once.
                self.flags.forces_retransmission = true;
            }
        }
        self.stats.losses = self.stats.losses.wrapping_add(detection.segments);
        detection
    }

    /// RFC 3168, 6.1.2.
    fn respond_to_ecn(&mut self, event: &Event<'_>) {
        if !event.ack.ece || !self.flags.has_ecn {
            return;
        }
        if self.phase != Phase::Open {
            self.controller.on_ecn_in_recovery();
            return;
        }
        let flight = self.flight_with_paced(event.flight_before);
        let (una, next) = (self.una, self.next);
        let is_reduced = self.controller.on_ecn(event.now, flight, una, next);
        self.flags.reports_reduction |= is_reduced;
        if is_reduced {
            self.events.note(SendEvent::CongestionMark);
        }
    }

    fn grow(
        &mut self,
        flight: &Flight,
        delivery: &Delivery,
        event: &Event<'_>,
        rtt: Option<Duration>,
    ) {
        // RFC 5681, 3.1: the window grows by acknowledgments that advance. Others may send a segment each in place of
        // one that has left the network (RFC 3042, 2), but the window stays.
        let may_grow = event.is_advance() || self.phase == Phase::Recovery;
        if delivery.bytes == 0 || !may_grow {
            return;
        }
        let is_limited = event.una_before.is_before(flight.limited_until);
        // In slow start the window can double in a round trip, so half of it in use is enough.
        let is_half_used = self.controller.is_in_slow_start()
            && self.controller.window() / 2 < event.flight_before;
        self.controller.on_ack(&CongestionAck {
            now: event.now,
            arrived: event.arrived,
            acked: delivery.bytes,
            in_flight: event.flight_before,
            rtt,
            srtt: self.rtt.smoothed(),
            min_rtt: self.rtt.least(),
            rto: self.timeout(),
            is_app_limited: !(is_limited || is_half_used),
            una: self.una,
            next: self.next,
            is_in_recovery: self.phase == Phase::Recovery,
        });
    }

    fn set_timers(&mut self, flight: &mut Flight, event: &Event<'_>, detection: &Detection) {
        if flight.board.is_empty() {
            self.timer = Timer::Off;
            return;
        }
        if event.is_advance() {
            self.set_timer(Timer::Retransmission, event.now);
        }
        flight.early = match (detection.again_at, flight.early) {
            (Some(at), _) => Some((at, Early::Reordering)),
            (None, Some((_, Early::Reordering))) => None,
            (None, early) => early,
        };
        let wait = match event.is_advance() {
            true => Wait::Sent,
            false => Wait::Kept,
        };
        self.set_early_of(flight, event.now, wait);
    }

    /// The steps that concern the buffer, FIN, and the timer of the window.
    fn settle(&mut self, event: &Event<'_>, acked: &mut Acked) {
        let bytes = self.una.since(event.una_before);
        acked.fin = self.fin == Fin::Sent && self.una == self.next && bytes > 0;
        acked.bytes = bytes - u32::from(acked.fin);
        if acked.fin {
            self.fin = Fin::Acked;
        }
        if bytes > 0 || self.window == 0 {
            // RFC 9293, 3.8.6.1: a peer that answers probes is alive, however long its window stays closed.
            self.unanswered = 0;
        }
        if bytes > 0 {
            self.queue.release(self.una.min(self.queue.end()));
            self.short_end = self.short_end.max(self.una);
            self.waits_since = match self.is_all_acked() {
                true => Instant::FAR_FUTURE,
                false => event.now,
            };
        }
        if self.flight.is_none() {
            self.close_flight(event.was_open);
        }
        if self.flags.is_writer_waiting && self.room() as u32 >= self.buffer() / 3 {
            self.flags.is_writer_waiting = false;
            acked.room = true;
        }
        self.update_pace();
    }

    fn close_flight(&mut self, was_open: bool) {
        self.phase = Phase::Open;
        // A window that stays too small to be worth a segment leaves its timer as it is, however often the peer sends.
        let is_wait_over = match was_open {
            true => self.allowed().is_some(),
            false => self.open_window() > 0,
        };
        match self.timer {
            Timer::Retransmission => self.timer = Timer::Off,
            // The probe of a closed window may have been all that was left to send.
            Timer::Persist if is_wait_over || !self.has_unsent() => {
                self.timer = Timer::Off;
                self.backoff = 0;
                self.unanswered = 0;
            }
            _ => {}
        }
        self.pace.rest();
    }
}

/// The duplicates that show a loss where no reordering was seen (RFC 5681, 3.2).
const DUPLICATE_THRESHOLD: u32 = 3;
