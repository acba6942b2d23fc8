//! Congestion control: how many bytes may be in flight.
//!
//! A [`Controller`] learns of segments sent, acknowledged and lost, and gives the congestion window (cwnd) and the slow
//! start threshold (ssthresh). It neither detects losses nor sends: both are the sender's, as is the window during fast
//! recovery (proportional rate reduction, RFC 9937).
//!
//! - [`new_reno`]: congestion avoidance by RFC 5681. [`cubic`]: by RFC 9438.
//! - [`hystart`]: the exit from slow start by rising round-trip times (RFC 9406).
//! - [`validation`]: the use of the window, and the response to pauses (RFC 7661).
//! - [`rate_sample`]: measurements of the rate of delivery.

mod controller;
pub mod cubic;
pub mod hystart;
pub mod new_reno;
pub mod rate_sample;
mod settings;
pub mod validation;

pub use controller::Controller;
pub use rate_sample::{DeliveredSegments, RateSample, RateSampler, Snapshot};
pub use settings::{Algorithm, CongestionSettings, IdlePolicy};

use core::time::Duration;

use softclock_core::Instant;

use super::seq::Seq;

/// An acknowledgment, as far as it concerns congestion control.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CongestionAck {
    /// The time at which it is processed.
    pub now: Instant,
    /// The time at which it arrived.
    pub arrived: Instant,
    /// The bytes that it newly reports as delivered, by number or by SACK.
    pub acked: u32,
    /// The bytes in flight before it: sent and not acknowledged (FlightSize of RFC 5681).
    pub in_flight: u32,
    /// The round-trip time of a segment that it acknowledges, if one is known (not of a retransmission, by Karn).
    pub rtt: Option<Duration>,
    /// The smoothed round-trip time (RFC 6298), with this acknowledgment.
    pub srtt: Option<Duration>,
    /// The least round-trip time of late.
    pub min_rtt: Option<Duration>,
    /// The retransmission timeout, without backoff (RFC 6298).
    pub rto: Duration,
    /// Whether the application or the peer's window, and not the congestion window, limited what is in flight.
    pub is_app_limited: bool,
    /// The first byte that is not acknowledged, after this acknowledgment (SND.UNA).
    pub una: Seq,
    /// The next byte to send (SND.NXT).
    pub next: Seq,
    /// Whether the sender is in fast recovery, where the window does not grow. False in the slow start after a timeout.
    pub is_in_recovery: bool,
}

#[cfg(test)]
mod tests;
