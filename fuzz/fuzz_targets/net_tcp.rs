//! Feeds arbitrary bytes to the parser of TCP segments.
#![no_main]

extern crate alloc;

use softclock_net::checksum::{Addresses, Verify};
use softclock_net::drops::DropReason;
use softclock_net::tcp::segment;

#[allow(dead_code, reason = "shared with the target of options")]
#[path = "../../crates/softclock-net/src/tcp/segment/target.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|data: &[u8]| target::check(data));
