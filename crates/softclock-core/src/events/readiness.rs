//! The state of a descriptor as a set of conditions.

use core::fmt;
use core::ops::{BitAnd, BitOr, BitOrAssign, Not};

/// A set of conditions of a descriptor.
///
/// # Example
/// ```
/// use softclock_core::Readiness;
///
/// let state = Readiness::READABLE | Readiness::READ_CLOSED;
/// assert!(state.contains(Readiness::READABLE));
/// assert!(state.wakes_reader() && !state.wakes_writer());
/// assert_eq!(state & !Readiness::READABLE, Readiness::READ_CLOSED);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Readiness(u8);

impl Readiness {
    /// The empty set.
    pub const NONE: Self = Self(0);
    /// A read would return data, a connection to accept, or the end of the stream.
    pub const READABLE: Self = Self(1);
    /// The send buffer has room.
    pub const WRITABLE: Self = Self(1 << 1);
    /// The peer has ended its direction: no further data will arrive.
    pub const READ_CLOSED: Self = Self(1 << 2);
    /// Writing has ended: the connection is closed in this direction.
    pub const WRITE_CLOSED: Self = Self(1 << 3);
    /// An error is pending; the next call on the descriptor returns it.
    pub const ERROR: Self = Self(1 << 4);
    /// Urgent data or another exceptional condition.
    pub const PRIORITY: Self = Self(1 << 5);

    /// Returns whether all conditions of `other` hold.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns whether any condition of `other` holds.
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns whether no condition holds.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns whether a read would return at once, with data, the end of the stream, or an error.
    pub const fn wakes_reader(self) -> bool {
        self.intersects(Self(Self::READABLE.0 | Self::READ_CLOSED.0 | Self::ERROR.0))
    }

    /// Returns whether a write would return at once, with success or an error.
    pub const fn wakes_writer(self) -> bool {
        self.intersects(Self(
            Self::WRITABLE.0 | Self::WRITE_CLOSED.0 | Self::ERROR.0,
        ))
    }

    /// Returns the conditions as bits, to be stored.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Returns the set for `bits`, ignoring unknown bits.
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits & ALL)
    }
}

impl BitOr for Readiness {
    type Output = Self;

    fn bitor(self, rhs: Self) -> Self {
        Self(self.0 | rhs.0)
    }
}

impl BitOrAssign for Readiness {
    fn bitor_assign(&mut self, rhs: Self) {
        self.0 |= rhs.0;
    }
}

impl BitAnd for Readiness {
    type Output = Self;

    fn bitand(self, rhs: Self) -> Self {
        Self(self.0 & rhs.0)
    }
}

impl Not for Readiness {
    type Output = Self;

    fn not(self) -> Self {
        Self(!self.0 & ALL)
    }
}

impl fmt::Debug for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = NAMES
            .iter()
            .filter(|(condition, _)| self.contains(*condition));
        f.debug_set().entries(names.map(|(_, name)| name)).finish()
    }
}

const ALL: u8 = 0b11_1111;

const NAMES: [(Readiness, &str); 6] = [
    (Readiness::READABLE, "readable"),
    (Readiness::WRITABLE, "writable"),
    (Readiness::READ_CLOSED, "read closed"),
    (Readiness::WRITE_CLOSED, "write closed"),
    (Readiness::ERROR, "error"),
    (Readiness::PRIORITY, "priority"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_operations() {
        let both = Readiness::READABLE | Readiness::WRITABLE;
        assert!(both.contains(Readiness::READABLE));
        assert!(!both.contains(Readiness::READABLE | Readiness::ERROR));
        assert_eq!(both & !Readiness::READABLE, Readiness::WRITABLE);
        assert_eq!(Readiness::from_bits(0xff), !Readiness::NONE);
        assert!(Readiness::ERROR.wakes_reader() && Readiness::ERROR.wakes_writer());
        assert!(!Readiness::PRIORITY.wakes_reader());
        assert_eq!(alloc::format!("{both:?}"), r#"{"readable", "writable"}"#);
    }
}
