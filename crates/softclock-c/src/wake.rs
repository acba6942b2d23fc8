//! Descriptors that end waits.

use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use softclock::embed::WakeTimer;

use crate::NO_LIMIT;
use crate::handle::Handle;
use crate::status::{Errno, status};
use crate::timers::to_wait_ns;

/// A descriptor that ends waits. A name for pointers only.
#[repr(C)]
pub struct softclock_wake {
    _opaque: [u8; 0],
}

/// Creates a descriptor that ends waits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softclock_wake_new(wake: *mut *mut softclock_wake) -> c_int {
    // SAFETY: `wake` is null or points to a pointer.
    status(|| unsafe {
        Handle::create(wake.cast(), WakeTimer::new()?)?;
        Ok(0)
    })
}

/// Closes and frees the descriptor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softclock_wake_free(wake: *mut softclock_wake) -> c_int {
    // SAFETY: `wake` is null or came from `softclock_wake_new`.
    status(|| unsafe { Handle::free(wake.cast::<Handle<WakeTimer>>()).map(|()| 0) })
}

/// Returns the descriptor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softclock_wake_fd(wake: *mut softclock_wake) -> c_int {
    // SAFETY: as `access` demands.
    status(|| unsafe { Ok(access(wake)?.as_fd().as_raw_fd()) })
}

/// Sets the descriptor for a wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softclock_wake_limit(wake: *mut softclock_wake, wait_ns: i64) -> i64 {
    // SAFETY: as `access` demands.
    status(|| unsafe {
        let wake = access(wake)?;
        let Ok(ns) = u64::try_from(wait_ns) else {
            // The error of `softclock_before_wait`.
            return Ok(wait_ns);
        };
        let wait = (wait_ns != NO_LIMIT).then(|| Duration::from_nanos(ns));
        Ok(to_wait_ns(wake.limit(wait)))
    })
}

/// # Safety
/// `wake` is null, or came from `softclock_wake_new` and was not freed.
unsafe fn access<'a>(wake: *mut softclock_wake) -> Result<&'a mut WakeTimer, Errno> {
    // SAFETY: the caller's promise.
    unsafe { Handle::access(wake.cast()) }
}
