//! Plays the peer and the owner of a connection.
#![no_main]

extern crate alloc;

use softclock_net::demux::{Flow, HashKey, Transport};
use softclock_net::icmp::ErrorKind;
use softclock_net::tcp::challenge::{ChallengeLimiter, ChallengeSettings};
use softclock_net::tcp::connection::{Arrival, Connection, Error, Events, IcmpError, Outgoing};
use softclock_net::tcp::payload::Payload;
use softclock_net::tcp::peer::EcnMode;
use softclock_net::tcp::segment::{Flags, Header, Options, SackBlock, Timestamps};
use softclock_net::tcp::seq::Seq;
use softclock_net::tcp::settings::Settings;
use softclock_net::tcp::state::State;

#[path = "../../crates/softclock-net/src/fuzz_input.rs"]
mod fuzz_input;
#[path = "../../crates/softclock-net/src/tcp/connection/target.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|data: &[u8]| target::check(data));
