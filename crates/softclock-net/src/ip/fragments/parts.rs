//! The fragments of one packet that have arrived.

use alloc::vec::Vec;

use super::{Fragment, Packet};
use crate::drops::DropReason;

/// The fragments of one packet: they overlap nowhere, and are sorted by their place.
#[derive(Default)]
pub(super) struct Parts {
    parts: Vec<Part>,
    /// The bytes of payload in all parts.
    payload_bytes: usize,
    /// The length of the whole payload, once the last fragment is here.
    end: Option<usize>,
    /// The fields of the first fragment's header, once it is here: they count for the whole packet.
    first: Option<Head>,
    has_congestion: bool,
    has_no_ecn: bool,
}

/// The fields of a packet's header that the first fragment decides.
#[derive(Clone, Copy)]
pub(super) struct Head {
    pub(super) protocol: u8,
    pub(super) hop_limit: u8,
    pub(super) traffic_class: u8,
}

impl Head {
    pub(super) const fn of(packet: &Packet<'_>) -> Self {
        Self {
            protocol: packet.protocol,
            hop_limit: packet.hop_limit,
            traffic_class: packet.traffic_class,
        }
    }
}

struct Part {
    offset: usize,
    payload: Vec<u8>,
}

impl Part {
    fn end(&self) -> usize {
        self.offset + self.payload.len()
    }
}

impl Parts {
    /// The number of fragments.
    pub(super) fn len(&self) -> usize {
        self.parts.len()
    }

    /// The memory that the fragments take.
    pub(super) fn bytes(&self) -> usize {
        self.payload_bytes + self.parts.len() * PART_BYTES
    }

    /// Returns the place of a fragment among the others, for [`insert`](Self::insert); `None` if it is a duplicate.
    ///
    /// # Errors
    /// [`DropReason::FragmentOverlap`] if it overlaps another without being the same, [`DropReason::FragmentInvalid`]
    /// if there is payload behind the end.
    pub(super) fn place(
        &self,
        fragment: Fragment,
        payload: &[u8],
    ) -> Result<Option<usize>, DropReason> {
        let end = fragment.offset + payload.len();
        let place = self
            .parts
            .partition_point(|part| part.offset < fragment.offset);
        let next = self.parts.get(place);
        if let Some(same) = next
            && same.offset == fragment.offset
            && same.payload == payload
        {
            let is_last = self.end == Some(end);
            return match is_last != fragment.has_more {
                true => Ok(None),
                false => Err(DropReason::FragmentInvalid),
            };
        }
        let previous = place.checked_sub(1).and_then(|at| self.parts.get(at));
        let overlaps_previous = previous.is_some_and(|part| part.end() > fragment.offset);
        let overlaps_next = next.is_some_and(|part| part.offset < end);
        if overlaps_previous || overlaps_next {
            return Err(DropReason::FragmentOverlap);
        }
        // The last fragment ends behind all others, and there is only one.
        let contradicts_end = match (fragment.has_more, self.end) {
            (true, known) => known.is_some_and(|known| end >= known),
            (false, Some(_)) => true,
            (false, None) => self.parts.last().is_some_and(|part| part.end() > end),
        };
        match contradicts_end {
            true => Err(DropReason::FragmentInvalid),
            false => Ok(Some(place)),
        }
    }

    /// Takes a fragment at the place that [`place`](Self::place) has returned.
    pub(super) fn insert(&mut self, place: usize, fragment: Fragment, packet: &Packet<'_>) {
        let payload = packet.payload.to_vec();
        if fragment.offset == 0 {
            self.first = Some(Head::of(packet));
        }
        if !fragment.has_more {
            self.end = Some(fragment.offset + payload.len());
        }
        self.has_congestion |= packet.traffic_class & ECN_MASK == ECN_CONGESTION;
        self.has_no_ecn |= packet.traffic_class & ECN_MASK == 0;
        self.payload_bytes += payload.len();
        let offset = fragment.offset;
        self.parts.insert(place, Part { offset, payload });
    }

    /// The first fragment, if it is here.
    pub(super) fn first(&self) -> Option<(Head, &[u8])> {
        let part = self.parts.first().filter(|part| part.offset == 0)?;
        Some((self.first?, &part.payload))
    }

    /// Whether all fragments are here.
    pub(super) fn is_whole(&self) -> bool {
        self.end == Some(self.payload_bytes)
    }

    /// Returns the whole packet if all fragments are here. It has the mark of congestion if any fragment has it.
    ///
    /// # Errors
    /// [`DropReason::FragmentInvalid`] if a fragment has the mark and the sender of another does not use ECN (RFC 3168,
    /// 5.3), or if fragments are missing.
    pub(super) fn join(self) -> Result<(Head, Vec<u8>), DropReason> {
        let (true, Some(mut head)) = (self.is_whole(), self.first) else {
            return Err(DropReason::FragmentInvalid);
        };
        if self.has_congestion {
            if self.has_no_ecn {
                return Err(DropReason::FragmentInvalid);
            }
            head.traffic_class |= ECN_CONGESTION;
        }
        let mut payload = Vec::with_capacity(self.payload_bytes);
        for part in &self.parts {
            payload.extend_from_slice(&part.payload);
        }
        Ok((head, payload))
    }

    /// Checks that the parts are sorted, do not overlap, and end where the last fragment ends.
    pub(super) fn check(&self) {
        let payload_bytes: usize = self.parts.iter().map(|part| part.payload.len()).sum();
        assert_eq!(payload_bytes, self.payload_bytes);
        for pair in self.parts.windows(2) {
            assert!(pair[0].end() <= pair[1].offset);
        }
        if let (Some(end), Some(last)) = (self.end, self.parts.last()) {
            assert!(last.end() <= end);
        }
    }
}

/// The memory counted for a fragment besides its payload: the entry in the list, and the allocator's share. Without it
/// fragments of 8 bytes would take several times the memory that the limits allow.
pub(super) const PART_BYTES: usize = 64;

const ECN_MASK: u8 = 0b11;
const ECN_CONGESTION: u8 = 0b11;
