//! How the loop learns of the kernel's events: by waits that an event ends, or by looks at times that a policy chooses.
//!
//! The poller is one queue for [`Signalling`], each event a packet. A look is a call that does not wait. An interrupt
//! is an event that ends a wait. Unlike a device, the poller also reports events from before a wait, so a wait with
//! interrupts needs no look before it. A wait without interrupts is a sleep: neither an event nor a message of another
//! thread ends it early.

use std::cell::{Cell, RefCell};

use softclock_core::Instant;
use softclock_core::signalling::{Interrupts, LatencyBound, Look, Policy, Signalling};

use crate::signalling::SignallingReport;

/// How a runtime learns of the kernel's events.
pub(super) struct KernelEvents {
    /// The poller's state machine; `None` with [`Policy::Interrupt`], which needs none.
    signalling: Option<RefCell<Signalling>>,
    /// The longest time without a look of a thread with work, if the policy states one.
    longest_ns: Option<u64>,
    looked: Cell<Instant>,
}

impl KernelEvents {
    pub(super) fn new(policy: Policy, now: Instant) -> Self {
        let is_plain = policy == Policy::Interrupt;
        Self {
            signalling: (!is_plain).then(|| RefCell::new(Signalling::new(policy, now))),
            longest_ns: match policy {
                Policy::Clocked(period) => Some(period.as_ns()),
                policy => policy.bound().map(LatencyBound::as_ns),
            },
            looked: Cell::new(now),
        }
    }

    /// Returns the counts of the policy; `None` with [`Policy::Interrupt`], which counts nothing.
    pub(super) fn report(&self, now: Instant) -> Option<SignallingReport> {
        let signalling = self.signalling.as_ref()?.borrow();
        Some(SignallingReport::of(&signalling, now))
    }

    /// Returns whether a thread with work must check the kernel now; `looked` is the time of its last check. With
    /// interrupts it checks every 20 us, since only a check or a wait shows events.
    pub(super) fn is_due(&self, now: Instant, looked: Instant) -> bool {
        let is_time = now.ns_since(looked) >= LOOKS_APART_NS;
        self.signalling.as_ref().map_or(is_time, |signalling| {
            let signalling = signalling.borrow();
            let is_enabled = signalling.current().interrupts == Interrupts::Enabled;
            signalling.is_due(now) || is_enabled && is_time
        })
    }

    /// Returns whether a thread with work has not looked for as long as the policy allows. It then looks before it runs
    /// more of the ready tasks.
    pub(super) fn is_overdue(&self, now: Instant) -> bool {
        let looked = self.looked.get();
        self.longest_ns
            .is_some_and(|longest_ns| now.ns_since(looked) >= longest_ns)
    }

    /// Records a look, or the end of a wait, which found this number of events.
    pub(super) fn on_look(&self, now: Instant, events: usize, has_more: bool) {
        let Some(signalling) = &self.signalling else {
            return;
        };
        let mut signalling = signalling.borrow_mut();
        self.looked.set(now);
        // The loop asks `is_due` for the next look.
        let _next = signalling.on_look(
            now,
            Look {
                packets: events as u32,
                has_more,
                ..Look::EMPTY
            },
        );
        if !has_more {
            signalling.forgive_look();
        }
    }

    /// Begins a wait of a thread without work, which wakes up at `wakes_at` in any case. Returns the time until which
    /// the thread sleeps before it looks, or `None` if an event ends the wait.
    pub(super) fn before_wait(&self, now: Instant, wakes_at: Option<Instant>) -> Option<Instant> {
        let mut signalling = self.signalling.as_ref()?.borrow_mut();
        let mut next = signalling.before_wait(now, wakes_at);
        if signalling.forgive_look() {
            next = signalling.before_wait(now, wakes_at);
        }
        match next.interrupts {
            Interrupts::Masked => Some(next.look.unwrap_or(now)),
            Interrupts::Enabled => None,
        }
    }

    /// Ends a wait: `is_woken` if events have ended it.
    pub(super) fn after_wait(&self, now: Instant, is_woken: bool) {
        if let Some(signalling) = &self.signalling {
            let mut signalling = signalling.borrow_mut();
            let _next = match is_woken {
                true => signalling.on_interrupt(now),
                false => signalling.after_wait(now),
            };
        }
    }
}

/// With interrupts, the time between two checks of the kernel while tasks are ready.
const LOOKS_APART_NS: u64 = 20_000;
