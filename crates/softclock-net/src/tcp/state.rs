//! The states of a connection (RFC 9293, 3.3.2).

use core::fmt;

/// The state of a connection. A listener is a type of its own, and so are its half-open connections.
///
/// # Example
/// ```
/// use softclock_net::tcp::state::State;
///
/// // The peer has closed its half, and this end may still write.
/// assert!(State::CloseWait.may_write() && !State::CloseWait.may_receive());
/// assert_eq!(State::CloseWait.to_string(), "close_wait");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum State {
    /// A SYN was sent.
    SynSent,
    /// A SYN was sent and one received, but it does not acknowledge this end's: both ends open at the same time.
    /// Half-open connections of a listener are in this state, too.
    SynReceived,
    /// Data flows both ways.
    Established,
    /// This end has closed its half; its FIN is not acknowledged.
    FinWait1,
    /// This end has closed its half; its FIN is acknowledged.
    FinWait2,
    /// The peer has closed its half.
    CloseWait,
    /// Both ends have closed, at the same time; this end's FIN is not acknowledged.
    Closing,
    /// Both ends have closed, the peer first; this end's FIN is not acknowledged.
    LastAck,
    /// Both ends have closed. Old duplicates may be on their way.
    TimeWait,
    /// There is no connection any more.
    Closed,
}

impl State {
    /// All states.
    pub const ALL: [Self; 10] = [
        Self::SynSent,
        Self::SynReceived,
        Self::Established,
        Self::FinWait1,
        Self::FinWait2,
        Self::CloseWait,
        Self::Closing,
        Self::LastAck,
        Self::TimeWait,
        Self::Closed,
    ];

    /// The name in reports and metrics: lower case with underscores, as that of Linux's `ss`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SynSent => "syn_sent",
            Self::SynReceived => "syn_received",
            Self::Established => "established",
            Self::FinWait1 => "fin_wait_1",
            Self::FinWait2 => "fin_wait_2",
            Self::CloseWait => "close_wait",
            Self::Closing => "closing",
            Self::LastAck => "last_ack",
            Self::TimeWait => "time_wait",
            Self::Closed => "closed",
        }
    }

    /// Whether both ends know each other's initial sequence number, and the connection still exists.
    pub const fn is_synchronized(self) -> bool {
        !matches!(self, Self::SynSent | Self::SynReceived | Self::Closed)
    }

    /// Whether this end's half is open: the owner may write.
    pub const fn may_write(self) -> bool {
        matches!(self, Self::Established | Self::CloseWait)
    }

    /// Whether data of the peer may still arrive.
    pub const fn may_receive(self) -> bool {
        matches!(self, Self::Established | Self::FinWait1 | Self::FinWait2)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_states_is_in_the_order_of_their_numbers() {
        for (place, state) in State::ALL.into_iter().enumerate() {
            assert_eq!(place, state as usize, "{state}");
        }
    }
}
