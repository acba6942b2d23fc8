//! Tasks, helper threads, the mailbox, and the end of a runtime.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Waker;
use std::thread;
use std::time::Duration;

use softclock::events::Mechanism;
use softclock::{GiveWay, Runtime};

use crate::{MS, run};

/// The environment variable selects the mechanism, by which all tests can be repeated with another one.
#[test]
fn the_environment_names_the_mechanism() {
    let named = std::env::var("SOFTCLOCK_EVENTS").map(|name| name.parse().unwrap());
    let expected = named.unwrap_or(Mechanism::Epoll);
    assert_eq!(run(async { softclock::statistics().mechanism }), expected);
}

#[test]
fn tasks_that_give_way_run_when_no_other_is_ready() {
    run(async {
        let order = Rc::new(RefCell::new(Vec::new()));
        let spawn = |name, gives_way: bool| {
            let order = order.clone();
            softclock::spawn_local(async move {
                let mut turn = GiveWay::default();
                if gives_way {
                    poll_fn(|cx| turn.poll(cx)).await;
                }
                // Other tasks become ready meanwhile.
                softclock::yield_now().await;
                order.borrow_mut().push(name);
            })
        };
        let tasks = [("late", true), ("one", false), ("two", false)];
        for task in tasks.map(|(name, gives_way)| spawn(name, gives_way)) {
            task.await;
        }
        assert_eq!(*order.borrow(), ["one", "two", "late"]);
    });
}

#[test]
fn the_end_of_the_runtime_drops_tasks_that_wait() {
    struct OnDrop(Rc<Cell<u32>>);
    impl Drop for OnDrop {
        fn drop(&mut self) {
            // Using the runtime in a destructor must not panic.
            drop(softclock::spawn_local(async {}));
            self.0.set(self.0.get() + 1);
        }
    }
    let dropped = Rc::new(Cell::new(0));
    let runtime = Runtime::new().unwrap();
    runtime.block_on(async {
        for _ in 0..10 {
            let guard = OnDrop(dropped.clone());
            softclock::spawn_local(async move {
                softclock::sleep(Duration::from_secs(60)).await;
                drop(guard);
            });
        }
        softclock::yield_now().await;
    });
    assert_eq!(dropped.get(), 0);
    drop(runtime);
    assert_eq!(dropped.get(), 10);
}

#[test]
fn a_panic_ends_its_task_only() {
    run(async {
        let task = softclock::spawn_local(async { panic!("expected by the test") });
        let other = softclock::spawn_local(async { 7 });
        assert_eq!(other.await, 7);
        assert!(task.is_finished());
    });
}

#[test]
fn aborted_tasks_are_dropped() {
    run(async {
        let alive = Rc::new(());
        let held = alive.clone();
        let task = softclock::spawn_local(async move {
            softclock::sleep(Duration::from_secs(60)).await;
            drop(held);
        });
        softclock::yield_now().await;
        task.abort();
        softclock::yield_now().await;
        assert_eq!(Rc::strong_count(&alive), 1);
        assert_eq!(softclock::statistics().pending, 0);
    });
}

#[test]
fn other_threads_wake_and_post() {
    let runtime = Runtime::new().unwrap();
    let remote = runtime.remote();
    let count = Arc::new(AtomicU32::new(0));
    runtime.block_on(async {
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let (remote, count) = (remote.clone(), count.clone());
                thread::spawn(move || {
                    for _ in 0..2_000 {
                        let count = count.clone();
                        let call = move || {
                            count.fetch_add(1, Ordering::Relaxed);
                        };
                        while let Err(error) = remote.post(call.clone()) {
                            assert!(matches!(error, softclock::PostError::Full(_)));
                            thread::yield_now();
                        }
                    }
                })
            })
            .collect();
        while count.load(Ordering::Relaxed) < 4_000 {
            softclock::sleep(MS).await;
        }
        for thread in threads {
            thread.join().unwrap();
        }
    });
    drop(runtime);
    let refused = remote.post(|| ()).unwrap_err();
    assert!(matches!(refused, softclock::PostError::Closed(_)));
}

#[test]
fn helpers_answer_and_their_panics_arrive() {
    run(async {
        let here = thread::current().id();
        let there = softclock::spawn_blocking(|| thread::current().id()).await;
        assert_ne!(here, there);
        // More jobs than the queue holds: the others wait for room.
        let jobs: Vec<_> = (0..3_000)
            .map(|n| softclock::spawn_local(softclock::spawn_blocking(move || n)))
            .collect();
        for (n, job) in jobs.into_iter().enumerate() {
            assert_eq!(job.await, n);
        }
        let panic = softclock::spawn_local(softclock::spawn_blocking(|| panic!("expected")));
        while !panic.is_finished() {
            softclock::sleep(MS).await;
        }
    });
}

#[test]
fn a_waker_outlives_its_runtime() {
    let kept = Rc::new(RefCell::new(None));
    let keeper = kept.clone();
    let runtime = Runtime::new().unwrap();
    runtime.block_on(async {
        softclock::spawn_local(std::future::poll_fn(move |cx| {
            *keeper.borrow_mut() = Some(cx.waker().clone());
            std::task::Poll::<()>::Pending
        }));
        softclock::yield_now().await;
    });
    drop(runtime);
    let waker: Waker = kept.borrow_mut().take().unwrap();
    waker.wake_by_ref();
    thread::spawn(move || waker.wake()).join().unwrap();
}

/// Handles of tasks that have ended are ready at once, too.
#[test]
fn handles_of_ended_tasks_take_turns() {
    run(async {
        let handles: Vec<_> = (0..1_000)
            .map(|_| softclock::spawn_local(async {}))
            .collect();
        while !handles.iter().all(softclock::JoinHandle::is_finished) {
            softclock::yield_now().await;
        }
        let turns = Rc::new(Cell::new(0));
        let counted = turns.clone();
        let counter = softclock::spawn_local(async move {
            loop {
                softclock::yield_now().await;
                counted.set(counted.get() + 1);
            }
        });
        for handle in handles {
            handle.await;
        }
        counter.abort();
        assert!(
            turns.get() >= 3,
            "{} turns beside 1000 handles",
            turns.get()
        );
    });
}

#[test]
fn a_thread_has_one_runtime() {
    let runtime = Runtime::new().unwrap();
    let second = Runtime::new().unwrap_err();
    assert_eq!(second.kind(), std::io::ErrorKind::AlreadyExists);
    drop(runtime);
    Runtime::new().unwrap();
}

#[test]
#[should_panic(expected = "already running")]
fn runtimes_do_not_nest() {
    let runtime = Runtime::new().unwrap();
    runtime.block_on(async { runtime.block_on(async {}) });
}
