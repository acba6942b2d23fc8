//! The four mechanisms and their names.

use std::fmt;
use std::str::FromStr;

/// A kernel interface that reports which descriptors are ready. Parses from and displays as its [name](Self::name).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mechanism {
    /// io_uring with multishot polls. Needs Linux 6.1; containers often forbid it.
    IoUring,
    /// Edge-triggered epoll.
    Epoll,
    /// `poll`, whose cost grows with the number of descriptors. For comparison.
    Poll,
    /// `select`, whose cost also grows with the number of descriptors. Only for descriptors below 1024; reports ends of
    /// streams and errors as readiness. For comparison.
    Select,
}

impl Mechanism {
    /// All mechanisms.
    pub const ALL: [Self; 4] = [Self::IoUring, Self::Epoll, Self::Poll, Self::Select];

    /// The name in options and reports: `io_uring`, `epoll`, `poll` or `select`.
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

/// The error of parsing a name that no [`Mechanism`] has.
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
