//! Signalling: how a thread learns that its device has work.

pub(in crate::experiments) mod comparisons;
pub mod livelock;
pub mod load;
pub(in crate::experiments) mod policies;
