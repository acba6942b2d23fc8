//! Tasks, timers, soft events and the mailbox of a runtime.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::net::Ipv4Addr;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use softclock::events::Mechanism;
use softclock::net::{TcpListener, TcpStream, UdpSocket};
use softclock::{FireWindow, GiveWay, Runtime, TriggerState};

const US: Duration = Duration::from_micros(1);
const MS: Duration = Duration::from_millis(1);

/// Longer than any of these tests takes.
const LIMIT: Duration = Duration::from_secs(30);

fn run<T>(future: impl Future<Output = T>) -> T {
    Runtime::new().unwrap().block_on(future)
}

/// The environment variable selects the mechanism, by which all tests can be repeated with another one.
#[test]
fn the_environment_names_the_mechanism() {
    let named = std::env::var("SOFTCLOCK_EVENTS").map(|name| name.parse().unwrap());
    let expected = named.unwrap_or(Mechanism::Epoll);
    assert_eq!(run(async { softclock::statistics().mechanism }), expected);
}

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
fn sleeps_are_never_early_and_end_in_order() {
    run(async {
        let order = Rc::new(RefCell::new(Vec::new()));
        let tasks: Vec<_> = [700, 50, 0, 300, 5_000, 51]
            .into_iter()
            .map(|us| {
                let order = order.clone();
                softclock::spawn_local(async move {
                    let (start, asked) = (Instant::now(), us * US);
                    softclock::sleep(asked).await;
                    assert!(start.elapsed() >= asked, "{us} us: {:?}", start.elapsed());
                    order.borrow_mut().push(us);
                })
            })
            .collect();
        for task in tasks {
            task.await;
        }
        assert_eq!(*order.borrow(), [0, 50, 51, 300, 700, 5_000]);
    });
}

#[test]
fn a_dropped_sleep_leaves_no_timer() {
    run(async {
        let long = softclock::timeout(MS, softclock::sleep(Duration::from_secs(3600))).await;
        assert!(long.is_err());
        assert_eq!(softclock::statistics().pending, 0);
        assert_eq!(softclock::statistics().events.cancelled, 1);
    });
}

#[test]
fn sleeps_with_slack_end_together_and_without_a_spin() {
    run(async {
        let before = softclock::statistics();
        let tasks: Vec<_> = (1..=20)
            .map(|ms| {
                softclock::spawn_local(async move {
                    let start = softclock::now();
                    let mut sleep = softclock::sleep(ms * MS).with_slack(17 * MS);
                    if ms % 2 == 0 {
                        sleep.reset(start + ms * MS + US);
                    }
                    sleep.await;
                    assert!(softclock::now().since(start) >= ms * MS);
                })
            })
            .collect();
        for task in tasks {
            task.await;
        }
        let after = softclock::statistics();
        assert_eq!(after.spun, before.spun);
        // At most three instants, before each of which the thread may check once or twice.
        assert!(after.blocks - before.blocks < 12, "{after:?}");
    });
}

/// At first events end most waits, later only timers do.
#[test]
fn sleeps_with_slack_end_amid_events() {
    let address = (Ipv4Addr::LOCALHOST, 0);
    let sender = std::net::UdpSocket::bind(address).unwrap();
    run(async {
        let socket = UdpSocket::bind(address).unwrap();
        sender.connect(socket.local_addr().unwrap()).unwrap();
        thread::spawn(move || {
            for _ in 0..300 {
                thread::sleep(MS / 5);
                sender.send(b"x").unwrap();
            }
            // Ends a wait that would otherwise never end.
            thread::sleep(LIMIT);
            let _ = sender.send(b"x");
        });
        softclock::spawn_local(async move { while socket.recv(&mut [0]).await.is_ok() {} });
        let start = softclock::now();
        let mut sleep = softclock::sleep(7 * MS).with_slack(5 * MS);
        for _ in 0..20 {
            (&mut sleep).await;
            let now = softclock::now();
            assert!(now >= sleep.deadline());
            sleep.reset(now + 7 * MS);
        }
        // A nearer event is scheduled while the waits are for a distant one.
        let far = softclock::sleep(2 * LIMIT).with_slack(5 * MS);
        let nearer = async {
            softclock::sleep(20 * MS).await;
            softclock::sleep(20 * MS).with_slack(5 * MS).await;
        };
        futures_lite::future::or(far, nearer).await;
        assert!(softclock::now().since(start) < LIMIT, "a wait had no end");
    });
}

#[test]
fn intervals_do_not_drift() {
    run(async {
        let mut interval = softclock::interval(200 * US);
        let first = interval.tick().await;
        for n in 1..=20 {
            let due = interval.tick().await;
            assert_eq!(due.since(first).as_nanos() % 200_000, 0, "tick {n}");
            assert!(softclock::now() >= due);
        }
        thread::sleep(3 * MS);
        let late = interval.tick().await;
        let next = interval.tick().await;
        assert!(
            next.since(late) >= 14 * 200 * US,
            "missed ticks are left out"
        );
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
                            assert_eq!(error, softclock::PostError::Full);
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
    assert_eq!(remote.post(|| ()), Err(softclock::PostError::Closed));
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

/// A task that loops over a future that is always ready lets other tasks run: their sleeps end.
#[test]
fn no_loop_over_what_is_ready_starves_a_sleep() {
    others_sleep_beside("sleeps of no time", async || {
        softclock::sleep(Duration::ZERO).await;
    });
    others_sleep_beside("sleeps until the past", async || {
        softclock::sleep_until(softclock::Instant::ORIGIN).await;
    });
    others_sleep_beside("timeouts of no time", async || {
        let _ = softclock::timeout(Duration::ZERO, std::future::pending::<()>()).await;
    });
    let interval = RefCell::new(None);
    others_sleep_beside("an interval of a nanosecond", async || {
        let taken = interval.take();
        let mut ticks = taken.unwrap_or_else(|| softclock::interval(Duration::from_nanos(1)));
        ticks.tick().await;
        interval.replace(Some(ticks));
    });
    others_sleep_beside("nothing paced to be sent", async || {
        softclock::net::all_paced_sent().await;
    });
    let root = softclock::fs::Root::open(env!("CARGO_MANIFEST_DIR")).unwrap();
    let manifest = Path::new("Cargo.toml");
    others_sleep_beside("files that the kernel knows", async || {
        root.open_file(manifest).await.unwrap();
    });
    let file = run(root.open_file(manifest)).unwrap();
    others_sleep_beside("reads from memory", async || {
        file.read_at(Vec::new(), 64, 0).await.unwrap();
    });
}

/// The same for sockets, which must belong to the runtime of the loop.
#[test]
fn no_loop_over_what_a_socket_knows_starves_a_sleep() {
    let stream = Rc::new(RefCell::new(None));
    let connected = async || {
        if stream.borrow().is_none() {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let client = TcpStream::connect(listener.local_addr().unwrap()).await;
            let (server, _) = listener.accept().await.unwrap();
            server.write_all(b"to be read").await.unwrap();
            *stream.borrow_mut() = Some((Rc::new(client.unwrap()), server));
        }
        stream.borrow().as_ref().unwrap().0.clone()
    };
    others_sleep_beside("bytes that wait", async || {
        let stream = connected().await;
        poll_fn(|cx| stream.poll_readable(cx)).await;
    });
    stream.take();
    others_sleep_beside("nothing to write", async || {
        connected().await.write_all(b"").await.unwrap();
    });
    stream.take();
    others_sleep_beside("nothing to read", async || {
        connected().await.read_exact(&mut []).await.unwrap();
    });
    stream.take();
    others_sleep_beside("all sent", async || {
        connected().await.sent().await.unwrap();
    });
    stream.take();
    #[cfg(feature = "futures-io")]
    others_sleep_beside("nothing to flush", async || {
        let stream = connected().await;
        let flushed = futures_lite::io::AsyncWriteExt::flush(&mut &*stream).await;
        flushed.unwrap();
    });
    stream.take();
    let socket = RefCell::new(None);
    others_sleep_beside("trains of no datagram", async || {
        let taken = socket.take();
        let taken = taken.unwrap_or_else(|| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
        taken.send_train(b"", 100, None).await.unwrap();
        socket.replace(Some(taken));
    });
    socket.take();
}

/// A task that uses up its calls in each turn does not outlast its timeout.
#[test]
fn a_timeout_ends_beside_what_is_always_ready() {
    run(async {
        let begun = Instant::now();
        let busy = async {
            while begun.elapsed() < LIMIT / 3 {
                softclock::sleep(Duration::ZERO).await;
            }
        };
        let limited = softclock::timeout(10 * MS, busy).await;
        limited.expect_err("the loop ended by itself");
    });
}

/// Calls `step` repeatedly while another task sleeps for 10 ms.
fn others_sleep_beside(what: &str, step: impl AsyncFn()) {
    run(async {
        let ended = Rc::new(Cell::new(false));
        let end = ended.clone();
        softclock::spawn_local(async move {
            softclock::sleep(10 * MS).await;
            end.set(true);
        });
        // By the system's clock, since the loop may keep the runtime from updating its own.
        let begun = Instant::now();
        while !ended.get() {
            step().await;
            assert!(begun.elapsed() < LIMIT / 3, "starved beside {what}");
        }
    });
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
fn an_idle_runtime_makes_no_turn() {
    let runtime = Runtime::new().unwrap();
    let remote = runtime.remote();
    let turns = runtime.block_on(async {
        softclock::sleep(MS).await;
        let before = softclock::statistics().turns;
        let (sender, receiver) = std::sync::mpsc::channel();
        let thread = thread::spawn(move || {
            thread::sleep(100 * MS);
            remote.post(move || sender.send(()).unwrap()).unwrap();
        });
        while receiver.try_recv().is_err() {
            park().await;
        }
        thread.join().unwrap();
        softclock::statistics().turns - before
    });
    assert!(turns < 10, "{turns} turns in 100 idle milliseconds");

    /// Is pending once, without being woken by itself: another event must wake the task.
    async fn park() {
        let mut parked = false;
        std::future::poll_fn(|cx| {
            if parked {
                return std::task::Poll::Ready(());
            }
            parked = true;
            let waker = cx.waker().clone();
            softclock::spawn_local(async move {
                softclock::spawn_blocking(|| thread::sleep(110 * MS)).await;
                waker.wake();
            });
            std::task::Poll::Pending
        })
        .await;
    }
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

#[test]
fn a_trace_holds_the_latest_trigger_states_in_order() {
    run(async {
        assert!(softclock::take_trigger_trace().is_none());
        softclock::trace_triggers(4);
        assert!(!softclock::is_trigger_trace_full());
        softclock::yield_now().await;
        for _ in 0..3 {
            softclock::trigger();
        }
        softclock::system_call(|| ());
        assert!(softclock::is_trigger_trace_full());
        let trace = softclock::take_trigger_trace().unwrap();
        let (sources, times): (Vec<_>, Vec<_>) = trace.iter().unzip();
        let application = TriggerState::Application;
        let expected = [
            application,
            application,
            application,
            TriggerState::SystemCall,
        ];
        assert_eq!(sources, expected);
        assert!(times.is_sorted());
        assert!(trace.overwritten() > 0);
        assert!(softclock::take_trigger_trace().is_none());
    });
}
