//! Child processes that end with the value that owns them.

use std::ops::{Deref, DerefMut};
use std::process::Child;

/// A child process that is killed, and waited for, when this is dropped. A process that has been waited for before is
/// left alone.
#[derive(Debug)]
pub struct KilledOnDrop(Child);

impl KilledOnDrop {
    /// Takes over a process.
    pub const fn new(child: Child) -> Self {
        Self(child)
    }
}

impl Deref for KilledOnDrop {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for KilledOnDrop {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        // An error only says that the process has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
