//! Feeds arbitrary frames to a stack of each architecture, and compares what they do.
#![no_main]

extern crate alloc;

use softclock_net::checksum::Verify;
use softclock_net::demux::HashKey;
use softclock_net::link::LinkAddress;
use softclock_net::routes::{Prefix, Routes};
use softclock_net::stack::{
    Architecture, Datagram, EndpointId, ReceiverCounts, RingEndpoint, RingFrame, RingReceived,
    Settings, Stack, Taken,
};

#[path = "../../crates/softclock-net/src/stack/target.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|data: &[u8]| target::check(data));
