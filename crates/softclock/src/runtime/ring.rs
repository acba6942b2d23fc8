//! Queues in memory that the loop looks at in every turn.

use super::sources::Sources;

/// Where events arrive without the kernel, such as the receive ring of a device. A look at it is a look at memory, which the
/// time between looks at the kernel does not hold back.
pub(crate) trait Ring {
    /// Posts the events that have arrived to their sources. Does a bounded amount of work.
    fn look(&self, sources: &mut Sources);
}
