//! Descriptors that end waits.

use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use softclock::embed::WakeTimer;

use crate::handle::Handle;
use crate::library::SOFTCLOCK_NO_LIMIT;
use crate::status::{Errno, status};
use crate::timers::to_wait_ns;

/// A descriptor that ends waits, for loops whose own timeouts are too coarse, such as those of libuv.
pub struct softclock_wake {
    _opaque: [u8; 0],
}

/// Creates a descriptor that ends waits. -EMFILE or -ENFILE if descriptors have run out.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softclock_wake_new(wake: *mut *mut softclock_wake) -> c_int {
    // SAFETY: `wake` is null or points to a pointer.
    status(|| unsafe {
        Handle::create(wake.cast(), WakeTimer::new()?)?;
        Ok(0)
    })
}

/// Closes and frees the descriptor. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softclock_wake_free(wake: *mut softclock_wake) -> c_int {
    // SAFETY: `wake` is null or came from `softclock_wake_new`.
    status(|| unsafe { Handle::free(wake.cast::<Handle<WakeTimer>>()).map(|()| 0) })
}

/// Returns the descriptor, to be watched for reading, level- or edge-triggered. It need not be read: its event only
/// ends the wait. softclock_wake_free() closes it: end the watch before, in libuv by uv_close() of its handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softclock_wake_fd(wake: *mut softclock_wake) -> c_int {
    // SAFETY: as `access` demands.
    status(|| unsafe { Ok(access(wake)?.as_fd().as_raw_fd()) })
}

/// Sets the descriptor for a wait of `wait_ns`, the result of softclock_before_wait(). Returns the limit for the wait
/// of the loop itself: 0 if it must not block, otherwise SOFTCLOCK_NO_LIMIT. Returns errors, which are negative, as
/// they are. The wait may end sooner, by up to 1/16 of its length. One system call, unless the wait ends at the same
/// time as the one before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softclock_wake_limit(wake: *mut softclock_wake, wait_ns: i64) -> i64 {
    // SAFETY: as `access` demands.
    status(|| unsafe {
        let wake = access(wake)?;
        let Ok(ns) = u64::try_from(wait_ns) else {
            // The error of `softclock_before_wait`.
            return Ok(wait_ns);
        };
        let wait = (wait_ns != SOFTCLOCK_NO_LIMIT).then(|| Duration::from_nanos(ns));
        Ok(to_wait_ns(wake.limit(wait)))
    })
}

/// # Safety
/// `wake` is null, or came from `softclock_wake_new` and was not freed.
unsafe fn access<'a>(wake: *mut softclock_wake) -> Result<&'a mut WakeTimer, Errno> {
    // SAFETY: the caller's promise.
    unsafe { Handle::access(wake.cast()) }
}
