//! Placement on processors: the subject of a measurement has one, the generator of load another.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Two of the processors that this thread may use; the same one twice if there is only one.
#[derive(Debug)]
pub struct Processors {
    all: Option<CpuSet>,
    /// The processor of the measured server.
    pub server: Option<usize>,
    /// The processor of the clients.
    pub clients: Option<usize>,
}

impl Processors {
    /// Selects the processors.
    pub fn detect() -> Self {
        let all = sched_getaffinity(None).ok();
        let usable = |all: &CpuSet| {
            (0..CpuSet::MAX_CPU)
                .filter(|&cpu| all.is_set(cpu))
                .collect()
        };
        let usable: Vec<usize> = all.as_ref().map(usable).unwrap_or_default();
        // Device interrupts mostly go to the first processor, so the server gets the last.
        Self {
            all,
            server: usable.last().copied(),
            clients: usable.first().copied(),
        }
    }

    /// Returns whether server and clients have different processors.
    pub fn are_two(&self) -> bool {
        self.server != self.clients
    }

    /// Lets this thread run on all of its original processors again.
    pub fn unpin(&self) {
        if let Some(all) = &self.all {
            let _ = sched_setaffinity(None, all);
        }
    }

    /// Calls `start` while this thread is pinned. Threads and processes that it starts stay on that processor.
    pub fn on<R>(&self, processor: Option<usize>, start: impl FnOnce() -> R) -> R {
        pin(processor);
        let started = start();
        self.unpin();
        started
    }
}

/// Pins this thread to one processor. If a sandbox forbids it, the scheduler chooses.
pub fn pin(processor: Option<usize>) {
    if let Some(processor) = processor {
        let mut set = CpuSet::new();
        set.set(processor);
        let _ = sched_setaffinity(None, &set);
    }
}
