//! The size of a packet on the wire.

/// The sizes by which a packet longer than a frame will be segmented (GSO).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GsoSizes {
    /// Bytes of headers, link layer to transport, that each segment repeats.
    pub header_bytes: u32,
    /// Bytes of payload per segment.
    pub segment_bytes: u32,
}

/// Returns the size on the wire of a packet of `frame_bytes` (layer 2, as `tc` counts), including the headers that
/// segmentation adds (*PSPacer/HT*, section II-B) and `overhead_bytes` per frame (for Ethernet 24: preamble, check
/// sequence and gap).
///
/// # Example
/// ```
/// use softclock_core::pacing::{GsoSizes, wire_bytes};
///
/// assert_eq!(wire_bytes(1514, None, 24), 1538);
/// // 3000 bytes of payload behind 54 bytes of headers leave as two frames.
/// let gso = GsoSizes { header_bytes: 54, segment_bytes: 1500 };
/// assert_eq!(wire_bytes(3054, Some(gso), 24), 2 * (54 + 1500 + 24));
/// ```
pub const fn wire_bytes(frame_bytes: u32, gso: Option<GsoSizes>, overhead_bytes: u32) -> u64 {
    let (frames, headers) = match gso {
        Some(gso) if gso.segment_bytes > 0 && frame_bytes > gso.header_bytes => {
            let payload = frame_bytes - gso.header_bytes;
            let segments = payload.div_ceil(gso.segment_bytes) as u64;
            (segments, (segments - 1) * gso.header_bytes as u64)
        }
        _ => (1, 0),
    };
    frame_bytes as u64 + headers + frames * overhead_bytes as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_repeat_their_headers() {
        let gso = |header_bytes, segment_bytes| {
            Some(GsoSizes {
                header_bytes,
                segment_bytes,
            })
        };
        assert_eq!(wire_bytes(1514, None, 0), 1514);
        assert_eq!(wire_bytes(1514, None, 24), 1538);
        assert_eq!(wire_bytes(66 + 3 * 1448, gso(66, 1448), 0), 3 * 1514);
        assert_eq!(wire_bytes(66 + 1449, gso(66, 1448), 24), 1514 + 67 + 48);
        assert_eq!(wire_bytes(66, gso(66, 1448), 24), 90, "no payload");
        assert_eq!(wire_bytes(1000, gso(66, 0), 0), 1000);
    }
}
