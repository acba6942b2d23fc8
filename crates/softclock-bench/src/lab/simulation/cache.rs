//! Caches as cachegrind simulates them: two levels, least-recently-used replacement in each set, allocation on writes.

/// The sizes of the caches, for notes.
pub const SIZES: &str = "32 KB in 8 ways for instructions and for data, 8 MB in 16 ways for both behind them, lines of 64 \
     bytes; 64 entries in 8 ways for pages of instructions";

/// Counts of cache misses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Misses {
    /// First-level misses of instruction lines.
    pub i1: u64,
    /// First-level misses of data lines.
    pub d1: u64,
    /// Second-level misses of both.
    pub ll: u64,
    /// TLB misses of instruction pages.
    pub itlb: u64,
}

/// The caches of a processor.
#[derive(Debug)]
pub(super) struct Caches {
    i1: Cache,
    d1: Cache,
    ll: Cache,
    itlb: Cache,
    pub(super) misses: Misses,
}

impl Caches {
    pub(super) fn new() -> Self {
        Self {
            i1: Cache::new(32 << 10, 8, LINE),
            d1: Cache::new(32 << 10, 8, LINE),
            ll: Cache::new(8 << 20, 16, LINE),
            itlb: Cache::new(64 * PAGE, 8, PAGE),
            misses: Misses::default(),
        }
    }

    /// Simulates the fetch of an instruction.
    pub(super) fn fetch(&mut self, address: u64, bytes: u64) {
        if !self.itlb.has(address) {
            self.misses.itlb += 1;
        }
        for line in lines(address, bytes) {
            if !self.i1.has(line) {
                self.misses.i1 += 1;
                self.second_level(line);
            }
        }
    }

    /// Simulates a read or write of data.
    pub(super) fn data(&mut self, address: u64, bytes: u64) {
        for line in lines(address, bytes) {
            if !self.d1.has(line) {
                self.misses.d1 += 1;
                self.second_level(line);
            }
        }
    }

    fn second_level(&mut self, address: u64) {
        if !self.ll.has(address) {
            self.misses.ll += 1;
        }
    }
}

/// Returns an address in each line that an access touches.
fn lines(address: u64, bytes: u64) -> impl Iterator<Item = u64> {
    let (first, last) = (address / LINE, (address + bytes.max(1) - 1) / LINE);
    (first..=last).map(|line| line * LINE)
}

#[derive(Debug)]
struct Cache {
    /// The blocks, set after set; in each set, the most recently used comes first.
    blocks: Vec<u64>,
    ways: usize,
    block_bytes: u64,
}

impl Cache {
    fn new(bytes: u64, ways: usize, block_bytes: u64) -> Self {
        Self {
            blocks: vec![NOTHING; (bytes / block_bytes) as usize],
            ways,
            block_bytes,
        }
    }

    /// Returns whether the block of `address` is cached, and caches it.
    fn has(&mut self, address: u64) -> bool {
        let block = address / self.block_bytes;
        let sets = (self.blocks.len() / self.ways) as u64;
        let start = (block % sets) as usize * self.ways;
        let set = &mut self.blocks[start..start + self.ways];
        let found = set.iter().position(|&other| other == block);
        // Move the block, or on a miss the least recently used one, to the front.
        set[..=found.unwrap_or(self.ways - 1)].rotate_right(1);
        set[0] = block;
        found.is_some()
    }
}

pub(super) const LINE: u64 = 64;
pub(super) const PAGE: u64 = 4096;

/// Marks an empty place: block numbers never get this large.
const NOTHING: u64 = u64::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_goes() {
        // Two sets of two ways.
        let mut cache = Cache::new(256, 2, 64);
        let mut has = |line: u64| cache.has(line * 64);
        assert!(!has(0) && !has(2) && has(0));
        assert!(!has(4), "takes the place of 2");
        assert!(has(0) && !has(2));
        assert!(!has(1) && has(1), "another set");
    }

    #[test]
    fn accesses_may_cross_lines() {
        let mut caches = Caches::new();
        caches.data(60, 8);
        caches.data(64, 8);
        caches.fetch(64, 4);
        let expected = Misses {
            i1: 1,
            d1: 2,
            ll: 2,
            itlb: 1,
        };
        assert_eq!(caches.misses, expected);
    }
}
