//! Ends of tasks: results, panics, aborts, and sets of tasks.

use std::cell::{Cell, RefCell};
use std::future::pending;
use std::hint::black_box;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use softclock::{AbortHandle, JoinHandle, JoinSet, Runtime};

use crate::{LIMIT, MS, run};

/// Calls its function when it is dropped.
struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

#[test]
fn outcomes_tell_results_panics_and_aborts() {
    run(async {
        let mut task = softclock::spawn_local(async { 7 });
        assert_eq!(task.outcome().await.unwrap(), 7);

        let mut task = softclock::spawn_local(async { panic!("number {}", black_box(1)) });
        let error = task.outcome().await.unwrap_err();
        assert!(error.is_panic() && !error.is_aborted());
        assert_eq!(error.to_string(), "the task panicked: number 1");
        let payload = error.into_panic().unwrap();
        assert_eq!(*payload.downcast::<String>().unwrap(), "number 1");

        let mut task = softclock::spawn_local(pending::<()>());
        task.abort_handle().abort();
        let error = task.outcome().await.unwrap_err();
        assert!(error.is_aborted());
        assert!(error.into_panic().is_err());
    });
}

#[test]
fn awaiting_continues_a_panic() {
    run(async {
        let inner = softclock::spawn_local(async { panic!("expected") });
        let mut outer = softclock::spawn_local(inner);
        let error = outer.outcome().await.unwrap_err();
        assert_eq!(error.to_string(), "the task panicked: expected");

        let inner = softclock::spawn_local(pending::<()>());
        inner.abort_handle().abort();
        let mut outer = softclock::spawn_local(inner);
        let error = outer.outcome().await.unwrap_err();
        assert!(error.is_panic() && error.to_string().contains("was aborted"));
    });
}

#[test]
fn a_result_is_taken_once() {
    run(async {
        let mut task = softclock::spawn_local(async { 1 });
        (&mut task).await;
        let mut again = softclock::spawn_local(task);
        let error = again.outcome().await.unwrap_err();
        assert!(error.to_string().contains("taken before"), "{error}");
    });
}

/// Waits until `count` has reached `least`, and returns that.
async fn until(count: Rc<Cell<u32>>, least: u32) -> u32 {
    while count.get() < least {
        softclock::sleep(MS / 10).await;
    }
    least
}

#[test]
fn a_wait_that_is_given_up_loses_no_result() {
    run(async {
        let given_up = Rc::new(Cell::new(0));
        let mut task = softclock::spawn_local(until(given_up.clone(), 3));
        let times = loop {
            match softclock::timeout(MS, task.outcome()).await {
                Ok(result) => break result.unwrap(),
                Err(_) => given_up.set(given_up.get() + 1),
            }
        };
        assert_eq!(times, 3);
    });
}

#[test]
fn an_aborted_task_is_dropped_before_the_wait_for_it_ends() {
    run(async {
        let dropped = Rc::new(Cell::new(false));
        let seen = dropped.clone();
        let guard = OnDrop(move || seen.set(true));
        let mut task = softclock::spawn_local(async move {
            let _guard = guard;
            pending::<()>().await;
        });
        let abort = task.abort_handle();
        softclock::yield_now().await;
        abort.abort();
        assert!(!abort.is_finished() && !dropped.get());
        assert!(task.outcome().await.unwrap_err().is_aborted());
        assert!(abort.is_finished() && dropped.get());
        abort.abort();
    });
}

#[test]
fn an_abort_before_the_first_poll_prevents_it() {
    run(async {
        let polled = Rc::new(Cell::new(false));
        let seen = polled.clone();
        let mut task = softclock::spawn_local(async move { seen.set(true) });
        task.abort_handle().abort();
        assert!(task.outcome().await.unwrap_err().is_aborted());
        assert!(!polled.get());
    });
}

#[test]
fn a_task_that_aborts_itself_ends_at_its_next_wait_or_with_its_result() {
    run(async {
        let own: Rc<RefCell<Option<AbortHandle>>> = Rc::default();
        for (waits, expected) in [(true, None), (false, Some(1))] {
            let handle = own.clone();
            let mut task = softclock::spawn_local(async move {
                handle.borrow().as_ref().unwrap().abort();
                if waits {
                    softclock::yield_now().await;
                }
                1
            });
            *own.borrow_mut() = Some(task.abort_handle());
            assert_eq!(task.outcome().await.ok(), expected);
        }
    });
}

#[test]
fn an_abort_handle_does_not_reach_a_later_task() {
    run(async {
        let mut first = softclock::spawn_local(async {});
        let abort = first.abort_handle();
        first.outcome().await.unwrap();
        let mut second = softclock::spawn_local(async {
            softclock::yield_now().await;
            2
        });
        abort.abort();
        assert_eq!(second.outcome().await.unwrap(), 2);
        assert!(abort.is_finished());
    });
}

fn spawn_waiting() -> (JoinHandle<()>, AbortHandle) {
    let task = softclock::spawn_local(pending());
    let abort = task.abort_handle();
    (task, abort)
}

#[test]
fn aborts_outside_block_on_and_after_the_runtime() {
    let runtime = Runtime::new().unwrap();
    let (mut task, abort) = runtime.block_on(async { spawn_waiting() });
    abort.abort();
    let outcome = runtime.block_on(async { task.outcome().await });
    assert!(outcome.unwrap_err().is_aborted());

    let (mut task, abort) = runtime.block_on(async { spawn_waiting() });
    drop(runtime);
    abort.abort();
    assert!(abort.is_finished());
    let outcome = futures_lite::future::block_on(task.outcome());
    assert!(outcome.unwrap_err().is_aborted());
}

#[test]
fn a_set_returns_outcomes_as_tasks_end() {
    run(async {
        let mut tasks = JoinSet::new();
        assert!(tasks.join_next().await.is_none());
        for n in [3, 1, 2] {
            tasks.spawn_local(async move {
                softclock::sleep(n * 3 * MS).await;
                assert!(n != 2, "no twos");
                n
            });
        }
        assert_eq!(tasks.len(), 3);
        assert!(tasks.try_join_next().is_none());
        assert_eq!(tasks.join_next().await.unwrap().unwrap(), 1);
        assert!(tasks.join_next().await.unwrap().unwrap_err().is_panic());
        assert_eq!(tasks.len(), 1);
        assert_eq!(tasks.join_next().await.unwrap().unwrap(), 3);
        assert!(tasks.is_empty() && tasks.join_next().await.is_none());
    });
}

#[test]
fn a_wait_for_a_set_that_is_given_up_loses_no_outcome() {
    run(async {
        let mut tasks = JoinSet::new();
        let given_up = Rc::new(Cell::new(0));
        for n in 0..50 {
            tasks.spawn_local(until(given_up.clone(), n / 10));
        }
        let mut sum = 0;
        while !tasks.is_empty() {
            match softclock::timeout(MS, tasks.join_next()).await {
                Ok(outcome) => sum += outcome.unwrap().unwrap(),
                Err(_) => given_up.set(given_up.get() + 1),
            }
        }
        assert_eq!(sum, 10 * (1 + 2 + 3 + 4));
    });
}

#[test]
fn the_tasks_of_a_set_are_aborted_together_or_one_by_one() {
    run(async {
        let mut tasks = JoinSet::new();
        let one = tasks.spawn_local(pending::<u32>());
        tasks.spawn_local(async { 5 });
        one.abort();
        let mut outcomes = [tasks.join_next().await, tasks.join_next().await].map(Option::unwrap);
        outcomes.sort_by_key(Result::is_ok);
        let [aborted, five] = outcomes;
        assert!(aborted.unwrap_err().is_aborted());
        assert_eq!(five.unwrap(), 5);

        for _ in 0..100 {
            tasks.spawn_local(pending());
        }
        tasks.abort_all();
        assert_eq!(tasks.len(), 100, "outcomes are still to be taken");
        let mut aborted = 0;
        while let Some(outcome) = tasks.join_next().await {
            assert!(outcome.unwrap_err().is_aborted());
            aborted += 1;
        }
        assert_eq!(aborted, 100);
    });
}

/// Returns a set of tasks that wait for ever, and the number of those that exist.
fn waiting_tasks(count: u32) -> (JoinSet<()>, Rc<Cell<u32>>) {
    let alive = Rc::new(Cell::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..count {
        alive.set(alive.get() + 1);
        let here = alive.clone();
        let guard = OnDrop(move || here.set(here.get() - 1));
        tasks.spawn_local(async move {
            let _guard = guard;
            softclock::sleep(LIMIT).await;
        });
    }
    (tasks, alive)
}

#[test]
fn a_shutdown_waits_for_the_end_of_all_tasks() {
    run(async {
        let (mut tasks, alive) = waiting_tasks(20);
        softclock::yield_now().await;
        tasks.shutdown().await;
        assert_eq!(alive.get(), 0);
        assert!(tasks.is_empty());
        assert_eq!(softclock::statistics().pending, 0);
    });
}

#[test]
fn a_dropped_set_ends_its_tasks() {
    run(async {
        let (tasks, alive) = waiting_tasks(20);
        softclock::yield_now().await;
        drop(tasks);
        softclock::yield_now().await;
        assert_eq!(alive.get(), 0);
        assert_eq!(softclock::statistics().pending, 0);
    });
}

#[test]
fn a_set_may_outlive_its_runtime() {
    let (mut tasks, alive) = run(async { waiting_tasks(3) });
    assert_eq!(alive.get(), 0);
    let outcome = futures_lite::future::block_on(tasks.join_next());
    assert!(outcome.unwrap().unwrap_err().is_aborted());
    assert_eq!(tasks.len(), 2);
}

/// Outcomes that are there already count as calls, so that taking them does not starve other tasks.
#[test]
fn taking_outcomes_takes_turns() {
    run(async {
        let mut tasks = JoinSet::new();
        (0..1_000).for_each(|_| drop(tasks.spawn_local(async {})));
        let turns = Rc::new(Cell::new(0));
        let counted = turns.clone();
        while softclock::statistics().tasks < 1_000 {
            softclock::yield_now().await;
        }
        let counter = softclock::spawn_local(async move {
            loop {
                softclock::yield_now().await;
                counted.set(counted.get() + 1);
            }
        });
        while tasks.join_next().await.is_some() {}
        counter.abort();
        assert!(turns.get() >= 3, "{} turns", turns.get());
    });
}

#[test]
fn panics_outside_of_tasks_come_out_of_block_on() {
    let runtime = Runtime::new().unwrap();
    let remote = runtime.remote();
    let message = |expected: &str, future: &dyn Fn()| {
        let result = catch_unwind(AssertUnwindSafe(|| {
            runtime.block_on(async {
                future();
                softclock::sleep(LIMIT).await;
            });
        }));
        let payload = result.unwrap_err();
        assert_eq!(*payload.downcast::<&str>().unwrap(), expected);
    };
    message("main", &|| panic!("main"));
    message("posted", &|| remote.post(|| panic!("posted")).unwrap());
    message("handler", &|| {
        softclock::schedule_soft_event(1, |_| panic!("handler"));
    });
    message("deferred", &|| {
        softclock::schedule_soft_event(1, |context| {
            assert!(context.defer(|| panic!("deferred")).is_ok());
        });
    });
    // The runtime is not damaged.
    assert_eq!(runtime.block_on(async { 1 }), 1);
}
