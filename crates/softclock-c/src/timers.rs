//! Soft timers.

use std::ffi::{c_int, c_void};
use std::time::Duration;

use softclock::embed::{FireWindow, Instant, LoopTimers, TimerKey, TriggerState};

use crate::handle::{Handle, store};
use crate::status::{Errno, status, value_or};
use crate::{NEVER, NO_LIMIT};

/// Soft timers of one thread. A name for pointers only.
#[repr(C)]
pub struct softclock_timers {
    _opaque: [u8; 0],
}

type Timers = LoopTimers<*mut c_void>;

/// An event that is due.
#[repr(C)]
pub struct softclock_event {
    /// The value given when the event was scheduled.
    pub data: *mut c_void,
    /// The time for which it was scheduled.
    pub due_ns: u64,
    /// The time from then to the check.
    pub lateness_ns: u64,
}

/// Counts, and the lateness of events.
#[repr(C)]
pub struct softclock_statistics {
    /// Checks so far.
    pub checks: u64,
    /// Events scheduled, including rescheduled ones.
    pub scheduled: u64,
    /// Events cancelled.
    pub cancelled: u64,
    /// Events fired.
    pub fired: u64,
    /// Events pending.
    pub pending: u64,
    /// Lateness that half of the events did not exceed.
    pub lateness_p50_ns: u64,
    /// Lateness that 99 of 100 events did not exceed.
    pub lateness_p99_ns: u64,
    /// The longest lateness.
    pub lateness_max_ns: u64,
}

/// Creates timers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softclock_timers_new(
    capacity: usize,
    timers: *mut *mut softclock_timers,
) -> c_int {
    // SAFETY: `timers` is null or points to a pointer.
    status(|| unsafe {
        if capacity > MOST_RESERVED {
            return Err(Errno(libc::EINVAL));
        }
        Handle::create(timers.cast(), Timers::with_capacity(capacity))?;
        Ok(0)
    })
}

/// Frees timers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softclock_timers_free(timers: *mut softclock_timers) -> c_int {
    // SAFETY: `timers` is null or came from `softclock_timers_new`.
    status(|| unsafe { Handle::free(timers.cast::<Handle<Timers>>()).map(|()| 0) })
}

/// Sets the share of time that an idle thread may spin.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softclock_set_spin_cap(
    timers: *mut softclock_timers,
    share: f64,
) -> c_int {
    // SAFETY: as `access` demands.
    status(|| unsafe {
        if !(0.0..=1.0).contains(&share) {
            return Err(Errno(libc::EINVAL));
        }
        access(timers)?.set_spin_cap(share);
        Ok(0)
    })
}

/// Returns the time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softclock_now(timers: *mut softclock_timers) -> u64 {
    // SAFETY: as `access` demands.
    value_or(0, || unsafe { Ok(access(timers)?.now().as_ns()) })
}

/// Schedules an event at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softclock_schedule(
    timers: *mut softclock_timers,
    earliest_ns: u64,
    flags: u32,
    data: *mut c_void,
    id: *mut u64,
) -> c_int {
    // SAFETY: as `access` demands; `id` is null or points to a number.
    status(|| unsafe {
        let earliest = Instant::from_ns(earliest_ns);
        let key = schedule(access(timers)?, earliest, flags, data)?;
        store(id, key.to_bits());
        Ok(0)
    })
}

/// Schedules an event after a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softclock_schedule_after(
    timers: *mut softclock_timers,
    delay_ns: u64,
    flags: u32,
    data: *mut c_void,
    id: *mut u64,
) -> c_int {
    // SAFETY: as for `softclock_schedule`.
    status(|| unsafe {
        let timers = access(timers)?;
        let earliest = timers.now().add_ns(delay_ns);
        let key = schedule(timers, earliest, flags, data)?;
        store(id, key.to_bits());
        Ok(0)
    })
}

/// Cancels an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softclock_cancel(
    timers: *mut softclock_timers,
    id: u64,
    data: *mut *mut c_void,
) -> c_int {
    // SAFETY: as `access` demands; `data` is null or points to a pointer.
    status(|| unsafe {
        let cancelled = access(timers)?.cancel(key(id)?);
        store(data, cancelled.ok_or(Errno(libc::ENOENT))?);
        Ok(0)
    })
}

/// Moves an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softclock_reschedule(
    timers: *mut softclock_timers,
    id: u64,
    earliest_ns: u64,
) -> c_int {
    // SAFETY: as `access` demands.
    status(|| unsafe {
        let earliest = Instant::from_ns(earliest_ns);
        match access(timers)?.reschedule(key(id)?, earliest) {
            true => Ok(0),
            false => Err(Errno(libc::ENOENT)),
        }
    })
}

/// Passes a trigger state.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softclock_check(timers: *mut softclock_timers, state: c_int) -> c_int {
    // SAFETY: as `access` demands.
    status(|| unsafe {
        let timers = access(timers)?;
        let index = usize::try_from(state).ok();
        let state = index.and_then(|index| STATES.get(index));
        timers.check(*state.ok_or(Errno(libc::EINVAL))?);
        Ok(0)
    })
}

/// Takes an event that is due.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softclock_next(
    timers: *mut softclock_timers,
    event: *mut softclock_event,
) -> c_int {
    // SAFETY: as `access` demands; `event` is null or points to an event.
    status(|| unsafe {
        let timers = access(timers)?;
        if event.is_null() {
            return Err(Errno(libc::EINVAL));
        }
        let Some(due) = timers.next_overdue() else {
            return Ok(0);
        };
        let due = softclock_event {
            data: due.value,
            due_ns: due.due.as_ns(),
            lateness_ns: due.lateness_ns,
        };
        store(event, due);
        Ok(1)
    })
}

/// Returns the time of the next event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softclock_next_due(timers: *mut softclock_timers) -> u64 {
    // SAFETY: as `access` demands.
    value_or(NEVER, || unsafe {
        let due = access(timers)?.next_due();
        Ok(due.map_or(NEVER, Instant::as_ns))
    })
}

/// Begins a wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softclock_before_wait(timers: *mut softclock_timers) -> i64 {
    // SAFETY: as `access` demands.
    status(|| unsafe { Ok(to_wait_ns(access(timers)?.before_wait())) })
}

/// Ends a wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softclock_after_wait(
    timers: *mut softclock_timers,
    found: c_int,
) -> c_int {
    // SAFETY: as `access` demands.
    status(|| unsafe {
        access(timers)?.after_wait(found != 0);
        Ok(0)
    })
}

/// Copies the statistics.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softclock_get_statistics(
    timers: *mut softclock_timers,
    statistics: *mut softclock_statistics,
) -> c_int {
    // SAFETY: as `access` demands; `statistics` is null or points to statistics.
    status(|| unsafe {
        let timers = access(timers)?;
        if statistics.is_null() {
            return Err(Errno(libc::EINVAL));
        }
        let counts = timers.statistics();
        let lateness = counts.triggers.lateness();
        let counts = softclock_statistics {
            checks: counts.triggers.intervals().count(),
            scheduled: counts.events.scheduled,
            cancelled: counts.events.cancelled,
            fired: counts.events.fired,
            pending: counts.pending as u64,
            lateness_p50_ns: lateness.quantile_ns(0.5),
            lateness_p99_ns: lateness.quantile_ns(0.99),
            lateness_max_ns: lateness.max_ns(),
        };
        store(statistics, counts);
        Ok(0)
    })
}

/// # Safety
/// `timers` is null, or came from `softclock_timers_new` and was not freed.
unsafe fn access<'a>(timers: *mut softclock_timers) -> Result<&'a mut Timers, Errno> {
    // SAFETY: the caller's promise.
    unsafe { Handle::access(timers.cast()) }
}

fn schedule(
    timers: &mut Timers,
    earliest: Instant,
    flags: u32,
    data: *mut c_void,
) -> Result<TimerKey, Errno> {
    let window = match flags {
        0 => FireWindow::from(earliest),
        ROUGH => FireWindow::roughly(earliest),
        _ => return Err(Errno(libc::EINVAL)),
    };
    Ok(timers.schedule(window, data))
}

/// Returns the key of an id. ENOENT for numbers that are no ids.
fn key(id: u64) -> Result<TimerKey, Errno> {
    TimerKey::from_bits(id).ok_or(Errno(libc::ENOENT))
}

/// Returns the limit of a wait in nanoseconds.
pub(crate) fn to_wait_ns(limit: Option<Duration>) -> i64 {
    limit.map_or(NO_LIMIT, |limit| {
        let ns = i64::try_from(limit.as_nanos()).unwrap_or(NO_LIMIT);
        ns.min(NO_LIMIT - 1)
    })
}

/// The most events for which memory is reserved: 1 GiB.
const MOST_RESERVED: usize = 1 << 24;

/// The flag SOFTCLOCK_ROUGH.
const ROUGH: u32 = 1;

/// The values of `enum softclock_state`.
const STATES: [TriggerState; 7] = [
    TriggerState::SystemCall,
    TriggerState::Receive,
    TriggerState::Send,
    TriggerState::Turn,
    TriggerState::Idle,
    TriggerState::TaskEnd,
    TriggerState::Application,
];
