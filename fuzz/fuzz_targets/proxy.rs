//! Arbitrary bytes for what the proxy does with upstreams' addresses, targets and header fields.
#![no_main]

#[allow(dead_code, reason = "parts of the proxy without their users")]
#[path = "../../crates/softclock-http/src/proxy/headers.rs"]
mod headers;
#[path = "../../crates/softclock-http/src/proxy/properties.rs"]
mod properties;
#[allow(dead_code, reason = "parts of the proxy without their users")]
#[path = "../../crates/softclock-http/src/proxy/url.rs"]
mod url;

libfuzzer_sys::fuzz_target!(|data: &[u8]| properties::check(data));
