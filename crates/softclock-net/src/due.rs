//! The earliest of several times.

use softclock_core::Instant;

/// The earliest of the times that are set. Without branches: it is asked for several times for each segment.
#[inline]
pub(crate) fn earliest<const N: usize>(times: [Option<Instant>; N]) -> Option<Instant> {
    let earliest = times.iter().fold(Instant::FAR_FUTURE, |earliest, time| {
        earliest.min(time.unwrap_or(Instant::FAR_FUTURE))
    });
    (earliest != Instant::FAR_FUTURE).then_some(earliest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_are_not_set_do_not_count() {
        let [first, second] = [1, 2].map(|ns| Some(Instant::from_ns(ns)));
        assert_eq!(earliest([]), None);
        assert_eq!(earliest([None, None]), None);
        assert_eq!(earliest([second, None, first]), first);
    }
}
