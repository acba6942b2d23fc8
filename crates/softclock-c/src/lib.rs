//! The C interface of [`softclock::embed`]: soft timers, rate clocks, byte clocks and send queues for event loops in C.
//!
//! C programs include `include/softclock.h`, which cbindgen makes of this crate (`tests/header.rs`); softclock(3)
//! describes its use. This crate only translates: each function checks its arguments, calls the method of the same
//! name, and returns its result or a negative error number. No panic leaves it. Types that C knows by pointers only
//! have no `repr(C)`, so that the header declares them without fields.
//!
//! - `status`: results as error numbers, and panics as errors.
//! - `handle`: pointers to objects of one thread.
//! - `library`: the version, and the constants `SOFTCLOCK_NEVER` and `SOFTCLOCK_NO_LIMIT`.
//! - `timers`, `wake`, `rate_clock`, `byte_clock`, `send_queue`: a file for each type.
#![allow(
    non_camel_case_types,
    reason = "types have the names by which C knows them"
)]
#![allow(
    clippy::missing_safety_doc,
    reason = "the header states for all functions what callers must keep to"
)]

mod byte_clock;
mod handle;
mod library;
mod rate_clock;
mod send_queue;
mod status;
mod timers;
mod wake;

pub use byte_clock::*;
pub use library::*;
pub use rate_clock::*;
pub use send_queue::*;
pub use timers::*;
pub use wake::*;
