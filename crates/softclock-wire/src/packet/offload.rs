//! Offload: the checksums and the segmentation that the sender of a frame leaves to the link.
//!
//! The terms and the layout are those of Linux' `struct virtio_net_hdr` (include/uapi/linux/virtio_net.h), which
//! precedes the frames of AF_PACKET sockets, TAP devices and virtual machines.

/// The work that must be done on a frame before it can be sent on a wire.
///
/// ```
/// use softclock_wire::packet::Offload;
///
/// let nothing = Offload::from_bytes(&[0; Offload::BYTES]);
/// assert_eq!(nothing, Some(Offload::NONE));
/// assert_eq!(Offload::NONE.to_bytes(), [0; Offload::BYTES]);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Offload {
    /// The checksum to complete, if any.
    pub checksum: Option<PartialChecksum>,
    /// The segmentation to do, if any.
    pub segmentation: Option<Segmentation>,
}

/// A partial checksum: its field holds the sum of the pseudo-header only, and for SCTP, which has none, zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PartialChecksum {
    /// The offset of the first byte to sum, in bytes from the beginning of the frame.
    pub start: u16,
    /// The offset of the checksum field, in bytes from `start`.
    pub offset: u16,
}

/// A request to cut a frame that is longer than the link allows into segments (generic segmentation offload, GSO).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segmentation {
    /// The protocol whose payload is cut.
    pub kind: SegmentKind,
    /// Whether the frame has the TCP flag CWR, which only the first segment must carry (RFC 3168).
    pub has_ecn: bool,
    /// The length of all headers, as given by the sender. A hint, which may be wrong.
    pub header_bytes: u16,
    /// The bytes of payload in each segment except the last.
    pub segment_bytes: u16,
}

/// A protocol that can be segmented.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SegmentKind {
    /// TCP over IPv4.
    Tcp4,
    /// TCP over IPv6.
    Tcp6,
    /// UDP, where each segment becomes a datagram.
    Udp,
    /// UDP, where each segment becomes an IP fragment of one datagram.
    UdpFragments,
}

impl PartialChecksum {
    /// Whether this is the CRC32c of SCTP, whose offset no other transport has. A `virtio_net_hdr` cannot say so:
    /// Linux completes it as if it were an Internet checksum, which damages it.
    pub const fn is_crc32c(self) -> bool {
        self.offset == SCTP_CHECKSUM
    }
}

impl Offload {
    /// The length of a `virtio_net_hdr`.
    pub const BYTES: usize = 10;

    /// No work is left: the frame can be sent on a wire.
    pub const NONE: Self = Self {
        checksum: None,
        segmentation: None,
    };

    /// Parses a `virtio_net_hdr` in the machine's byte order. Returns `None` if it requests an unknown segmentation.
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

    /// Converts to a `virtio_net_hdr` in the machine's byte order.
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

    /// Returns the offload of the frame after `bytes` were inserted before the network header, such as a VLAN tag.
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

/// The place of the checksum in the header of SCTP.
pub(super) const SCTP_CHECKSUM: u16 = 8;

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
