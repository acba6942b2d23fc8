//! The dynamic ports (RFC 6335, 6), one of which is chosen where none is given.

/// The dynamic ports, 49152 to 65535, in turn: a port comes again after all others.
///
/// ```
/// use softclock_net::ports::DynamicPorts;
///
/// let is_free = |port: u16| (port % 2 == 0).then_some(port);
/// let mut ports = DynamicPorts::default();
/// assert_eq!(ports.find(is_free), Some(49_152));
/// assert_eq!(ports.find(is_free), Some(49_154));
/// assert_eq!(ports.next_port(), 49_155);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DynamicPorts {
    /// The number of the next port, from the first of them on.
    next: u16,
}

impl DynamicPorts {
    /// The first of the dynamic ports.
    pub const FIRST: u16 = 49_152;
    /// The number of dynamic ports.
    pub const COUNT: u16 = u16::MAX - Self::FIRST + 1;

    /// Begins at a port that depends on `seed`. A random one keeps other hosts from guessing ports (RFC 6056).
    pub const fn new(seed: u64) -> Self {
        Self {
            next: (seed % Self::COUNT as u64) as u16,
        }
    }

    /// Returns the next port.
    pub const fn next_port(&mut self) -> u16 {
        let port = Self::FIRST + self.next;
        self.next = (self.next + 1) % Self::COUNT;
        port
    }

    /// Calls `take` with the next ports until it returns a value, and returns that value. `None` after every port was
    /// tried once.
    pub fn find<R>(&mut self, mut take: impl FnMut(u16) -> Option<R>) -> Option<R> {
        (0..Self::COUNT).find_map(|_| take(self.next_port()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn every_port_is_tried_once_from_the_seed_on() {
        for seed in [0, 1, 16_383, 16_384, u64::MAX] {
            let mut ports = DynamicPorts::new(seed);
            let first = 49_152 + (seed % 16_384) as u16;
            let mut tried = Vec::new();
            let found: Option<()> = ports.find(|port| {
                tried.push(port);
                None
            });
            assert_eq!((found, tried.first()), (None, Some(&first)));
            assert_eq!(ports, DynamicPorts::new(seed));
            tried.sort_unstable();
            assert!(tried.into_iter().eq(49_152..=u16::MAX));
        }
    }
}
