//! Lets two stacks exchange streams over an arbitrary network.
#![no_main]

extern crate alloc;

use softclock_net::checksum::Verify;
use softclock_net::demux::HashKey;
use softclock_net::ip;
use softclock_net::link::LinkAddress;
use softclock_net::routes::Routes;
use softclock_net::stack::{
    Architecture, Settings, Stack, TcpError, TcpId, TcpListenSettings, TcpListenerId,
};
use softclock_net::tcp::segment::{self, Flags, Header, Options, Timestamps};
use softclock_net::tcp::state::State;

#[path = "../../crates/softclock-net/src/fuzz_input.rs"]
mod fuzz_input;
#[path = "../../crates/softclock-net/src/stack/tcp/target.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|data: &[u8]| target::check(data));
