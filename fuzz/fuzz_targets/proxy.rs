//! Arbitrary bytes for what the proxy does with upstreams' addresses, targets and header fields.
#![no_main]

#[allow(dead_code, reason = "parts of the proxy without their users")]
mod proxy {
    #[path = "../../../crates/softclock-http/src/proxy/headers/mod.rs"]
    mod headers;
    #[path = "../../../crates/softclock-http/src/proxy/properties.rs"]
    mod properties;
    #[path = "../../../crates/softclock-http/src/proxy/url.rs"]
    mod url;

    pub fn check(data: &[u8]) {
        properties::check(data);
    }
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| proxy::check(data));
