//! Soft events and their handlers.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::thread;
use std::time::Instant;

use softclock::net::UdpSocket;
use softclock::{FireWindow, Runtime, TriggerState};

use crate::{LIMIT, MS, US, run};

/// A soft event that polls a device wakes the device's readers, which are ordinary work.
#[test]
fn tasks_that_a_handler_wakes_run_behind_those_that_are_ready() {
    run(async {
        let order = Rc::new(RefCell::new(Vec::new()));
        let note = |name| {
            let order = order.clone();
            async move { order.borrow_mut().push(name) }
        };
        let reader: Rc<RefCell<Option<Waker>>> = Rc::default();
        let (its_waker, noted) = (reader.clone(), note("reader"));
        let reading = softclock::spawn_local(async move {
            let mut is_told = false;
            poll_fn(|cx| {
                if std::mem::replace(&mut is_told, true) {
                    return Poll::Ready(());
                }
                *its_waker.borrow_mut() = Some(cx.waker().clone());
                Poll::Pending
            })
            .await;
            noted.await;
        });
        let noted = note("sleeper");
        let sleeping = softclock::spawn_local(async move {
            softclock::sleep(MS).await;
            noted.await;
        });
        while reader.borrow().is_none() {
            softclock::sleep(US).await;
        }
        let ordinary = ["first", "second"].map(|name| softclock::spawn_local(note(name)));
        let waker = reader.take().unwrap();
        let event = softclock::schedule_soft_event(0, move |context| context.wake(&waker));
        let begin = Instant::now();
        while event.is_pending() || begin.elapsed() < 3 * MS {
            softclock::trigger();
        }
        for task in [reading, sleeping].into_iter().chain(ordinary) {
            task.await;
        }
        let expected = ["sleeper", "first", "second", "reader"];
        assert_eq!(*order.borrow(), expected);
    });
}

#[test]
fn handlers_reschedule_themselves_at_trigger_states() {
    run(async {
        let fired = Rc::new(Cell::new(0));
        let count = fired.clone();
        let event = softclock::schedule_soft_event(10, move |context| {
            assert!(context.now() > context.due());
            count.set(count.get() + 1);
            context.reschedule(10);
        });
        // Other load may keep the thread from running most of the time.
        let mut most = 0;
        for _ in 0..10 {
            let (before, start) = (fired.get(), softclock::measure_time());
            while softclock::measure_time() < start + 2_000 {
                softclock::trigger();
            }
            most = most.max(fired.get() - before);
        }
        // Events are at least eleven ticks apart: ten and the one of the bound. So there are at most 2000 / 11.
        assert!((20..=182).contains(&most), "{most}");
        assert!(event.cancel());
        let so_far = fired.get();
        softclock::sleep(MS).await;
        assert_eq!(fired.get(), so_far);
        assert!(!event.cancel());
        let application = TriggerState::Application;
        assert!(softclock::statistics().triggers.of(application).fired() >= so_far);
    });
}

/// The event fires once for each time for which it was rescheduled, and not at the earlier time.
#[test]
fn an_event_is_moved_and_scheduled_again() {
    run(async {
        let fired = Rc::new(Cell::new(0));
        let count = fired.clone();
        let event =
            softclock::schedule_soft_event(1_000_000_000, move |_| count.set(count.get() + 1));
        let soon = || FireWindow::from(softclock::now());
        assert!(event.reschedule_within(soon()));
        softclock::sleep(MS).await;
        assert_eq!((fired.get(), event.is_pending()), (1, false));
        for times in 2..5 {
            let later = softclock::now().add_ns(3_600_000_000_000);
            assert!(event.reschedule_within(FireWindow::from(later)));
            assert!(event.reschedule_within(soon()));
            softclock::sleep(MS).await;
            assert_eq!((fired.get(), event.is_pending()), (times, false));
        }
    });
}

/// The handler's context takes precedence.
#[test]
fn an_event_that_schedules_itself_twice_fires_once() {
    run(async {
        let fired = Rc::new(Cell::new(0));
        let own: Rc<RefCell<Option<softclock::SoftEvent>>> = Rc::default();
        let (count, event) = (fired.clone(), own.clone());
        let scheduled = softclock::schedule_soft_event(100, move |context| {
            count.set(count.get() + 1);
            if count.get() == 1 {
                let now = FireWindow::from(context.now());
                assert!(event.borrow().as_ref().unwrap().reschedule_within(now));
                context.reschedule_within(now);
            }
        });
        own.replace(Some(scheduled));
        softclock::sleep(10 * MS).await;
        assert_eq!(fired.get(), 2);
        own.take();
    });
}

#[test]
fn a_handler_does_not_nest_and_defers_to_the_end_of_the_task() {
    run(async {
        let log = Rc::new(RefCell::new(Vec::new()));
        let borrowed = log.clone();
        let outer = log.clone();
        softclock::schedule_soft_event(0, move |context| {
            let log = outer.clone();
            context.schedule(FireWindow::from(context.now()), |_| {});
            // A trigger state inside a handler fires nothing, even though the event above becomes due.
            thread::sleep(10 * US);
            softclock::trigger();
            assert_eq!(softclock::statistics().events.fired, 1);
            context
                .defer(move || log.borrow_mut().push("deferred"))
                .ok()
                .unwrap();
        });
        {
            let mut task_log = borrowed.borrow_mut();
            thread::sleep(10 * US);
            softclock::trigger();
            task_log.push("task");
        }
        softclock::yield_now().await;
        assert_eq!(*log.borrow(), ["task", "deferred"]);
    });
}

#[test]
fn what_an_idle_thread_s_handler_deferred_is_done() {
    run(async {
        let (sender, receiver) = std::sync::mpsc::channel();
        let waiting = softclock::spawn_blocking(move || receiver.recv_timeout(10_000 * MS));
        softclock::schedule_after(5 * MS, move |context| {
            let sender = sender.clone();
            let send = move || sender.send(()).unwrap();
            context.defer(send).ok().unwrap();
        });
        waiting.await.expect("deferred for ever");
    });
}

#[test]
fn a_handler_that_owns_a_socket_ends_with_the_runtime() {
    for _ in 0..2 {
        let runtime = Runtime::new().unwrap();
        runtime.block_on(async {
            let address = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
            let socket = softclock::net::UdpSocket::bind(address).unwrap();
            let there = socket.local_addr().unwrap();
            softclock::schedule_soft_event(10, move |context| {
                let _ = socket.try_send_to(b"tick", there);
                context.reschedule(10);
            });
            softclock::sleep(MS).await;
        });
    }
}

#[test]
fn an_event_of_a_past_runtime_cancels_nothing() {
    let runtime = Runtime::new().unwrap();
    let old = runtime.block_on(async { softclock::schedule_soft_event(1_000_000, |_| {}) });
    drop(runtime);
    assert!(!old.cancel());
    assert!(!old.reschedule_within(FireWindow::from(softclock::Instant::ORIGIN)));
    run(async {
        let new = softclock::schedule_soft_event(1_000_000, |_| {});
        assert!(!old.cancel());
        assert!(new.cancel());
    });
}

/// The end of a runtime drops its events, also while a socket keeps a part of it.
#[test]
fn no_event_is_pending_after_the_end_of_its_runtime() {
    for has_socket in [false, true] {
        let runtime = Runtime::new().unwrap();
        let (event, socket) = runtime.block_on(async {
            let event = softclock::schedule_after(LIMIT, |_| unreachable!());
            (event, UdpSocket::bind(([127, 0, 0, 1], 0)).unwrap())
        });
        let socket = has_socket.then_some(socket);
        assert!(event.is_pending());
        drop(runtime);
        assert!(!event.is_pending());
        drop(socket);
    }
}
