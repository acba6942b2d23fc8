//! softclock.
fn main() {}
