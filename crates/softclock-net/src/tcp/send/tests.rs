//! A sender against a simple receiver over a virtual link, in virtual time.

use alloc::vec;

use super::*;
use crate::tcp::segment::{SackBlock, SackBlocks};
use proptest::prelude::*;

mod bench;
mod link;
mod pacing;
mod path;
mod paths;
mod recovery;
mod rules;
mod timeouts;

use link::run;
use path::Path;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn at(millis: u64) -> Instant {
    Instant::ORIGIN + ms(millis)
}

fn peer() -> PeerOptions {
    PeerOptions {
        mss: 1000,
        window_scale: Some(7),
        is_sack_permitted: true,
        timestamps: None,
        ecn: Ecn::Off,
    }
}
