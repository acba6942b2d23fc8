//! Queues in memory that the loop looks at in each turn.

use super::sources::Sources;

/// A queue in which events arrive without the kernel, such as the receive ring of a device. A check only reads
/// memory, so it is made in every turn, however recent the last check of the kernel.
pub(crate) trait EachTurn {
    /// Posts the events that have arrived to their sources. Does a bounded amount of work.
    fn look(&self, sources: &mut Sources);
}
