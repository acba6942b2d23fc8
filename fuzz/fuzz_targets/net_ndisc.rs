//! Feeds arbitrary addresses and bytes to the parser of messages of neighbor discovery.
#![no_main]

use softclock_net::checksum::Addresses;
use softclock_net::drops::DropReason;
use softclock_net::ip::ndisc::{
    HOP_LIMIT, Message, answer_addresses, is_kind, parse, request_addresses, write_advertisement,
    write_solicitation,
};
use softclock_net::link::LinkAddress;

#[path = "../../crates/softclock-net/src/ip/ndisc/target.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|data: &[u8]| target::check(data));
