//! Feeds arbitrary bytes to the parser of messages of ARP.
#![no_main]

use softclock_net::drops::DropReason;
use softclock_net::ip::arp::{Message, Operation};
use softclock_net::link::LinkAddress;

#[path = "../../crates/softclock-net/src/ip/arp/target.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|data: &[u8]| target::check(data));
