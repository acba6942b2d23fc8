//! Sequence numbers: positions in a stream of bytes, modulo 2^32 (RFC 9293, 3.4).

use core::ops::{Add, AddAssign, Sub};

/// A sequence number. Comparisons hold for numbers less than 2^31 apart, so it implements neither `PartialOrd` nor
/// `Ord`.
///
/// ```
/// use softclock_net::tcp::seq::Seq;
///
/// let before_wrap = Seq(u32::MAX);
/// let after = before_wrap + 10;
/// assert_eq!(after, Seq(9));
/// assert!(before_wrap.is_before(after));
/// assert_eq!(after.since(before_wrap), 10);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Seq(pub u32);

impl Seq {
    /// Whether this position lies before `other`.
    #[inline]
    pub const fn is_before(self, other: Self) -> bool {
        (self.0.wrapping_sub(other.0) as i32) < 0
    }

    /// Whether this position lies before `other` or is the same.
    #[inline]
    pub const fn is_at_or_before(self, other: Self) -> bool {
        !other.is_before(self)
    }

    /// Whether this position lies in the range from `start`, included, to `end`, excluded.
    #[inline]
    pub const fn is_within(self, start: Self, end: Self) -> bool {
        self.0.wrapping_sub(start.0) < end.0.wrapping_sub(start.0)
    }

    /// The bytes from `earlier` to this position. 0 if `earlier` is later.
    #[inline]
    pub const fn since(self, earlier: Self) -> u32 {
        match self.is_before(earlier) {
            true => 0,
            false => self.0.wrapping_sub(earlier.0),
        }
    }

    /// The later of two positions.
    #[inline]
    #[must_use]
    pub const fn max(self, other: Self) -> Self {
        match self.is_before(other) {
            true => other,
            false => self,
        }
    }

    /// The earlier of two positions.
    #[inline]
    #[must_use]
    pub const fn min(self, other: Self) -> Self {
        match self.is_before(other) {
            true => self,
            false => other,
        }
    }
}

impl Add<u32> for Seq {
    type Output = Self;

    #[inline]
    fn add(self, bytes: u32) -> Self {
        Self(self.0.wrapping_add(bytes))
    }
}

impl AddAssign<u32> for Seq {
    #[inline]
    fn add_assign(&mut self, bytes: u32) {
        *self = *self + bytes;
    }
}

impl Sub<u32> for Seq {
    type Output = Self;

    #[inline]
    fn sub(self, bytes: u32) -> Self {
        Self(self.0.wrapping_sub(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_compare_by_their_distance(start in any::<u32>(), bytes in 1..1u32 << 31) {
            let (earlier, later) = (Seq(start), Seq(start) + bytes);
            prop_assert!(earlier.is_before(later) && !later.is_before(earlier));
            prop_assert!(earlier.is_at_or_before(later) && earlier.is_at_or_before(earlier));
            prop_assert!(!later.is_at_or_before(earlier) && !earlier.is_before(earlier));
            prop_assert_eq!((later.since(earlier), earlier.since(later)), (bytes, 0));
            prop_assert_eq!((earlier.max(later), earlier.min(later)), (later, earlier));
            prop_assert_eq!(later - bytes, earlier);
            prop_assert!(earlier.is_within(earlier, later) && !later.is_within(earlier, later));
            prop_assert!(!earlier.is_within(earlier, earlier));
        }
    }
}
