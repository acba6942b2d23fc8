//! Channels and locks, between tasks of a runtime and from other threads.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::thread;

use futures::{SinkExt, StreamExt};
use tokio::sync;

use crate::{MS, run};

/// The sum of the numbers that the senders of these tests send.
const SUM: u32 = 499_500;

#[test]
fn tokio_mpsc_and_oneshot() {
    run(async {
        // A capacity below the number of messages: senders wait, too.
        let (sender, mut receiver) = sync::mpsc::channel(4);
        softclock::spawn_local(async move {
            for n in 0..1000u32 {
                sender.send(n).await.unwrap();
            }
        });
        let mut sum = 0;
        while let Some(n) = receiver.recv().await {
            sum += n;
        }
        assert_eq!(sum, SUM);

        let (sender, mut receiver) = sync::mpsc::channel(4);
        let thread =
            thread::spawn(move || (0..1000u32).for_each(|n| sender.blocking_send(n).unwrap()));
        let mut sum = 0;
        while let Some(n) = receiver.recv().await {
            sum += n;
        }
        assert_eq!(sum, SUM);
        thread.join().unwrap();

        let (sender, receiver) = sync::oneshot::channel();
        thread::spawn(move || {
            thread::sleep(2 * MS);
            sender.send("from a thread").unwrap();
        });
        assert_eq!(receiver.await, Ok("from a thread"));
    });
}

#[test]
fn tokio_watch_and_broadcast() {
    run(async {
        let (sender, mut watcher) = sync::watch::channel(0);
        softclock::spawn_local(async move {
            for n in 1..=5 {
                softclock::sleep(MS).await;
                sender.send(n).unwrap();
            }
        });
        assert_eq!(*watcher.wait_for(|n| *n >= 5).await.unwrap(), 5);
        assert!(watcher.changed().await.is_err(), "the sender is gone");

        let (sender, mut first) = sync::broadcast::channel(16);
        let mut second = sender.subscribe();
        thread::spawn(move || (0..10).for_each(|n| assert_eq!(sender.send(n).unwrap(), 2)));
        for n in 0..10 {
            assert_eq!(first.recv().await, Ok(n));
            assert_eq!(second.recv().await, Ok(n));
        }
    });
}

#[test]
fn tokio_locks() {
    run(async {
        let mutex = Rc::new(sync::Mutex::new(0));
        let permits = Rc::new(sync::Semaphore::new(3));
        let (running, most) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        let mut tasks = softclock::JoinSet::new();
        for _ in 0..20 {
            let (mutex, permits) = (mutex.clone(), permits.clone());
            let (running, most) = (running.clone(), most.clone());
            tasks.spawn_local(async move {
                let _permit = permits.acquire().await.unwrap();
                running.set(running.get() + 1);
                most.set(running.get().max(most.get()));
                let mut count = mutex.lock().await;
                let before = *count;
                softclock::sleep(MS / 10).await;
                *count = before + 1;
                running.set(running.get() - 1);
            });
        }
        while let Some(outcome) = tasks.join_next().await {
            outcome.unwrap();
        }
        assert_eq!(*mutex.lock().await, 20);
        assert_eq!(most.get(), 3);

        let lock = Arc::new(sync::RwLock::new(1));
        let notify = Arc::new(sync::Notify::new());
        let reader = lock.read().await;
        let other = (lock.clone(), notify.clone());
        let thread = thread::spawn(move || {
            *other.0.blocking_write() = 2;
            other.1.notify_one();
        });
        softclock::sleep(MS).await;
        assert_eq!(*reader, 1, "the writer waits");
        drop(reader);
        notify.notified().await;
        assert_eq!(*lock.read().await, 2);
        thread.join().unwrap();
    });
}

#[test]
fn async_channel_and_async_lock() {
    run(async {
        let (sender, receiver) = async_channel::bounded(4);
        let thread =
            thread::spawn(move || (0..1000u32).for_each(|n| sender.send_blocking(n).unwrap()));
        // Several receivers share a channel.
        let mut tasks = softclock::JoinSet::new();
        for _ in 0..3 {
            let receiver = receiver.clone();
            tasks.spawn_local(async move {
                let mut sum = 0;
                while let Ok(n) = receiver.recv().await {
                    sum += n;
                }
                sum
            });
        }
        let mut sum = 0;
        while let Some(outcome) = tasks.join_next().await {
            sum += outcome.unwrap();
        }
        assert_eq!(sum, SUM);
        thread.join().unwrap();

        let mutex = Rc::new(async_lock::Mutex::new(0));
        let guard = mutex.lock().await;
        let other = mutex.clone();
        let task = softclock::spawn_local(async move { *other.lock().await += 1 });
        softclock::sleep(MS).await;
        assert!(!task.is_finished(), "the lock is held");
        drop(guard);
        task.await;
        assert_eq!(*mutex.lock().await, 1);
    });
}

#[test]
fn futures_channel() {
    run(async {
        let (mut sender, receiver) = futures::channel::mpsc::channel(4);
        softclock::spawn_local(async move {
            for n in 0..1000u32 {
                sender.send(n).await.unwrap();
            }
        });
        let sum = receiver.fold(0, |sum, n| async move { sum + n }).await;
        assert_eq!(sum, SUM);

        let (sender, receiver) = futures::channel::oneshot::channel();
        thread::spawn(move || sender.send(8).unwrap());
        assert_eq!(receiver.await, Ok(8));
    });
}
