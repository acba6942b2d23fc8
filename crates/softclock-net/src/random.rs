//! Numbers that other hosts cannot foresee.

use crate::demux::HashKey;

/// A sequence of numbers from a secret key: the MAC of their places in it.
#[derive(Clone, Debug)]
pub(crate) struct Random {
    key: HashKey,
    drawn: u64,
}

impl Random {
    pub(crate) const fn new(key: HashKey) -> Self {
        Self { key, drawn: 0 }
    }

    pub(crate) fn draw(&mut self) -> u64 {
        self.drawn += 1;
        self.key.mac(&self.drawn.to_le_bytes())
    }
}
