//! Path MTUs that routers have reported (RFC 1191, RFC 8201).

use alloc::vec::Vec;
use core::net::IpAddr;
use core::time::Duration;

use softclock_core::Instant;

/// The paths whose MTU is smaller than the link's.
#[derive(Debug)]
pub(super) struct PathMtus {
    lifetime: Duration,
    /// In the order of their latest reports.
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    destination: IpAddr,
    mtu: usize,
    until: Instant,
}

impl PathMtus {
    pub(super) const fn new(lifetime: Duration) -> Self {
        Self {
            lifetime,
            entries: Vec::new(),
        }
    }

    /// Notes a report. One that is below the minimum of the protocol counts as the minimum: a lower value can only be
    /// an attack, or an error (RFC 8201, 4). A report never raises the noted value.
    pub(super) fn on_report(&mut self, now: Instant, destination: IpAddr, mtu: usize) {
        let minimum = match destination {
            IpAddr::V4(_) => MINIMUM_V4,
            IpAddr::V6(_) => MINIMUM_V6,
        };
        let mtu = mtu.max(minimum);
        self.entries.retain(|entry| entry.until > now);
        let until = now + self.lifetime;
        let mut entries = self.entries.iter();
        let noted = entries.position(|entry| entry.destination == destination);
        match noted {
            Some(place) if mtu > self.entries[place].mtu => return,
            // The latest is the last.
            Some(place) => {
                self.entries.remove(place);
            }
            // The oldest is the first.
            None if self.entries.len() == MOST_ENTRIES => {
                self.entries.remove(0);
            }
            None => {}
        }
        self.entries.push(Entry {
            destination,
            mtu,
            until,
        });
    }

    /// Forgets all reports.
    pub(super) fn clear(&mut self) {
        self.entries.clear();
    }

    /// The reported MTU of the path, if there is one.
    pub(super) fn of(&self, now: Instant, destination: IpAddr) -> Option<usize> {
        let mut entries = self.entries.iter();
        let entry = entries.find(|entry| entry.destination == destination)?;
        (entry.until > now).then_some(entry.mtu)
    }
}

/// The shortest MTU that IPv4 paths have in practice (RFC 1191, 3, table 7-1, without the obsolete 68 and 296: the
/// minimum that Linux accepts is 552, too).
const MINIMUM_V4: usize = 552;

/// The minimum of IPv6 (RFC 8200, 5).
const MINIMUM_V6: usize = 1280;

/// A forged report must name a datagram that was sent, so few paths are known at a time.
const MOST_ENTRIES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_only_lower_an_mtu_and_are_forgotten() {
        let mut paths = PathMtus::new(Duration::from_secs(600));
        let host = "2001:db8::1".parse().unwrap();
        let at = |seconds: u64| Instant::from_ns(seconds * 1_000_000_000);
        assert_eq!(paths.of(at(0), host), None);
        paths.on_report(at(0), host, 1400);
        paths.on_report(at(1), host, 1450);
        assert_eq!(paths.of(at(2), host), Some(1400));
        paths.on_report(at(2), host, 100);
        assert_eq!(paths.of(at(2), host), Some(1280));
        assert_eq!(paths.of(at(603), host), None);
    }

    #[test]
    fn the_number_of_paths_is_bounded() {
        let mut paths = PathMtus::new(Duration::from_secs(600));
        let host = |n: u8| IpAddr::from([10, 0, 0, n]);
        (0..=MOST_ENTRIES as u8).for_each(|n| paths.on_report(Instant::ORIGIN, host(n), 1000));
        assert_eq!(paths.of(Instant::ORIGIN, host(0)), None);
        assert_eq!(
            paths.of(Instant::ORIGIN, host(MOST_ENTRIES as u8)),
            Some(1000)
        );
        assert_eq!(paths.entries.len(), MOST_ENTRIES);
        // The path that was reported again stays, and the one after it gives way.
        paths.on_report(Instant::ORIGIN, host(1), 1000);
        paths.on_report(Instant::ORIGIN, host(100), 1000);
        assert_eq!(paths.of(Instant::ORIGIN, host(1)), Some(1000));
        assert_eq!(paths.of(Instant::ORIGIN, host(2)), None);
        assert_eq!(paths.entries.len(), MOST_ENTRIES);
    }
}
