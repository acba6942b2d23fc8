//! The signal handler, and how it finds the interrupted thread's cell.

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
    // Initialised at compile time and without a destructor, so that a signal handler may look at it at any time in the
    // thread's life. The pointer does not come with the signal because any process of the same user can send one.
    static CELL: Cell<*const AlarmCell> = const { Cell::new(ptr::null()) };

    static PLAIN: Cell<Option<Plain>> = const { Cell::new(None) };
}

/// A thread's plain timer: what it fires, and until when.
#[derive(Clone, Copy)]
pub(super) struct Plain {
    pub(super) handler: &'static dyn AlarmSafe,
    pub(super) timer: Silencer,
    /// The timer is set anew so long after each firing; `None` if it is periodic.
    pub(super) again_ns: Option<u64>,
    pub(super) until: Instant,
}

/// The value of a plain timer's signals; the others are [`AlarmKind`]s.
pub(super) const PLAIN_TIMER: usize = 0x10;

/// The signal of all alarms, with its handler in place; installed once in a process.
pub(super) fn install() -> io::Result<libc::c_int> {
    static INSTALLED: OnceLock<Result<libc::c_int, i32>> = OnceLock::new();
    let result = INSTALLED.get_or_init(|| {
        let signal = free_signal().ok_or(libc::EBUSY)?;
        set_handler(signal).map_err(|error| error.raw_os_error().unwrap_or(libc::EINVAL))?;
        Ok(signal)
    });
    result.map_err(io::Error::from_raw_os_error)
}

/// Makes `cell` the calling thread's, and lets the signal through to it; `AlreadyExists` if the thread has one.
///
/// # Safety
///
/// `cell` must stay valid and in place until [`detach`] is called in this thread.
pub(super) unsafe fn attach(cell: *const AlarmCell) -> io::Result<()> {
    if !CELL.get().is_null() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    // Whoever started the thread may have left the signal blocked.
    change_mask(libc::SIG_UNBLOCK, &alarm_signal()?)?;
    // The cell is complete before a signal can find it.
    compiler_fence(SeqCst);
    CELL.set(cell);
    Ok(())
}

/// From now on signals that are still on their way find nothing to do.
pub(super) fn detach() {
    CELL.set(ptr::null());
    compiler_fence(SeqCst);
}

/// Makes `plain` the calling thread's; `AlreadyExists` if it has one.
pub(super) fn attach_plain(plain: Plain) -> io::Result<()> {
    if PLAIN.get().is_some() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    set_plain(Some(plain))
}

pub(super) fn detach_plain() {
    // Can only fail if the signal was never installed, and then there is nothing to detach.
    let _ = set_plain(None);
}

/// With the signal blocked, because it is more than a word.
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

/// The first real-time signal that nobody in the process handles.
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
    // SAFETY: `action` is complete, and its handler has the signature that SA_SIGINFO asks for and is
    // async-signal-safe (see there).
    let result = unsafe { libc::sigaction(signal, &action, ptr::null_mut()) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Async-signal-safe: it touches the thread's cell, atomics, timer_settime, the clock, and what the registered
/// handlers touch, who promised the same. The signal itself is blocked meanwhile, so it does not nest.
extern "C" fn on_signal(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: errno is a valid thread-local integer of the C library.
    let errno = unsafe { *libc::__errno_location() };
    // SAFETY: with SA_SIGINFO the kernel passes a valid siginfo, filled for timers with the value of timer_create; for
    // other senders the value is any bits, of which only the number is looked at.
    let (code, value) = unsafe { ((*info).si_code, (*info).si_value().sival_ptr.addr()) };
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
    // SAFETY: `attach` promised that the cell is valid until `detach`, which nulls the pointer. It is this thread's own
    // cell, for the pointer is a thread-local, and only shared references to it exist.
    if let Some(cell) = unsafe { CELL.get().as_ref() } {
        cell.on_signal(kind);
    }
}

fn fire_plain() {
    if let Some(plain) = PLAIN.get() {
        let now = Instant::from_ns(monotonic_ns());
        if now > plain.until {
            // Can only fail for a timer that is gone, and silent.
            let _ = plain.timer.silence();
        }
        let by = FiredBy::Deadline;
        plain.handler.fire(&Firing { now, due: now, by });
        if let Some(again_ns) = plain.again_ns.filter(|_| now <= plain.until) {
            let _ = plain.timer.arm_after(again_ns);
        }
    }
}

/// The first real-time signals are popular.
const FIRST_CHOICE: libc::c_int = 6;
