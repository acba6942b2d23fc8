//! What an alarm may run while it interrupts the program.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rustix::net::{SendFlags, send};
use softclock_core::Instant;

/// A recurring event's handler that may run inside a signal handler, anywhere between two instructions of its thread.
///
/// Plain handlers (closures, wakers) wait for a trigger state; only these have the bound of the backup timer and of
/// deadlines while the program computes (*Soft Timers*, sections 3 and 5.9).
///
/// # Safety
///
/// The thread may have been interrupted in the allocator, under a `RefCell` borrow, holding a lock, or in the middle
/// of an initialisation. So [`fire`](Self::fire) must not
///
/// - allocate or free memory, or drop anything that does;
/// - panic;
/// - take a lock, or wait for anything;
/// - use a thread-local or a `static` that is initialised on first use or has a destructor;
/// - call functions that are not async-signal-safe (signal-safety(7)); in particular it must not print;
/// - use more than 2 KiB of stack.
///
/// Atomics, arithmetic and nonblocking system calls are fine. It runs in one thread at a time for each registration,
/// but in several threads if it is registered in several.
pub unsafe trait AlarmSafe: Sync + 'static {
    /// Does the event's work, which should take microseconds: the interrupted program waits.
    fn fire(&self, firing: &Firing);
}

/// The circumstances of a firing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Firing {
    /// The current time.
    pub now: Instant,
    /// When the event was due; never later than `now`.
    pub due: Instant,
    /// What noticed that it was.
    pub by: FiredBy,
}

/// What noticed that an event was due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FiredBy {
    /// The program itself, at a trigger state.
    TriggerState,
    /// The backup timer.
    Backup,
    /// The alarm for the earliest deadline.
    Deadline,
}

impl FiredBy {
    /// All of them, in the order of their discriminants.
    pub const ALL: [Self; 3] = [Self::TriggerState, Self::Backup, Self::Deadline];
}

/// A handler that counts its firings.
#[derive(Debug, Default)]
pub struct AlarmCounter {
    fired: [AtomicU64; FiredBy::ALL.len()],
    max_lateness_ns: AtomicU64,
}

impl AlarmCounter {
    /// A counter at zero.
    pub const fn new() -> Self {
        Self {
            fired: [const { AtomicU64::new(0) }; FiredBy::ALL.len()],
            max_lateness_ns: AtomicU64::new(0),
        }
    }

    /// All firings.
    pub fn fires(&self) -> u64 {
        self.fired.iter().map(|count| count.load(Relaxed)).sum()
    }

    /// Firings noticed by `by`.
    pub fn fires_by(&self, by: FiredBy) -> u64 {
        self.fired[by as usize].load(Relaxed)
    }

    /// The most that a firing was late, in nanoseconds.
    pub fn max_lateness_ns(&self) -> u64 {
        self.max_lateness_ns.load(Relaxed)
    }
}

// SAFETY: only atomics are touched; the index is a discriminant and less than the array's length.
unsafe impl AlarmSafe for AlarmCounter {
    fn fire(&self, firing: &Firing) {
        self.fired[firing.by as usize].fetch_add(1, Relaxed);
        let late = firing.now.ns_since(firing.due);
        self.max_lateness_ns.fetch_max(late, Relaxed);
    }
}

/// A handler that sends the same bytes at each firing, on a connected socket: a heartbeat that the program cannot
/// delay.
#[derive(Debug)]
pub struct AlarmSend {
    socket: OwnedFd,
    datagram: Box<[u8]>,
    sent: AtomicU64,
    failed: AtomicU64,
}

impl AlarmSend {
    /// Sends `datagram` on `socket`, without waiting where the socket's buffer is full.
    ///
    /// To register it, make it live for ever: `Box::leak(Box::new(..))`.
    pub fn new(socket: OwnedFd, datagram: impl Into<Box<[u8]>>) -> Self {
        Self {
            socket,
            datagram: datagram.into(),
            sent: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        }
    }

    /// Firings at which the kernel took the bytes.
    pub fn sent(&self) -> u64 {
        self.sent.load(Relaxed)
    }

    /// Firings at which it did not: the buffer was full, or the peer gone.
    pub fn failed(&self) -> u64 {
        self.failed.load(Relaxed)
    }
}

// SAFETY: one send(2), which is async-signal-safe and here never waits or raises SIGPIPE, and atomics.
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
