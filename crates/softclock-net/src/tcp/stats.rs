//! The counters of a connection, and those of all.

use core::time::Duration;

use super::send::{SendStats, Sender};
use super::state::State;

/// The counters of a connection, and the state of its congestion control.
///
/// # Example
/// ```
/// use softclock_net::stack::{Stack, TcpId};
///
/// fn report(stack: &Stack<Vec<u8>>, connection: TcpId) {
///     if let Some(stats) = stack.tcp_stats(connection) {
///         let resent = stats.sent.retransmissions;
///         println!("{}: window {}, {resent} segments sent again", stats.state, stats.congestion_window);
///     }
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ConnectionStats {
    /// The state.
    pub state: State,
    /// The segments that were received, modulo 2^32.
    pub segments_received: u32,
    /// The counters of the sending half.
    pub sent: SendStats,
    /// The smoothed round-trip time.
    pub round_trip: Option<Duration>,
    /// The congestion window in bytes.
    pub congestion_window: u32,
}

impl ConnectionStats {
    pub(super) fn new(state: State) -> Self {
        Self {
            state,
            segments_received: 0,
            sent: SendStats::default(),
            round_trip: None,
            congestion_window: 0,
        }
    }

    pub(super) fn of(state: State, segments_received: u32, sender: &Sender) -> Self {
        Self {
            segments_received,
            sent: *sender.stats(),
            round_trip: sender.srtt(),
            congestion_window: sender.congestion_window(),
            ..Self::new(state)
        }
    }
}
