//! Arbitrary bytes for the scanner of heads.
#![no_main]

#[path = "../../crates/softclock-http/tests/head/target.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|data: &[u8]| target::check(data));
