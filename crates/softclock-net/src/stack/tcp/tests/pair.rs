//! Two stacks and any network between them.

use proptest::prelude::*;

use super::super::{TcpError, TcpId, TcpListenSettings, TcpListenerId};
use crate::checksum::Verify;
use crate::demux::HashKey;
use crate::fuzz_input;
use crate::ip;
use crate::link::LinkAddress;
use crate::routes::Routes;
use crate::stack::{Architecture, Settings, Stack};
use crate::tcp::segment::{self, Flags, Header, Options, Timestamps};
use crate::tcp::state::State;

#[path = "../target.rs"]
mod target;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn streams_survive_any_network_and_any_forger(
        settings in any::<[u8; 4]>(),
        steps in prop::collection::vec(any::<[u8; 3]>(), 0..250),
    ) {
        target::check(&[&settings[..], &steps.concat()].concat());
    }
}
#[test]
fn two_probes_that_cross_do_not_lock_a_connection() {
    let steps: &[[u8; 3]] = &[
        [45, 0, 0],
        [60, 110, 0],
        [0, 29, 0],
        [34, 0, 0],
        [116, 0, 0],
        [137, 0, 0],
        [70, 0, 0],
        [0, 0, 0],
        [60, 31, 0],
        [0, 0, 0],
        [94, 0, 0],
        [40, 47, 0],
        [76, 0, 0],
        [34, 0, 0],
        [54, 0, 0],
        [171, 51, 122],
        [0, 0, 0],
        [17, 0, 0],
        [51, 123, 0],
        [20, 104, 0],
        [145, 0, 0],
        [191, 128, 183],
        [60, 72, 0],
        [225, 0, 0],
        [9, 0, 81],
        [140, 47, 0],
        [58, 182, 111],
        [0, 19, 0],
        [60, 29, 0],
        [191, 201, 61],
        [100, 1, 0],
        [18, 126, 114],
        [20, 31, 0],
        [0, 13, 0],
        [20, 128, 0],
        [209, 0, 195],
        [29, 0, 0],
        [20, 32, 0],
        [128, 68, 2],
        [20, 188, 0],
        [60, 2, 0],
        [0, 0, 0],
        [0, 0, 0],
        [154, 4, 0],
        [87, 0, 0],
        [0, 253, 0],
        [120, 29, 0],
        [0, 19, 0],
        [30, 0, 0],
        [210, 0, 0],
        [100, 31, 0],
        [0, 0, 0],
        [110, 0, 0],
        [129, 0, 46],
    ];
    target::check(&[&[0u8, 0, 144, 16][..], &steps.concat()].concat());
}
