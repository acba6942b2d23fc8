//! The counts of an attack, and its end.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// The counts of an attack, shared by its threads.
#[derive(Debug, Default)]
pub struct Tally {
    over: AtomicBool,
    /// Bytes sent, those of TLS included.
    pub bytes: Counter,
    /// Frames, requests or connections, by the kind of attack.
    pub units: Counter,
    /// Connections that the server ended, refused or did not accept in time.
    pub ended: Counter,
}

/// A number that several threads add to.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Tally {
    /// Returns whether the attack continues: neither its time is over nor its limit of bytes is reached.
    pub fn goes_on(&self) -> bool {
        !self.over.load(Relaxed) && self.bytes.get() < MOST_BYTES
    }

    /// Ends the attack.
    pub fn end(&self) {
        self.over.store(true, Relaxed);
    }
}

impl Counter {
    /// Adds to the sum.
    pub fn add(&self, number: usize) {
        self.0.fetch_add(number as u64, Relaxed);
    }

    /// Returns the sum.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// The number of bytes at which an attack ends.
const MOST_BYTES: u64 = 4 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attack_ends_by_order_or_by_bytes() {
        let tally = Tally::default();
        assert!(tally.goes_on());
        tally.bytes.add(MOST_BYTES as usize);
        assert!(!tally.goes_on());
        let tally = Tally::default();
        tally.end();
        assert!(!tally.goes_on());
    }
}
