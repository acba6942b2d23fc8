//! What is due when.

use core::ops::Deref;

use softclock_core::Instant;

use super::{Connection, Events, Phase};
use crate::due::{Slack, Window};
use crate::tcp::keepalive::Due;
use crate::tcp::path_mtu;
use crate::tcp::send::TimerOutcome;
use crate::tcp::state::State;

impl<B: Deref<Target = [u8]>> Connection<B> {
    /// The time at which [`on_timer`](Self::on_timer) has work, or [`poll_transmit`](Self::poll_transmit) a segment
    /// that waits for its time. `None`: the connection is idle.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.timer_window(Instant::ORIGIN).due()
    }

    /// The time of [`next_timeout`](Self::next_timeout), and how late it may be if the timers are set at `now`.
    pub(crate) fn timer_window(&self, now: Instant) -> Window {
        let of_deadline = match self.state {
            State::SynSent | State::SynReceived => Slack::RETRANSMISSION,
            _ => Slack::LONG,
        };
        let deadline = Window::of(now, Some(self.deadline), of_deadline);
        let Phase::Open(open) = &self.phase else {
            return deadline;
        };
        if matches!(self.state, State::TimeWait | State::Closed) {
            return Window::NEVER;
        }
        let acknowledgment = open.receiver.next_ack_at();
        deadline
            .and(open.sender.timer_window(now))
            .and(Window::of(now, acknowledgment, Slack::ACKNOWLEDGMENT))
            .and(Window::of(now, self.next_probe(), Slack::LONG))
    }

    /// The next keep-alive probe. Not while data is outstanding: its retransmission finds out as much (RFC 9293,
    /// 3.8.4).
    fn next_probe(&self) -> Option<Instant> {
        let Phase::Open(open) = &self.phase else {
            return None;
        };
        let is_idle = open.sender.is_all_acked();
        let may_probe = is_idle && self.state.is_synchronized();
        may_probe
            .then(|| open.probes.next(&self.settings.keep_alive))
            .flatten()
    }

    /// Does what is due. The caller has processed all segments that had arrived: a timer must not judge without them.
    pub fn on_timer(&mut self, now: Instant) -> Events {
        match self.state {
            State::SynSent | State::SynReceived if self.deadline <= now => {
                return self.on_syn_timer(now);
            }
            State::SynSent | State::SynReceived | State::TimeWait | State::Closed => {
                return Events::default();
            }
            _ => {}
        }
        // The owner is gone, and so is the time that it left.
        if self.deadline <= now {
            return match self.state {
                // The peer has acknowledged all and does not close: it is not told, as it may not exist any more.
                State::FinWait2 => self.end(),
                _ => self.reset(self.reason_of_timeout()),
            };
        }
        let keep_alive = self.settings.keep_alive;
        let may_probe = self.next_probe().is_some();
        let Phase::Open(open) = &mut self.phase else {
            return Events::default();
        };
        let timeouts = open.sender.stats().timeouts;
        match open.sender.on_timer(now) {
            TimerOutcome::GiveUp => return self.reset(self.reason_of_timeout()),
            TimerOutcome::Nothing | TimerOutcome::Retransmit => {}
        }
        let has_timed_out = open.sender.stats().timeouts != timeouts;
        if open.receiver.next_ack_at().is_some_and(|due| due <= now) {
            open.receiver.request_ack();
        }
        if may_probe {
            match open.probes.on_timer(now, &keep_alive) {
                Due::Nothing => {}
                Due::Probe => open.flags.is_probe_due = true,
                Due::Fail => return self.reset(self.reason_of_timeout()),
            }
        }
        if has_timed_out {
            self.escape_black_hole();
        }
        Events {
            may_send: true,
            ..Events::default()
        }
    }

    /// Sends shorter segments after several timeouts in a row of a long one, since the path may lose such packets
    /// without a report. Call it after a timeout.
    fn escape_black_hole(&mut self) {
        let limit = self.settings.black_hole_timeouts;
        let is_v4 = self.is_v4();
        let Phase::Open(open) = &self.phase else {
            return;
        };
        let timeouts = open.sender.timeouts_in_a_row();
        if limit == 0 || timeouts < limit || !timeouts.is_multiple_of(limit) {
            return;
        }
        let mtu = path_mtu::fallback(timeouts == limit, is_v4);
        // What is lost although all paths carry it says nothing about longer packets.
        if open.sender.first_payload() > self.payload_of_mtu(mtu).into() {
            let _ = self.on_path_mtu(mtu.into());
        }
    }
}
