//! The memory for a batch of datagrams, and the view of one.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;

use softclock_core::Instant;

use super::Ecn;
use super::receive::Headers;

/// Memory for a batch of datagrams, to be reused for many calls. Receiving into it allocates nothing.
///
/// A batch has a fixed number of slots of the same length, one for each datagram. A datagram that is longer than the
/// slot loses its end ([`Datagram::is_truncated`]).
///
/// # Example
/// Code that consumes batches can be tested without a socket:
/// ```
/// use softclock_linux::socket::udp::{Datagram, RecvBatch};
///
/// let mut batch = RecvBatch::new(8, 1500);
/// let source = ([192, 0, 2, 1], 443).into();
/// batch.put(Datagram::new(b"ping", source)).unwrap();
///
/// let bytes: usize = batch.iter().map(|datagram| datagram.payload.len()).sum();
/// assert_eq!((batch.len(), bytes), (1, 4));
/// ```
pub struct RecvBatch {
    /// The slots, one behind the other.
    bytes: Vec<u8>,
    slot_bytes: usize,
    /// The datagrams in the first slots. Its capacity is the number of slots.
    filled: Vec<Filled>,
    headers: Headers,
}

/// A datagram in a slot.
struct Filled {
    /// The length of the payload.
    bytes: usize,
    /// The datagram without its payload.
    datagram: Datagram<'static>,
}

impl RecvBatch {
    /// The longest payload in bytes, also of joined datagrams: the length of a slot that truncates nothing.
    pub const MOST_BYTES: usize = u16::MAX as usize;

    /// The most slots of a batch (UIO_MAXIOV of the kernel).
    pub const MOST_SLOTS: usize = 1024;

    /// Allocates a batch of `slots` slots, 1 to [`MOST_SLOTS`](Self::MOST_SLOTS), of `slot_bytes` bytes each, at least
    /// 1. Values beyond these limits are replaced by the limit.
    ///
    /// With [`RecvOptions::gro`](super::RecvOptions::gro), slots should have [`MOST_BYTES`](Self::MOST_BYTES). Pages of
    /// the slots that no datagram has reached take no memory.
    pub fn new(slots: usize, slot_bytes: usize) -> Self {
        let slots = slots.clamp(1, Self::MOST_SLOTS);
        let slot_bytes = slot_bytes.clamp(1, Self::MOST_BYTES);
        Self {
            bytes: vec![0; slots * slot_bytes],
            slot_bytes,
            filled: Vec::with_capacity(slots),
            headers: Headers::new(slots),
        }
    }

    /// Returns the number of slots.
    pub fn slots(&self) -> usize {
        self.bytes.len() / self.slot_bytes
    }

    /// Returns the number of slots that have a datagram.
    pub fn len(&self) -> usize {
        self.filled.len()
    }

    /// Returns whether the batch has no datagram.
    pub fn is_empty(&self) -> bool {
        self.filled.is_empty()
    }

    /// Returns the datagram at `index`, in the order of arrival.
    pub fn get(&self, index: usize) -> Option<Datagram<'_>> {
        let Filled { bytes, datagram } = self.filled.get(index)?;
        let start = index * self.slot_bytes;
        Some(Datagram {
            payload: &self.bytes[start..start + bytes],
            ..*datagram
        })
    }

    /// Returns the payload at `index`, to be changed in place, as by decryption.
    pub fn payload_mut(&mut self, index: usize) -> Option<&mut [u8]> {
        let bytes = self.filled.get(index)?.bytes;
        let start = index * self.slot_bytes;
        Some(&mut self.bytes[start..start + bytes])
    }

    /// Iterates over the slots' datagrams in the order of arrival. Those that the kernel joined are one item.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Datagram<'_>> {
        let get = |index| self.get(index).expect("the index is below the length");
        (0..self.len()).map(get)
    }

    /// Iterates over the datagrams one by one, in the order of arrival, also over those that the kernel joined. Of
    /// joined ones that were truncated, the last says so.
    ///
    /// # Example
    /// ```
    /// use softclock_linux::socket::udp::{Datagram, RecvBatch};
    ///
    /// let mut batch = RecvBatch::new(8, RecvBatch::MOST_BYTES);
    /// let mut joined = Datagram::new(b"abcdefgh", ([192, 0, 2, 1], 443).into());
    /// joined.segment_bytes = std::num::NonZeroU16::new(3);
    /// batch.put(joined).unwrap();
    ///
    /// let payloads: Vec<_> = batch.datagrams().map(|datagram| datagram.payload).collect();
    /// assert_eq!(payloads, [&b"abc"[..], b"def", b"gh"]);
    /// ```
    pub fn datagrams(&self) -> impl Iterator<Item = Datagram<'_>> {
        self.iter().flat_map(|joined| {
            let mut segments = joined.segments();
            std::iter::from_fn(move || {
                let payload = segments.next()?;
                Some(Datagram {
                    payload,
                    is_truncated: joined.is_truncated && segments.len() == 0,
                    segment_bytes: None,
                    ..joined
                })
            })
        })
    }

    /// Removes all datagrams. Receiving into a batch does this first.
    pub fn clear(&mut self) {
        self.filled.clear();
    }

    /// Copies a datagram into the next slot. A payload that does not fit is truncated.
    ///
    /// # Errors
    /// [`BatchFull`] if every slot has a datagram.
    pub fn put(&mut self, datagram: Datagram<'_>) -> Result<(), BatchFull> {
        if self.len() == self.slots() {
            return Err(BatchFull);
        }
        let bytes = datagram.payload.len().min(self.slot_bytes);
        let start = self.len() * self.slot_bytes;
        self.bytes[start..start + bytes].copy_from_slice(&datagram.payload[..bytes]);
        let is_truncated = datagram.is_truncated || bytes < datagram.payload.len();
        self.fill(
            bytes,
            Datagram {
                payload: &[],
                is_truncated,
                ..datagram
            },
        );
        Ok(())
    }

    /// Returns the slots' bytes, the length of a slot and the kernel's descriptions of them.
    pub(super) fn parts(&mut self) -> (&mut [u8], usize, &mut Headers) {
        (&mut self.bytes, self.slot_bytes, &mut self.headers)
    }

    pub(super) fn headers(&self) -> &Headers {
        &self.headers
    }

    /// Records that the next slot has a datagram with a payload of `bytes`.
    pub(super) fn fill(&mut self, bytes: usize, datagram: Datagram<'static>) {
        debug_assert!(bytes <= self.slot_bytes && self.len() < self.slots());
        self.filled.push(Filled { bytes, datagram });
    }
}

impl fmt::Debug for RecvBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecvBatch")
            .field("slots", &self.slots())
            .field("slot_bytes", &self.slot_bytes)
            .field("len", &self.len())
            .finish()
    }
}

/// All slots of a [`RecvBatch`] have a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchFull;

impl fmt::Display for BatchFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("every slot of the batch has a datagram")
    }
}

impl std::error::Error for BatchFull {}

/// A datagram of a [`RecvBatch`], or several that the kernel joined. The optional facts are those that
/// [`RecvOptions`](super::RecvOptions) asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Datagram<'a> {
    /// The payload. That of joined datagrams is to be split by [`segments`](Self::segments).
    pub payload: &'a [u8],
    /// The address of the sender. IPv4-mapped if a dual-stack socket received the datagram by IPv4.
    pub source: SocketAddr,
    /// The address to which the datagram was sent, if the socket is bound to a wildcard. IPv4-mapped as `source` is.
    pub destination: Option<IpAddr>,
    /// The ECN field.
    pub ecn: Option<Ecn>,
    /// The time at which the kernel received the datagram.
    ///
    /// The kernel's stamp is by CLOCK_REALTIME. If that clock was set since then, the time is wrong by as much; it is
    /// `None` if this makes it a time in the future or more than 10 seconds ago.
    pub received: Option<Instant>,
    /// Whether the slot was too short and the end of the payload is lost.
    pub is_truncated: bool,
    /// The length of each joined datagram, of which the last may be shorter. `None` for a single one.
    pub segment_bytes: Option<NonZeroU16>,
}

impl<'a> Datagram<'a> {
    /// Returns a datagram without the optional facts.
    pub const fn new(payload: &'a [u8], source: SocketAddr) -> Self {
        Self {
            payload,
            source,
            destination: None,
            ecn: None,
            received: None,
            is_truncated: false,
            segment_bytes: None,
        }
    }

    /// Iterates over the payloads of the joined datagrams; over one payload, which may be empty, if there is one.
    pub fn segments(&self) -> Segments<'a> {
        Segments {
            rest: Some(self.payload),
            segment_bytes: self
                .segment_bytes
                .map_or(usize::MAX, |bytes| bytes.get().into()),
        }
    }
}

/// The payloads of joined datagrams, from [`Datagram::segments`].
#[derive(Clone, Debug)]
pub struct Segments<'a> {
    rest: Option<&'a [u8]>,
    segment_bytes: usize,
}

impl<'a> Iterator for Segments<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest?;
        let (first, rest) = rest.split_at(rest.len().min(self.segment_bytes));
        self.rest = (!rest.is_empty()).then_some(rest);
        Some(first)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let count = |rest: &[u8]| rest.len().div_ceil(self.segment_bytes).max(1);
        let count = self.rest.map_or(0, count);
        (count, Some(count))
    }
}

impl ExactSizeIterator for Segments<'_> {}

#[cfg(test)]
mod tests {
    use super::*;

    fn source() -> SocketAddr {
        ([127, 0, 0, 1], 7).into()
    }

    fn joined(payload: &[u8], segment_bytes: u16) -> Datagram<'_> {
        Datagram {
            segment_bytes: NonZeroU16::new(segment_bytes),
            ..Datagram::new(payload, source())
        }
    }

    #[test]
    fn joined_datagrams_are_split() {
        for (datagram, expected) in [
            (joined(b"abcdefgh", 3), &[&b"abc"[..], b"def", b"gh"][..]),
            (joined(b"abcdef", 3), &[b"abc", b"def"]),
            (joined(b"abc", 5), &[b"abc"]),
            (joined(b"", 3), &[b""]),
            (joined(b"abc", 0), &[b"abc"]),
            (joined(b"", 0), &[b""]),
        ] {
            let segments = datagram.segments();
            assert_eq!(segments.len(), expected.len());
            assert!(segments.eq(expected.iter().copied()), "{datagram:?}");
        }
    }

    #[test]
    fn the_last_of_truncated_datagrams_says_so() {
        let mut batch = RecvBatch::new(3, 5);
        batch.put(joined(b"abcdefgh", 3)).unwrap();
        batch.put(Datagram::new(b"", source())).unwrap();
        batch.put(Datagram::new(b"123456", source())).unwrap();
        let seen = batch.datagrams().map(|one| (one.payload, one.is_truncated));
        let expected = [
            (&b"abc"[..], false),
            (b"de", true),
            (b"", false),
            (b"12345", true),
        ];
        assert!(seen.eq(expected));
        assert!(batch.datagrams().all(|one| one.segment_bytes.is_none()));
    }

    #[test]
    fn a_batch_has_as_many_datagrams_as_slots() {
        let mut batch = RecvBatch::new(2, 3);
        assert!(batch.is_empty());
        batch.put(Datagram::new(b"abcd", source())).unwrap();
        batch.put(joined(b"xyz", 2)).unwrap();
        assert_eq!(batch.put(Datagram::new(b"", source())), Err(BatchFull));
        let [first, second] = [0, 1].map(|index| batch.get(index).unwrap());
        assert_eq!((first.payload, first.is_truncated), (&b"abc"[..], true));
        assert_eq!(second, joined(b"xyz", 2));
        assert!(batch.iter().eq([first, second]));
        batch.payload_mut(1).unwrap().fill(b'-');
        assert_eq!(batch.get(1).unwrap().payload, b"---");
        assert_eq!(batch.get(2), None);
        assert_eq!(batch.payload_mut(2), None);
        batch.clear();
        assert_eq!((batch.len(), batch.slots()), (0, 2));
        assert_eq!(batch.get(0), None);
        assert_eq!(batch.payload_mut(0), None);
    }

    #[test]
    fn sizes_are_limited() {
        let batch = RecvBatch::new(0, 0);
        assert_eq!((batch.slots(), batch.slot_bytes), (1, 1));
        let batch = RecvBatch::new(usize::MAX, usize::MAX);
        assert_eq!((batch.slots(), batch.slot_bytes), (1024, 65_535));
    }
}
