//! Sleeps and intervals inside a program of tokio.

use std::time::{Duration, Instant};

use softclock_tokio::{Timers, interval, sleep, sleep_until};
use tokio::task::JoinSet;

const US: Duration = Duration::from_micros(1);
const MS: Duration = Duration::from_millis(1);

#[tokio::test]
async fn sleeps_never_end_early() {
    for us in [0, 1, 10, 100, 999, 5_000] {
        let start = Instant::now();
        sleep(us * US).await;
        assert!(start.elapsed() >= us * US, "{us} us");
    }
}

#[tokio::test]
async fn short_sleeps_are_much_shorter_than_those_of_tokio() {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..100 {
        ours.push(time_of(sleep(100 * US)).await);
        theirs.push(time_of(tokio::time::sleep(100 * US)).await);
    }
    ours.sort_unstable();
    theirs.sort_unstable();
    assert!(ours[50] * 2 < theirs[50], "{:?} {:?}", ours[50], theirs[50]);
}

async fn time_of(sleep: impl Future<Output = ()>) -> Duration {
    let start = Instant::now();
    sleep.await;
    start.elapsed()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_tasks_of_several_threads_sleep() {
    let mut tasks = JoinSet::new();
    for i in 0..1_000_u32 {
        tasks.spawn(async move {
            for round in 0..10 {
                let start = Instant::now();
                let time = (i * 7 + round * 13) % 3_000 * US;
                sleep(time).await;
                assert!(start.elapsed() >= time);
            }
        });
    }
    let ended = tasks.join_all().await;
    assert_eq!(ended.len(), 1_000);
}

#[tokio::test]
async fn a_dropped_sleep_gives_its_task_back() {
    let timers = Timers::new().unwrap();
    let task = tokio::spawn({
        let timers = timers.clone();
        async move { timers.sleep(3600 * 1000 * MS).await }
    });
    sleep(5 * MS).await;
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    // A timeout drops its sleep as well.
    for _ in 0..1_000 {
        tokio::select! {
            () = timers.sleep(3600 * 1000 * MS) => unreachable!("an hour has not passed"),
            () = tokio::task::yield_now() => {}
        }
    }
}

#[tokio::test]
async fn a_sleep_can_be_moved() {
    let start = Instant::now();
    let mut sleep = std::pin::pin!(sleep(3600 * 1000 * MS));
    tokio::select! {
        () = &mut sleep => unreachable!("an hour has not passed"),
        () = tokio::task::yield_now() => {}
    }
    sleep.reset(start + 2 * MS);
    assert!(!sleep.is_elapsed() || start.elapsed() >= 2 * MS);
    sleep.as_mut().await;
    assert!(start.elapsed() >= 2 * MS && sleep.is_elapsed());
    sleep.await;
}

#[tokio::test]
async fn a_moved_sleep_wakes_another_task() {
    let mut sleep = Box::pin(sleep(20 * MS));
    tokio::select! {
        () = &mut sleep => unreachable!("20 ms have not passed"),
        () = tokio::task::yield_now() => {}
    }
    // Its waker is replaced by that of the task that polls it now.
    tokio::spawn(sleep).await.unwrap();
}

#[tokio::test]
async fn past_and_far_deadlines() {
    sleep_until(Instant::now() - MS).await;
    let far = sleep(Duration::MAX);
    let ended = tokio::time::timeout(5 * MS, far).await;
    assert!(ended.is_err());
}

#[tokio::test]
async fn a_task_that_only_sleeps_for_no_time_lets_others_run() {
    let other = tokio::spawn(async {});
    while !other.is_finished() {
        sleep(Duration::ZERO).await;
    }
}

#[tokio::test]
async fn intervals_keep_their_grid_and_skip_missed_ticks() {
    let mut ticks = interval(200 * US);
    let first = ticks.tick().await;
    let mut last = first;
    for i in 0..50 {
        if i == 20 {
            std::thread::sleep(3 * MS);
        }
        let tick = ticks.tick().await;
        assert!(tick > last || i == 0);
        assert!(tick <= Instant::now());
        assert_eq!((tick - first).as_nanos() % (200 * US).as_nanos(), 0);
        last = tick;
    }
    assert!(last - first >= 3 * MS + 29 * 200 * US);
}

#[tokio::test]
#[should_panic(expected = "must not be zero")]
async fn an_interval_has_a_period() {
    drop(interval(Duration::ZERO));
}

#[test]
fn other_executors_can_poll_it() {
    // Without any runtime of tokio in this thread.
    let start = Instant::now();
    let task = std::thread::spawn(|| {
        let mut sleep = std::pin::pin!(sleep(MS));
        let waker = std::task::Waker::from(std::sync::Arc::new(Unpark(std::thread::current())));
        let mut cx = std::task::Context::from_waker(&waker);
        while sleep.as_mut().poll(&mut cx).is_pending() {
            std::thread::park();
        }
    });
    task.join().unwrap();
    assert!(start.elapsed() >= MS);
}

struct Unpark(std::thread::Thread);

impl std::task::Wake for Unpark {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.unpark();
    }
}

#[tokio::test]
async fn the_runtime_may_end_before_its_sleeps() {
    let runtime = tokio::runtime::Builder::new_multi_thread().build().unwrap();
    for ms in 1..50 {
        runtime.spawn(sleep(ms * MS));
    }
    std::thread::sleep(10 * MS);
    runtime.shutdown_background();
    sleep(50 * MS).await;
}
