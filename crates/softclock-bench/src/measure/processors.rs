//! Who runs where: what is measured has a processor, what makes the load another.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Two processors of those that this thread may use; the same one twice if there is only one.
#[derive(Debug)]
pub struct Processors {
    all: Option<CpuSet>,
    /// For what is measured.
    pub server: Option<usize>,
    /// For what makes the load.
    pub clients: Option<usize>,
}

impl Processors {
    /// Chooses.
    pub fn detect() -> Self {
        let all = sched_getaffinity(None).ok();
        let usable = |all: &CpuSet| {
            (0..CpuSet::MAX_CPU)
                .filter(|&cpu| all.is_set(cpu))
                .collect()
        };
        let usable: Vec<usize> = all.as_ref().map(usable).unwrap_or_default();
        // Device interrupts like the first one, and so the server has the last.
        Self {
            all,
            server: usable.last().copied(),
            clients: usable.first().copied(),
        }
    }

    /// Whether server and clients have a processor each.
    pub fn are_two(&self) -> bool {
        self.server != self.clients
    }

    /// Lets this thread run on any of them again.
    pub fn unpin(&self) {
        if let Some(all) = &self.all {
            let _ = sched_setaffinity(None, all);
        }
    }

    /// Calls `start` while this thread is pinned: threads and processes that it starts stay on that processor.
    pub fn on<R>(&self, processor: Option<usize>, start: impl FnOnce() -> R) -> R {
        pin(processor);
        let started = start();
        self.unpin();
        started
    }
}

/// Keeps this thread on one processor. Where a sandbox forbids it, the scheduler decides.
pub fn pin(processor: Option<usize>) {
    if let Some(processor) = processor {
        let mut set = CpuSet::new();
        set.set(processor);
        let _ = sched_setaffinity(None, &set);
    }
}
