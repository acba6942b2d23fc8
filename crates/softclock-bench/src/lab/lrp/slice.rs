//! The time slices of receivers: long while they have a backlog, and the shortest possible otherwise.
//!
//! The kernel lets a thread that wakes take the processor at once only from one with a longer slice (EEVDF). So a
//! receiver that waits for single packets goes before one that is flooded, as with the decaying priorities of the
//! paper's scheduler. Shares of the processor stay equal.

use std::cell::Cell;
use std::time::Duration;

use softclock_linux::priority::set_slice;

/// The time slice of the calling thread.
#[derive(Debug, Default)]
pub(super) struct Slice {
    /// Packets since the thread last waited.
    served: Cell<u32>,
}

impl Slice {
    /// Begins with the shortest slice.
    pub(super) fn begin() -> Self {
        set(SHORT);
        Self::default()
    }

    /// Notes that the thread has served a packet.
    pub(super) fn served(&self) {
        let served = self.served.get().saturating_add(1);
        self.served.set(served);
        if served == BACKLOG {
            set(LONG);
        }
    }

    /// Notes that the thread is about to wait.
    pub(super) fn waits(&self) {
        if self.served.replace(0) >= BACKLOG {
            set(SHORT);
        }
    }
}

fn set(slice: Duration) {
    // Without it, answers wait for other receivers.
    let _ = set_slice(None, slice);
}

/// The shortest slice of the kernel.
pub(super) const SHORT: Duration = Duration::from_micros(100);

const LONG: Duration = Duration::from_millis(100);

/// More packets in a row than one look at the link's ring brings.
const BACKLOG: u32 = 64;
