//! The timer slack of threads whose waits must end on time.

use std::cell::Cell;
use std::marker::PhantomData;

use rustix::thread::current_timer_slack;

use super::set_timer_slack_ns;

/// Keeps the [timer slack](set_timer_slack_ns) of a thread at its minimum, 1 ns. By default the kernel ends each
/// timeout up to 50 us late.
///
/// A thread may have several of them. The last one to be dropped restores the slack from before the first. Each costs
/// at most two system calls at either end.
///
/// ```
/// use softclock_linux::clock::MinimalSlack;
/// use std::time::Duration;
///
/// let slack = MinimalSlack::of_this_thread();
/// std::thread::sleep(Duration::from_micros(100)); // up to 50 us less late than without
/// drop(slack);
/// ```
#[derive(Debug)]
pub struct MinimalSlack {
    /// Not `Send`, since the slack is that of one thread.
    _of_this_thread: PhantomData<*const ()>,
}

thread_local! {
    /// The number of the thread's `MinimalSlack`s.
    static COUNT: Cell<usize> = const { Cell::new(0) };
    /// The slack from before the first of them, in nanoseconds; 0 if it was not changed.
    static BEFORE_NS: Cell<u64> = const { Cell::new(0) };
}

impl MinimalSlack {
    /// Sets the slack of the calling thread. If a sandbox forbids prctl(2), the slack stays as it is.
    pub fn of_this_thread() -> Self {
        if COUNT.replace(COUNT.get() + 1) == 0 {
            let before = current_timer_slack().unwrap_or(0);
            let is_set = set_timer_slack_ns(1).is_ok();
            BEFORE_NS.set(if is_set { before } else { 0 });
        }
        Self {
            _of_this_thread: PhantomData,
        }
    }
}

impl Drop for MinimalSlack {
    fn drop(&mut self) {
        let others = COUNT.get() - 1;
        COUNT.set(others);
        if others == 0 && BEFORE_NS.get() != 0 {
            // Cannot fail, since setting it has worked before.
            let _ = set_timer_slack_ns(BEFORE_NS.get());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_restores_the_slack() {
        let slack = || current_timer_slack().unwrap();
        set_timer_slack_ns(70_000).unwrap();
        let first = MinimalSlack::of_this_thread();
        let second = MinimalSlack::of_this_thread();
        assert_eq!(slack(), 1);
        drop(first);
        assert_eq!(slack(), 1);
        drop(second);
        assert_eq!(slack(), 70_000);
    }
}
