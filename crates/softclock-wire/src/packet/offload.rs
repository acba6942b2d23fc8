//! What a frame leaves to the link: checksums and segmentation that the sender has not done.
//!
//! The terms and the layout follow Linux' `struct virtio_net_hdr` (include/uapi/linux/virtio_net.h), with which frames are
//! exchanged with AF_PACKET sockets, TAP devices and virtual machines.

/// What is still to be done with a frame before it can be on a wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Offload {
    /// The checksum to be completed.
    pub checksum: Option<PartialChecksum>,
    /// How to segment the frame.
    pub segmentation: Option<Segmentation>,
}

/// A checksum whose field holds the sum of the pseudo-header only.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PartialChecksum {
    /// Where the sum begins, in bytes from the frame's beginning.
    pub start: u16,
    /// Where the field is, in bytes from `start`.
    pub offset: u16,
}

/// A frame longer than the link carries, to be cut into segments (GSO).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segmentation {
    /// The protocol.
    pub kind: SegmentKind,
    /// The flag CWR belongs to the first segment only (RFC 3168).
    pub has_ecn: bool,
    /// What the sender says of the headers' bytes, at least.
    pub header_bytes: u16,
    /// Bytes of payload in a segment.
    pub segment_bytes: u16,
}

/// The protocols that are segmented.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SegmentKind {
    /// TCP over IPv4.
    Tcp4,
    /// TCP over IPv6.
    Tcp6,
    /// UDP, each segment a datagram.
    Udp,
    /// UDP, each segment a fragment of one datagram.
    UdpFragments,
}

impl Offload {
    /// The bytes of a `virtio_net_hdr`, in the machine's byte order.
    pub const BYTES: usize = 10;

    /// The frame is as it will be on the wire.
    pub const NONE: Self = Self {
        checksum: None,
        segmentation: None,
    };

    /// Reads a `virtio_net_hdr`; `None` if it asks for what is unknown here.
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let field = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        let checksum = PartialChecksum {
            start: field(6),
            offset: field(8),
        };
        let kind = match bytes[1] & !GSO_ECN {
            GSO_NONE => None,
            GSO_TCP4 => Some(SegmentKind::Tcp4),
            GSO_TCP6 => Some(SegmentKind::Tcp6),
            GSO_UDP_FRAGMENTS => Some(SegmentKind::UdpFragments),
            GSO_UDP => Some(SegmentKind::Udp),
            _ => return None,
        };
        Some(Self {
            checksum: (bytes[0] & NEEDS_CHECKSUM != 0).then_some(checksum),
            segmentation: kind.map(|kind| Segmentation {
                kind,
                has_ecn: bytes[1] & GSO_ECN != 0,
                header_bytes: field(2),
                segment_bytes: field(4),
            }),
        })
    }

    /// Writes a `virtio_net_hdr`.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        if let Some(checksum) = self.checksum {
            bytes[0] = NEEDS_CHECKSUM;
            bytes[6..8].copy_from_slice(&checksum.start.to_ne_bytes());
            bytes[8..10].copy_from_slice(&checksum.offset.to_ne_bytes());
        }
        if let Some(segmentation) = self.segmentation {
            let ecn = if segmentation.has_ecn { GSO_ECN } else { 0 };
            bytes[1] = ecn
                | match segmentation.kind {
                    SegmentKind::Tcp4 => GSO_TCP4,
                    SegmentKind::Tcp6 => GSO_TCP6,
                    SegmentKind::Udp => GSO_UDP,
                    SegmentKind::UdpFragments => GSO_UDP_FRAGMENTS,
                };
            bytes[2..4].copy_from_slice(&segmentation.header_bytes.to_ne_bytes());
            bytes[4..6].copy_from_slice(&segmentation.segment_bytes.to_ne_bytes());
        }
        bytes
    }

    /// The same after `bytes` were put in front of the network header: a VLAN's tag.
    #[must_use]
    pub fn shifted(mut self, bytes: u16) -> Self {
        if let Some(checksum) = &mut self.checksum {
            checksum.start = checksum.start.saturating_add(bytes);
        }
        if let Some(segmentation) = &mut self.segmentation {
            segmentation.header_bytes = segmentation.header_bytes.saturating_add(bytes);
        }
        self
    }
}

const NEEDS_CHECKSUM: u8 = 1;

const GSO_NONE: u8 = 0;
const GSO_TCP4: u8 = 1;
const GSO_UDP_FRAGMENTS: u8 = 3;
const GSO_TCP6: u8 = 4;
const GSO_UDP: u8 = 5;
const GSO_ECN: u8 = 0x80;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(bytes in any::<[u8; Offload::BYTES]>()) {
            if let Some(offload) = Offload::from_bytes(&bytes) {
                prop_assert_eq!(Offload::from_bytes(&offload.to_bytes()), Some(offload));
            }
        }
    }

    #[test]
    fn a_tag_moves_what_is_behind_it() {
        let mut bytes = [0; Offload::BYTES];
        bytes[0] = NEEDS_CHECKSUM;
        bytes[6..8].copy_from_slice(&34u16.to_ne_bytes());
        let offload = Offload::from_bytes(&bytes).unwrap().shifted(4);
        assert_eq!(offload.checksum.unwrap().start, 38);
        assert_eq!(Offload::NONE.shifted(4), Offload::NONE);
    }
}
