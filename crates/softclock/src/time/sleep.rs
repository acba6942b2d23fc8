//! Waiting for a point in time.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use softclock_core::{Clock, FireWindow, Instant, TimerKey};

use crate::runtime::inner::Inner;
use crate::runtime::soft_events::PendingEvent;

/// Ends at the first trigger state at least `duration` from now. Never early; when idle, some microseconds
/// late (see [`Builder::spin_cap`](crate::Builder::spin_cap)).
///
/// A sleep that is over when it is polled takes one of the calls that a task may make in a row: a task that does
/// nothing but such sleeps lets others run after some of them. [`yield_now`](crate::yield_now) does so each time.
///
/// # Panics
/// Outside a runtime.
pub fn sleep(duration: Duration) -> Sleep {
    sleep_until(crate::now() + duration)
}

/// Ends at the first trigger state after `deadline`.
pub fn sleep_until(deadline: Instant) -> Sleep {
    Sleep {
        deadline,
        end: End::OnTime,
        timer: None,
        is_put_off: false,
    }
}

/// Makes the limit of another wait. It ends as one made by [`Sleep::with_slack`] does, but without slack.
pub(super) fn limit(duration: Duration) -> Sleep {
    Sleep {
        end: End::Limit,
        ..sleep(duration)
    }
}

/// The future of [`sleep`]. It holds numbers only and is `Send + Sync`, as hyper asks, but can be polled only
/// on the thread on which it was polled first.
#[derive(Debug)]
#[must_use = "a Sleep does nothing unless awaited"]
pub struct Sleep {
    deadline: Instant,
    end: End,
    timer: Option<Timer>,
    /// It was over when the task had no calls left, and ends at the next poll.
    is_put_off: bool,
}

/// When a sleep ends, and how.
#[derive(Clone, Copy, Debug)]
enum End {
    /// At the first trigger state after the deadline.
    OnTime,
    /// Once no event from before the deadline can still end the wait that this limits.
    Limit,
    /// As `Limit`, late by up to 2^n ns.
    Rough(u32),
}

/// A timer, and the number of the runtime that has it.
#[derive(Clone, Copy, Debug)]
struct Timer {
    runtime: u64,
    key: TimerKey,
}

impl Sleep {
    /// Lets it end up to `slack` (at least 1 ns) late, as fits the thread best: together with others that may be late,
    /// and never by spinning. For timeouts, of which a server has many and few pass.
    ///
    /// It also ends only after the sockets were checked since its deadline, and the tasks that were ready then have
    /// run. So a timeout never wins over bytes that arrived before it, even if the process was stopped or the task's
    /// turn came late.
    ///
    /// To be called before it is polled.
    pub fn with_slack(mut self, slack: Duration) -> Self {
        let slack_ns = u64::try_from(slack.as_nanos()).unwrap_or(u64::MAX);
        self.end = End::Rough(slack_ns.max(1).ilog2());
        self
    }

    fn window(&self) -> FireWindow {
        match self.end {
            End::OnTime | End::Limit => FireWindow::from(self.deadline),
            // Few instants for all: a thread wakes up once for those of the same.
            End::Rough(log) => FireWindow::roughly(self.deadline.round_up(1 << log)),
        }
    }

    fn event(&self, waker: Waker) -> PendingEvent {
        match self.end {
            End::OnTime => PendingEvent::Wake(waker),
            End::Limit | End::Rough(_) => PendingEvent::Expire(waker),
        }
    }

    fn has_ended(&self, runtime: &Inner) -> bool {
        match self.end {
            End::OnTime => self.deadline < runtime.clock.now(),
            End::Limit | End::Rough(_) => runtime.timeouts.is_over(self.deadline),
        }
    }

    /// Has `waker` woken at the end.
    fn wait(&mut self, runtime: &Inner, waker: &Waker) {
        if let Some(timer) = self.timer {
            assert_eq!(
                timer.runtime,
                runtime.mailbox.id(),
                "a Sleep was moved to another runtime"
            );
            if replace_waker(runtime, timer.key, waker) {
                return;
            }
        }
        // The event may have fired on the very tick of a deadline that has not quite passed.
        let event = self.event(waker.clone());
        let mut timers = runtime.timers.borrow_mut();
        let key = timers.schedule(self.window(), event);
        drop(timers);
        self.timer = Some(Timer {
            runtime: runtime.mailbox.id(),
            key,
        });
    }

    /// When the sleep ends.
    pub const fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Moves the end. A task that waits is woken by the new one.
    pub fn reset(&mut self, deadline: Instant) {
        self.deadline = deadline;
        if let Some(timer) = self.timer {
            let due = self.window().earliest;
            let moved = Inner::with_id(timer.runtime, |runtime| {
                runtime.timers.borrow_mut().reschedule(timer.key, due)
            });
            if moved != Some(true) {
                self.timer = None;
            }
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        Inner::with_current(|runtime| {
            if !self.has_ended(runtime) {
                self.wait(runtime, cx.waker());
                return Poll::Pending;
            }
            // Put off once only: else what uses up the calls of each turn would outlast its timeout.
            if mem::take(&mut self.is_put_off) {
                return Poll::Ready(());
            }
            let ended = runtime.poll_allowance(cx);
            self.is_put_off = ended.is_pending();
            ended
        })
    }
}

/// False if the timer has fired.
fn replace_waker(runtime: &Inner, key: TimerKey, waker: &Waker) -> bool {
    let mut timers = runtime.timers.borrow_mut();
    let Some(PendingEvent::Wake(old) | PendingEvent::Expire(old)) = timers.get_mut(key) else {
        return false;
    };
    let replaced = (!old.will_wake(waker)).then(|| mem::replace(old, waker.clone()));
    drop(timers);
    drop(replaced);
    true
}

impl Drop for Sleep {
    fn drop(&mut self) {
        // On another thread, or after the runtime's end, the event fires for nobody.
        if let Some(Timer { runtime, key }) = self.timer {
            let event = Inner::with_id(runtime, |runtime| runtime.timers.borrow_mut().cancel(key));
            drop(event);
        }
    }
}
