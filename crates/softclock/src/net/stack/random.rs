//! Random numbers.

use std::hash::{BuildHasher, RandomState};

/// A number that others cannot guess: the hash of nothing with a key that the standard library draws at random.
pub(super) fn random() -> u64 {
    RandomState::new().hash_one(())
}
