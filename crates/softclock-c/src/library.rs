//! The version of the library, and the constants for a time that never comes and a wait without a limit.

use std::ffi::c_char;

/// A time that never comes.
pub const SOFTCLOCK_NEVER: u64 = u64::MAX;

/// A wait without a time limit.
pub const SOFTCLOCK_NO_LIMIT: i64 = i64::MAX;

/// Returns the version of the library, such as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn softclock_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
