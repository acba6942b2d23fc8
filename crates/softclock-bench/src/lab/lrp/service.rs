//! What the receivers do.

use std::time::Duration;

/// A UDP service with a thread of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Service {
    /// The port.
    pub port: u16,
    /// The processor time for a datagram.
    pub work: Duration,
    /// Whether each datagram is answered.
    pub answers: bool,
}

impl Service {
    /// A service that computes for this long for a datagram and discards it.
    pub const fn sink(port: u16, work: Duration) -> Self {
        Self {
            port,
            work,
            answers: false,
        }
    }

    /// A service that answers each datagram after this much computation.
    pub const fn answering(port: u16, work: Duration) -> Self {
        Self {
            port,
            work,
            answers: true,
        }
    }
}
