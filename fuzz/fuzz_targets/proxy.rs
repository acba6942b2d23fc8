//! Arbitrary bytes for what the proxy does with upstreams' addresses, targets and header fields.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| softclock_http::check_proxy(data));
