//! Soft timers.

use std::ffi::{c_int, c_void};
use std::time::Duration;

use softclock::embed::{FireWindow, Instant, LoopTimers, TimerKey, TriggerState};

use crate::handle::{Handle, store};
use crate::library::{SOFTCLOCK_NEVER, SOFTCLOCK_NO_LIMIT};
use crate::status::{Errno, status, value_or};

/// The event may fire as late as a blocking wait ends: an idle thread does not spin for it.
pub const SOFTCLOCK_ROUGH: u32 = 1;

/// Soft timers of one thread.
pub struct softclock_timers {
    _opaque: [u8; 0],
}

type Timers = LoopTimers<*mut c_void>;

/// The reason why a thread passes a trigger state, for the statistics.
#[repr(C)]
#[derive(Clone, Copy)]
pub enum softclock_state {
    /// The end of a system call that neither receives nor sends.
    SOFTCLOCK_SYSTEM_CALL,
    /// The end of a receiving call.
    SOFTCLOCK_RECEIVE,
    /// The end of a sending call.
    SOFTCLOCK_SEND,
    /// The beginning of a turn of the loop.
    SOFTCLOCK_TURN,
    /// The end of a wait: softclock_after_wait() does this.
    SOFTCLOCK_IDLE,
    /// The end of a piece of work.
    SOFTCLOCK_TASK_END,
    /// Any other point of the program.
    SOFTCLOCK_APPLICATION,
}

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

/// Counts since the timers were created, and the lateness of their events. Percentiles are rounded up, by at most
/// 6.25 %. For the lateness of a period, create timers for it.
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

/// Creates timers for the calling thread, with memory for `capacity` pending events (at most 2^24), and stores the
/// pointer in `*timers`. Keeps the thread's timer slack at 1 ns, so that its waits end on time, until they are freed.
/// The first call in a process takes about 3 ms.
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

/// Frees timers; their events do not fire. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softclock_timers_free(timers: *mut softclock_timers) -> c_int {
    // SAFETY: `timers` is null or came from `softclock_timers_new`.
    status(|| unsafe { Handle::free(timers.cast::<Handle<Timers>>()).map(|()| 0) })
}

/// Sets the share of its time, 0 to 1, that an idle thread may spin so that events fire on time. The default is 0.05.
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

/// Returns the time; 0 after an error. Costs about 10 ns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softclock_now(timers: *mut softclock_timers) -> u64 {
    // SAFETY: as `access` demands.
    value_or(0, || unsafe { Ok(access(timers)?.now().as_ns()) })
}

/// Schedules an event to fire from `earliest_ns` on, never before. `flags` are 0 or SOFTCLOCK_ROUGH. Stores the event's
/// id in `*id` unless id is NULL. Ids are never used again.
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

/// Like softclock_schedule(), once `delay_ns` has passed.
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

/// Cancels an event, and stores its value in `*data` unless data is NULL. -ENOENT if it has fired or was cancelled.
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

/// Moves a pending event to another time; the id stays. -ENOENT if it has fired or was cancelled.
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

/// Passes a trigger state: a value of enum softclock_state. Take the events that are due by softclock_next(). Call it
/// wherever the thread is awake anyway, such as after a system call. Costs a reading of the clock and some 10 ns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softclock_check(timers: *mut softclock_timers, state: c_int) -> c_int {
    // SAFETY: as `access` demands.
    status(|| unsafe {
        let timers = access(timers)?;
        let index = usize::try_from(state).ok();
        let (_, state) = index
            .and_then(|index| STATES.get(index))
            .ok_or(Errno(libc::EINVAL))?;
        timers.check(*state);
        Ok(0)
    })
}

/// Stores an event that was due at the last check in `*event` and returns 1, or returns 0 if there is none. At most 32
/// events a check; further ones, and those that are not taken, wait for the next check.
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

/// Returns the earliest time at which a check may have work; SOFTCLOCK_NEVER without events and after an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softclock_next_due(timers: *mut softclock_timers) -> u64 {
    // SAFETY: as `access` demands.
    value_or(SOFTCLOCK_NEVER, || unsafe {
        let due = access(timers)?.next_due();
        Ok(due.map_or(SOFTCLOCK_NEVER, Instant::as_ns))
    })
}

/// Begins a wait: returns the longest time in ns for which the loop may wait, SOFTCLOCK_NO_LIMIT without events, and 0
/// if it must look without waiting. The wait should end as exactly as it can: by epoll_pwait2(), ppoll() or a
/// softclock_wake. It may end sooner.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softclock_before_wait(timers: *mut softclock_timers) -> i64 {
    // SAFETY: as `access` demands.
    status(|| unsafe { Ok(to_wait_ns(access(timers)?.before_wait())) })
}

/// Ends a wait, and passes a trigger state. `found` says whether the wait has found events of the loop: 0 if it ended
/// by its time limit, also by that of a softclock_wake.
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

/// Converts the limit of a wait for epoll_wait() and poll(): milliseconds, rounded up, or -1 for no limit. Events are
/// up to 1 ms late with these, unless a softclock_wake ends the wait. An error instead of a limit is converted to 0: the
/// wait ends at once, and softclock_after_wait() returns the error.
#[unsafe(no_mangle)]
pub extern "C" fn softclock_timeout_ms(wait_ns: i64) -> c_int {
    match u64::try_from(wait_ns) {
        // As a negative timeout it would be none at all.
        Err(_) => 0,
        Ok(_) if wait_ns == SOFTCLOCK_NO_LIMIT => -1,
        Ok(ns) => softclock::embed::timeout_ms(Some(Duration::from_nanos(ns))),
    }
}

/// Stores the counts in `*statistics`. Takes some 10 us, a system call and 200 KB of memory meanwhile.
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
        SOFTCLOCK_ROUGH => FireWindow::roughly(earliest),
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
    limit.map_or(SOFTCLOCK_NO_LIMIT, |limit| {
        let ns = i64::try_from(limit.as_nanos()).unwrap_or(SOFTCLOCK_NO_LIMIT);
        ns.min(SOFTCLOCK_NO_LIMIT - 1)
    })
}

/// The most events for which memory is reserved: 1 GiB.
const MOST_RESERVED: usize = 1 << 24;

/// The trigger states, indexed by the values of [`softclock_state`].
const STATES: [(softclock_state, TriggerState); 7] = [
    (
        softclock_state::SOFTCLOCK_SYSTEM_CALL,
        TriggerState::SystemCall,
    ),
    (softclock_state::SOFTCLOCK_RECEIVE, TriggerState::Receive),
    (softclock_state::SOFTCLOCK_SEND, TriggerState::Send),
    (softclock_state::SOFTCLOCK_TURN, TriggerState::Turn),
    (softclock_state::SOFTCLOCK_IDLE, TriggerState::Idle),
    (softclock_state::SOFTCLOCK_TASK_END, TriggerState::TaskEnd),
    (
        softclock_state::SOFTCLOCK_APPLICATION,
        TriggerState::Application,
    ),
];

// Each state is at the index that is its value.
const _: () = {
    let mut place = 0;
    while place < STATES.len() {
        assert!(STATES[place].0 as usize == place);
        place += 1;
    }
};
