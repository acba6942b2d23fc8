//! Counters of the sending half.

/// The events of one sending half, counted from the start of the connection, modulo 2^32.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SendStats {
    /// Segments with bytes or FIN, retransmissions included.
    pub segments: u32,
    /// Segments sent again, tail loss probes included.
    pub retransmissions: u32,
    /// Segments found lost by RACK or, without SACK, by duplicate acknowledgments.
    pub losses: u32,
    /// Fast recoveries begun.
    pub recoveries: u32,
    /// Retransmission timeouts.
    pub timeouts: u32,
    /// Tail loss probes (RFC 8985, 7).
    pub tail_probes: u32,
    /// Probes of a closed window (RFC 9293, 3.8.6.1).
    pub window_probes: u32,
    /// Segments that arrived twice, as the peer says (RFC 2883).
    pub duplicates: u32,
    /// Recoveries and timeouts found needless, whose effect on the congestion window was taken back.
    pub undone: u32,
    /// Acknowledgments that showed reordering.
    pub reorderings: u32,
    /// The last sample of the rate of delivery, in bytes per second; 0 before the first.
    pub delivery_rate: u64,
}
