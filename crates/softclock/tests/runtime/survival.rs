//! What goes on after a panic, between the turns of a runtime, and at its end.

use std::cell::{Cell, RefCell};
use std::future::pending;
use std::io::Write;
use std::os::unix::net::UnixStream as StdUnix;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;

use softclock::net::UnixStream;
use softclock::{FireWindow, Runtime, Sleep, yield_now};

use crate::{LIMIT, MS, US, run};

/// Counts the values of it that were dropped.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Panics when it is dropped.
struct Panics;

impl Drop for Panics {
    fn drop(&mut self) {
        resume_unwind(Box::new("a destructor"));
    }
}

/// Events that a turn had received when a handler panicked are not lost: the kernel does not report them again.
#[test]
fn a_panic_of_a_handler_loses_no_event() {
    let runtime = Runtime::new().unwrap();
    let (here, mut there) = StdUnix::pair().unwrap();
    let stream = runtime.block_on(async { UnixStream::from_std(here).unwrap() });
    for round in 0..2_000 {
        let panics = async {
            let early = futures_lite::future::poll_once(stream.read(&mut [0; 1])).await;
            assert!(early.is_none());
            there.write_all(&[1]).unwrap();
            // Due at about the time at which the loop looks at the kernel.
            softclock::schedule_soft_event(10 + round % 20, |_| resume_unwind(Box::new(())));
            loop {
                yield_now().await;
            }
        };
        let panicked = catch_unwind(AssertUnwindSafe(|| runtime.block_on(panics)));
        assert!(panicked.is_err());
        let read = async { stream.read(&mut [0; 1]).await.unwrap() };
        let read = runtime.block_on(async { softclock::timeout(LIMIT, read).await });
        assert_eq!(read.ok(), Some(1), "round {round}");
    }
}

/// The same for the event by which other threads wake the loop.
#[test]
fn a_panic_of_a_handler_leaves_the_loop_open_to_threads() {
    let runtime = Runtime::new().unwrap();
    for round in 0..500u64 {
        let remote = runtime.remote();
        let begun = std::time::Instant::now();
        let post = move || {
            while begun.elapsed() < Duration::from_micros(250 + round % 100) {
                std::hint::spin_loop();
            }
            let _ = remote.post(|| ());
        };
        let poster = thread::spawn(post);
        let panics = async {
            softclock::schedule_soft_event(300, |_| resume_unwind(Box::new(())));
            pending::<()>().await;
        };
        assert!(catch_unwind(AssertUnwindSafe(|| runtime.block_on(panics))).is_err());
        poster.join().unwrap();
        let blocking = softclock::spawn_blocking(|| thread::sleep(MS));
        let ended = runtime.block_on(async { softclock::timeout(LIMIT, blocking).await });
        assert!(ended.is_ok(), "round {round}");
    }
}

/// Events and sleeps are cancelled and moved between the turns of their runtime, too.
#[test]
fn timers_change_outside_of_the_runtime() {
    let runtime = Runtime::new().unwrap();
    let fired = Rc::new(Cell::new(0));
    let counted = fired.clone();
    let event = runtime
        .block_on(async { softclock::schedule_after(MS, move |_| counted.set(counted.get() + 1)) });
    assert!(event.cancel() && !event.is_pending());
    let soon = runtime.block_on(async { softclock::now() }) + MS;
    assert!(event.reschedule_within(FireWindow::from(soon)));
    runtime.block_on(async { softclock::sleep(5 * MS).await });
    assert_eq!(fired.get(), 1);

    let shared: Rc<RefCell<Sleep>> = runtime.block_on(async {
        let far = softclock::sleep(Duration::MAX);
        Rc::new(RefCell::new(far))
    });
    let slept = shared.clone();
    let sleeper = runtime.spawn_local(async move {
        std::future::poll_fn(|cx| {
            let mut sleep = slept.borrow_mut();
            Pin::new(&mut *sleep).poll(cx)
        })
        .await;
    });
    runtime.block_on(yield_now());
    let soon = runtime.block_on(async { softclock::now() }) + MS;
    shared.borrow_mut().reset(soon);
    let ended = runtime.block_on(async { softclock::timeout(LIMIT, sleeper).await });
    ended.expect("the task waits for the former deadline");

    let counted = Arc::new(Woken);
    let waker = Waker::from(counted.clone());
    let dropped = runtime.block_on(async {
        let mut sleep = Box::pin(softclock::sleep(LIMIT));
        let polled = sleep.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
        RefCell::new(sleep)
    });
    assert_eq!(Arc::strong_count(&counted), 3);
    drop(dropped);
    assert_eq!(Arc::strong_count(&counted), 2, "a dropped sleep is kept");
}

struct Woken;

impl Wake for Woken {
    fn wake(self: Arc<Self>) {}
}

/// Tasks that other threads are waking while their runtime ends are dropped as all others.
#[test]
fn tasks_that_are_being_woken_end_with_their_runtime() {
    const ROUNDS: usize = 100;
    const TASKS: usize = 400;
    const THREADS: usize = 4;
    let ended = Arc::new(AtomicUsize::new(0));
    for _ in 0..ROUNDS {
        let runtime = Runtime::new().unwrap();
        let mut senders = Vec::new();
        for _ in 0..TASKS {
            let (sender, receiver) = async_channel::bounded::<()>(1);
            senders.push(sender);
            let counted = Counted(ended.clone());
            runtime.spawn_local(async move {
                let _counted = counted;
                let _ = receiver.recv().await;
                pending::<()>().await;
            });
        }
        runtime.block_on(yield_now());
        let begin = Arc::new(Barrier::new(1 + THREADS));
        let start = |some: &[async_channel::Sender<()>]| {
            let (some, begin) = (some.to_vec(), begin.clone());
            thread::spawn(move || {
                begin.wait();
                some.iter().for_each(|one| _ = one.try_send(()));
            })
        };
        let wakers: Vec<_> = senders.chunks(TASKS / THREADS).map(start).collect();
        begin.wait();
        drop(runtime);
        wakers.into_iter().for_each(|waker| waker.join().unwrap());
    }
    assert_eq!(ended.load(Ordering::Relaxed), ROUNDS * TASKS);
}

/// A runtime may be a variable of its thread, and end with it.
#[test]
fn a_runtime_ends_with_its_thread() {
    thread_local! {
        static RUNTIME: Runtime = Runtime::new().unwrap();
    }
    let (ends, ended) = mpsc::channel::<()>();
    let run = move || {
        RUNTIME.with(|runtime| {
            runtime.spawn_local(async move {
                let _ends = ends;
                pending::<()>().await;
            });
            runtime.block_on(yield_now());
        });
    };
    thread::spawn(run).join().unwrap();
    assert!(
        ended.recv_timeout(LIMIT).is_err(),
        "the task was not dropped"
    );
}

/// A destructor that panics ends with its task, and nothing else does.
#[test]
fn a_panic_of_a_destructor_ends_its_task_alone() {
    run(async {
        let task = softclock::spawn_local(async {
            let _panics = Panics;
            pending::<()>().await;
        });
        let other = softclock::spawn_local(async {
            softclock::sleep(MS).await;
            7
        });
        yield_now().await;
        let mut task = task;
        task.abort_handle().abort();
        assert!(task.outcome().await.unwrap_err().is_aborted());
        assert_eq!(other.await, 7);

        let mut ended = softclock::spawn_local(async {
            let _panics = Panics;
        });
        assert!(ended.outcome().await.unwrap_err().is_panic());
    });
    let runtime = Runtime::new().unwrap();
    runtime.spawn_local(async {
        let _panics = Panics;
        pending::<()>().await;
    });
    runtime.block_on(yield_now());
    drop(runtime);
}

/// Helper threads outlive what panics beside the closures of their callers.
#[test]
fn helper_threads_survive_destructors() {
    const THREADS: usize = 8;
    run(async {
        for _ in 0..3 {
            let (release, released) = mpsc::channel::<()>();
            let released = Arc::new(std::sync::Mutex::new(released));
            let busy: Vec<_> = (0..THREADS)
                .map(|_| {
                    let released = released.clone();
                    let wait = move || released.lock().unwrap().recv().is_err();
                    let mut job = Box::pin(softclock::spawn_blocking(wait));
                    assert!(poll(&mut job));
                    job
                })
                .collect();
            let unwanted: Vec<_> = (0..THREADS)
                .map(|_| {
                    let panics = Panics;
                    let mut job = Box::pin(softclock::spawn_blocking(move || drop(panics)));
                    assert!(poll(&mut job));
                    job
                })
                .collect();
            drop((unwanted, release));
            for job in busy {
                job.await;
            }
        }
        let last = softclock::spawn_blocking(|| 7);
        assert_eq!(softclock::timeout(LIMIT, last).await.unwrap(), 7);
    });
}

/// Polls a future that has to wait.
fn poll<F: Future + Unpin>(future: &mut F) -> bool {
    let mut cx = Context::from_waker(Waker::noop());
    Pin::new(future).poll(&mut cx).is_pending()
}

/// Work that handlers defer again and again leaves room for everything else.
#[test]
fn deferred_work_leaves_room_for_tasks() {
    run(async {
        fn busy() {
            let begun = std::time::Instant::now();
            while begun.elapsed() < 20 * US {
                std::hint::spin_loop();
            }
            softclock::trigger();
        }
        softclock::schedule_soft_event(10, |context| {
            let _ = context.defer(busy);
            context.reschedule(10);
        });
        let slept = softclock::sleep(10 * MS);
        let watchdog = thread::spawn(|| {
            thread::sleep(LIMIT);
        });
        slept.await;
        assert!(!watchdog.is_finished(), "the task was starved");
    });
}

/// A read of TCP ends before urgent data. What follows is read without another arrival.
#[test]
fn what_follows_urgent_data_is_read() {
    use softclock::net::{TcpListener, TcpStream};
    run(async {
        let listener = TcpListener::bind(([127, 0, 0, 1], 0)).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap());
        let client = client.await.unwrap();
        let (server, _) = listener.accept().await.unwrap();
        let mut buffer = [0; 100];
        // The first read waits, so that the poller has reported all that is there.
        let reading = async {
            let mut read = Vec::new();
            while read.len() < 6 {
                let length = server.read(&mut buffer).await.unwrap();
                read.extend_from_slice(&buffer[..length]);
            }
            read
        };
        let fd = client.as_kernel_fd().unwrap();
        let sending = async {
            softclock::sleep(MS).await;
            use rustix::net::{SendFlags, send};
            send(fd, b"abc", SendFlags::empty()).unwrap();
            send(fd, b"!", SendFlags::OOB).unwrap();
            send(fd, b"def", SendFlags::empty()).unwrap();
            // The reader does not run before all has arrived.
            pending().await
        };
        let both = futures_lite::future::or(reading, sending);
        let read = softclock::timeout(LIMIT, both).await.expect("it waits");
        assert_eq!(read, b"abcdef");
    });
}
