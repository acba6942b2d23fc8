//! The timers of all connections, sorted by how late they may be.
//!
//! Each band is a wheel, ordered by the times at which its timers are due. All timers of a band have the same slack,
//! so the first of them is also the first that must not wait any longer. A timer belongs to the band with the most
//! slack that it has.

use core::array;
use core::time::Duration;

use softclock_core::{FireWindow, Instant, TimerKey, TimerWheel};

use crate::due::{Window, earliest};
use crate::stack::slots::SlotId;

/// The timers of connections.
pub(super) struct Bands {
    wheels: [TimerWheel<SlotId>; SLACKS.len()],
}

/// The band of a timer. Apart from its key, which saves memory in each connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Band(u8);

impl Bands {
    pub(super) fn new() -> Self {
        Self {
            wheels: array::from_fn(|_| TimerWheel::new()),
        }
    }

    /// Sets the timer of a connection to a window, or ends it.
    pub(super) fn set(
        &mut self,
        (timer, band): (&mut Option<TimerKey>, &mut Band),
        window: Window,
        id: SlotId,
    ) {
        if window == Window::NEVER {
            return self.cancel(timer, *band);
        }
        let before = core::mem::replace(band, Band::of(window));
        if let Some(key) = *timer
            && before == *band
        {
            self.wheel(before).reschedule(key, window.earliest);
            return;
        }
        self.cancel(timer, before);
        *timer = Some(self.wheel(*band).schedule(window.earliest, id));
    }

    pub(super) fn cancel(&mut self, timer: &mut Option<TimerKey>, band: Band) {
        if let Some(key) = timer.take() {
            self.wheel(band).cancel(key);
        }
    }

    fn wheel(&mut self, Band(band): Band) -> &mut TimerWheel<SlotId> {
        &mut self.wheels[usize::from(band)]
    }

    /// The time at which [`pop_due`](Self::pop_due) may have work.
    pub(super) fn next_due(&self) -> Option<Instant> {
        earliest(self.wheels.each_ref().map(TimerWheel::next_due))
    }

    /// The time by which [`pop_due`](Self::pop_due) must be called: exactly then, if a timer without slack is the
    /// first.
    pub(super) fn next_wake(&self) -> Option<FireWindow> {
        let [exact, with_slack @ ..] = &self.wheels;
        let slacks = with_slack.iter().zip(&SLACKS[1..]);
        let latest = slacks.filter_map(|(wheel, &slack)| Some(wheel.next_due()? + slack));
        let exact = exact.next_due().map(FireWindow::from);
        FireWindow::first(
            exact
                .into_iter()
                .chain(latest.min().map(FireWindow::roughly)),
        )
    }

    /// Takes a timer that is due.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<SlotId> {
        self.wheels.iter_mut().find_map(|wheel| {
            loop {
                if let Some((_, id)) = wheel.pop_due(now) {
                    return Some(id);
                }
                if wheel.next_due().is_none_or(|due| due > now) {
                    return None;
                }
                // The wheel has moved as many timers as it does in one call.
            }
        })
    }
}

impl Band {
    /// The band with the most slack that a window has.
    fn of(window: Window) -> Self {
        let slack = window.latest.since(window.earliest);
        let others = SLACKS[1..].iter().filter(|&&of_band| of_band <= slack);
        Self(others.count() as u8)
    }
}

/// The slacks of the bands: none; waits of some milliseconds; delayed acknowledgments; retransmissions; and times of
/// seconds.
const SLACKS: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_micros(125),
    Duration::from_millis(4),
    Duration::from_millis(20),
    Duration::from_secs(1),
];

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;
    use crate::stack::slots::Slots;

    fn us(us: u64) -> Instant {
        Instant::from_ns(us * 1_000)
    }

    fn window(earliest: u64, slack: u64) -> Window {
        Window {
            earliest: us(earliest),
            latest: us(earliest + slack),
        }
    }

    /// The number of timers that are due.
    fn fire(bands: &mut Bands, now: Instant) -> usize {
        core::iter::from_fn(|| bands.pop_due(now)).count()
    }

    fn ids(count: usize) -> Vec<SlotId> {
        let mut slots = Slots::new();
        (0..count).map(|_| slots.insert(())).collect()
    }

    #[test]
    fn timers_that_are_due_about_the_same_time_need_one_wake_up() {
        let mut bands = Bands::new();
        for (number, id) in ids(10).into_iter().enumerate() {
            let window = window(200_000 + 2_000 * number as u64, 25_000);
            bands.set((&mut None, &mut Band::default()), window, id);
        }
        let wake = bands.next_wake().unwrap();
        assert!(wake.rough && wake.earliest > us(218_000), "{wake:?}");
        assert_eq!(fire(&mut bands, us(199_999)), 0, "none is early");
        assert_eq!(fire(&mut bands, wake.earliest), 10);
        assert_eq!((bands.next_wake(), bands.next_due()), (None, None));
    }

    #[test]
    fn an_exact_timer_is_not_late_for_others() {
        let mut bands = Bands::new();
        let [first, second] = ids(2)[..] else {
            unreachable!()
        };
        let late = window(500, 1_000_000);
        bands.set((&mut None, &mut Band::default()), late, first);
        let (mut exact, mut band) = (None, Band::default());
        bands.set((&mut exact, &mut band), window(700, 0), second);
        let wake = bands.next_wake().unwrap();
        assert!(!wake.rough);
        // The wheel rounds up to the next microsecond.
        assert_eq!((bands.next_due(), wake.earliest), (Some(us(501)), us(701)));
        bands.cancel(&mut exact, band);
        assert_eq!(bands.next_wake(), Some(FireWindow::roughly(us(1_000_501))));
    }

    proptest! {
        #[test]
        fn no_timer_is_early_or_later_than_its_slack(
            changes in prop::collection::vec((0usize..8, 1u64..4_000_000, 0u64..9, 0u64..50_000), 1..200),
        ) {
            let mut bands = Bands::new();
            let ids = ids(8);
            let mut timers = vec![(None, Band::default(), Window::NEVER); ids.len()];
            let mut now = 0;
            for (number, time, part, pause) in changes {
                // Rests until the next change, waking up only when it must.
                let end = us(now + pause);
                loop {
                    let wake = bands.next_wake().map_or(end, |wake| wake.earliest.min(end));
                    for id in core::iter::from_fn(|| bands.pop_due(wake)) {
                        let fired = ids.iter().position(|&other| other == id).unwrap();
                        let (timer, _, window) = &mut timers[fired];
                        prop_assert!(window.earliest <= wake, "early");
                        (*timer, *window) = (None, Window::NEVER);
                    }
                    for (_, _, window) in &timers {
                        let is_late = window.latest.add_ns(1_000) < wake;
                        prop_assert!(!is_late, "{window:?} at {wake:?}");
                    }
                    if wake == end {
                        break;
                    }
                }
                now += pause;
                let next = match part {
                    8 => Window::NEVER,
                    part => window(now + time, time * part / 64),
                };
                let (timer, band, current) = &mut timers[number];
                bands.set((timer, band), next, ids[number]);
                *current = next;
            }
        }
    }
}
