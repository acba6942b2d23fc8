//! Streams between a stack of softclock and another, over a bad path: smoltcp in virtual time, the kernel in real time.
//!
//! A seed chooses which stack opens the connections, the settings of both, the path, and owners that write and read
//! pieces of all sizes, and close, or reset, at different times. Checked are: each byte arrives once and in order,
//! the end of each stream is seen, no connection fails unless an owner resets it, all ends in bounded time and segments,
//! and neither stack keeps a connection.
//!
//! `SOFTCLOCK_PEERS_SEED=7 cargo test -p softclock-model --test peers smoltcp` runs one seed and prints its segments;
//! `SOFTCLOCK_PEERS_SEEDS=5000` runs as many, from `SOFTCLOCK_PEERS_FIRST` on. The same holds for `kernel`, where a seed
//! does not decide all: the kernel has times and numbers of its own.

mod kernel;
mod ours;
mod owner;
mod path;
mod random;
mod reactions;
mod smoltcp;
mod world;

use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind};

use softclock_linux::link::Tap;
use softclock_testing::lab::Namespace;

use crate::random::Random;
use crate::reactions::Plan;
use crate::world::World;

#[test]
fn streams_to_smoltcp_arrive_whole() {
    let mut run = |seed: u64, prints: bool| {
        if !prints && SMOLTCP_STALLS.contains(&seed) {
            return;
        }
        let mut world = World::with_smoltcp(&mut Random::new(seed));
        world.print(prints);
        world.run();
    };
    run_seeds(300, &mut run);
}

#[test]
fn streams_to_the_kernel_arrive_whole() {
    softclock_testing::require!("ip", "unshare", "nsenter");
    let mut number = 0;
    let mut run = |seed, prints| {
        let namespace = Namespace::new().expect("the first was made");
        namespace.disable_ipv6().expect("a setting");
        number += 1;
        let name = format!("peer{number}");
        let ran = namespace.inside(|| {
            let tap = Tap::create(&name).expect("a new namespace");
            let address = format!("ip addr add 10.0.0.2/24 dev {name}");
            namespace.run(&address).expect("a new link");
            let mut world = World::with_kernel(&mut Random::new(seed), tap);
            world.print(prints);
            world.run_live();
        });
        ran.expect("a new namespace");
    };
    if let Err(reason) = Namespace::new() {
        softclock_testing::skip!("{reason}");
    }
    run_seeds(10, &mut run);
}

#[test]
fn segments_that_are_no_part_of_a_stream_are_met_as_by_the_kernel() {
    softclock_testing::require!("ip", "unshare", "nsenter");
    if let Err(reason) = Namespace::new() {
        softclock_testing::skip!("{reason}");
    }
    let mut run = |seed, prints| {
        let namespace = Namespace::new().expect("the first was made");
        namespace.disable_ipv6().expect("a setting");
        // Without its limits, the kernel answers each segment; and a reset does not end TIME-WAIT (RFC 1337).
        for setting in [
            "tcp_invalid_ratelimit=0",
            "tcp_challenge_ack_limit=2147483647",
            "tcp_rfc1337=1",
        ] {
            let command = format!("sysctl -q -w net.ipv4.{setting}");
            namespace.run(&command).expect("a setting");
        }
        let plan = Plan::random(&mut Random::new(seed));
        if prints {
            println!("softclock:");
        }
        let ours = plan.ours(prints);
        let ran = namespace.inside(|| {
            let tap = Tap::create("reactions").expect("a new namespace");
            let address = "ip addr add 10.0.0.2/24 dev reactions";
            namespace.run(address).expect("a new link");
            if prints {
                println!("the kernel:");
            }
            plan.kernel(tap, prints)
        });
        let kernel = ran.expect("a new namespace");
        plan.compare(&ours, &kernel);
    };
    run_seeds(100, &mut run);
}

/// Seeds in which smoltcp 0.14 stands still: it retransmits a segment of 536 bytes into a window of 533, counts all as
/// sent, and when the window closes behind the bytes that were taken, it probes at SND.NXT instead of SND.UNA. It never
/// sends the last three bytes, although each probe is answered with the right acknowledgment and an open window.
const SMOLTCP_STALLS: &[u64] = &[3988];

/// Runs as many seeds, or those that the environment names. The second argument of `run` is whether to print segments.
fn run_seeds(usual: u64, run: &mut dyn FnMut(u64, bool)) {
    let number = |name| {
        let text = env::var(name).ok()?;
        text.parse::<u64>().ok()
    };
    if let Some(seed) = number("SOFTCLOCK_PEERS_SEED") {
        return run(seed, true);
    }
    let first = number("SOFTCLOCK_PEERS_FIRST").unwrap_or(1);
    let seeds = number("SOFTCLOCK_PEERS_SEEDS").unwrap_or(usual);
    let mut failed = Vec::new();
    for seed in first..first + seeds {
        if catch_unwind(AssertUnwindSafe(|| run(seed, false))).is_err() {
            println!("repeat it: SOFTCLOCK_PEERS_SEED={seed}");
            failed.push(seed);
        }
    }
    assert!(
        failed.is_empty(),
        "{} seeds of {seeds} fail: {failed:?}",
        failed.len()
    );
}
