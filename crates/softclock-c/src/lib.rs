//! The C interface of [`softclock::embed`]: soft timers, rate clocks, byte clocks and send queues for event loops in C.
//!
//! `include/softclock.h` declares and documents the functions, and softclock(3) describes their use. This crate only
//! translates: each function checks its arguments, calls the method of the same name, and returns its result or a
//! negative error number. No panic leaves it.
//!
//! - `status`: results as error numbers, and panics as errors.
//! - `handle`: pointers to objects of one thread.
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
mod rate_clock;
mod send_queue;
mod status;
mod timers;
mod wake;

pub use byte_clock::*;
pub use rate_clock::*;
pub use send_queue::*;
pub use timers::*;
pub use wake::*;

use std::ffi::{c_char, c_int};

/// Stands for a time that never comes.
const NEVER: u64 = u64::MAX;

/// Stands for a wait without a time limit.
const NO_LIMIT: i64 = i64::MAX;

/// Returns the version of the library.
#[unsafe(no_mangle)]
pub extern "C" fn softclock_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Converts the limit of a wait to milliseconds.
#[unsafe(no_mangle)]
pub extern "C" fn softclock_timeout_ms(wait_ns: i64) -> c_int {
    match u64::try_from(wait_ns) {
        // Errors pass through.
        Err(_) => c_int::try_from(wait_ns).unwrap_or(-libc::EINVAL),
        Ok(_) if wait_ns == NO_LIMIT => -1,
        Ok(ns) => softclock::embed::timeout_ms(Some(std::time::Duration::from_nanos(ns))),
    }
}
