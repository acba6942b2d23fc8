//! The results of segments to a listener.

use core::time::Duration;

use softclock_core::Instant;

use crate::demux::Flow;
use crate::drops::DropReason;
use crate::tcp::peer::PeerOptions;
use crate::tcp::segment::Reply;
use crate::tcp::seq::Seq;

/// The result of a segment to a listener.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// A segment must be sent.
    Reply(Reply),
    /// The segment counts as dropped for this reason, and an answer must be sent.
    Refused(Reply, DropReason),
    /// The handshake is complete. The caller makes a connection, gives it the same segment, for it can carry data and
    /// FIN, and [pushes](super::Listener::push) it.
    Completed(Handshake),
    /// The half-open connection was reset and is forgotten.
    Reset,
    /// The segment is dropped.
    Dropped(DropReason),
}

/// A complete handshake, from which a connection in the state ESTABLISHED is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Handshake {
    /// The flow.
    pub flow: Flow,
    /// The initial sequence number of this end (ISS).
    pub local_initial: Seq,
    /// The initial sequence number of the peer (IRS).
    pub remote_initial: Seq,
    /// The options that both ends agree on.
    pub peer: PeerOptions,
    /// The shift of this end's windows: 0 unless both ends scale.
    pub own_shift: u8,
    /// The window that the SYN-ACK stated, in bytes.
    pub own_window: u16,
    /// The offset of this end's time stamps from the clock.
    pub timestamp_offset: u32,
    /// The peer's window, in bytes (SND.WND).
    pub window: u32,
    /// The time from SYN-ACK to acknowledgment. `None` if the SYN-ACK was sent more than once (RFC 6298, 3), or with a
    /// cookie.
    pub round_trip: Option<Duration>,
    /// Whether the SYN-ACK was retransmitted: a sign of loss, after which a connection begins with a window of one
    /// segment (RFC 5681, 3.1).
    pub is_retransmitted: bool,
    /// The arrival of the segment that completed the handshake.
    pub arrived: Instant,
}

/// Counts of a listener's events.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct ListenStats {
    /// SYN-ACKs that were sent again, by the timer or for another SYN.
    pub retransmitted: u64,
    /// SYN-ACKs with a cookie.
    pub cookies_sent: u64,
    /// Handshakes that were completed by a cookie.
    pub cookies_accepted: u64,
    /// Acknowledgments that hold no valid cookie, while cookies were in use.
    pub cookies_refused: u64,
    /// SYNs, and acknowledgments that would have completed a handshake, that were dropped since too many connections
    /// waited to be accepted.
    pub accept_queue_full: u64,
    /// SYNs that were dropped since too many connections were half open, and none could give way.
    pub syn_queue_full: u64,
    /// Half-open connections that gave way to new ones.
    pub displaced: u64,
    /// Half-open connections whose SYN-ACK was never acknowledged.
    pub timed_out: u64,
}

impl ListenStats {
    /// Adds the counts of another listener.
    pub const fn add(&mut self, other: &Self) {
        self.retransmitted += other.retransmitted;
        self.cookies_sent += other.cookies_sent;
        self.cookies_accepted += other.cookies_accepted;
        self.cookies_refused += other.cookies_refused;
        self.accept_queue_full += other.accept_queue_full;
        self.syn_queue_full += other.syn_queue_full;
        self.displaced += other.displaced;
        self.timed_out += other.timed_out;
    }
}
