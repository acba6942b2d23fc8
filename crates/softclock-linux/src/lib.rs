//! softclock.
