//! A maximum over time, at the resolution that fits into fixed memory.

/// The largest of the values in each of at most [`Envelope::CELLS`] equal spans of time.
///
/// It begins with spans of about a microsecond. When they are used up, neighbours are joined and the spans are twice as
/// long.
#[derive(Clone, Debug)]
pub struct Envelope {
    /// Spans are of 2 to the power of this nanoseconds.
    shift: u32,
    cells: [Option<u64>; Self::CELLS],
}

impl Envelope {
    /// How many spans there are at most.
    pub const CELLS: usize = 1024;

    /// Nothing counted.
    pub const fn new() -> Self {
        Self {
            shift: 10,
            cells: [None; Self::CELLS],
        }
    }

    /// Counts a value at this time after the beginning. O(1), amortised.
    #[inline]
    pub fn record(&mut self, since_begin_ns: u64, value: u64) {
        while since_begin_ns >> self.shift >= Self::CELLS as u64 {
            self.coarsen();
        }
        let cell = &mut self.cells[(since_begin_ns >> self.shift) as usize];
        *cell = (*cell).max(Some(value));
    }

    fn coarsen(&mut self) {
        for index in 0..Self::CELLS / 2 {
            self.cells[index] = self.cells[2 * index].max(self.cells[2 * index + 1]);
        }
        self.cells[Self::CELLS / 2..].fill(None);
        self.shift += 1;
    }

    /// How long a span is, in nanoseconds.
    pub const fn cell_ns(&self) -> u64 {
        1 << self.shift
    }

    /// The spans that hold a value: where they begin, in nanoseconds, and the largest value.
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
