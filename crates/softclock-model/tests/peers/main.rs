//! Streams between a stack of softclock and another, over a bad path: smoltcp in virtual time, the kernel in real time.
//!
//! A seed chooses which stack opens the connections, the settings of both, the path, and owners that write and read
//! pieces of all sizes, and close, or reset, at different times. Checked are: each byte arrives once and in order, the
//! end of each stream is seen, no connection fails unless an owner resets it, all ends in bounded time and segments,
//! and neither stack keeps a connection.
//!
//! `SOFTCLOCK_PEERS_SEED=7 cargo test -p softclock-model --test peers smoltcp` runs one seed and prints its segments;
//! `SOFTCLOCK_PEERS_SEEDS=5000` runs as many, from `SOFTCLOCK_PEERS_FIRST` on. The same holds for `kernel`, where a
//! seed does not decide all: the kernel has times and numbers of its own.

mod kernel;
mod neighbors;
mod ours;
mod owner;
mod path;
mod random;
mod reactions;
mod smoltcp;
mod world;

use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};

use softclock_linux::link::Tap;
use softclock_model::host::Version;
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
    streams_to_the_kernel(Version::V4);
}

#[test]
fn streams_to_the_kernel_over_ipv6_arrive_whole() {
    streams_to_the_kernel(Version::V6);
}

fn streams_to_the_kernel(version: Version) {
    softclock_testing::require!("ip", "unshare", "nsenter");
    let _alone = alone();
    let mut number = 0;
    let mut run = |seed, prints| {
        number += 1;
        let name = format!("peer{number}");
        let namespace = namespace(version);
        let ran = namespace.inside(|| {
            let tap = tap(&namespace, version, &name);
            let mut world = World::with_kernel(&mut Random::new(seed), version, tap);
            world.print(prints);
            world.run_live();
        });
        ran.expect("a new namespace");
    };
    if let Err(reason) = Namespace::new() {
        softclock_testing::skip!("{reason}");
    }
    run_seeds(10, &mut repeated_once(&mut run));
}

#[test]
fn segments_that_are_no_part_of_a_stream_are_met_as_by_the_kernel() {
    compare_reactions(Version::V4);
}

#[test]
fn segments_over_ipv6_that_are_no_part_of_a_stream_are_met_as_by_the_kernel() {
    compare_reactions(Version::V6);
}

fn compare_reactions(version: Version) {
    softclock_testing::require!("ip", "unshare", "nsenter");
    let _alone = alone();
    if let Err(reason) = Namespace::new() {
        softclock_testing::skip!("{reason}");
    }
    let mut run = |seed, prints| {
        let namespace = namespace(version);
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
        let ours = plan.ours(version, prints);
        let ran = namespace.inside(|| {
            let tap = tap(&namespace, version, "reactions");
            if prints {
                println!("the kernel:");
            }
            plan.kernel(version, tap, prints)
        });
        let kernel = ran.expect("a new namespace");
        plan.compare(&ours, &kernel);
    };
    run_seeds(100, &mut repeated_once(&mut run));
}

/// A namespace for the kernel's stack. IPv6, which sends messages of its own, is off unless the test needs it.
fn namespace(version: Version) -> Namespace {
    let namespace = Namespace::new().expect("the first was made");
    if version == Version::V4 {
        namespace.disable_ipv6().expect("a setting");
    }
    namespace
}

/// A TAP device in the namespace of the calling thread, at which the kernel has the address of host 2.
fn tap(namespace: &Namespace, version: Version, name: &str) -> Tap {
    let tap = Tap::create(name).expect("a new namespace");
    let address = version.address(2);
    let words = match version {
        Version::V4 => format!("ip addr add {address}/24 dev {name}"),
        // `nodad`: duplicate address detection takes a second.
        Version::V6 => format!("ip addr add {address}/64 dev {name} nodad"),
    };
    namespace.run(&words).expect("a new link");
    tap
}

/// Seeds in which smoltcp 0.14 stands still: it retransmits a segment of 536 bytes into a window of 533, counts all as
/// sent, and when the window closes behind the bytes that were taken, it probes at SND.NXT instead of SND.UNA. It never
/// sends the last three bytes, although each probe is answered with the right acknowledgment and an open window.
const SMOLTCP_STALLS: &[u64] = &[3988];

/// Waits until no other test with the kernel runs. The processes that it starts would have copies of the sockets of this
/// one until they execute their programs, and a socket that is closed here would stay open.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a seed again if it fails, and says so: the kernel's timers go on while this process is paused, which changes
/// what the kernel sends. A seed that is run by its number is not repeated.
fn repeated_once(run: &mut dyn FnMut(u64, bool)) -> impl FnMut(u64, bool) {
    |seed, prints| {
        let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(seed, prints))) else {
            return;
        };
        if prints {
            resume_unwind(panic);
        }
        println!("seed {seed} failed once, and is run again");
        run(seed, prints);
    }
}

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
