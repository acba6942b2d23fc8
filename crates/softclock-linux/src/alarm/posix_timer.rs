//! POSIX timers that signal the thread that created them (timer_create(2) with SIGEV_THREAD_ID).

use std::io;
use std::mem;
use std::ptr;

/// A kernel timer, deleted when dropped.
///
/// Makes the system calls directly, because the C library's wrappers allocate memory, and its timer_t is a pointer.
#[derive(Debug)]
pub(super) struct PosixTimer {
    /// The kernel's timer ID (`__kernel_timer_t`).
    id: libc::c_int,
}

/// The clock of a timer.
#[derive(Clone, Copy, Debug)]
pub(super) enum TimerClock {
    /// The processor time of the calling thread. The kernel checks it at its tick.
    ThreadCpu,
    /// CLOCK_MONOTONIC.
    Monotonic,
}

impl PosixTimer {
    /// Creates a timer, not armed, that sends `signal` with `value` to the calling thread.
    ///
    /// # Errors
    /// Returns `WouldBlock` if the user's limit of pending signals (RLIMIT_SIGPENDING) is exhausted.
    pub(super) fn new(clock: TimerClock, signal: libc::c_int, value: usize) -> io::Result<Self> {
        let clock = match clock {
            TimerClock::ThreadCpu => libc::CLOCK_THREAD_CPUTIME_ID,
            TimerClock::Monotonic => libc::CLOCK_MONOTONIC,
        };
        // SAFETY: all fields are integers and pointers, for which zero is valid.
        let mut event: libc::sigevent = unsafe { mem::zeroed() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = signal;
        event.sigev_value.sival_ptr = ptr::without_provenance_mut(value);
        event.sigev_notify_thread_id = rustix::thread::gettid().as_raw_nonzero().get();
        let mut id = 0;
        // SAFETY: `event` has the kernel's layout and is only read; `id` is written on success.
        check(unsafe {
            libc::syscall(libc::SYS_timer_create, clock, &raw mut event, &raw mut id)
        })?;
        Ok(Self { id })
    }

    /// Arms the timer for one signal at `ns` of its clock, or at once if that has passed. Async-signal-safe.
    pub(super) fn arm_at(&self, ns: u64) -> io::Result<()> {
        // 0 would disarm it.
        self.set(libc::TIMER_ABSTIME, ns.max(1), 0)
    }

    /// Arms the timer for a signal every `ns`. Async-signal-safe.
    pub(super) fn arm_each(&self, ns: u64) -> io::Result<()> {
        self.set(0, ns.max(1), ns.max(1))
    }

    /// Disarms the timer. Async-signal-safe.
    pub(super) fn disarm(&self) -> io::Result<()> {
        self.silencer().silence()
    }

    /// Returns a copyable handle that can disarm and arm the timer without owning it.
    pub(super) fn silencer(&self) -> Silencer {
        Silencer { id: self.id }
    }

    /// The number of expirations that share the last delivered signal, beyond the first. Async-signal-safe.
    pub(super) fn overruns(&self) -> u64 {
        // SAFETY: the call takes a number, and refuses an invalid one.
        let count = unsafe { libc::syscall(libc::SYS_timer_getoverrun, self.id) };
        u64::try_from(count).unwrap_or(0)
    }

    fn set(&self, flags: libc::c_int, first_ns: u64, each_ns: u64) -> io::Result<()> {
        set(self.id, flags, first_ns, each_ns)
    }
}

/// A timer's ID, by which the signal handler can set it; see [`PosixTimer::silencer`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Silencer {
    id: libc::c_int,
}

impl Silencer {
    /// Disarms the timer. Fails if it has been deleted. Async-signal-safe.
    pub(super) fn silence(self) -> io::Result<()> {
        set(self.id, 0, 0, 0)
    }

    /// Arms the timer for one signal `ns` from now. Fails if it has been deleted. Async-signal-safe.
    pub(super) fn arm_after(self, ns: u64) -> io::Result<()> {
        set(self.id, 0, ns.max(1), 0)
    }
}

impl Drop for PosixTimer {
    fn drop(&mut self) {
        // SAFETY: this value owns the timer, and does not use it afterwards. A signal that is still queued is harmless:
        // the handler looks for its cell in a thread-local that has been cleared by then.
        unsafe { libc::syscall(libc::SYS_timer_delete, self.id) };
    }
}

fn set(id: libc::c_int, flags: libc::c_int, first_ns: u64, each_ns: u64) -> io::Result<()> {
    let time = libc::itimerspec {
        it_interval: timespec(each_ns),
        it_value: timespec(first_ns),
    };
    let no_old_value = ptr::null_mut::<libc::itimerspec>();
    // SAFETY: `time` has the kernel's layout on 64-bit machines, outlives the call and is only read; a null pointer
    // asks for no old value.
    check(unsafe {
        libc::syscall(
            libc::SYS_timer_settime,
            id,
            flags,
            &raw const time,
            no_old_value,
        )
    })
}

fn check(result: libc::c_long) -> io::Result<()> {
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn timespec(ns: u64) -> libc::timespec {
    libc::timespec {
        tv_sec: (ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (ns % 1_000_000_000) as libc::c_long,
    }
}

#[cfg(not(target_pointer_width = "64"))]
compile_error!("the timer system calls here are those of 64-bit machines");
