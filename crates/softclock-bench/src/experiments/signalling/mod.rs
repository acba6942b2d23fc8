//! Signalling: how a thread learns that its device has work.

pub mod load;
mod policies;
