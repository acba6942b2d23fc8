//! Threads that compute beside the experiment.

use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

/// Threads of ordinary priority that compute until this is dropped, one per processor.
#[derive(Debug)]
pub struct Neighbours {
    over: Arc<AtomicBool>,
}

impl Neighbours {
    /// Starts the threads.
    pub fn start() -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let count = thread::available_parallelism().map_or(1, usize::from);
        for _ in 0..count {
            let over = over.clone();
            thread::spawn(move || {
                while !over.load(Relaxed) {
                    spin_loop();
                }
            });
        }
        Self { over }
    }
}

impl Drop for Neighbours {
    fn drop(&mut self) {
        self.over.store(true, Relaxed);
    }
}
