//! Access from other threads: closures, tasks with results, and the current runtime.

use std::cell::Cell;
use std::future::pending;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::thread;

use futures_lite::future::block_on;
use softclock::{PostError, Remote, Runtime};

use crate::{LIMIT, MS, run};

/// Runs `other` in another thread beside a runtime that waits for it.
fn beside<T: Send + 'static>(other: impl FnOnce(Remote) -> T + Send + 'static) -> T {
    run(async {
        let remote = softclock::remote();
        softclock::spawn_blocking(move || other(remote)).await
    })
}

#[test]
fn a_task_of_another_thread_returns_its_result_there() {
    beside(|remote| {
        let here = thread::current().id();
        let task = remote.spawn(|| async {
            // Not `Send`, and kept across a wait.
            let count = Rc::new(Cell::new(0));
            softclock::sleep(MS).await;
            count.set(count.get() + 1);
            (thread::current().id(), count.get())
        });
        let (there, count) = block_on(task.unwrap()).unwrap();
        assert_ne!(here, there);
        assert_eq!(count, 1);
    });
}

#[test]
fn a_handle_is_awaited_on_another_runtime_of_ours() {
    beside(|remote| {
        Runtime::new().unwrap().block_on(async {
            let given_up = Arc::new(AtomicU32::new(0));
            let count = given_up.clone();
            let task = remote.spawn(|| async move {
                while count.load(Ordering::Relaxed) < 3 {
                    softclock::sleep(MS / 10).await;
                }
                9
            });
            let mut task = task.unwrap();
            let result = loop {
                match softclock::timeout(MS, &mut task).await {
                    Ok(result) => break result.unwrap(),
                    Err(_) => given_up.fetch_add(1, Ordering::Relaxed),
                };
            };
            assert_eq!(result, 9);
        });
    });
}

#[test]
fn panics_of_a_task_of_another_thread_return_there() {
    beside(|remote| {
        let task = remote.spawn(|| async { panic!("in the future") });
        let error = block_on(task.unwrap()).unwrap_err();
        assert_eq!(error.to_string(), "the task panicked: in the future");
        let task = remote.spawn(|| -> std::future::Ready<()> { panic!("in the closure") });
        let error = block_on(task.unwrap()).unwrap_err();
        assert_eq!(error.to_string(), "the task panicked: in the closure");
    });
}

#[test]
fn a_task_of_another_thread_is_aborted_from_there() {
    beside(|remote| {
        let (sender, receiver) = channel::<()>();
        let task = remote.spawn(|| async {
            let _sender = sender;
            pending::<()>().await;
        });
        let task = task.unwrap();
        assert!(!task.is_finished());
        task.abort();
        assert!(block_on(task).unwrap_err().is_aborted());
        assert!(receiver.recv_timeout(LIMIT).is_err(), "the future is gone");

        let (sender, receiver) = channel();
        let task = remote.spawn(move || async move { sender.send(1).unwrap() });
        drop(task.unwrap());
        assert_eq!(receiver.recv(), Ok(1), "a task outlives its handle");
    });
}

#[test]
fn tasks_that_do_not_fit_or_come_too_late_are_given_back() {
    let runtime = Runtime::new().unwrap();
    let remote = runtime.remote();
    let kept = Arc::new(());
    for _ in 0..1024 {
        let held = kept.clone();
        remote.post(move || drop(held)).unwrap();
    }
    let held = kept.clone();
    let error = remote.post(move || drop(held)).unwrap_err();
    assert_eq!(error.to_string(), "the runtime's mailbox is full");
    error.into_inner()();
    let full = remote.spawn(|| async { 1 }).unwrap_err();
    assert!(matches!(full, PostError::Full(_)));
    assert_eq!(block_on(full.into_inner()()), 1, "the closure still works");

    runtime.block_on(async { softclock::sleep(MS).await });
    assert_eq!(Arc::strong_count(&kept), 1, "all closures have run");
    let waiting = remote.spawn(pending::<()>).unwrap();
    drop(runtime);
    assert!(block_on(waiting).unwrap_err().is_aborted());
    let closed = remote.post(|| ()).unwrap_err();
    assert!(matches!(closed, PostError::Closed(_)));
    let closed = remote.spawn(|| async {}).unwrap_err();
    assert_eq!(closed.to_string(), "the runtime has ended");
}

#[test]
fn tasks_of_another_thread_end_with_the_runtime() {
    let runtime = Runtime::new().unwrap();
    let task = runtime.remote().spawn(pending::<()>).unwrap();
    runtime.block_on(async { softclock::sleep(MS).await });
    assert!(!task.is_finished());
    drop(runtime);
    assert!(task.is_finished());
    assert!(block_on(task).unwrap_err().is_aborted());
}

#[test]
fn a_thread_is_inside_a_runtime_within_block_on() {
    let runtime = Runtime::new().unwrap();
    assert!(softclock::try_remote().is_none());
    let remote = runtime.block_on(async { softclock::try_remote() }).unwrap();
    assert!(softclock::try_remote().is_none());
    remote.post(|| POSTED.set(true)).unwrap();
    runtime.block_on(async { softclock::sleep(MS).await });
    assert!(POSTED.get(), "the handle reaches the same runtime");

    thread_local!(static POSTED: Cell<bool> = const { Cell::new(false) });
}
