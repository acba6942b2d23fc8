//! The arguments and the effects of a sender.

use super::RetransmissionCause;
use crate::tcp::segment::SackBlocks;
use crate::tcp::seq::Seq;

/// The fields of an arriving segment that concern the sending half.
#[derive(Clone, Copy, Debug)]
pub struct Ack<'a> {
    /// The position that the peer expects next (SEG.ACK).
    pub acknowledgment: Seq,
    /// The window of the peer, scaled (SEG.WND).
    pub window: u32,
    /// The ranges that have arrived beyond the acknowledgment, or twice.
    pub sack: &'a SackBlocks,
    /// The echoed time stamp (TSecr) as a [reading of the clock](super::ClockUnit::reading): less the connection's own
    /// offset.
    pub echo: Option<u32>,
    /// Whether the peer reports congestion (RFC 3168).
    pub ece: bool,
    /// Whether the segment carries data, SYN or FIN.
    pub carries_data: bool,
    /// The sequence number of the segment (SEG.SEQ): it shows whether its window is newer than the one known.
    pub seq: Seq,
}

/// The effects of an acknowledgment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Acked {
    /// The bytes by which SND.UNA advanced, without FIN.
    pub bytes: u32,
    /// Whether FIN is acknowledged for the first time.
    pub fin: bool,
    /// Whether a writer that was refused can go on.
    pub room: bool,
    /// How the acknowledgment compares with what was sent.
    pub verdict: AckVerdict,
}

/// How an acknowledgment compares with what was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AckVerdict {
    /// It advances SND.UNA.
    New,
    /// It repeats SND.UNA.
    Duplicate,
    /// It lies before SND.UNA; its selective acknowledgments were used.
    Old,
    /// It lies further back than any that can be under way: to be answered by a challenge, and the segment dropped
    /// (RFC 5961, 5.2).
    TooOld,
    /// It lies beyond SND.NXT: to be answered, and the segment dropped (RFC 9293, 3.10.7.4).
    Future,
}

/// One segment to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transmit {
    /// The position of its first byte, or of FIN.
    pub seq: Seq,
    /// Its bytes, without FIN; see [`copy_payload`](super::Sender::copy_payload).
    pub length: u32,
    /// Whether it ends all that is written (PSH).
    pub push: bool,
    /// Whether it carries FIN.
    pub fin: bool,
    /// Whether it reports a reduced window (CWR, RFC 3168, 6.1.2).
    pub cwr: bool,
    /// Why it is sent.
    pub kind: TransmitKind,
    /// Why it is sent again, if its bytes were sent before.
    pub cause: Option<RetransmissionCause>,
}

/// Why a segment is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TransmitKind {
    /// Its bytes are sent for the first time.
    New,
    /// Its bytes are lost.
    Retransmission,
    /// To learn of losses at the end of a flight (RFC 8985, 7). Its bytes can be new.
    Probe,
    /// To learn whether the peer's window is still closed (RFC 9293, 3.8.6.1).
    WindowProbe,
}

/// The effect of a timer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimerOutcome {
    /// No timer had expired, or only one that lets `poll_transmit` go on.
    Nothing,
    /// Something is to be sent again, or a probe: [`poll_transmit`](super::Sender::poll_transmit) returns it.
    Retransmit,
    /// The peer has not answered for too long. The connection ends.
    GiveUp,
}
