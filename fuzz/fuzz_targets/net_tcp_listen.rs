//! Feeds arbitrary segments to two listeners that share their limits.
#![no_main]

extern crate alloc;

use softclock_net::demux::{Flow, HashKey, Transport};
use softclock_net::tcp::listen::{
    CookieUse, ListenSettings, Listener, Outcome, Shared, SharedSettings,
};
use softclock_net::tcp::segment::{Flags, Header, Options, Reply, Segment, Timestamps};
use softclock_net::tcp::seq::Seq;

#[path = "../../crates/softclock-net/src/fuzz_input.rs"]
mod fuzz_input;
#[path = "../../crates/softclock-net/src/tcp/listen/target.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|data: &[u8]| target::check(data));
