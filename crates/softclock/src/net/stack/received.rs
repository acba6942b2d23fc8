//! The facts about a received frame that the stack needs.

use std::time::Duration;

use softclock_core::Instant;
use softclock_net::checksum::Verify;
use softclock_wire::packet::Offload;

/// The time at which a frame of this age arrived.
pub(super) fn arrival(now: Instant, age: Duration) -> Instant {
    now - age.min(MOST_AGE)
}

/// Whether the checksum of a frame with these offloads is to be verified.
pub(super) const fn verification(offload: &Offload) -> Verify {
    match offload.checksum {
        // The sender is on this machine, and has left the checksum to the link.
        Some(_) => Verify::Trusted,
        None => Verify::Yes,
    }
}

/// The longest age of a frame that is believed. Frames wait at most milliseconds in the kernel.
const MOST_AGE: Duration = Duration::from_secs(1);
