//! The maximum of a value over time, in fixed memory.

/// Keeps the largest value in each of at most [`Envelope::CELLS`] equal spans of time.
///
/// The spans are 1024 ns long at first. When all of them are used, neighbours are joined, so that spans become twice as
/// long.
///
/// ```
/// use softclock_wire::burstiness::Envelope;
///
/// let mut envelope = Envelope::new();
/// envelope.record(100, 3);
/// envelope.record(200, 5);
/// envelope.record(2_000, 4);
/// assert!(envelope.cells().eq([(0, 5), (1_024, 4)]));
/// ```
#[derive(Clone, Debug)]
pub struct Envelope {
    /// A span is 2 to the power of this nanoseconds long.
    shift: u32,
    cells: [Option<u64>; Self::CELLS],
}

impl Envelope {
    /// The most spans.
    pub const CELLS: usize = 1024;

    /// Creates an empty envelope.
    pub const fn new() -> Self {
        Self {
            shift: 10,
            cells: [None; Self::CELLS],
        }
    }

    /// Adds a value at `since_begin_ns` nanoseconds after the beginning. Costs O(1), amortised.
    #[inline]
    pub fn record(&mut self, since_begin_ns: u64, value: u64) {
        while since_begin_ns >> self.shift >= Self::CELLS as u64 {
            self.coarsen();
        }
        let cell = &mut self.cells[(since_begin_ns >> self.shift) as usize];
        *cell = (*cell).max(Some(value));
    }

    /// Joins neighbouring spans.
    fn coarsen(&mut self) {
        for index in 0..Self::CELLS / 2 {
            self.cells[index] = self.cells[2 * index].max(self.cells[2 * index + 1]);
        }
        self.cells[Self::CELLS / 2..].fill(None);
        self.shift += 1;
    }

    /// The length of a span, in nanoseconds.
    pub const fn cell_ns(&self) -> u64 {
        1 << self.shift
    }

    /// The spans that have a value: their beginnings, in nanoseconds, and the largest value of each.
    pub fn cells(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let cells = self.cells.iter().zip(0u64..);
        cells.filter_map(|(cell, index)| cell.map(|value| (index << self.shift, value)))
    }
}

impl Default for Envelope {
    fn default() -> Self {
        Self::new()
    }
}
