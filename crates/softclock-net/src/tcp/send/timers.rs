//! Timers: retransmission, reordering, tail loss probe, persist, and the pacer.

use core::time::Duration;

use softclock_core::Instant;

use super::tlp::probe_timeout;
use super::{Early, Flight, Phase, Sender, Timer, TimerOutcome};
use crate::due::{Slack, Window, earliest};

/// Whether a probe for the end of a flight is due at a new time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wait {
    /// New data was sent, or acknowledged: the wait begins again.
    Sent,
    /// A wait that is under way goes on.
    Kept,
}

impl Sender {
    /// Processes the timers that have expired. All segments that arrived before `now` must have been processed.
    pub fn on_timer(&mut self, now: Instant) -> TimerOutcome {
        if self.gives_up_at().is_some_and(|at| at <= now) {
            return TimerOutcome::GiveUp;
        }
        let was_paced = self.paced_at <= now;
        if was_paced {
            self.paced_at = Instant::FAR_FUTURE;
        }
        let early = self.flight.as_ref().and_then(|flight| flight.early);
        let mut outcome = TimerOutcome::Nothing;
        if let Some((_, early)) = early.filter(|&(at, _)| at <= now) {
            outcome = self.on_early(early, now);
        }
        if self.timer == Timer::Off || now < self.timer_at {
            return outcome;
        }
        match self.timer {
            Timer::Persist => self.on_persist(now),
            _ => match self.flight.take() {
                Some(mut flight) => {
                    outcome = self.on_timeout(&mut flight, now, was_paced);
                    self.flight = Some(flight);
                    self.update_pace();
                    outcome
                }
                None => outcome,
            },
        }
    }

    /// The earliest time at which [`on_timer`](Self::on_timer) has something to do, or
    /// [`poll_transmit`](Self::poll_transmit) can go on. `None` for an idle sender.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.timer_window(Instant::ORIGIN).due()
    }

    /// The time of [`next_timeout`](Self::next_timeout), and how late it may be if the timers are set at `now`.
    pub(in crate::tcp) fn timer_window(&self, now: Instant) -> Window {
        let timer = (self.timer != Timer::Off).then_some(self.timer_at);
        let early = self.flight.as_ref().and_then(|flight| flight.early);
        let paced = (self.paced_at < Instant::FAR_FUTURE).then_some(self.paced_at);
        let exact = earliest([early.map(|(at, _)| at), paced]);
        Window::of(now, timer, Slack::RETRANSMISSION)
            .and(Window::of(now, exact, Slack::NONE))
            .and(Window::of(now, self.gives_up_at(), Slack::LONG))
    }

    /// When the user timeout ends the connection (RFC 9293, 3.9.1, and RFC 5482), unless the peer acknowledges more.
    /// Data that cannot be sent since the window is closed waits, too.
    fn gives_up_at(&self) -> Option<Instant> {
        let most = self.limits.user_timeout()?;
        (self.waits_since < Instant::FAR_FUTURE).then(|| self.waits_since + most)
    }

    fn on_early(&mut self, early: Early, now: Instant) -> TimerOutcome {
        let Some(mut flight) = self.flight.take() else {
            return TimerOutcome::Nothing;
        };
        flight.early = None;
        let has_effect = match early {
            Early::TailProbe => {
                self.flags.probes_tail = true;
                self.set_timer(Timer::Retransmission, now);
                true
            }
            Early::Reordering => self.on_reordering_timer(&mut flight, now),
        };
        self.flight = Some(flight);
        match has_effect {
            true => TimerOutcome::Retransmit,
            false => TimerOutcome::Nothing,
        }
    }

    /// RFC 9293, 3.8.6.1: the window is still closed, or too small to be worth a segment; probes it, or makes use of
    /// it.
    fn on_persist(&mut self, now: Instant) -> TimerOutcome {
        self.unanswered = self.unanswered.saturating_add(1);
        if self.unanswered > self.limits.retries {
            return TimerOutcome::GiveUp;
        }
        match self.open_window() > 0 {
            true => self.flags.overrides_avoidance = true,
            false => self.flags.probes_window = true,
        }
        self.backoff = self.backoff.saturating_add(1);
        self.set_timer(Timer::Persist, now);
        TimerOutcome::Retransmit
    }

    pub(super) fn set_timer(&mut self, timer: Timer, now: Instant) {
        self.timer = timer;
        self.timer_at = now + self.backed_off();
    }

    /// The timeout with backing off (RFC 6298, 5.5).
    fn backed_off(&self) -> Duration {
        let factor = 1 << self.backoff.min(MOST_BACKOFF);
        let timeout = self.timeout().saturating_mul(factor);
        timeout.min(self.limits.maximum_timeout())
    }

    /// Sets the timer for a tail loss probe, see [`set_early_of`](Self::set_early_of).
    pub(super) fn set_early(&mut self, now: Instant, wait: Wait) {
        if let Some(mut flight) = self.flight.take() {
            self.set_early_of(&mut flight, now, wait);
            self.flight = Some(flight);
        }
    }

    /// Whether the end of a flight may be probed (RFC 8985, 7.2): losses that are suspected have timers of their own.
    pub(super) fn may_probe_tail(&self, flight: &Flight) -> bool {
        self.phase == Phase::Open && flight.board.sacked() == 0
    }

    /// Sets the timer for a tail loss probe if one can be of use: only one is under way.
    pub(super) fn set_early_of(&self, flight: &mut Flight, now: Instant, wait: Wait) {
        let is_useful =
            self.limits.has_sack && self.may_probe_tail(flight) && !self.tail_probe.is_open();
        match flight.early {
            Some((_, Early::Reordering)) => {}
            _ if !is_useful => flight.early = None,
            _ if wait == Wait::Kept => {}
            _ => {
                let is_single = flight.board.records.len() == 1;
                let delay = probe_timeout(&self.rtt, &self.limits, is_single);
                // The probe takes the place of a timeout that would come first.
                let at = (now + delay).min(self.timer_at);
                flight.early = Some((at, Early::TailProbe));
            }
        }
    }
}

/// Beyond this exponent every timeout exceeds the longest.
const MOST_BACKOFF: u8 = 20;
