//! The loop of a timer thread.

use super::shared::{BATCH, Shared};

/// Fires events as they become due, until the last handle is dropped.
pub(super) fn run(shared: &Shared) {
    let mut batch = Vec::with_capacity(BATCH);
    while shared.wait(&mut batch) {
        for event in batch.drain(..) {
            shared.fire(event);
        }
    }
}
