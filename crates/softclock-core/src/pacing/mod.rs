//! Pacing: algorithms that compute when to send packets.
//!
//! - [`RateClock`]: one train of transmissions at a target rate, with a burst rate to catch up (*Soft Timers*,
//!   sections 4.1 and 5.6).
//! - [`ByteClock`]: classes of packets on one link, each at its own rate (*PSPacer/HT*, section II-B).
//! - [`SharedRate`]: one rate shared by many senders, each of which asks when it may send.
//! - [`wire_bytes`]: the size of a packet on the wire.

pub mod byte_clock;
mod rate_clock;
mod shared_rate;
mod wire;

pub use byte_clock::{ByteClock, ClassId, ClassOptions, ClassStatistics, Dequeued, DropReason};
pub use rate_clock::{MOST_BEHIND, RateClock};
#[cfg(any(test, feature = "experiments"))]
pub use rate_clock::{ST_APACHE_US, TRAINS_US};
pub use shared_rate::SharedRate;
pub use wire::{GsoSizes, wire_bytes};
