//! Predicts the end of a thread's next timed wait, for threads whose waits end at regular distances, such as at the
//! departures of a paced stream.

use crate::Instant;

/// The ends of a thread's timed waits, and the distance between them.
///
/// # Example
/// ```
/// use softclock_core::Instant;
/// use softclock_core::rhythm::Rhythm;
///
/// let at = |us: u64| Instant::from_ns(us * 1_000);
/// let mut rhythm = Rhythm::default();
/// assert_eq!(rhythm.on_wait(at(1_000)), None);
/// assert_eq!(rhythm.on_wait(at(1_120)), None, "one distance is no rhythm");
/// assert_eq!(rhythm.on_wait(at(1_240)), Some(at(1_360)));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Rhythm {
    last: Instant,
    distance_ns: u64,
}

impl Rhythm {
    /// Records the end of the wait that begins, and predicts the end of the next one. Returns `None` if the last two
    /// distances differ by more than 4 us, or if they are not between 20 us and 1 ms. A wait until the same time as the
    /// one before it, to within 4 us, continues that one. O(1).
    pub fn on_wait(&mut self, end: Instant) -> Option<Instant> {
        if end.as_ns().abs_diff(self.last.as_ns()) <= MOST_CHANGE_NS {
            return None;
        }
        let distance_ns = end.ns_since(self.last);
        let before_ns = core::mem::replace(&mut self.distance_ns, distance_ns);
        self.last = end;
        let is_regular = distance_ns.abs_diff(before_ns) <= MOST_CHANGE_NS;
        let is_regular = is_regular && (SHORTEST_NS..=LONGEST_NS).contains(&distance_ns);
        // The mean of both, since the end of a wait varies with the lateness that it allows for.
        is_regular.then(|| end.add_ns(u64::midpoint(distance_ns, before_ns)))
    }
}

/// The most by which two distances of a rhythm differ.
const MOST_CHANGE_NS: u64 = 4_000;

/// Shorter waits end late by about as long as they last.
const SHORTEST_NS: u64 = 20_000;

/// The shortest tick of a kernel, which programs the processor's timer in any case.
const LONGEST_NS: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn predicted<const N: usize>(ends_ns: [u64; N]) -> Option<u64> {
        let mut rhythm = Rhythm::default();
        let predictions = ends_ns.map(|end| rhythm.on_wait(Instant::from_ns(end)));
        predictions.last().copied().flatten().map(Instant::as_ns)
    }

    #[test]
    fn equal_distances_are_a_rhythm() {
        assert_eq!(predicted([50_000, 150_000, 250_000]), Some(350_000));
        assert_eq!(predicted([50_000, 150_000, 252_000]), Some(353_000));
        assert_eq!(predicted([50_000, 150_000, 254_001]), None, "4 us");
        assert_eq!(predicted([50_000, 150_000]), None);
    }

    #[test]
    fn short_and_long_distances_are_none() {
        assert_eq!(predicted([50_000, 69_999, 89_998]), None);
        assert_eq!(predicted([1, 1_000_002, 2_000_003]), None);
    }

    /// As after an event that has interrupted the wait.
    #[test]
    fn a_continued_wait_is_one_wait() {
        assert_eq!(predicted([50_000, 150_000, 150_000]), None);
        assert_eq!(
            predicted([50_000, 150_000, 151_000, 250_000]),
            Some(350_000)
        );
        assert_eq!(
            predicted([50_000, 150_000, 150_000, 250_000]),
            Some(350_000)
        );
    }

    #[test]
    fn an_earlier_end_breaks_it() {
        assert_eq!(predicted([50_000, 150_000, 140_000, 240_000]), None);
    }
}
