//! Feeds arbitrary bytes to the parsers of messages of ICMP and ICMPv6, and to the writers of their error messages.
#![no_main]

extern crate alloc;

use softclock_net::checksum::{Addresses, Verify};
use softclock_net::drops::DropReason;
use softclock_net::{icmp, icmp_v6};

#[path = "../../crates/softclock-net/src/icmp/target.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|data: &[u8]| target::check(data));
