//! Feeds arbitrary bytes to the scanner of HTTP/1.1 request heads.
#![no_main]

#[path = "../../crates/softclock-http/tests/head/target.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|data: &[u8]| target::check(data));
