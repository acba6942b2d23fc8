//! Trains: segments that a device cuts out of one long one (segmentation offload).

use core::ops::Deref;

use softclock_core::Instant;

use super::{Connection, Outgoing};
use crate::tcp::segment::{Flags, SackBlocks};

/// Segments that follow each other, as one segment that is longer than the path allows. The device cuts it: the parts
/// have its header but for the sequence number, and only the last one has PSH and FIN.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Train {
    /// The segment with the payload of all.
    pub segment: Outgoing,
    /// The payload of each segment but the last, in bytes.
    pub segment_bytes: u32,
    /// The number of segments.
    pub segments: u32,
    /// A segment that was to be sent next and does not belong to the train: it follows on its own.
    pub next: Option<Outgoing>,
}

impl<B: Deref<Target = [u8]>> Connection<B> {
    /// The next segments to send now, with at most `most_bytes` bytes of payload: as many as
    /// [`poll_transmit`](Self::poll_transmit) returns in a row that differ in nothing but their positions. Each counts
    /// as a segment of its own for congestion control, pacing, and the search for losses.
    pub fn poll_transmit_train(&mut self, now: Instant, most_bytes: u32) -> Option<Train> {
        let first = self.poll_transmit(now)?;
        let mut train = Train {
            segment: first,
            segment_bytes: first.length,
            segments: 1,
            next: None,
        };
        while train.may_grow(most_bytes)
            && let Some(next) = self.poll_transmit(now)
        {
            if !train.append(&next) {
                train.next = Some(next);
                break;
            }
        }
        Some(train)
    }
}

impl Train {
    /// Whether another segment may belong to it: all have full length, and none of the flags that end a train or that
    /// only one segment may have.
    fn may_grow(&self, most_bytes: u32) -> bool {
        let only_once = Flags::SYN | Flags::FIN | Flags::RST | Flags::PSH | Flags::URG | Flags::CWR;
        let Outgoing {
            header,
            options,
            length,
            ..
        } = &self.segment;
        *length > 0
            && *length == self.segments * self.segment_bytes
            && length + self.segment_bytes <= most_bytes
            && !header.flags.intersects(only_once)
            && options.sack == SackBlocks::default()
    }

    /// Appends a segment, if it belongs to the train.
    fn append(&mut self, next: &Outgoing) -> bool {
        let last = Flags::FIN | Flags::PSH;
        let mut expected = self.segment;
        expected.header.sequence += self.segment.length;
        expected.header.flags = Flags(expected.header.flags.0 | next.header.flags.0 & last.0);
        expected.length = next.length;
        let is_next = expected == *next && (1..=self.segment_bytes).contains(&next.length);
        if is_next {
            self.segment.header.flags = next.header.flags;
            self.segment.length += next.length;
            self.segments += 1;
        }
        is_next
    }
}
