//! A veth pair for tests, and frames to send over it.

use std::ops::Deref;

use softclock_testing::lab::VethPair;
use softclock_wire::packet::{Offload, PartialChecksum, SegmentKind, Segmentation};

use super::Link;

/// A veth pair: frames sent on one link arrive on the other.
pub(super) struct Cable(VethPair);

/// Creates a cable, or skips the test if the machine does not permit it.
macro_rules! cable {
    () => {{
        softclock_testing::require!("ip");
        match crate::link::cable::Cable::new() {
            Ok(cable) => cable,
            Err(reason) => softclock_testing::skip!("{reason}"),
        }
    }};
}
pub(super) use cable;

impl Cable {
    pub(super) fn new() -> Result<Self, String> {
        Self::with_queues(1)
    }

    /// Creates a cable whose ends have `queues` queues in each direction.
    pub(super) fn with_queues(queues: u32) -> Result<Self, String> {
        VethPair::with_queues(queues).map(Self)
    }

    /// Creates a cable whose first end has these numbers of receive and transmit queues.
    pub(super) fn with_queues_each(receive: u32, transmit: u32) -> Result<Self, String> {
        VethPair::with_queues_each(receive, transmit).map(Self)
    }

    pub(super) fn links(&self) -> [Link; 2] {
        self.names().map(|name| Link::named(&name).unwrap())
    }
}

impl Deref for Cable {
    type Target = VethPair;

    fn deref(&self) -> &VethPair {
        &self.0
    }
}

/// A broadcast frame of `bytes` bytes, of TCP over IPv4 with the VLAN `tag`, if any.
pub(super) fn frame(tag: &[u8], bytes: usize) -> Vec<u8> {
    let mut frame = [&[0xff; 6][..], &SENDER, tag, &[0x08, 0x00]].concat();
    // Only the fields of the IPv4 and TCP headers that the kernel checks.
    let length = (bytes - 14 - tag.len()) as u16;
    frame.extend([0x45, 0]);
    frame.extend(length.to_be_bytes());
    frame.extend([0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend([0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x10, 1, 1]);
    frame.resize(bytes, 7);
    frame
}

/// The offloads of such a frame without a tag: a partial checksum, and segmentation into `segment_bytes` each.
pub(super) fn joined(segment_bytes: u16) -> Offload {
    Offload {
        checksum: Some(PartialChecksum {
            start: 34,
            offset: 16,
        }),
        segmentation: Some(Segmentation {
            kind: SegmentKind::Tcp4,
            has_ecn: false,
            header_bytes: 54,
            segment_bytes,
        }),
    }
}

/// The source address of these frames, which tells them from the frames that the host sends.
pub(super) const SENDER: [u8; 6] = [2, 0, 0, 0, 0x5c, 1];
