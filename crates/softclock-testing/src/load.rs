//! Work beside a test.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Calls `f` while each of `calls` is repeated in a thread of its own. The threads end with `f`, also if it panics.
pub fn beside<R>(calls: impl IntoIterator<Item = impl FnMut() + Send>, f: impl FnOnce() -> R) -> R {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _end = End(&is_over);
        for mut call in calls {
            let is_over = &is_over;
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    call();
                }
            });
        }
        f()
    })
}

/// Ends the threads when it is dropped.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::AtomicU64;

    use super::*;

    #[test]
    fn calls_are_repeated_until_the_end() {
        let counts = [(); 2].map(|()| AtomicU64::new(0));
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let calls = || {
            counts.iter().map(|count| {
                move || {
                    count.fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        let wait = || {
            while counts.iter().any(|one| count(one) < 3) {
                thread::yield_now();
            }
            7
        };
        assert_eq!(beside(calls(), wait), 7);
        let failing = AssertUnwindSafe(|| beside(calls(), || panic!("a test that fails")));
        catch_unwind(failing).unwrap_err();
    }
}
