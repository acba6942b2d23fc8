//! The softclock command.
fn main() {}
