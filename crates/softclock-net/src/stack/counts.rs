//! The frames and packets of a stack.

use super::ReceiverCounts;

/// The frames and packets of a stack so far.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct StackCounts {
    /// Frames that the device delivered.
    pub frames_received: u64,
    /// Frames of the device that were demultiplexed to the channel of an endpoint, or of several, full or not.
    ///
    /// Each frame that the device delivered has one verdict: this, [`to_control`](Self::to_control),
    /// [`to_fragments`](Self::to_fragments) or [`demux_drops`](Self::demux_drops). With
    /// [`Architecture::Bsd`](super::Architecture::Bsd) it gets it when it leaves the shared queue.
    pub to_channels: u64,
    /// Frames of the device that were demultiplexed to the control channel, full or not.
    pub to_control: u64,
    /// Frames of the device that were demultiplexed to the channel of fragments, full or not.
    pub to_fragments: u64,
    /// Frames of the device that were dropped when they were demultiplexed, or found the shared queue of
    /// [`Architecture::Bsd`](super::Architecture::Bsd) full.
    pub demux_drops: u64,
    /// Frames for the link.
    pub frames_sent: u64,
    /// Datagrams that receivers took.
    pub datagrams_received: u64,
    /// Datagrams that endpoints sent.
    pub datagrams_sent: u64,
    /// Echo requests that were answered.
    pub echoes_answered: u64,
    /// ICMP errors that were sent.
    pub errors_sent: u64,
    /// Packets put together from fragments.
    pub reassembled: u64,
    /// Messages in which another host uses one of the stack's addresses (RFC 5227).
    pub address_conflicts: u64,
}

impl StackCounts {
    /// Adds the frames and datagrams that another thread has received.
    pub const fn add_received(&mut self, more: &ReceiverCounts) {
        self.frames_received += more.frames;
        self.to_channels += more.to_channels;
        self.to_control += more.to_control;
        self.to_fragments += more.to_fragments;
        self.demux_drops += more.demux_drops;
        self.datagrams_received += more.datagrams;
    }

    /// The frames of the device by the verdict of the demultiplexer: `channel`, `control`, `fragment` and `drop`, as
    /// they are named in reports and metrics.
    pub const fn verdicts(&self) -> [(&'static str, u64); 4] {
        [
            ("channel", self.to_channels),
            ("control", self.to_control),
            ("fragment", self.to_fragments),
            ("drop", self.demux_drops),
        ]
    }
}
