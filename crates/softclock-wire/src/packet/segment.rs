//! Segmentation: cuts frames that are longer than the link allows, as generic segmentation offload (GSO) produces them.
//!
//! - [`tunnel`]: the headers around packets in tunnels.

mod tunnel;

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use super::checksum::{ones_complement_sum, pseudo_header_sum, replaced};
use super::{Headers, IPV4, Offload, PartialChecksum, SegmentKind, TCP, UDP};
use tunnel::Tunnel;

/// An iterator over the segments of a frame, each a complete frame; see [`segments`].
#[derive(Clone, Debug)]
pub struct Segments<'a> {
    frame: &'a [u8],
    /// The headers around the packet that is cut, if it is in a tunnel.
    tunnel: Option<Tunnel>,
    network: Network,
    payload: usize,
    is_tcp: bool,
    segment_bytes: usize,
    checksum: PartialChecksum,
    /// The sum of the pseudo-header, without the length of the transport.
    pseudo_sum: u16,
    /// The offset of the next segment's payload.
    next: usize,
    index: u16,
}

/// Cuts a frame of TCP or UDP, over IPv4 or IPv6, into segments as `offload` requests. Returns `None` if `offload`
/// requests no segmentation, requests UDP fragments, or contradicts the frame's headers.
///
/// If the partial checksum is that of a packet inside a tunnel, this packet is cut, and each segment has the headers of
/// the tunnel: IP in IP, GRE without checksums and sequence numbers, or UDP, such as VXLAN. Returns `None` for other
/// tunnels.
///
/// The lengths, identifications, sequence numbers and flags of the segments, and the checksums of IPv4, are those that
/// a sender without offload would have written. The transport's checksum becomes or stays partial; complete it as
/// [`Segments::offload`] describes. A frame without a partial checksum, such as one that the network interface has
/// joined, is cut as well: its checksum is ignored, since it need not be that of the joined frame. Each segment is
/// allocated and copied.
///
/// # Example
/// ```
/// use softclock_wire::packet::{Headers, Offload, PartialChecksum, SegmentKind, Segmentation, UDP, segments};
///
/// // 250 bytes of UDP payload, after 14 bytes of Ethernet, 20 of IPv4 and 8 of UDP.
/// let mut frame = vec![0; 42 + 250];
/// frame[12..14].copy_from_slice(&0x0800_u16.to_be_bytes());
/// (frame[14], frame[23]) = (0x45, UDP);
/// frame[38..40].copy_from_slice(&258_u16.to_be_bytes()); // the length of header and payload
///
/// let offload = Offload {
///     checksum: Some(PartialChecksum { start: 34, offset: 6 }),
///     segmentation: Some(Segmentation {
///         kind: SegmentKind::Udp,
///         has_ecn: false,
///         header_bytes: 42,
///         segment_bytes: 100,
///     }),
/// };
/// let headers = Headers::of_frame(&frame);
/// let lengths: Vec<_> = segments(&frame, &headers, &offload).unwrap().map(|frame| frame.len()).collect();
/// assert_eq!(lengths, [142, 142, 92]);
/// ```
pub fn segments<'a>(frame: &'a [u8], headers: &Headers, offload: &Offload) -> Option<Segments<'a>> {
    let segmentation = offload.segmentation?;
    let (mut headers, mut tunnel) = (*headers, None);
    if let Some(given) = offload.checksum
        && usize::from(given.start) != headers.transport_offset
    {
        let (around, inner) = Tunnel::of(frame, &headers, given.start.into())?;
        (headers, tunnel) = (inner, Some(around));
    }
    let is_tcp = match (segmentation.kind, headers.protocol?) {
        (SegmentKind::Tcp4 | SegmentKind::Tcp6, TCP) => true,
        (SegmentKind::Udp, UDP) => false,
        _ => return None,
    };
    let network = Network::of(&headers);
    let transport = network.end;
    let payload = headers.payload_offset?;
    // The work requested must be that of the headers found; otherwise the segments would be damaged.
    let checksum = PartialChecksum {
        start: u16::try_from(transport).ok()?,
        offset: if is_tcp { 16 } else { 6 },
    };
    let fits = payload >= transport + if is_tcp { 20 } else { 8 }
        && payload < frame.len()
        && segmentation.segment_bytes > 0
        && offload.checksum.is_none_or(|given| given == checksum);
    fits.then(|| Segments {
        frame,
        tunnel,
        network,
        payload,
        is_tcp,
        segment_bytes: segmentation.segment_bytes.into(),
        checksum,
        pseudo_sum: pseudo_sum(frame, network, is_tcp, offload.checksum),
        next: payload,
        index: 0,
    })
}

impl Segments<'_> {
    /// The work that is left to do on each segment: its checksum.
    pub fn offload(&self) -> Offload {
        Offload {
            checksum: Some(self.checksum),
            segmentation: None,
        }
    }

    /// The length of the headers of each segment.
    pub const fn header_bytes(&self) -> usize {
        self.payload
    }

    /// The length of the next segment; `None` after the last.
    pub fn next_bytes(&self) -> Option<usize> {
        let payload = self.frame.len().saturating_sub(self.next);
        (payload > 0).then(|| self.payload + payload.min(self.segment_bytes))
    }

    /// Writes the next segment to `place` without an allocation; returns false after the last one.
    ///
    /// # Panics
    /// If `place` is not as long as [`next_bytes`](Self::next_bytes) says.
    pub fn write_next(&mut self, place: &mut [u8]) -> bool {
        let Some(bytes) = self.next_bytes() else {
            return false;
        };
        assert_eq!(place.len(), bytes, "the length of the segment");
        let begin = self.next;
        let end = begin + bytes - self.payload;
        let (headers, payload) = place.split_at_mut(self.payload);
        headers.copy_from_slice(&self.frame[..self.payload]);
        payload.copy_from_slice(&self.frame[begin..end]);
        self.network.set(place, self.index);
        self.set_transport(place, begin, end == self.frame.len());
        if let Some(tunnel) = self.tunnel {
            tunnel.set(place, self.index, self.checksum);
        }
        self.next = end;
        self.index = self.index.wrapping_add(1);
        true
    }

    /// Sets the sequence number and the flags of TCP or the length of UDP, and the sum of the pseudo-header. `begin` is
    /// the offset of the segment's payload in the frame.
    fn set_transport(&self, segment: &mut [u8], begin: usize, is_last: bool) {
        let header = &mut segment[self.network.end..];
        let length = header.len();
        if self.is_tcp {
            let sequence = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
            let sequence = sequence.wrapping_add((begin - self.payload) as u32);
            header[4..8].copy_from_slice(&sequence.to_be_bytes());
            // FIN and PSH belong to the end of the payload, CWR to its beginning (RFC 3168).
            if !is_last {
                header[13] &= !(FIN | PSH);
            }
            if self.index > 0 {
                header[13] &= !CWR;
            }
        } else {
            set_u16(header, 4, length as u16);
        }
        let sum = replaced(self.pseudo_sum, 0, length as u16);
        set_u16(header, self.checksum.offset.into(), sum);
    }
}

impl Iterator for Segments<'_> {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        let mut segment = vec![0; self.next_bytes()?];
        self.write_next(&mut segment);
        Some(segment)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.frame.len() - self.next;
        let count = left.div_ceil(self.segment_bytes);
        (count, Some(count))
    }
}

impl ExactSizeIterator for Segments<'_> {}

/// An IP header with its options and extension headers.
#[derive(Clone, Copy, Debug)]
struct Network {
    is_ipv4: bool,
    offset: usize,
    /// The offset of the transport's header.
    end: usize,
}

impl Network {
    fn of(headers: &Headers) -> Self {
        Self {
            is_ipv4: headers.ether_type == IPV4,
            offset: headers.network_offset,
            end: headers.transport_offset,
        }
    }

    /// The place of both addresses.
    fn addresses(self) -> Range<usize> {
        match self.is_ipv4 {
            true => self.offset + 12..self.offset + IPV4_HEADER,
            false => self.offset + 8..self.offset + IPV6_HEADER,
        }
    }

    /// Sets the length, and for IPv4 the identification and the checksum, of the segment with this index.
    fn set(self, segment: &mut [u8], index: u16) {
        let length = segment.len() - self.offset;
        let header = &mut segment[self.offset..];
        if !self.is_ipv4 {
            return set_u16(header, 4, (length - IPV6_HEADER) as u16);
        }
        set_u16(header, 2, length as u16);
        set_u16(header, 4, u16_at(header, 4).wrapping_add(index));
        set_u16(header, 10, 0);
        let checksum = !ones_complement_sum(&header[..self.end - self.offset]);
        set_u16(header, 10, checksum);
    }
}

/// Returns the sum of the pseudo-header of a frame, without the length of the transport.
fn pseudo_sum(
    frame: &[u8],
    network: Network,
    is_tcp: bool,
    partial: Option<PartialChecksum>,
) -> u16 {
    let transport = network.end;
    if let Some(partial) = partial {
        // The sender's sum, since with a routing header its destination is not that of the IP header.
        let whole = match is_tcp {
            true => (frame.len() - transport) as u16,
            false => u16_at(frame, transport + 4),
        };
        let field = transport + usize::from(partial.offset);
        return replaced(u16_at(frame, field), whole, 0);
    }
    pseudo_header_sum(
        &frame[network.addresses()],
        if is_tcp { TCP } else { UDP },
        0,
    )
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn set_u16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// The length of an IPv4 header without options, and of an IPv6 header without extension headers.
const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;

const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const CWR: u8 = 0x80;

#[cfg(test)]
mod tests;
