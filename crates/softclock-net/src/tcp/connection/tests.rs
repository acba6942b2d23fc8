//! Any segments, calls and times.

use alloc::vec::Vec;

use proptest::prelude::*;

use super::{Arrival, Connection, Error, Events, IcmpError, Outgoing};
use crate::demux::{Flow, HashKey, Transport};
use crate::drops::DropReason;
use crate::fuzz_input;
use crate::icmp::ErrorKind;
use crate::tcp::challenge::{ChallengeLimiter, ChallengeSettings};
use crate::tcp::payload::Payload;
use crate::tcp::peer::EcnMode;
use crate::tcp::segment::{Flags, Header, Options, SackBlock, Timestamps};
use crate::tcp::seq::Seq;
use crate::tcp::settings::Settings;
use crate::tcp::state::State;

mod rules;
#[path = "target.rs"]
mod target;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn any_steps_leave_a_connection_in_order(
        settings in any::<[u8; 2]>(),
        steps in prop::collection::vec(any::<[u8; 4]>(), 0..150),
    ) {
        let steps = steps.concat();
        target::check(&[&settings[..], &steps].concat());
    }
}

/// An orderly peer with lossy deliveries: most steps move the stream forward.
#[test]
fn bytes_flow_between_steps_that_disturb() {
    for seed in 0..200_u32 {
        let mut number = seed.wrapping_mul(0x9e37_79b9) | 1;
        let mut next = || {
            number ^= number << 13;
            number ^= number >> 17;
            number ^= number << 5;
            (number >> 8) as u8
        };
        let mut input = Vec::from([next(), next() & 0x7f]);
        for _ in 0..400 {
            let step = [0, 0, 3, 4, 5, 13, 13, 15, 15, 12, 2, 6, 11, 17][usize::from(next()) % 14];
            input.extend([step, next(), next(), next()]);
        }
        target::check(&input);
    }
}
