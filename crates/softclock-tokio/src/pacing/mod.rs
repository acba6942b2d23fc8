//! Paced sending: datagrams wait in a bounded queue and leave at an even rate.
//!
//! - [`Pacing`], [`Limits`]: the rate, the burst and the length of the queue.
//! - `schedule`: the times and amounts of transmissions, by a rate clock of softclock-core.
//! - `queue`: the datagrams that wait, joined to trains of one size and destination.
//! - [`PacedSender`]: both, with the timer that sends the datagrams that are due. [`UdpSocket`](crate::UdpSocket) and
//!   the crate `softclock-quinn` are made of it; use it for a socket of your own ([`Outlet`]), or with a timer of your
//!   own ([`SendTimer`]).

mod queue;
mod schedule;
mod sender;
mod timer;

use std::num::NonZeroU32;

use softclock_core::Rate;

pub use sender::{Counts, Outlet, PacedSender};
pub use softclock_core::FireWindow;
pub use timer::SendTimer;

pub use crate::timers::SendJob;

/// The rate at which datagrams leave, and the limits of bursts and of the queue.
///
/// # Example
/// ```
/// use softclock_tokio::{Limits, Pacing};
///
/// // 90 Mbit/s; two datagrams may leave together, and 100 may wait.
/// let limits = Limits { burst: 2, queue: 100 };
/// let pacing = Pacing::of_rate("90mbit".parse()?).with_limits(limits);
/// assert_eq!(pacing.limits(), limits);
/// # Ok::<(), softclock_tokio::UnitError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pacing {
    pub(crate) pace: Pace,
    pub(crate) joined: u32,
    limits: Limits,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pace {
    Bits(Rate),
    Datagrams(NonZeroU32),
}

/// How many datagrams may leave together, and how many may wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The most datagrams that leave back to back: 1 to 64; other values are changed to the nearest of these.
    ///
    /// At a rate in bits, as many as take 500 us are joined, so that one call and one wake-up serve them: two from
    /// 48 Mbit/s on, four from 96 Mbit/s on. At a rate in datagrams as many as take 160 us. More leave together only
    /// after the timer was late, or by [`Pacing::joining`].
    pub burst: u32,
    /// The most datagrams that wait, at least 1.
    pub queue: u32,
}

impl Default for Limits {
    /// A burst of 4 and a queue of 64 datagrams.
    fn default() -> Self {
        Self {
            burst: 4,
            queue: 64,
        }
    }
}

impl Pacing {
    /// Sends at most `rate` on average. It counts IP packets: each datagram with 28 bytes of headers.
    pub fn of_rate(rate: Rate) -> Self {
        Self::new(Pace::Bits(rate))
    }

    /// Sends at most this many datagrams a second, of any size.
    pub fn of_datagrams(per_second: NonZeroU32) -> Self {
        Self::new(Pace::Datagrams(per_second))
    }

    fn new(pace: Pace) -> Self {
        Self {
            pace,
            joined: 1,
            limits: Limits::default(),
        }
    }

    /// Joins at least this many datagrams at any rate, as far as so many wait, but never more than [`Limits::burst`]. The
    /// rate stays the same, and no datagram waits for others. The default is 1; 0 is the same.
    #[must_use]
    pub fn joining(mut self, datagrams: u32) -> Self {
        self.joined = datagrams;
        self
    }

    /// Replaces the limits.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Returns the limits.
    pub fn limits(&self) -> Limits {
        self.limits
    }
}
