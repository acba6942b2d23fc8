//! Feeds arbitrary bytes to the parsers of UDP datagrams.
#![no_main]

extern crate alloc;

use softclock_net::checksum::{Addresses, Verify};
use softclock_net::drops::DropReason;
use softclock_net::udp;

#[path = "../../crates/softclock-net/src/udp/target.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|data: &[u8]| target::check(data));
