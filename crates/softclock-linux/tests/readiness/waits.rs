//! Tests of the length of waits, and of the causes that end them.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Instant;

use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
use softclock_linux::readiness::{WaitTimer, Wakeup};

use super::*;

pub(crate) fn waits_are_as_long_as_asked(mut poller: Poller) {
    assert_eq!(look(&mut poller), []);
    for micros in [1, 300, 2_000] {
        let time = Duration::from_micros(micros);
        let start = Instant::now();
        assert_eq!(wait_for(&mut poller, Timeout::After(time)), []);
        assert!(start.elapsed() >= time);
    }
    for timeout in [
        Timeout::After(Duration::MAX),
        Timeout::After(Duration::ZERO),
        Timeout::Never,
        Timeout::Now,
    ] {
        let (here, _there) = pair();
        poller.add(here.as_fd(), Token(1)).unwrap();
        assert_eq!(wait_for(&mut poller, timeout).len(), 1, "{timeout:?}");
        poller.remove_closing(here.as_fd()).unwrap();
    }
}

pub(crate) fn a_signal_ends_a_wait(mut poller: Poller) {
    extern "C" fn ignore(_: libc::c_int) {}
    // SAFETY: zero is a valid action; the handler does nothing, so it is async-signal-safe.
    let set = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = ignore as extern "C" fn(libc::c_int) as usize;
        libc::sigaction(libc::SIGUSR2, &raw const action, std::ptr::null_mut())
    };
    assert_eq!(set, 0);
    // A descriptor that never becomes ready. It is new since the last wait, so io_uring has a submission at the first
    // one.
    let silent = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK).unwrap();
    poller.add(silent.as_fd(), Token(1)).unwrap();
    let ended = Arc::new(AtomicBool::new(false));
    // SAFETY: returns the ID of the calling thread.
    let waiting = unsafe { libc::pthread_self() };
    let thread = thread::spawn({
        let ended = ended.clone();
        move || {
            while !ended.load(Ordering::Acquire) {
                // SAFETY: the thread with that ID still runs, since it joins this one.
                unsafe { libc::pthread_kill(waiting, libc::SIGUSR2) };
                thread::sleep(Duration::from_millis(1));
            }
        }
    });
    for timeout in [
        Timeout::Never,
        Timeout::Never,
        Timeout::After(Duration::MAX),
    ] {
        assert_eq!(wait_for(&mut poller, timeout), []);
    }
    ended.store(true, Ordering::Release);
    thread.join().unwrap();
}

pub(crate) fn another_thread_ends_a_wait(mut poller: Poller) {
    let wakeup = Wakeup::new(&mut poller).unwrap();
    for _ in 0..3 {
        let waker = wakeup.clone();
        let thread = thread::spawn(move || {
            thread::sleep(Duration::from_millis(2));
            waker.wake();
            waker.wake();
        });
        assert_eq!(wait(&mut poller)[0].0, Token::WAKEUP);
        thread.join().unwrap();
        assert!(wakeup.is_raised());
        wakeup.drain(&mut poller);
        assert!(!wakeup.is_raised());
        assert_eq!(look(&mut poller), []);
    }
}

pub(crate) fn no_wake_up_is_lost(mut poller: Poller) {
    const EACH: u32 = 5_000;
    let wakeup = Wakeup::new(&mut poller).unwrap();
    let sent = Arc::new(AtomicU32::new(0));
    let threads = [(); 2].map(|()| {
        let (sent, wakeup) = (sent.clone(), wakeup.clone());
        thread::spawn(move || {
            for _ in 0..EACH {
                sent.fetch_add(1, Ordering::Relaxed);
                wakeup.wake();
            }
        })
    });
    while sent.load(Ordering::Relaxed) < 2 * EACH {
        wait(&mut poller);
        wakeup.drain(&mut poller);
    }
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
}

pub(crate) fn a_timer_ends_waits_once_it_is_due(mut poller: Poller) {
    let timer = WaitTimer::new(&mut poller).unwrap();
    assert_eq!(look(&mut poller), []);
    let long = Duration::from_secs(3600);
    for time in [Duration::from_millis(3), Duration::ZERO] {
        timer.set(long, &mut poller);
        assert_eq!(look(&mut poller), []);
        let start = Instant::now();
        timer.set(time, &mut poller);
        // An event of another descriptor ends a wait before the timer does.
        let (here, _there) = pair();
        poller.add(here.as_fd(), Token(1)).unwrap();
        let mut found = Vec::new();
        while !found.contains(&Token::TIMER) {
            found.extend(wait(&mut poller).into_iter().map(|(token, _)| token));
        }
        assert!(start.elapsed() >= time);
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!(look(&mut poller), [], "told once");
        poller.remove_closing(here.as_fd()).unwrap();
    }
}
