//! Rate clocks.

use std::ffi::c_int;
use std::time::Duration;

use softclock::embed::{Instant, RateClock};

use crate::handle::Handle;
use crate::library::SOFTCLOCK_NEVER;
use crate::status::{Errno, status, value_or};

/// A rate clock: when to send each packet of a flow.
pub struct softclock_rate_clock {
    _opaque: [u8; 0],
}

/// Creates a clock for one transmission per `target_ns`, and at most one per `minimum_ns` to catch up after a late one.
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

/// Frees a rate clock. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softclock_rate_clock_free(clock: *mut softclock_rate_clock) -> c_int {
    // SAFETY: `clock` is null or came from `softclock_rate_clock_new`.
    status(|| unsafe { Handle::free(clock.cast::<Handle<RateClock>>()).map(|()| 0) })
}

/// Returns the time at which to send next: `now_ns` if nothing was sent yet. SOFTCLOCK_NEVER after an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softclock_rate_clock_next_send(
    clock: *mut softclock_rate_clock,
    now_ns: u64,
) -> u64 {
    // SAFETY: as `access` demands.
    value_or(SOFTCLOCK_NEVER, || unsafe {
        let next = access(clock)?.next_send(Instant::from_ns(now_ns));
        Ok(next.as_ns())
    })
}

/// Returns the number of transmissions that are due at `now_ns` and may be sent together; 0 after an error.
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

/// Records a transmission at `now_ns`.
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

/// Records that `bytes` were sent at `now_ns`, where a full transmission has `full` bytes, at least 1. After fewer
/// bytes, the next is due proportionally sooner; after more, proportionally later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softclock_rate_clock_on_transmit_bytes(
    clock: *mut softclock_rate_clock,
    now_ns: u64,
    bytes: u64,
    full: u64,
) -> c_int {
    // SAFETY: as `access` demands.
    status(|| unsafe {
        if full == 0 {
            return Err(Errno(libc::EINVAL));
        }
        access(clock)?.on_transmit_bytes(Instant::from_ns(now_ns), bytes, full);
        Ok(0)
    })
}

/// Sets the target and the minimum interval of a clock by `set`.
///
/// # Safety
/// As of `access`.
unsafe fn set(
    clock: *mut softclock_rate_clock,
    intervals_ns: [u64; 2],
    set: fn(&mut RateClock, Duration, Duration),
) -> c_int {
    // SAFETY: as `access` demands.
    status(|| unsafe {
        let [target, minimum] = intervals_ns.map(Duration::from_nanos);
        set(access(clock)?, target, minimum);
        Ok(0)
    })
}

/// Changes the rates for transmissions of the same size, such as after new feedback of a congestion control. The next
/// transmission is rescaled to the new rates, and makes up for at most half of `minimum_ns` of the lateness so far.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softclock_rate_clock_set_rates(
    clock: *mut softclock_rate_clock,
    target_ns: u64,
    minimum_ns: u64,
) -> c_int {
    // SAFETY: as `access` demands.
    unsafe { set(clock, [target_ns, minimum_ns], RateClock::set_rates) }
}

/// Changes the intervals for transmissions of another size at the same rates. The schedule stays.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softclock_rate_clock_set_intervals(
    clock: *mut softclock_rate_clock,
    target_ns: u64,
    minimum_ns: u64,
) -> c_int {
    // SAFETY: as `access` demands.
    unsafe { set(clock, [target_ns, minimum_ns], RateClock::set_intervals) }
}

/// Sets how far transmissions may fall behind the rate and still catch up, at least `target_ns`; 50 ms by default.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softclock_rate_clock_set_most_behind(
    clock: *mut softclock_rate_clock,
    most_ns: u64,
) -> c_int {
    // SAFETY: as `access` demands.
    status(|| unsafe {
        access(clock)?.set_most_behind(Duration::from_nanos(most_ns));
        Ok(0)
    })
}

/// Records that there is nothing to send: the time until the next transmission is not made up for.
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
