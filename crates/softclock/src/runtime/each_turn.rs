//! Work of the loop itself in each turn: queues in memory that it looks at, and what tasks leave for the turn's end.

use super::sources::Sources;

/// A queue in which events arrive without the kernel, such as the receive ring of a device. A check only reads
/// memory, so it is made in every turn, however recent the last check of the kernel.
pub(crate) trait EachTurn {
    /// Posts the events that have arrived to their sources. Does a bounded amount of work.
    fn look(&self, sources: &mut Sources);
}

/// Work that several tasks of a turn leave to be done once behind them, such as sending what they have written.
pub(crate) trait TurnEnd {
    /// Does the work. No data of the runtime is borrowed.
    fn at_turn_end(&self);
}
