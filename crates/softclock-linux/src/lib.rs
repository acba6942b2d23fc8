//! softclock.
pub mod file;
