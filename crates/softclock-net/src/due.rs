//! When timers are due, and how late they may be.
//!
//! A timer never acts before its time. Most may act later, and so together with others: a thread that rests wakes up
//! once for several, and one that runs does what is due at once. [`Window::of`] gives a timer an eighth of the time
//! that is left when it is set, within a bound for its kind.

use core::time::Duration;

use softclock_core::Instant;

/// When something is due, and the time by which it must be done although nothing else happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Window {
    pub(crate) earliest: Instant,
    pub(crate) latest: Instant,
}

impl Window {
    /// That of nothing.
    pub(crate) const NEVER: Self = Self {
        earliest: Instant::FAR_FUTURE,
        latest: Instant::FAR_FUTURE,
    };

    /// That of a timer which is set at `now` for `due`, and has at most this slack.
    #[inline]
    pub(crate) fn of(now: Instant, due: Option<Instant>, most: Slack) -> Self {
        let earliest = due.unwrap_or(Instant::FAR_FUTURE);
        let slack = (earliest.ns_since(now) / PART).min(most.0);
        Self {
            earliest,
            latest: earliest.add_ns(slack),
        }
    }

    /// That of two things, the first of which is due then.
    #[inline]
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            earliest: self.earliest.min(other.earliest),
            latest: self.latest.min(other.latest),
        }
    }

    /// The time at which it is due, if ever.
    #[inline]
    pub(crate) fn due(self) -> Option<Instant> {
        (self.earliest != Instant::FAR_FUTURE).then_some(self.earliest)
    }
}

/// The most time that a kind of timers may be late, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Slack(u64);

impl Slack {
    /// Paced segments, the reordering timer of RACK, and tail loss probes: they are estimates of the next event.
    pub(crate) const NONE: Self = Self(0);
    /// Acknowledgments, and segments that wait for the owner: RFC 1122, 4.2.3.2, allows less than 500 ms in all.
    pub(crate) const ACKNOWLEDGMENT: Self = Self(5_000_000);
    /// Retransmissions and probes of the window: RFC 6298 has a least time, and no longest.
    pub(crate) const RETRANSMISSION: Self = Self(50_000_000);
    /// All others, whose times are seconds to hours.
    pub(crate) const LONG: Self = Self(1_000_000_000);

    /// The slack of timers that are always set for this time.
    pub(crate) fn of_time(self, time: Duration) -> Duration {
        (time / PART as u32).min(self.most())
    }

    /// The bound itself.
    pub(crate) const fn most(self) -> Duration {
        Duration::from_nanos(self.0)
    }
}

/// A timer may be late by this part of its time.
const PART: u64 = 8;

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

    fn at(ms: u64) -> Instant {
        Instant::from_ns(ms * 1_000_000)
    }

    #[test]
    fn times_that_are_not_set_do_not_count() {
        let [first, second] = [1, 2].map(|ns| Some(Instant::from_ns(ns)));
        assert_eq!(earliest([]), None);
        assert_eq!(earliest([None, None]), None);
        assert_eq!(earliest([second, None, first]), first);
    }

    #[test]
    fn a_timer_may_be_late_by_an_eighth_within_the_bound_of_its_kind() {
        let latest = |ms: u64, most| Window::of(at(1000), Some(at(1000 + ms)), most).latest;
        assert_eq!(latest(40, Slack::ACKNOWLEDGMENT), at(1045));
        assert_eq!(latest(80, Slack::ACKNOWLEDGMENT), at(1085));
        assert_eq!(latest(200, Slack::RETRANSMISSION), at(1225));
        assert_eq!(latest(3000, Slack::RETRANSMISSION), at(4050));
        assert_eq!(latest(75_000, Slack::LONG), at(77_000));
        assert_eq!(latest(200, Slack::NONE), at(1200));
        assert_eq!(Window::of(at(9), Some(at(8)), Slack::LONG).latest, at(8));
        assert_eq!(Window::of(at(9), None, Slack::LONG), Window::NEVER);
        let time = |seconds| Slack::LONG.of_time(Duration::from_secs(seconds));
        assert_eq!(
            [time(4), time(60)].map(|time| time.as_millis()),
            [500, 1000]
        );
    }

    #[test]
    fn two_windows_have_the_first_of_each_time() {
        let (long, exact) = (
            Window::of(at(0), Some(at(100)), Slack::LONG),
            Window::of(at(0), Some(at(105)), Slack::NONE),
        );
        let both = Window {
            earliest: at(100),
            latest: at(105),
        };
        assert_eq!(long.and(exact), both);
        assert_eq!(both.and(Window::NEVER), both);
        assert_eq!((both.due(), Window::NEVER.due()), (Some(at(100)), None));
    }
}
