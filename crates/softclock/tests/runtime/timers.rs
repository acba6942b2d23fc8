//! Sleeps, intervals, and the turns and trigger states of a runtime.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::net::Ipv4Addr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use futures_lite::future::poll_once;
use softclock::net::UdpSocket;
use softclock::time::{self, MissedTickBehavior};
use softclock::{FireWindow, Runtime, TriggerState};

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

/// Another task moves a sleep from far away, also to a wait of another kind.
/// A task whose sleep is over in time completes the wait for it, although many others come before it and the timeout is
/// due as well once the thread runs again.
#[test]
fn a_sleep_in_time_wins_over_a_timeout_behind_many() {
    run(async {
        let due = softclock::now() + 50 * MS;
        let sleep = || softclock::spawn_local(softclock::sleep_until(due));
        let _others: Vec<_> = (0..300).map(|_| sleep()).collect();
        let last = sleep();
        let mut limited = pin!(softclock::timeout(51 * MS, last));
        assert!(poll_once(limited.as_mut()).await.is_none());
        // The tasks begin to sleep.
        softclock::sleep(5 * MS).await;
        thread::sleep(100 * MS);
        limited.await.expect("the sleep was over before");
    });
}

#[test]
fn a_moved_sleep_wakes_the_task_that_waits() {
    for rough in [true, false] {
        run(async {
            let sleep = Rc::new(RefCell::new(softclock::sleep(2 * LIMIT)));
            let waiting = sleep.clone();
            let waiter = softclock::spawn_local(poll_fn(move |cx| {
                Pin::new(&mut *waiting.borrow_mut()).poll(cx)
            }));
            softclock::sleep(MS).await;
            let earliest = softclock::now() + MS;
            let window = FireWindow { earliest, rough };
            sleep.borrow_mut().reset_within(window);
            waiter.await;
            assert!(softclock::now() >= earliest);
        });
    }
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

/// Returns the ticks of an interval of 2 ms whose task is away for 21 ms after the first tick: that tick, the time
/// after the absence, and the next ticks.
async fn ticks_after_an_absence(
    missed: MissedTickBehavior,
) -> (
    softclock::Instant,
    softclock::Instant,
    [softclock::Instant; 14],
) {
    let mut interval = softclock::interval(2 * MS).with_missed_ticks(missed);
    assert_eq!(interval.missed_ticks(), missed);
    let first = interval.tick().await;
    thread::sleep(21 * MS);
    let back = softclock::now();
    let mut ticks = [first; 14];
    for tick in &mut ticks {
        *tick = interval.tick().await;
    }
    (first, back, ticks)
}

#[test]
fn missed_ticks_are_skipped_made_up_for_or_put_off() {
    run(async {
        let default = MissedTickBehavior::default();
        assert_eq!(default, MissedTickBehavior::Skip);

        let (first, back, ticks) = ticks_after_an_absence(default).await;
        assert_eq!(ticks[0], first + 2 * MS, "the late tick");
        assert!(ticks[1] > back, "one tick for the absence");
        let on_grid =
            |tick: &softclock::Instant| tick.since(first).as_nanos().is_multiple_of(2_000_000);
        assert!(ticks.iter().all(on_grid));

        let (first, back, ticks) = ticks_after_an_absence(MissedTickBehavior::Burst).await;
        let expected: Vec<_> = (1..=14).map(|n| first + n * 2 * MS).collect();
        assert_eq!(ticks[..], expected);
        assert!(ticks[9] < back, "ten ticks for the absence");

        let (first, back, ticks) = ticks_after_an_absence(MissedTickBehavior::Delay).await;
        assert_eq!(ticks[0], first + 2 * MS, "the late tick");
        assert!(ticks[1] >= back + 2 * MS, "a whole period after it");
        assert!(ticks.windows(2).all(|pair| pair[1] >= pair[0] + 2 * MS));
    });
}

#[test]
fn a_tick_that_is_given_up_is_not_lost() {
    run(async {
        let mut interval = softclock::interval(3 * MS);
        let first = interval.tick().await;
        let mut given_up = 0;
        // A tick can be late already, but not each of them.
        while given_up < 3 {
            let tick = match poll_once(interval.tick()).await {
                Some(tick) => tick,
                None => {
                    given_up += 1;
                    interval.tick().await
                }
            };
            assert_eq!(tick.since(first).as_nanos() % 3_000_000, 0);
        }
    });
}

/// The error that the docs state is 1 us; a shared machine may stop the thread between two readings, which the order
/// of the readings allows for.
#[test]
fn instants_of_both_clocks_are_converted() {
    const ERROR: Duration = Duration::from_micros(100);
    run(async {
        for _ in 0..100 {
            let before = Instant::now();
            let ours = softclock::now();
            let after = Instant::now();
            let converted = time::to_std(ours);
            assert!(converted + ERROR >= before && converted <= after + ERROR);

            let before = softclock::now();
            let theirs = Instant::now();
            let after = softclock::now();
            let converted = time::from_std(theirs);
            assert!(converted + ERROR >= before && converted <= after + ERROR);
        }
    });
}

#[test]
fn conversion_of_instants_is_exact_and_saturates() {
    run(async {
        let (ours, theirs) = (softclock::now(), Instant::now());
        assert_eq!(time::from_std(time::to_std(ours)), ours);
        assert_eq!(time::to_std(time::from_std(theirs)), theirs);
        for nanoseconds in [1, 999, 1_000_000_007, 86_400_000_000_000] {
            let distance = Duration::from_nanos(nanoseconds);
            let later = time::to_std(ours + distance);
            assert_eq!(later.duration_since(time::to_std(ours)), distance);
            let later = time::from_std(theirs + distance);
            assert_eq!(later.since(time::from_std(theirs)), distance);
        }
        let origin = time::to_std(softclock::Instant::ORIGIN);
        assert_eq!(time::from_std(origin), softclock::Instant::ORIGIN);
        let before = origin.checked_sub(Duration::from_secs(1)).unwrap();
        assert_eq!(time::from_std(before), softclock::Instant::ORIGIN);
        let end = time::to_std(softclock::Instant::FAR_FUTURE);
        assert_eq!(time::from_std(end), softclock::Instant::FAR_FUTURE);
        let after = end.checked_add(Duration::from_secs(1)).unwrap();
        assert_eq!(time::from_std(after), softclock::Instant::FAR_FUTURE);
    });
}

#[test]
fn a_deadline_of_the_standard_library_ends_a_sleep() {
    run(async {
        let deadline = Instant::now() + 2 * MS;
        softclock::sleep_until(time::from_std(deadline)).await;
        assert!(Instant::now() + MS >= deadline);
    });
}
