//! The driver's part that sends: at the end of its own turns, and of those in which other tasks leave frames.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::task::Context;

use softclock_core::{Clock, Instant};
use softclock_linux::link::{BATCH, Buffer};
use softclock_net::stack::{Frame, Stack};

use super::Driver;
use crate::net::Interest;
use crate::runtime::each_turn::TurnEnd;

/// What waits to be sent, besides the frames in the stack.
#[derive(Default)]
pub(super) struct Unsent {
    /// Frames that the device had no room for, oldest first: less than a batch.
    leaving: RefCell<VecDeque<Frame>>,
    /// The calls that have left frames to send since the last time that such frames were sent.
    calls: Cell<u32>,
    /// Whether the driver sends at the end of this turn.
    ends_turn: Cell<bool>,
}

impl Unsent {
    /// Whether the device had no room for some frames.
    pub(super) fn has_refused(&self) -> bool {
        !self.leaving.borrow().is_empty()
    }
}

impl TurnEnd for Driver {
    fn at_turn_end(&self) {
        self.unsent.ends_turn.set(false);
        self.send_now();
    }
}

impl Driver {
    /// Waits until the device has room for the frames that it refused.
    pub(super) fn poll_room(&self, cx: &mut Context<'_>) {
        if !self.unsent.has_refused() {
            return;
        }
        // Without the report, the driver tries again after a pause.
        let _ = self.interface.set_interest(Interest::Both);
        if self.interface.poll_room(cx).is_ready() {
            self.flush();
        }
    }

    /// Sends the frames that wait, as far as the interface has room.
    pub(super) fn flush(&self) {
        let mut leaving = self.unsent.leaving.borrow_mut();
        loop {
            let mut stack = self.stack.borrow_mut();
            while leaving.len() < BATCH
                && let Some(frame) = stack.next_link_frame()
            {
                self.capture_sent(&frame);
                leaving.push_back(frame);
            }
            drop(stack);
            if leaving.is_empty() {
                return;
            }
            match self.interface.send(&leaving) {
                Ok(sent) => {
                    let mut stack = self.stack.borrow_mut();
                    (leaving.drain(..sent)).for_each(|frame| stack.give_back(frame.bytes));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // An error is always the first frame's, such as one that is longer than an MTU that was lowered.
                Err(_) => {
                    leaving.pop_front();
                    self.losses.add_refused(1);
                }
            }
        }
    }

    /// Calls `f` with the stack, and sends what it leaves to send at the end of the turn, together with what other
    /// tasks send meanwhile.
    pub(in super::super) fn with_stack<R>(
        self: &Rc<Self>,
        f: impl FnOnce(&mut Stack<Buffer>, Instant) -> R,
    ) -> R {
        let runtime = self.interface.runtime();
        let now = runtime.clock.now();
        let mut stack = self.stack.borrow_mut();
        let result = f(&mut stack, now);
        // A neighbor whose address is unknown is asked at once.
        if stack.next_timeout().is_some_and(|due| due <= now) {
            stack.on_timer(now);
        }
        // A packet to the stack itself. Eager work follows at once, as a kernel's software interrupt does.
        if stack.has_work() && !stack.settings().architecture.is_lazy() {
            stack.process(now, self.quota());
        }
        let is_leaving = stack.frames_waiting() > 0;
        let must_run = stack.has_work() || self.must_wake(&stack, now);
        drop(stack);
        if must_run {
            self.wake();
        }
        if is_leaving {
            self.send_soon();
        }
        result
    }

    /// Lets frames leave at the end of the turn, so that those of several tasks leave by one system call; or at the end
    /// of the running task, if many calls have left some.
    fn send_soon(self: &Rc<Self>) {
        let runtime = self.interface.runtime();
        let calls = self.unsent.calls.get() + 1;
        self.unsent.calls.set(calls);
        if !self.unsent.ends_turn.replace(true) {
            runtime.turn_end.borrow_mut().push(self.clone());
        }
        if calls == MOST_UNSENT_CALLS {
            let driver = self.clone();
            let send = move || driver.send_now();
            runtime.deferred.borrow_mut().push_back(Box::new(send));
        }
    }

    /// Sends what tasks have left.
    fn send_now(&self) {
        self.unsent.calls.set(0);
        self.flush();
        if self.unsent.has_refused() || self.interface.is_behind() {
            self.wake();
        }
    }
}

/// The most calls whose frames wait for the end of the turn, so that a frame waits for a few tasks at most.
const MOST_UNSENT_CALLS: u32 = 16;
