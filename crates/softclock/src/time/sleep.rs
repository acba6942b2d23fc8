//! Waiting until a point in time.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use softclock_core::{Clock, FireWindow, Instant, TimerKey};

use crate::runtime::inner::Inner;
use crate::runtime::soft_events::PendingEvent;

/// Waits for at least `duration`, until the next trigger state after it. It never ends early. In an idle thread it
/// ends some microseconds late (see [`Builder::spin_cap`](crate::Builder::spin_cap)).
///
/// A sleep that is over when it is first polled counts as one of the calls that a task may make in a row. A task that
/// only makes such sleeps lets others run after some of them; [`yield_now`](crate::yield_now) does so each time.
///
/// # Example
/// ```
/// use std::time::Duration;
///
/// # fn main() -> std::io::Result<()> {
/// softclock::Runtime::new()?.block_on(async {
///     let start = softclock::now();
///     softclock::sleep(Duration::from_micros(200)).await;
///     assert!(softclock::now().since(start) >= Duration::from_micros(200));
/// });
/// # Ok(())
/// # }
/// ```
///
/// # Cancel safety
/// A dropped sleep leaves nothing behind. To continue one after it has lost a `select!`, poll `&mut sleep`.
///
/// # Panics
/// If called outside a runtime.
pub fn sleep(duration: Duration) -> Sleep {
    sleep_until(crate::now() + duration)
}

/// Waits until the first trigger state after `deadline`. [`time::from_std`](crate::time::from_std) converts a deadline
/// of the standard library.
///
/// # Panics
/// When awaited outside a runtime.
pub fn sleep_until(deadline: Instant) -> Sleep {
    Sleep {
        deadline,
        end: End::OnTime,
        timer: None,
        is_put_off: false,
    }
}

/// Creates the time limit of another wait. It ends like one made by [`Sleep::with_slack`], but without slack.
pub(super) fn limit(duration: Duration) -> Sleep {
    Sleep {
        end: End::Limit,
        ..sleep(duration)
    }
}

/// The future of [`sleep`]. It contains only numbers and is `Send + Sync`, as hyper requires, but must be polled on
/// the thread on which it was first polled.
#[derive(Debug)]
#[must_use = "a Sleep does nothing unless awaited"]
pub struct Sleep {
    deadline: Instant,
    end: End,
    timer: Option<Timer>,
    /// Whether the sleep was over when the task had used up its calls, so that it ends at the next poll.
    is_put_off: bool,
}

/// The way in which a sleep ends.
#[derive(Clone, Copy, PartialEq, Debug)]
enum End {
    /// At the first trigger state after the deadline.
    OnTime,
    /// The same, but an idle thread may wake up late for it.
    AboutTime,
    /// After all events from before the deadline, which may complete the limited wait, were handled.
    Limit,
    /// Like `Limit`, and up to 2^n ns late.
    Rough(u32),
}

/// A timer and the id of its runtime.
#[derive(Clone, Copy, Debug)]
struct Timer {
    runtime: u64,
    key: TimerKey,
}

impl Sleep {
    /// Allows the sleep to end up to `slack` (at least 1 ns) late, so that it ends together with others and the
    /// thread never spins for it. This is for timeouts, which are many in a server and seldom expire.
    ///
    /// The sleep also ends only after the sockets were checked since its deadline, and the tasks that were ready then
    /// have run. So data that arrived before a timeout always wins over it, even if the process was stopped or the
    /// task ran late.
    ///
    /// Call it before the sleep is polled.
    pub fn with_slack(mut self, slack: Duration) -> Self {
        let slack_ns = u64::try_from(slack.as_nanos()).unwrap_or(u64::MAX);
        self.end = End::Rough(slack_ns.max(1).ilog2());
        self
    }

    fn window(&self) -> FireWindow {
        match self.end {
            End::OnTime | End::Limit => FireWindow::from(self.deadline),
            End::AboutTime => FireWindow::roughly(self.deadline),
            // Rounded up to few distinct instants, so that a thread wakes up once for many timeouts.
            End::Rough(log) => FireWindow::roughly(self.deadline.round_up(1 << log)),
        }
    }

    fn event(&self, waker: Waker) -> PendingEvent {
        match self.end {
            End::OnTime | End::AboutTime => PendingEvent::Wake(waker),
            End::Limit | End::Rough(_) => PendingEvent::Expire(waker),
        }
    }

    fn has_ended(&self, runtime: &Inner) -> bool {
        match self.end {
            End::OnTime | End::AboutTime => self.deadline < runtime.clock.now(),
            End::Limit | End::Rough(_) => runtime.timeouts.is_over(self.deadline),
        }
    }

    /// Moves the deadline to the beginning of a window, in place of a [slack](Self::with_slack). An idle thread spins
    /// for it, or not, as the window says. A waiting task is woken at the new deadline.
    pub fn reset_within(&mut self, window: FireWindow) {
        let end = match window.rough {
            true => End::AboutTime,
            false => End::OnTime,
        };
        if self.end == end {
            return self.reset(window.earliest);
        }
        let waiting = self.cancel();
        (self.end, self.deadline) = (end, window.earliest);
        if let Some((runtime, waker)) = waiting {
            Inner::with_own(runtime, |runtime| self.wait(runtime, &waker));
        }
    }

    /// Returns the task that waited, with the id of its runtime.
    fn cancel(&mut self) -> Option<(u64, Waker)> {
        let Timer { runtime, key } = self.timer.take()?;
        // After the end of the runtime the event is dropped already.
        let event = Inner::with_own(runtime, |runtime| runtime.timers.borrow_mut().cancel(key));
        match event? {
            Some(PendingEvent::Wake(waker) | PendingEvent::Expire(waker)) => Some((runtime, waker)),
            _ => None,
        }
    }

    /// Registers `waker` to be woken at the end.
    fn wait(&mut self, runtime: &Inner, waker: &Waker) {
        if let Some(timer) = self.timer {
            assert_eq!(
                timer.runtime,
                runtime.mailbox.id(),
                "a Sleep was moved to another runtime"
            );
            // A pending timer keeps its place; only the task to wake may have changed.
            if replace_waker(runtime, timer.key, waker) {
                return;
            }
        }
        // The event may have fired within the tick of the deadline, just before the deadline itself.
        let event = self.event(waker.clone());
        let mut timers = runtime.timers.borrow_mut();
        let key = timers.schedule(self.window(), event);
        drop(timers);
        self.timer = Some(Timer {
            runtime: runtime.mailbox.id(),
            key,
        });
    }

    /// Returns the time until which it sleeps.
    pub const fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Moves the deadline. A waiting task is woken at the new one.
    pub fn reset(&mut self, deadline: Instant) {
        self.deadline = deadline;
        if let Some(timer) = self.timer {
            let due = self.window().earliest;
            let moved = Inner::with_own(timer.runtime, |runtime| {
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
            // Put off only once: otherwise a task that uses up its calls in each turn would outlast its timeout.
            if mem::take(&mut self.is_put_off) {
                return Poll::Ready(());
            }
            let ended = runtime.poll_allowance(cx);
            self.is_put_off = ended.is_pending();
            ended
        })
    }
}

/// Replaces the waker of a pending timer. Returns false if the timer has fired.
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
        drop(self.cancel());
    }
}
