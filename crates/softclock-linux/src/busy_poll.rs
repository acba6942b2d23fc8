//! Busy polling: the kernel's receive work for a device runs inside the calls of the thread that waits for its frames
//! (Documentation/networking/napi.rst).
//!
//! A wait first polls the device, and sleeps only if nothing arrives for some time. A frame that arrives during the
//! poll causes neither an interrupt nor a switch to the thread. The cost is processor time: a thread without work polls
//! for that long before each sleep.
//!
//! - `epoll`: waits of an epoll descriptor.
//! - `io_uring`: waits of an io_uring.
//! - `socket`: calls on a socket, such as one of AF_XDP.
//!
//! These settings belong to a descriptor, and end with it. They have an effect only for devices whose receive work the
//! kernel can find by the socket (`SO_INCOMING_NAPI_ID`): real ones with NAPI, and veth with GRO and a peer without
//! TSO. The kernel knows the device of a socket once a frame has arrived for it.

pub(crate) mod epoll;
pub(crate) mod io_uring;
pub(crate) mod socket;

use std::time::Duration;

/// How a descriptor's waits poll the device.
///
/// # Example
/// ```
/// use std::time::Duration;
///
/// use softclock_linux::busy_poll::BusyPoll;
///
/// // Waits poll for 50 us before they sleep, and the device's interrupts stay masked between the polls.
/// let polling = BusyPoll { is_preferred: true, ..BusyPoll::of(Duration::from_micros(50)) };
/// assert_eq!(polling.budget, BusyPoll::USUAL_BUDGET);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BusyPoll {
    /// The time for which a wait polls before it sleeps, rounded up to whole microseconds; zero for no polling. A wait
    /// with a shorter time limit may last this long, so that a timer at its end is late by up to this time.
    pub time: Duration,
    /// The most frames that one poll receives; 0 for the kernel's default. More than
    /// [`USUAL_BUDGET`](Self::USUAL_BUDGET) needs CAP_NET_ADMIN, and io_uring has no budget.
    pub budget: u16,
    /// Whether the device's interrupts stay masked between the polls, as long as its
    /// [delay](crate::link::InterruptDelay) permits; without a delay this has no effect. For a socket it needs
    /// CAP_NET_ADMIN.
    pub is_preferred: bool,
}

impl BusyPoll {
    /// No busy polling: the kernel's default for an epoll descriptor and an io_uring.
    pub const OFF: Self = Self {
        time: Duration::ZERO,
        budget: 0,
        is_preferred: false,
    };

    /// The largest budget without privileges, as much as receive work takes at an interrupt (NAPI_POLL_WEIGHT).
    pub const USUAL_BUDGET: u16 = 64;

    /// Busy polling for this time before a sleep, with the usual budget.
    pub const fn of(time: Duration) -> Self {
        Self {
            time,
            budget: Self::USUAL_BUDGET,
            is_preferred: false,
        }
    }

    /// The time in microseconds, rounded up; at most the longest time that the kernel accepts.
    fn microseconds(self) -> u32 {
        let microseconds = self.time.as_nanos().div_ceil(1000);
        microseconds.min(i32::MAX as u128) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_whole_microseconds_of_31_bits() {
        let microseconds = |ns| BusyPoll::of(Duration::from_nanos(ns)).microseconds();
        assert_eq!([0, 1, 1000, 1001].map(microseconds), [0, 1, 1, 2]);
        let longest = BusyPoll::of(Duration::MAX);
        assert_eq!(longest.microseconds(), i32::MAX as u32);
    }
}
