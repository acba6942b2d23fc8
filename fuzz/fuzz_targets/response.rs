//! Feeds arbitrary bytes to the reader of HTTP/1.1 responses from upstreams.
#![no_main]

#[allow(dead_code, reason = "one entry is for the property tests alone")]
#[path = "../../crates/softclock-http/tests/response/target.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|data: &[u8]| target::check(data));
