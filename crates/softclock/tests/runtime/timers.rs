//! Sleeps, intervals, and the turns and trigger states of a runtime.

use std::cell::RefCell;
use std::net::Ipv4Addr;
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use softclock::net::UdpSocket;
use softclock::{Runtime, TriggerState};

use crate::{LIMIT, MS, US, run};

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
