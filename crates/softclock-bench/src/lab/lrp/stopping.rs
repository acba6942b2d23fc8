//! The end of a thread.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{Builder, JoinHandle};

/// A flag that ends threads. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Whether the threads shall go on.
    pub fn goes_on(&self) -> bool {
        !self.0.load(Relaxed)
    }

    /// Ends the threads.
    pub fn stop(&self) {
        self.0.store(true, Relaxed);
    }
}

/// Threads that end when this is dropped.
#[derive(Debug, Default)]
pub(in crate::lab) struct Threads {
    pub(super) stop: Stop,
    handles: Vec<JoinHandle<()>>,
}

impl Threads {
    /// Starts a thread of this name. It must look at `stop` at least each few dozens of milliseconds.
    ///
    /// # Errors
    /// Those of starting a thread.
    pub(in crate::lab) fn start(
        &mut self,
        name: &str,
        run: impl FnOnce(Stop) + Send + 'static,
    ) -> io::Result<()> {
        let stop = self.stop.clone();
        let thread = Builder::new().name(name.to_owned());
        self.handles.push(thread.spawn(move || run(stop))?);
        Ok(())
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.stop.stop();
        for handle in self.handles.drain(..) {
            // A thread that has panicked has written its message to standard error.
            let _ = handle.join();
        }
    }
}
