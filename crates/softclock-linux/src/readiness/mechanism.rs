//! The names of the mechanisms.

use std::fmt;
use std::str::FromStr;

/// A way in which the kernel tells which descriptors are ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mechanism {
    /// Multishot polls in memory shared with the kernel (Linux 6.1; often forbidden in containers).
    IoUring,
    /// Edge-triggered epoll.
    Epoll,
    /// `poll`, whose cost grows with the number of descriptors. To compare with.
    Poll,
    /// `select`, likewise, for descriptors below 1024. It does not tell ends and errors from readiness. To compare with.
    Select,
}

impl Mechanism {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::IoUring, Self::Epoll, Self::Poll, Self::Select];

    /// The name in options and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::IoUring => "io_uring",
            Self::Epoll => "epoll",
            Self::Poll => "poll",
            Self::Select => "select",
        }
    }
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Mechanism {
    type Err = UnknownMechanism;

    fn from_str(name: &str) -> Result<Self, UnknownMechanism> {
        let mut all = Self::ALL.into_iter();
        all.find(|mechanism| mechanism.name() == name)
            .ok_or(UnknownMechanism)
    }
}

/// The name is none of [`Mechanism`]'s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownMechanism;

impl fmt::Display for UnknownMechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not one of io_uring, epoll, poll and select")
    }
}

impl std::error::Error for UnknownMechanism {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_back() {
        for mechanism in Mechanism::ALL {
            assert_eq!(mechanism.to_string().parse(), Ok(mechanism));
            assert!(UnknownMechanism.to_string().contains(mechanism.name()));
        }
        assert_eq!("kqueue".parse::<Mechanism>(), Err(UnknownMechanism));
    }
}
