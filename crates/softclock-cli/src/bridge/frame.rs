//! Frames on their way, and what treats them on it.

use std::collections::BTreeMap;

use softclock_core::Instant;
use softclock_core::packet::Offload;

/// A frame of Ethernet.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) bytes: Vec<u8>,
    /// What is left to do with it.
    pub(crate) offload: Offload,
    /// When the kernel received it.
    pub(crate) arrived: Instant,
}

/// What becomes of the frames of one direction. Pure: time is an argument.
pub(crate) trait Discipline: 'static {
    /// Takes a frame, or drops it and counts that.
    fn on_frame(&mut self, frame: Frame, now: Instant);

    /// The next frame that may leave at `now`, or when that will be.
    fn next(&mut self, now: Instant) -> Next;

    /// What happened so far, by class.
    fn rows(&self) -> Vec<Row>;
}

/// What is to be done now.
#[derive(Debug)]
pub(crate) enum Next {
    Send(Frame),
    /// Nothing before this instant.
    Wait(Instant),
    /// Nothing until another frame arrives.
    Empty,
}

/// What one class did so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Row {
    pub(crate) name: String,
    /// How it is treated.
    pub(crate) rule: String,
    pub(crate) sent_packets: u64,
    /// On the wire.
    pub(crate) sent_bytes: u64,
    pub(crate) queued_packets: usize,
    pub(crate) queued_bytes: u64,
    pub(crate) events: Counts,
}

/// Counts by name: drops and other events.
pub(crate) type Counts = BTreeMap<&'static str, u64>;

#[cfg(test)]
impl Frame {
    /// TCP over IPv4 to port 80: a frame, or several segments that an offload has joined.
    pub(crate) fn tcp4(payload_bytes: usize, segment_bytes: Option<u16>) -> Self {
        use softclock_core::packet::{PartialChecksum, SegmentKind, Segmentation};

        let mut bytes = vec![2; 12];
        bytes.extend([8, 0, 0x45, 0, 0, 0, 0, 0, 0, 0, 64, 6, 0, 0]);
        bytes.extend([10, 0, 0, 1, 10, 0, 0, 2, 0, 9, 0, 80]);
        bytes.resize(46, 0);
        bytes.push(0x50);
        bytes.resize(54 + payload_bytes, 0);
        let checksum = PartialChecksum {
            start: 34,
            offset: 16,
        };
        let segmentation = segment_bytes.map(|segment_bytes| Segmentation {
            kind: SegmentKind::Tcp4,
            has_ecn: false,
            header_bytes: 54,
            segment_bytes,
        });
        Self {
            bytes,
            offload: Offload {
                checksum: Some(checksum),
                segmentation,
            },
            arrived: Instant::ORIGIN,
        }
    }
}
