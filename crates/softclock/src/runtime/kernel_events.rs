//! How the loop learns of the kernel's events: by waits that an event ends, or by looks at times that a policy chooses.
//!
//! The poller is one queue for [`Signalling`], each event a packet. A look is a call that does not wait. An interrupt is
//! an event that ends a wait. Unlike a device, the poller reports in a wait also what came before, so that a wait with
//! interrupts needs no look before it. A wait without them is a sleep: nothing ends it before its time, neither an event
//! nor a message of another thread.

use std::cell::RefCell;

use softclock_core::Instant;
use softclock_core::signalling::{Interrupts, Look, Policy, Signalling};

use crate::signalling::SignallingReport;

/// The signalling of the poller; with interrupts, none is needed.
pub(super) struct KernelEvents(Option<RefCell<Signalling>>);

impl KernelEvents {
    pub(super) fn new(policy: Policy, now: Instant) -> Self {
        let is_plain = policy == Policy::Interrupt;
        Self((!is_plain).then(|| RefCell::new(Signalling::new(policy, now))))
    }

    /// Returns what the policy has done so far; nothing is counted of a thread that events always wake.
    pub(super) fn report(&self, now: Instant) -> Option<SignallingReport> {
        let signalling = self.0.as_ref()?.borrow();
        Some(SignallingReport::of(&signalling, now))
    }

    /// Whether a thread with work looks, if it has looked last at `looked`. With interrupts it looks, too: only a wait could
    /// report an event to it.
    pub(super) fn is_due(&self, now: Instant, looked: Instant) -> bool {
        let is_time = now.ns_since(looked) >= LOOKS_APART_NS;
        self.0.as_ref().map_or(is_time, |signalling| {
            let signalling = signalling.borrow();
            let is_enabled = signalling.current().interrupts == Interrupts::Enabled;
            signalling.is_due(now) || is_enabled && is_time
        })
    }

    /// Records a look, or the end of a wait, which found this number of events.
    pub(super) fn on_look(&self, now: Instant, events: usize, has_more: bool) {
        if let Some(signalling) = &self.0 {
            // The loop carries the next step out by `is_due`.
            let _next = signalling.borrow_mut().on_look(
                now,
                Look {
                    packets: events as u32,
                    has_more,
                    ..Look::EMPTY
                },
            );
        }
    }

    /// Begins a wait of a thread without work, which wakes up at `wakes_at` in any case. Returns the time until which it
    /// sleeps before it looks; otherwise an event ends the wait.
    pub(super) fn before_wait(&self, now: Instant, wakes_at: Option<Instant>) -> Option<Instant> {
        let mut signalling = self.0.as_ref()?.borrow_mut();
        // The last look has enabled interrupts, and a policy may mask them for this wait.
        pay_look(&mut signalling, now);
        let mut next = signalling.before_wait(now, wakes_at);
        if pay_look(&mut signalling, now) {
            next = signalling.before_wait(now, wakes_at);
        }
        match next.interrupts {
            Interrupts::Masked => Some(next.look.unwrap_or(now)),
            Interrupts::Enabled => None,
        }
    }

    /// Ends a wait: `is_woken` if events have ended it.
    pub(super) fn after_wait(&self, now: Instant, is_woken: bool) {
        if let Some(signalling) = &self.0 {
            let mut signalling = signalling.borrow_mut();
            let _next = match is_woken {
                true => signalling.on_interrupt(now),
                false => signalling.after_wait(now),
            };
        }
    }
}

/// Counts the look that is owed once interrupts are enabled, if there is one, as made. A wait or a look that follows
/// reports also what came before.
fn pay_look(signalling: &mut Signalling, now: Instant) -> bool {
    let is_owed = signalling.current().interrupts == Interrupts::Enabled && signalling.is_due(now);
    if is_owed {
        let _next = signalling.on_look(now, Look::EMPTY);
    }
    is_owed
}

/// With interrupts, the time between two checks of the kernel while tasks are ready.
const LOOKS_APART_NS: u64 = 20_000;
