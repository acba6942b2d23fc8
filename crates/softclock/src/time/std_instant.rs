//! Conversion between this crate's instants and those of the standard library.

use std::time;

use softclock_core::Instant;

use crate::runtime::inner::Inner;

/// Converts an instant of this crate to one of the standard library.
///
/// Both count CLOCK_MONOTONIC, with different origins. The two origins are compared once in a process, so differences
/// between converted instants are exact, and converting back returns the same instant. An instant that was read from
/// one clock may differ by about 1 us from one that was read from the other at the same moment, in either direction,
/// since [`now`](crate::now) follows CLOCK_MONOTONIC only as closely. Makes no system call but for the first
/// conversion, of either direction.
///
/// # Example
/// ```
/// use softclock::time;
/// use std::time::Duration;
///
/// # fn main() -> std::io::Result<()> {
/// softclock::Runtime::new()?.block_on(async {
///     // A deadline from code that knows only the standard library:
///     let deadline = std::time::Instant::now() + Duration::from_millis(2);
///     softclock::sleep_until(time::from_std(deadline)).await;
///     assert_eq!(time::to_std(time::from_std(deadline)), deadline);
/// });
/// # Ok(())
/// # }
/// ```
///
/// # Panics
/// If called outside a runtime: it needs the clock.
pub fn to_std(instant: Instant) -> time::Instant {
    Inner::with_current(|runtime| runtime.clock.to_std(instant))
}

/// Converts an instant of the standard library to one of this crate, as precisely as [`to_std`] does, which has an
/// example. Returns [`Instant::ORIGIN`] for an instant before it, and [`Instant::FAR_FUTURE`] for one after that.
///
/// # Panics
/// If called outside a runtime: it needs the clock.
pub fn from_std(instant: time::Instant) -> Instant {
    Inner::with_current(|runtime| runtime.clock.from_std(instant))
}
