//! How the driver learns of frames: by the poller's reports, or by looks at times that a policy chooses.
//!
//! A look takes frames from the devices, and demultiplexes them into their channels; it also takes the completions of
//! transmissions. An interrupt is a report of the poller. The devices are in one of three states:
//!
//! | interrupts | the poller watches the devices | a report wakes the driver's task | looks |
//! |---|---|---|---|
//! | enabled | yes | yes | after a report |
//! | masked, while the thread runs | as before | no | at trigger states, by a soft event |
//! | masked, while it waits | no: a report would end the wait | no | when the wait ends |
//!
//! A look by the soft event does not process what it finds: it wakes the driver's task for that, and receivers are
//! woken at the end of the turn. A thread waits only if the policy agrees; the last look before a wait is made here and
//! not by the task.

use std::cell::{Cell, OnceCell, RefCell};
use std::io;
use std::rc::{Rc, Weak};
use std::task::Context;

use softclock_core::signalling::{Interrupts, Look, Next, Policy, Signalling, Wait};
use softclock_core::{Clock, FireWindow, Instant, TriggerState};

use super::Driver;
use crate::net::Interest;
use crate::net::stack::taking::Taken;
use crate::runtime::soft_events::SoftEvent;
use crate::signalling::SignallingReport;

/// The signalling of a driver's devices.
pub(super) struct DeviceSignalling {
    machine: RefCell<Signalling>,
    /// Looks, while the thread runs.
    event: OnceCell<SoftEvent>,
    /// Whether the next report of the poller, of any device, wakes the driver's task.
    is_awaiting: Cell<bool>,
    /// Whether a report of some device may wake it.
    has_waiters: Cell<bool>,
    /// Whether a look outside of the driver's task has found frames, or has failed, since the task's last turn.
    has_found: Cell<bool>,
    has_failed: Cell<bool>,
}

impl DeviceSignalling {
    pub(super) fn new(policy: Policy, now: Instant) -> Self {
        Self {
            machine: RefCell::new(Signalling::new(policy, now)),
            event: OnceCell::new(),
            is_awaiting: Cell::new(false),
            has_waiters: Cell::new(false),
            has_found: Cell::new(false),
            has_failed: Cell::new(false),
        }
    }

    pub(super) fn policy(&self) -> Policy {
        self.machine.borrow().policy()
    }

    pub(super) fn report(&self, now: Instant) -> SignallingReport {
        SignallingReport::of(&self.machine.borrow(), now)
    }

    /// Lets no soft event look, until the policy asks for it again.
    pub(super) fn cancel_look(&self) {
        if let Some(event) = self.event.get() {
            event.cancel();
        }
    }
}

impl Driver {
    /// Makes the soft event of looks, which is not scheduled yet.
    pub(super) fn start_looks(self: &Rc<Self>) {
        let driver: Weak<Self> = Rc::downgrade(self);
        let never = FireWindow::roughly(Instant::FAR_FUTURE);
        let event = crate::schedule_within(never, move |_context| {
            if let Some(driver) = driver.upgrade() {
                driver.look_by_event();
            }
        });
        event.cancel();
        // A driver starts once.
        let _ = self.signalling.event.set(event);
    }

    /// Looks in a turn of the driver's task, if the policy or a timeout asks for it, or the poller has reported frames.
    ///
    /// # Errors
    /// Those of a device, and `NetworkDown` if the thread with the device has closed it.
    pub(super) fn receive(&self) -> io::Result<Taken> {
        self.interface.check_open()?;
        let now = self.interface.runtime().clock.now();
        self.note_report(now);
        let own = &self.signalling;
        let has_found = own.has_found.take();
        let is_asked = !self.is_caught_up() || own.has_failed.take();
        let signalling = own.machine.borrow();
        let is_enabled = signalling.current().interrupts == Interrupts::Enabled;
        let is_due = signalling.is_due(now) || is_asked;
        drop(signalling);
        let mut taken = Taken::default();
        let has_devices = self.interface.has_devices();
        if has_devices && (is_due || is_enabled && self.interface.is_reported()) {
            taken = self.look()?;
            self.interface.runtime().trigger(TriggerState::Receive);
        }
        // The task works for frames of looks that were made outside of it, too.
        taken.frames += usize::from(has_found);
        Ok(taken)
    }

    /// If interrupts are enabled, returns whether frames are reported already; otherwise the next report wakes the
    /// driver's task. With masked interrupts none does.
    pub(super) fn await_report(&self) -> bool {
        let is_enabled =
            self.signalling.machine.borrow().current().interrupts == Interrupts::Enabled;
        let waker = self.waker.borrow();
        let Some(waker) = waker.as_ref().filter(|_| is_enabled) else {
            return false;
        };
        let is_reported = self.interface.await_report(&Context::from_waker(waker));
        self.signalling.is_awaiting.set(!is_reported);
        self.signalling.has_waiters.set(true);
        is_reported
    }

    /// Tells the policy of a report that the driver has waited for, if there is one.
    fn note_report(&self, now: Instant) -> bool {
        if !self.signalling.is_awaiting.get() || !self.interface.is_reported() {
            return false;
        }
        self.signalling.is_awaiting.set(false);
        let next = self.signalling.machine.borrow_mut().on_interrupt(now);
        self.carry_out(now, next);
        true
    }

    /// A look by the soft event, at a trigger state of any code.
    fn look_by_event(&self) {
        if self.is_gone.get() {
            return;
        }
        let is_within_stack = self.stack.try_borrow_mut().is_err();
        // The work for what the last look found comes before the next.
        if is_within_stack || self.signalling.has_found.get() {
            // The look is due, so the task makes it.
            return self.wake();
        }
        self.look_outside();
    }

    /// Looks outside of the driver's task, which then does the rest. Returns whether there is any.
    fn look_outside(&self) -> bool {
        match self.look() {
            Ok(taken) if taken.frames > 0 => self.signalling.has_found.set(true),
            // There is room for the frames that wait for it.
            Ok(taken) if taken.completions > 0 && self.unsent.has_refused() => {}
            Ok(_) => return false,
            // The task looks again, and learns of the error.
            Err(_) => self.signalling.has_failed.set(true),
        }
        self.wake();
        true
    }

    fn look(&self) -> io::Result<Taken> {
        let taken = self
            .interface
            .take_frames(|now, received| self.on_received(now, received));
        let found = taken.as_ref().copied().unwrap_or_default();
        let now = self.interface.runtime().clock.now();
        let next = self.signalling.machine.borrow_mut().on_look(
            now,
            Look {
                packets: found.frames as u32,
                completions: found.completions as u32,
                has_more: found.has_more,
            },
        );
        self.carry_out(now, next);
        taken
    }

    fn carry_out(&self, now: Instant, next: Next) {
        match next.interrupts {
            Interrupts::Masked => {
                self.signalling.is_awaiting.set(false);
                if self.signalling.has_waiters.take() {
                    self.interface.forget_readers();
                }
            }
            // Tried again before the thread waits.
            Interrupts::Enabled => drop(self.watch(next.interrupts)),
        }
        let Some(event) = self.signalling.event.get() else {
            return;
        };
        match next.look.filter(|_| self.interface.has_devices()) {
            None => {
                event.cancel();
            }
            // In the driver's next turn, behind the work that this look has made ready.
            Some(at) if at <= now => {
                event.cancel();
                self.wake();
            }
            Some(at) => {
                event.reschedule_within(FireWindow::from(at));
            }
        }
    }

    /// Lets the poller report frames if interrupts are enabled, and room only while frames wait for it: a device has
    /// room again after each transmission, which would end waits for nothing.
    fn watch(&self, interrupts: Interrupts) -> io::Result<()> {
        self.interface
            .set_interest(match (self.unsent.has_refused(), interrupts) {
                (true, _) => Interest::Both,
                (false, Interrupts::Enabled) => Interest::Reading,
                (false, Interrupts::Masked) => Interest::Nothing,
            })
    }

    /// Whether the thread, which has no work, may wait. Looks if the policy asks for it: a wait with interrupts begins
    /// with a look, since an arrival before them is not reported.
    pub(super) fn before_wait(&self, mut now: Instant) -> Wait {
        self.signalling.cancel_look();
        if self.is_gone.get() || !self.interface.has_devices() {
            return Wait::UntilInterrupt;
        }
        let runtime = self.interface.runtime();
        for _ in 0..LOOKS_BEFORE_WAIT {
            let is_due = self.signalling.machine.borrow().is_due(now);
            if is_due {
                if self.look_outside() {
                    return Wait::Refused;
                }
                self.signalling.cancel_look();
                now = runtime.clock.now();
            }
            let wakes_at = runtime.next_due();
            let next = (self.signalling.machine.borrow_mut()).before_wait(now, wakes_at);
            let wait = Wait::of(now, [next]);
            let is_enabled = next.interrupts == Interrupts::Enabled;
            let watch = self.watch(next.interrupts);
            if wait == Wait::Refused {
                continue;
            }
            let is_awaiting = self.signalling.is_awaiting.get();
            if !is_enabled || watch.is_ok() && (is_awaiting || !self.await_report()) {
                return wait;
            }
            // There is a report already, or no memory for the watch.
            if self.look_outside() {
                return Wait::Refused;
            }
        }
        // Such as with a policy that never waits.
        self.wake();
        Wait::Refused
    }

    /// The thread runs again. A report that has ended the wait is an interrupt.
    pub(super) fn after_wait(&self, now: Instant) {
        if self.is_gone.get() || self.note_report(now) {
            return;
        }
        let next = self.signalling.machine.borrow_mut().after_wait(now);
        self.carry_out(now, next);
    }
}

/// One that is due, one after which interrupts are enabled, and one for a report that has come meanwhile.
const LOOKS_BEFORE_WAIT: usize = 3;
