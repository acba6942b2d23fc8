//! Feeds arbitrary IP packets to the parser and to reassembly.
#![no_main]

use softclock_net::ip::{Output, Packet, fragments, header_bytes, parse, write_header};

#[path = "../../crates/softclock-net/src/ip/target.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|data: &[u8]| target::check(data));
