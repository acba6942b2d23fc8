//! The runtime's loop: receive, trigger, run tasks.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use softclock_core::{Clock, Instant, SourceId, TriggerState};
use softclock_linux::readiness::{ReadyEvent, Timeout, Token};

use super::inner::{CALLS_PER_POLL, Inner};
use super::mailbox::Mailbox;
use super::receive::arrivals;
use super::turn_buffers::{TakenBuffers, TurnBuffers};

impl Inner {
    /// Runs the loop until `future` completes.
    pub(crate) fn run<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        let main = Arc::new(MainWaker {
            woken: AtomicBool::new(true),
            mailbox: self.mailbox.clone(),
        });
        let waker = Waker::from(main.clone());
        self.resume();
        let mut buffers = TakenBuffers::of(&self.turn_buffers);
        self.continue_turn(&mut buffers);
        loop {
            self.begin_turn(&main.woken, None, &mut buffers);
            // 3. The main future runs first, since the other tasks work for it.
            if main.woken.swap(false, Ordering::Acquire)
                && let Poll::Ready(output) = self.poll_main(future.as_mut(), &waker)
            {
                self.end_turn();
                self.sample_run_time();
                return output;
            }
            self.finish_turn(&mut buffers);
        }
    }

    /// Takes one turn of the loop, which rests until `until` at most (`None` for no limit).
    pub(crate) fn turn(&self, until: Option<Instant>) {
        let mut buffers = TakenBuffers::of(&self.turn_buffers);
        self.continue_turn(&mut buffers);
        self.begin_turn(&AtomicBool::new(false), until, &mut buffers);
        self.finish_turn(&mut buffers);
    }

    /// Passes on the events of a turn that a panic has ended: the kernel does not report them again.
    fn continue_turn(&self, buffers: &mut TurnBuffers) {
        self.wake_for(&mut buffers.events, &mut buffers.wakers);
    }

    /// Takes the first steps of a turn, up to the main future, which has to run if it is `woken`.
    fn begin_turn(&self, woken: &AtomicBool, until: Option<Instant>, buffers: &mut TurnBuffers) {
        let is_woken = || woken.load(Ordering::Relaxed);
        // 1. Receive, or rest until there is an event to receive or to fire. Rings come first: events in them mean
        //    work, and then the loop does not block in the kernel.
        self.look_at_memory(&mut buffers.wakers);
        self.receive(&mut buffers.events, is_woken(), until);
        self.wake_for(&mut buffers.events, &mut buffers.wakers);
        // 2. Trigger: a turn is itself a trigger state, so that timers fire even if no task makes a call.
        self.trigger(TriggerState::Turn);
        self.end_wait(is_woken());
    }

    /// Takes the steps of a turn after the main future.
    fn finish_turn(&self, buffers: &mut TurnBuffers) {
        // 4. Tasks: those that were ready when the step began, each followed by a trigger state. They send as they
        //    run; paced data is sent at trigger states.
        self.collect_mail();
        self.run_tasks();
        self.run_deferred();
        self.end_turn();
        // 5. Due timeouts end only if no earlier event has completed their wait.
        if self.timeouts.is_pending() {
            self.judge_timeouts(&mut buffers.events, &mut buffers.wakers);
        }
    }

    fn poll_main<F: Future>(
        &self,
        future: std::pin::Pin<&mut F>,
        waker: &Waker,
    ) -> Poll<F::Output> {
        self.end_spin();
        // The code of the user that runs next may compute for long.
        self.prepare_alarms();
        self.call_budget.set(CALLS_PER_POLL);
        self.running.set(None);
        let output = future.poll(&mut Context::from_waker(waker));
        self.end_task();
        output
    }

    fn collect_mail(&self) {
        if !self.mailbox.is_posted() {
            return;
        }
        let (runnables, calls) = self.mailbox.take();
        let mut ready = self.ready.borrow_mut();
        runnables.into_iter().for_each(|task| ready.push(task));
        drop(ready);
        if !calls.is_empty() {
            self.end_spin();
            self.prepare_alarms();
        }
        for call in calls {
            call();
            self.end_task();
        }
    }

    fn run_tasks(&self) {
        let ready = self.ready.borrow().len();
        if ready == 0 {
            return;
        }
        self.end_spin();
        self.prepare_alarms();
        let mut late = 0;
        // Tasks woken meanwhile wait for the next turn, so that events are received in between.
        for _ in 0..ready.min(TASKS_PER_TURN) {
            let mut ready = self.ready.borrow_mut();
            if ready.is_late_next() {
                late += 1;
                if late > LATE_PER_TURN {
                    // Other tasks may be ready by now: go back to the loop.
                    return;
                }
            }
            let Some(runnable) = ready.pop() else { return };
            drop(ready);
            self.call_budget.set(CALLS_PER_POLL);
            self.run_task(runnable);
            self.counts.tasks.set(self.counts.tasks.get() + 1);
            self.end_task();
            if self.kernel_events.is_overdue(self.last_trigger()) {
                return;
            }
        }
    }

    /// Arms the alarms, which may have to interrupt the code of the user that runs next.
    fn prepare_alarms(&self) {
        let plain = self.timers.borrow().next_due();
        self.alarms
            .set_plain_next_due(plain.unwrap_or(Instant::FAR_FUTURE));
        if self.alarms.next_due() != Instant::FAR_FUTURE {
            self.alarms.arm_if_needed(self.clock.now());
        }
    }

    /// Passes the trigger state at the end of a task, and runs the closures that handlers have deferred to it.
    fn end_task(&self) {
        self.gives_way.set(None);
        self.trigger(TriggerState::TaskEnd);
        self.run_deferred();
    }

    /// Runs the closures that handlers have deferred to a point where no data is borrowed. Those that are deferred
    /// meanwhile wait for the next such point, so that they cannot keep the loop from all other work.
    fn run_deferred(&self) {
        let count = self.deferred.borrow().len();
        for _ in 0..count {
            let next = self.deferred.borrow_mut().pop_front();
            let Some(f) = next else { return };
            f();
        }
    }

    /// Does the work that tasks have left for the end of the turn.
    fn end_turn(&self) {
        let work = self.turn_end.take();
        work.into_iter().for_each(|work| work.at_turn_end());
        self.run_deferred();
    }

    /// Performs the next of the steps described in [`timeouts`](super::timeouts).
    #[cold]
    fn judge_timeouts(&self, events: &mut Vec<ReadyEvent>, woken: &mut Vec<Waker>) {
        let position = self.ready.borrow().position();
        self.timeouts.end_check(position, woken);
        woken.drain(..).for_each(Waker::wake);
        if self.timeouts.needs_check() {
            let began = self.clock.now();
            self.timeouts.begin_check(began);
            self.look_through(events, woken);
            self.looked.set(began);
            self.each_turn
                .borrow()
                .iter()
                .for_each(|queue| queue.catch_up());
        }
        if self.timeouts.is_looking() && self.has_caught_up() {
            self.look_at_memory(woken);
            // Tasks that gave way must run too: one of them may be about to complete a limited wait.
            let mut ready = self.ready.borrow_mut();
            ready.hurry();
            let end = ready.end();
            drop(ready);
            self.timeouts.end_look(end);
        }
    }

    /// Whether the queues in memory have got all that had arrived when the check of timeouts began.
    fn has_caught_up(&self) -> bool {
        let each_turn = self.each_turn.borrow();
        each_turn.iter().all(|queue| queue.has_caught_up())
    }

    /// Takes all events from the kernel that are ready now, and wakes the tasks that wait for them. Makes one system
    /// call per [`BATCH`] events, and a number bounded by that of all sources: events that arrive in the meantime may
    /// remain.
    fn look_through(&self, events: &mut Vec<ReadyEvent>, woken: &mut Vec<Waker>) {
        let most = self.sources.borrow().capacity() / EVENTS_PER_LOOK + 2;
        let mut found = 0;
        for _ in 0..most {
            self.poll_sources(Timeout::Now, events);
            let count = events.len();
            found += arrivals(events);
            self.wake_for(events, woken);
            if !self.poller.borrow_mut().may_have_left(count) {
                break;
            }
        }
        self.kernel_events.on_look(self.clock.now(), found, false);
        // A message from another thread may complete a wait, too.
        self.collect_mail();
    }

    /// Passes on what queues in memory have found, such as the socket of a stack that a task of this thread has sent to.
    pub(super) fn look_at_memory(&self, woken: &mut Vec<Waker>) {
        if self.each_turn.borrow().is_empty() {
            return;
        }
        let mut each_turn = self.each_turn.borrow_mut();
        each_turn.retain(|queue| queue.look(&mut self.sources.borrow_mut()));
        drop(each_turn);
        self.sources.borrow_mut().deliver(woken);
        woken.drain(..).for_each(Waker::wake);
    }

    #[inline(never)]
    fn wake_for(&self, events: &mut Vec<ReadyEvent>, woken: &mut Vec<Waker>) {
        if events.is_empty() {
            return;
        }
        let mut sources = self.sources.borrow_mut();
        for event in events.drain(..) {
            match event.token {
                Token::WAKEUP => self.wakeup.drain(&mut self.poller.borrow_mut()),
                Token::TIMER => self.far_timer.borrow_mut().on_fired(),
                Token(bits) => sources.post(SourceId::from_bits(bits), event.readiness),
            }
        }
        sources.deliver(woken);
        // Waking may drop the last waker of a task, and its sources with it.
        drop(sources);
        woken.drain(..).for_each(Waker::wake);
    }
}

/// The waker of the future that `block_on` runs.
struct MainWaker {
    woken: AtomicBool,
    mailbox: Arc<Mailbox>,
}

impl Wake for MainWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        if Inner::with_id(self.mailbox.id(), |_| ()).is_none() {
            self.mailbox.notify();
        }
    }
}

/// Events that a check takes from the kernel at least, if that many are ready: io_uring does only a part of its
/// pending work at a time.
const EVENTS_PER_LOOK: usize = 16;

/// Most tasks run between two checks of the kernel.
const TASKS_PER_TURN: usize = 64;

/// Most tasks that gave way among them.
const LATE_PER_TURN: u32 = 4;
