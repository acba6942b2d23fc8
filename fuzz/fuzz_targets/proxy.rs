//! Feeds arbitrary bytes to the proxy's handling of upstream addresses, request targets and header fields.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| softclock_http::check_proxy(data));
