//! The signal handler, and the thread-local pointer by which it finds the cell of the interrupted thread.

use std::cell::Cell;
use std::io;
use std::mem;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{Ordering::SeqCst, compiler_fence};

use softclock_core::Instant;

use super::cell::{AlarmCell, AlarmKind};
use super::posix_timer::Silencer;
use super::safe::{AlarmSafe, FiredBy, Firing};
use crate::clock::monotonic_ns;
use crate::signal::{change_mask, sigset};

thread_local! {
    // Initialised at compile time and without a destructor, so that a signal handler can read it at any time in the
    // thread's life. The signal does not carry the pointer, because any process of the same user can send the signal.
    static CELL: Cell<*const AlarmCell> = const { Cell::new(ptr::null()) };

    static PLAIN: Cell<Option<Plain>> = const { Cell::new(None) };
}

/// The plain timer of a thread ([`SignalTimer`](super::SignalTimer)).
#[derive(Clone, Copy)]
pub(super) struct Plain {
    pub(super) handler: &'static dyn AlarmSafe,
    pub(super) timer: Silencer,
    /// The delay after which the timer is set again at each firing, in nanoseconds; `None` if the timer is periodic.
    pub(super) again_ns: Option<u64>,
    /// The time after which the timer is stopped.
    pub(super) until: Instant,
}

/// The value of a plain timer's signals; the others are [`AlarmKind`]s.
pub(super) const PLAIN_TIMER: usize = 0x10;

/// Returns the signal of all alarms. The first call in a process picks the signal and installs the handler.
pub(super) fn install() -> io::Result<libc::c_int> {
    static INSTALLED: OnceLock<Result<libc::c_int, i32>> = OnceLock::new();
    let result = INSTALLED.get_or_init(|| {
        let signal = free_signal().ok_or(libc::EBUSY)?;
        set_handler(signal).map_err(|error| error.raw_os_error().unwrap_or(libc::EINVAL))?;
        Ok(signal)
    });
    result.map_err(io::Error::from_raw_os_error)
}

/// Makes `cell` the cell of the calling thread, and unblocks the signal. Returns `AlreadyExists` if the thread has a
/// cell.
///
/// # Safety
///
/// `cell` must stay valid and in place until [`detach`] is called in this thread.
pub(super) unsafe fn attach(cell: *const AlarmCell) -> io::Result<()> {
    if !CELL.get().is_null() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    // A thread inherits its signal mask, so the signal may be blocked here.
    change_mask(libc::SIG_UNBLOCK, &alarm_signal()?)?;
    // The cell must be complete in memory before the handler can find it.
    compiler_fence(SeqCst);
    CELL.set(cell);
    Ok(())
}

/// Makes the handler ignore the signals of this thread, also those that are still pending.
pub(super) fn detach() {
    CELL.set(ptr::null());
    compiler_fence(SeqCst);
}

/// Makes `plain` the plain timer of the calling thread. Returns `AlreadyExists` if the thread has one.
pub(super) fn attach_plain(plain: Plain) -> io::Result<()> {
    if PLAIN.get().is_some() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    set_plain(Some(plain))
}

/// Makes the handler ignore the signals of the thread's plain timer.
pub(super) fn detach_plain() {
    // Fails only if the handler was never installed, and then there is no plain timer.
    let _ = set_plain(None);
}

/// Stores `plain` while the signal is blocked: the value is larger than a word, so the handler could see half of it.
fn set_plain(plain: Option<Plain>) -> io::Result<()> {
    let signal = alarm_signal()?;
    change_mask(libc::SIG_BLOCK, &signal)?;
    PLAIN.set(plain);
    compiler_fence(SeqCst);
    change_mask(libc::SIG_UNBLOCK, &signal)
}

fn alarm_signal() -> io::Result<libc::sigset_t> {
    Ok(sigset([install()?]))
}

/// Returns the first real-time signal that has no handler in this process.
fn free_signal() -> Option<libc::c_int> {
    (libc::SIGRTMIN() + FIRST_CHOICE..=libc::SIGRTMAX()).find(|&signal| {
        // SAFETY: zero is a valid sigaction; the call only writes to it.
        let (error, old) = unsafe {
            let mut old: libc::sigaction = mem::zeroed();
            (libc::sigaction(signal, ptr::null(), &mut old), old)
        };
        error == 0 && old.sa_sigaction == libc::SIG_DFL
    })
}

fn set_handler(signal: libc::c_int) -> io::Result<()> {
    // SAFETY: zero is a valid sigaction, with an empty mask and SIG_DFL.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_signal;
    action.sa_sigaction = handler as libc::sighandler_t;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
    // SAFETY: `action` is complete; its handler has the signature that SA_SIGINFO requires, and is async-signal-safe as
    // its documentation explains.
    let result = unsafe { libc::sigaction(signal, &action, ptr::null_mut()) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Handles the signal of all alarms.
///
/// Async-signal-safe: it accesses the thread's cell and atomics, reads the clock, and calls timer_settime,
/// timer_getoverrun and the registered handlers, whose [`AlarmSafe`] implementations promise the same. The kernel
/// blocks the signal meanwhile, so the handler does not nest.
extern "C" fn on_signal(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // The interrupted code may be about to read errno, so it is restored at the end.
    // SAFETY: errno is a valid thread-local integer of the C library.
    let errno = unsafe { *libc::__errno_location() };
    // SAFETY: with SA_SIGINFO the kernel passes a valid siginfo. For timers it holds the value given to timer_create.
    // Other senders can put any bits there, so it is only compared as a number.
    let (code, value) = unsafe { ((*info).si_code, (*info).si_value().sival_ptr.addr()) };
    // Signals of kill(2) and sigqueue(3) have other codes. A forged SI_TIMER only causes one more check for due events.
    if code == libc::SI_TIMER {
        match AlarmKind::from_value(value) {
            Some(kind) => fire_cell(kind),
            None if value == PLAIN_TIMER => fire_plain(),
            None => {}
        }
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

fn fire_cell(kind: AlarmKind) {
    // SAFETY: the caller of `attach` promised that the cell is valid until `detach`, which clears the pointer. The
    // pointer is a thread-local, so this is the thread's own cell, and only shared references to it exist.
    if let Some(cell) = unsafe { CELL.get().as_ref() } {
        cell.on_signal(kind);
    }
}

fn fire_plain() {
    if let Some(plain) = PLAIN.get() {
        let now = Instant::from_ns(monotonic_ns());
        if now > plain.until {
            // Fails only for a timer that has been deleted, which sends no signals.
            let _ = plain.timer.silence();
        }
        let by = FiredBy::Deadline;
        plain.handler.fire(&Firing { now, due: now, by });
        if let Some(again_ns) = plain.again_ns.filter(|_| now <= plain.until) {
            let _ = plain.timer.arm_after(again_ns);
        }
    }
}

/// The offset from SIGRTMIN of the first signal tried. Other software tends to use the first ones.
const FIRST_CHOICE: libc::c_int = 6;
