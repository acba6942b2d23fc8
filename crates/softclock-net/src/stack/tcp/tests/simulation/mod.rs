//! Simulation: two stacks and a bad path in virtual time, all that happens decided by a seed.
//!
//! `SOFTCLOCK_SIMULATION_SEEDS=5000 cargo test -p softclock-net simulated -- --nocapture` runs as many seeds, from
//! `SOFTCLOCK_SIMULATION_FIRST` on; `SOFTCLOCK_SIMULATION_SEED=7` repeats one, with its scenario, and with
//! `SOFTCLOCK_SIMULATION_TRACE=1` prints its segments.
//!
//! A seed chooses the settings of both stacks ([`scenario`]), the faults of each direction ([`path`]), and owners that
//! write and read pieces of all sizes, rest, and end in different ways ([`application`]). Checked are:
//!
//! - each byte arrives once and in order, the end is seen, no error but those that an owner has caused;
//! - each segment on the [`wire`]: its bytes belong to its place, FIN keeps its place, windows never shrink, nothing is
//!   acknowledged that was not sent;
//! - no connection is silent while it has something to send, no timer is late, no wake-up gets lost (owners run only
//!   when woken), none is in vain;
//! - memory stays within its bounds, and segments within a multiple of the work;
//! - both stacks are empty and without timers at last.

mod application;
mod path;
mod random;
mod scenario;
mod wire;
mod world;

extern crate std;

use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::vec::Vec;

use self::random::Random;
use self::scenario::Scenario;
use self::world::World;

#[test]
fn simulated_connections_carry_each_byte_once_and_end() {
    let number = |name| {
        env::var(name)
            .ok()
            .and_then(|text| text.parse::<u64>().ok())
    };
    if let Some(seed) = number("SOFTCLOCK_SIMULATION_SEED") {
        std::println!("{:#?}", scenario(seed).0);
        let (scenario, mut random) = scenario(seed);
        let mut world = World::new(scenario, &mut random);
        world.prints = number("SOFTCLOCK_SIMULATION_TRACE").is_some();
        return world.run();
    }
    let first = number("SOFTCLOCK_SIMULATION_FIRST").unwrap_or(1);
    let seeds = number("SOFTCLOCK_SIMULATION_SEEDS").unwrap_or(SEEDS);
    let is_failing = |seed: &u64| {
        let result = catch_unwind(AssertUnwindSafe(|| run(*seed)));
        if result.is_err() {
            std::println!(
                "repeat it: SOFTCLOCK_SIMULATION_SEED={seed} cargo test -p softclock-net simulated"
            );
        }
        result.is_err()
    };
    let failed: Vec<u64> = (first..first + seeds).filter(is_failing).collect();
    assert!(
        failed.is_empty(),
        "{} seeds of {seeds} fail: {failed:?}",
        failed.len()
    );
}

fn scenario(seed: u64) -> (Scenario, Random) {
    let mut random = Random::new(seed);
    (Scenario::random(&mut random), random)
}

fn run(seed: u64) {
    let (scenario, mut random) = scenario(seed);
    World::new(scenario, &mut random).run();
}

/// The seeds of each run of the tests: a few seconds.
const SEEDS: u64 = 300;
