//! Feeds arbitrary bytes to the decoder of packet captures (pcap and pcapng).
#![no_main]

use softclock_wire::capture::{Decoded, Decoder};

#[path = "../../crates/softclock-wire/src/capture/target.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|data: &[u8]| target::check(data));
