//! Handlers that an alarm may run while it interrupts the program.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rustix::net::{SendFlags, send};
use softclock_core::Instant;

/// A handler of a recurring event that may run inside a signal handler, between any two instructions of its thread.
///
/// Plain handlers (closures, wakers) wait for a trigger state. Only alarm-safe ones fire while the program computes,
/// bounded by the backup timer and by their deadlines (*Soft Timers*, sections 3 and 5.9). [`AlarmCounter`],
/// [`AlarmSend`] and [`AlarmLateness`](super::AlarmLateness) are ready-made ones.
///
/// # Safety
///
/// The thread may have been interrupted in the allocator, during a `RefCell` borrow, while it holds a lock, or in the
/// middle of an initialisation. So [`fire`](Self::fire) must not
///
/// - allocate or free memory, or drop anything that does;
/// - panic;
/// - take a lock, or block;
/// - use a thread-local or a `static` that is initialised on first use or has a destructor;
/// - call functions that are not async-signal-safe (signal-safety(7)); in particular it must not print;
/// - use more than 2 KiB of stack.
///
/// Atomics, arithmetic that cannot panic, and nonblocking system calls are allowed. Each registration runs in one
/// thread only, but a handler registered in several threads runs in all of them, possibly at the same time.
///
/// # Example
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
///
/// use softclock_linux::alarm::{AlarmSafe, Firing};
///
/// /// Keeps the time of its latest firing.
/// struct Latest(AtomicU64);
///
/// // SAFETY: one atomic store.
/// unsafe impl AlarmSafe for Latest {
///     fn fire(&self, firing: &Firing) {
///         self.0.store(firing.now.as_ns(), Relaxed);
///     }
/// }
/// ```
pub unsafe trait AlarmSafe: Sync + 'static {
    /// Does the event's work. The interrupted program waits meanwhile, so this should take a few microseconds at most.
    fn fire(&self, firing: &Firing);
}

/// The circumstances of a firing, passed to the handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Firing {
    /// The current time.
    pub now: Instant,
    /// The time at which the event was due; never after `now`.
    pub due: Instant,
    /// The check that found the event due.
    pub by: FiredBy,
}

/// The check that found an event due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FiredBy {
    /// The check at a trigger state of the program.
    TriggerState,
    /// The check at a signal of the backup timer.
    Backup,
    /// The check at a deadline alarm.
    Deadline,
}

impl FiredBy {
    /// All values, in the order of their discriminants.
    pub const ALL: [Self; 3] = [Self::TriggerState, Self::Backup, Self::Deadline];
}

/// An alarm-safe handler that counts its firings and keeps the largest lateness.
#[derive(Debug, Default)]
pub struct AlarmCounter {
    fired: [AtomicU64; FiredBy::ALL.len()],
    max_lateness_ns: AtomicU64,
}

impl AlarmCounter {
    /// Creates a counter at zero.
    pub const fn new() -> Self {
        Self {
            fired: [const { AtomicU64::new(0) }; FiredBy::ALL.len()],
            max_lateness_ns: AtomicU64::new(0),
        }
    }

    /// The number of firings.
    pub fn fires(&self) -> u64 {
        self.fired.iter().map(|count| count.load(Relaxed)).sum()
    }

    /// The number of firings that were found due by the check `by`.
    pub fn fires_by(&self, by: FiredBy) -> u64 {
        self.fired[by as usize].load(Relaxed)
    }

    /// The largest lateness of a firing, in nanoseconds.
    pub fn max_lateness_ns(&self) -> u64 {
        self.max_lateness_ns.load(Relaxed)
    }
}

// SAFETY: only atomics are accessed; the index is a discriminant, which is less than the array's length.
unsafe impl AlarmSafe for AlarmCounter {
    fn fire(&self, firing: &Firing) {
        self.fired[firing.by as usize].fetch_add(1, Relaxed);
        let late = firing.now.ns_since(firing.due);
        self.max_lateness_ns.fetch_max(late, Relaxed);
    }
}

/// An alarm-safe handler that sends the same bytes on a connected socket at each firing, for instance a heartbeat that
/// must not stop while the program computes.
#[derive(Debug)]
pub struct AlarmSend {
    socket: OwnedFd,
    datagram: Box<[u8]>,
    sent: AtomicU64,
    failed: AtomicU64,
}

impl AlarmSend {
    /// Creates a handler that sends `datagram` on `socket`. It does not wait for room: if the socket's buffer is full,
    /// the firing counts as failed.
    ///
    /// Registration needs a `'static` reference: `Box::leak(Box::new(..))`.
    pub fn new(socket: OwnedFd, datagram: impl Into<Box<[u8]>>) -> Self {
        Self {
            socket,
            datagram: datagram.into(),
            sent: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        }
    }

    /// The number of firings at which the kernel accepted the bytes.
    pub fn sent(&self) -> u64 {
        self.sent.load(Relaxed)
    }

    /// The number of firings at which the kernel refused the bytes: the buffer was full, or the peer unreachable.
    pub fn failed(&self) -> u64 {
        self.failed.load(Relaxed)
    }
}

// SAFETY: one send(2), which is async-signal-safe and, with these flags, neither blocks nor raises SIGPIPE; and
// atomics.
unsafe impl AlarmSafe for AlarmSend {
    fn fire(&self, _: &Firing) {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let result = send(self.socket.as_fd(), &self.datagram, flags);
        let count = if result.is_ok() {
            &self.sent
        } else {
            &self.failed
        };
        count.fetch_add(1, Relaxed);
    }
}
