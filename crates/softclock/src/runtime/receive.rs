//! The first step of a turn: receives events, or rests until there is an event to receive or to fire.

use std::time::Duration;

use softclock_core::signalling::Wait;
use softclock_core::{Clock, IdleStep, Instant, TriggerState};
use softclock_linux::readiness::{ReadyEvent, Timeout, Token};

use super::inner::Inner;

impl Inner {
    /// Receives events without waiting if there is work, and otherwise waits for them, until `until` at most.
    pub(super) fn receive(
        &self,
        events: &mut Vec<ReadyEvent>,
        main_woken: bool,
        until: Option<Instant>,
    ) {
        self.counts.turns.set(self.counts.turns.get() + 1);
        self.clock.resync_if_due(self.timers.borrow().last_check());
        if self.has_work(main_woken) {
            return self.look_aside(events);
        }
        let look = match self.before_wait() {
            Wait::Refused => return self.look_aside(events),
            Wait::Until(look) => Some(look),
            Wait::UntilInterrupt => None,
        };
        self.rest(look.into_iter().chain(until).min(), events);
    }

    pub(super) fn has_work(&self, main_woken: bool) -> bool {
        main_woken
            || !self.ready.borrow().is_empty()
            || !self.deferred.borrow().is_empty()
            || !self.turn_end.borrow().is_empty()
            || self.mailbox.is_posted()
            || self.timeouts.has_work()
    }

    /// Asks the queues whether the thread may wait. A wait may consist of several blocks and spins: it lasts until
    /// there is work.
    pub(super) fn before_wait(&self) -> Wait {
        let each_turn = self.each_turn.borrow();
        if each_turn.is_empty() {
            return Wait::UntilInterrupt;
        }
        self.is_waiting.set(true);
        let now = self.clock.now();
        let waits = each_turn.iter().map(|queue| queue.before_wait(now));
        waits.fold(Wait::UntilInterrupt, Wait::and)
    }

    /// If there is work, ends the wait of the queues that [`before_wait`](Self::before_wait) has asked.
    pub(super) fn end_wait(&self, main_woken: bool) {
        if self.is_waiting.get() && self.has_work(main_woken) {
            self.is_waiting.set(false);
            let now = self.clock.now();
            let each_turn = self.each_turn.borrow();
            each_turn.iter().for_each(|queue| queue.after_wait(now));
        }
    }

    /// Checks the kernel for events while there is work, unless the last check is recent: a check costs more than a
    /// short task. With io_uring it costs that only if events are there, which is usual under load, and then it pays
    /// to wait until one system call returns several.
    fn look_aside(&self, events: &mut Vec<ReadyEvent>) {
        events.clear();
        // The time of the last trigger state saves a reading of the clock.
        let now = self.last_trigger();
        if !self.must_look.get() && !self.kernel_events.is_due(now, self.looked.get()) {
            return;
        }
        self.must_look.set(false);
        if self.poller.borrow_mut().is_pending() {
            self.poll_sources(Timeout::Now, events);
            self.trigger(TriggerState::SystemCall);
            self.on_looked(events);
        } else {
            self.kernel_events.on_look(now, 0, false);
        }
    }

    /// Records a look at the kernel. Call it after a trigger state, whose time it takes.
    fn on_looked(&self, events: &[ReadyEvent]) {
        let now = self.last_trigger();
        self.looked.set(now);
        self.must_look.set(false);
        let has_more = self.poller.borrow_mut().may_have_left(events.len());
        self.may_have_left.set(has_more);
        self.kernel_events.on_look(now, arrivals(events), has_more);
    }

    pub(super) fn last_trigger(&self) -> Instant {
        self.timers.borrow().last_check()
    }

    /// Halts, blocks or spins by the idle rule, as there is no work; until `look` at the latest, the time to look at a
    /// queue without interrupts, or the end of the turn.
    fn rest(&self, look: Option<Instant>, events: &mut Vec<ReadyEvent>) {
        let now = self.clock.now();
        let Some(Rest {
            until,
            masked,
            ends_on_time,
        }) = self.next_rest(now, look)
        else {
            return self.spin(events);
        };
        match until {
            // Not with a stack: a frame may have to end the wait.
            Some(until) if masked.is_some() && self.each_turn.borrow().is_empty() => {
                self.sleep(now, until, events);
            }
            _ => self.block(now, until, ends_on_time, events),
        }
        self.trigger(TriggerState::Idle);
        let is_woken = masked.is_none() && arrivals(events) > 0;
        (self.kernel_events).after_wait(self.last_trigger(), is_woken);
        self.on_looked(events);
    }

    /// Chooses the rest of a thread without work by the idle rule, until `look` at the latest; `None` if it is to look
    /// without waiting. No spin precedes a look: policies leave room for the lateness of a blocking wait.
    pub(super) fn next_rest(&self, now: Instant, look: Option<Instant>) -> Option<Rest> {
        let due = self.next_due();
        let look = look.filter(|look| due.is_none_or(|due| *look < due));
        let is_exact = self.has_exact_event();
        let mut idle = self.idle.borrow_mut();
        let step = match (look, is_exact) {
            (Some(look), _) => idle.next_rough_step(now, Some(look)),
            (None, true) => idle.next_step(now, due),
            (None, false) => idle.next_rough_step(now, due),
        };
        drop(idle);
        self.spinning.set(step == IdleStep::Spin);
        let block = match step {
            IdleStep::Spin => return None,
            IdleStep::Halt => None,
            IdleStep::Block(time) => Some(now + time),
        };
        let masked = self.kernel_events.before_wait(now, look.or(due));
        let until = [masked, block].into_iter().flatten().min();
        Some(Rest {
            until,
            masked,
            ends_on_time: look.is_some() || is_exact || until != block,
        })
    }

    /// Returns the time to wait from now on, for a wait that should end at `until`.
    fn exact_wait(&self, now: Instant, until: Instant) -> Duration {
        let ahead = self.ahead_timer.as_ref();
        let has_taken_time = ahead.is_some_and(|timer| timer.borrow_mut().before_wait(now, until));
        let now = if has_taken_time {
            self.clock.now()
        } else {
            now
        };
        until.since(now)
    }

    /// Sleeps, and then checks the kernel.
    fn sleep(&self, now: Instant, until: Instant, events: &mut Vec<ReadyEvent>) {
        if until > now {
            self.alarms.disarm_for_idle();
            std::thread::sleep(self.exact_wait(now, until));
            self.clock.resync_after_wait();
            let woken = self.clock.now();
            self.on_blocked(woken.since(now));
            self.on_timed_out(until, woken);
        }
        self.poll_sources(Timeout::Now, events);
    }

    /// Checks the kernel without blocking, as a step of a spin.
    fn spin(&self, events: &mut Vec<ReadyEvent>) {
        self.poll_sources(Timeout::Now, events);
        if !events.is_empty() {
            self.spinning.set(false);
            self.idle.borrow_mut().on_found();
        }
        self.trigger(TriggerState::Idle);
        self.on_looked(events);
    }

    fn block(
        &self,
        now: Instant,
        until: Option<Instant>,
        ends_on_time: bool,
        events: &mut Vec<ReadyEvent>,
    ) {
        // A post from another thread before this point cancels the block; a later one wakes it.
        if !self.mailbox.announce_block() {
            return self.poll_sources(Timeout::Now, events);
        }
        // The wait itself ends in time for pending events: an alarm would only interrupt it.
        self.alarms.disarm_for_idle();
        let timeout = match until {
            None => Timeout::Never,
            Some(until) if ends_on_time => Timeout::After(self.exact_wait(now, until)),
            Some(until) => {
                let mut timer = self.far_timer.borrow_mut();
                timer.timeout(now, until, &mut self.poller.borrow_mut())
            }
        };
        // The thread was away: correct the clock, and learn how late the wait returned.
        self.poll_sources(timeout, events);
        self.mailbox.end_block();
        self.clock.resync_after_wait();
        let woken = self.clock.now();
        self.on_blocked(woken.since(now));
        let Some(until) = until else { return };
        // Only a wait that ended by its own time limit shows how late such waits return.
        if !events.is_empty() {
            self.far_timer.borrow_mut().on_interrupted(until);
        } else if timeout != Timeout::Never {
            self.on_timed_out(until, woken);
        }
    }

    /// Lets the idle rule learn from a wait without events that was to last until `until`. A signal may have ended it
    /// before, which tells nothing of the lateness.
    fn on_timed_out(&self, until: Instant, woken: Instant) {
        if woken >= until {
            self.idle.borrow_mut().on_timed_out(until, woken);
        }
    }

    pub(super) fn end_spin(&self) {
        if self.spinning.take() {
            self.idle.borrow_mut().settle(self.clock.now());
        }
    }

    /// Not inlined, so that profiles show it under its name, as for [`wake_for`](Self::wake_for)
    /// (`event-delivery/table-2`).
    #[inline(never)]
    pub(super) fn poll_sources(&self, timeout: Timeout, events: &mut Vec<ReadyEvent>) {
        // `build` has checked that the wait works. Without events, the loop could never continue.
        let waited = self.poller.borrow_mut().wait(timeout, events);
        if let Err(error) = waited {
            panic!("cannot wait for events: {error}");
        }
    }
}

/// A rest that may block.
pub(super) struct Rest {
    /// The time at which it ends; `None` without limit.
    pub(super) until: Option<Instant>,
    /// The time until which no event of the kernel may end it.
    pub(super) masked: Option<Instant>,
    /// Whether it must end exactly at its own limit.
    pub(super) ends_on_time: bool,
}

/// The number of events other than those of the loop's timer, and messages of other threads.
pub(super) fn arrivals(events: &[ReadyEvent]) -> usize {
    let is_arrival = |event: &&ReadyEvent| !matches!(event.token, Token::WAKEUP | Token::TIMER);
    events.iter().filter(is_arrival).count()
}
