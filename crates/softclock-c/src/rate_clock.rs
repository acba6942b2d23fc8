//! Rate clocks.

use std::ffi::c_int;
use std::time::Duration;

use softclock::embed::{Instant, RateClock};

use crate::NEVER;
use crate::handle::Handle;
use crate::status::{Errno, status, value_or};

/// Computes when to send. A name for pointers only.
#[repr(C)]
pub struct softclock_rate_clock {
    _opaque: [u8; 0],
}

/// Creates a rate clock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softclock_rate_clock_new(
    target_ns: u64,
    minimum_ns: u64,
    clock: *mut *mut softclock_rate_clock,
) -> c_int {
    // SAFETY: `clock` is null or points to a pointer.
    status(|| unsafe {
        let [target, minimum] = [target_ns, minimum_ns].map(Duration::from_nanos);
        Handle::create(clock.cast(), RateClock::new(target, minimum))?;
        Ok(0)
    })
}

/// Frees a rate clock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softclock_rate_clock_free(clock: *mut softclock_rate_clock) -> c_int {
    // SAFETY: `clock` is null or came from `softclock_rate_clock_new`.
    status(|| unsafe { Handle::free(clock.cast::<Handle<RateClock>>()).map(|()| 0) })
}

/// Returns when to send next.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softclock_rate_clock_next_send(
    clock: *mut softclock_rate_clock,
    now_ns: u64,
) -> u64 {
    // SAFETY: as `access` demands.
    value_or(NEVER, || unsafe {
        let next = access(clock)?.next_send(Instant::from_ns(now_ns));
        Ok(next.as_ns())
    })
}

/// Returns how many transmissions are due.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softclock_rate_clock_due(
    clock: *mut softclock_rate_clock,
    now_ns: u64,
) -> u64 {
    // SAFETY: as `access` demands.
    value_or(0, || unsafe {
        Ok(access(clock)?.due(Instant::from_ns(now_ns)))
    })
}

/// Records a transmission.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softclock_rate_clock_on_transmit(
    clock: *mut softclock_rate_clock,
    now_ns: u64,
) -> c_int {
    // SAFETY: as `access` demands.
    status(|| unsafe {
        access(clock)?.on_transmit(Instant::from_ns(now_ns));
        Ok(0)
    })
}

/// Ends the train.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softclock_rate_clock_end(clock: *mut softclock_rate_clock) -> c_int {
    // SAFETY: as `access` demands.
    status(|| unsafe {
        access(clock)?.end();
        Ok(0)
    })
}

/// # Safety
/// `clock` is null, or came from `softclock_rate_clock_new` and was not freed.
unsafe fn access<'a>(clock: *mut softclock_rate_clock) -> Result<&'a mut RateClock, Errno> {
    // SAFETY: the caller's promise.
    unsafe { Handle::access(clock.cast()) }
}
