//! Where the window of a congestion controller grows more slowly than the controller itself lets it.
//!
//! Two times in the life of a connection cost most of its losses at a short queue. In slow start, the window is far
//! above what path and queue hold when the first loss is known. Later, a small window reaches the place of its last
//! loss again after a few round trips, as its growth by a datagram in each is a large part of it.

use std::time::{Duration, Instant};

/// The state of one connection.
#[derive(Clone, Debug)]
pub(crate) struct Growth {
    phase: Phase,
}

#[derive(Clone, Debug)]
enum Phase {
    /// No loss so far.
    Start {
        /// When the window reached the path's capacity, if it is known.
        full_since: Option<Instant>,
        /// The bytes acknowledged since then for which the window has not grown.
        credit: u64,
    },
    /// The last loss was one of a full path.
    Lost(Loss),
    /// The controller decides alone.
    Free,
}

/// The last loss.
#[derive(Clone, Debug)]
struct Loss {
    /// When CUBIC's function reaches the window again.
    until: Instant,
    /// The window before it.
    window: u64,
    /// The window at which it is held.
    level: u64,
    /// The beginning of the present round trip, and the window then.
    round: (Instant, u64),
}

/// What the decisions depend on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) bytes: u64,
    pub(crate) initial: u64,
    pub(crate) datagram: u64,
    pub(crate) round_trip: Duration,
}

impl Growth {
    pub(crate) fn new() -> Self {
        Self {
            phase: Phase::Start {
                full_since: None,
                credit: 0,
            },
        }
    }

    /// Whether no loss has been found.
    pub(crate) fn is_starting(&self) -> bool {
        matches!(self.phase, Phase::Start { .. })
    }

    /// Returns by how much the window may grow in slow start for `acknowledged` bytes. `capacity` is that of the path
    /// without its queue, as far as it is known.
    ///
    /// The window doubles in each round trip up to the capacity, and then grows by one datagram, which a queue can hold
    /// at least. A capacity that is wrong holds it back for some round trips only. Without a known one, it grows by
    /// half from twice the initial window on.
    pub(crate) fn in_slow_start(
        &mut self,
        now: Instant,
        acknowledged: u64,
        window: Window,
        capacity: Option<u64>,
    ) -> u64 {
        let Phase::Start { full_since, credit } = &mut self.phase else {
            return acknowledged;
        };
        let Some(capacity) = capacity else {
            return match window.bytes < window.initial.saturating_mul(DOUBLING) {
                true => acknowledged,
                false => acknowledged / 2,
            };
        };
        let room = capacity.saturating_sub(window.bytes);
        if room > 0 {
            *full_since = None;
            return acknowledged.min(room);
        }
        let since = *full_since.get_or_insert(now);
        if now.saturating_duration_since(since) >= window.round_trip * FULL_ROUND_TRIPS {
            return acknowledged / 16;
        }
        *credit = credit.saturating_add(acknowledged);
        if *credit < window.bytes {
            return 0;
        }
        *credit -= window.bytes;
        window.datagram
    }

    /// Records a loss, or a mark of congestion, at this window. `capacity` is that of the path, if it has been
    /// measured.
    ///
    /// A window that does not fill the path is not held back: the loss has another cause, such as other connections. Nor
    /// is one above twice the capacity: the queue is long, or the path has become faster.
    pub(crate) fn on_loss(
        &mut self,
        now: Instant,
        window: u64,
        datagram: u64,
        capacity: Option<u64>,
    ) {
        let is_full = |capacity: &u64| {
            let least = capacity - capacity / 16;
            (least..=capacity.saturating_mul(2)).contains(&window)
        };
        let Some(capacity) = capacity.filter(is_full) else {
            self.phase = Phase::Free;
            return;
        };
        // A part of the window waits in the sender, so that of a loss varies. The margin was too small if the next loss
        // comes soon.
        let is_soon = matches!(&self.phase, Phase::Lost(last) if now < last.until);
        let margin = window / if is_soon { 8 } else { 16 };
        self.phase = Phase::Lost(Loss {
            until: now + plateau(window, datagram),
            window,
            level: (window.saturating_sub(margin.max(2 * datagram))).max(capacity - capacity / 16),
            round: (now, 0),
        });
    }

    /// Returns whether the window must not grow now.
    ///
    /// After a loss, it stays a little below the window of that loss for as long as CUBIC's function does (RFC 9438,
    /// section 4.2). CUBIC itself follows Reno where that is faster (section 4.3): on a path that holds 40 datagrams in
    /// 40 ms, the window returns after one second and not three. Then it grows by a datagram, or 1/64 of that window,
    /// in each round trip, and by 1/16 of itself when it is an eighth above it: the controller, whose clock has run on,
    /// would double it.
    pub(crate) fn is_held(&mut self, now: Instant, window: Window) -> bool {
        let Phase::Lost(loss) = &mut self.phase else {
            return false;
        };
        if window.bytes <= loss.level {
            return false;
        }
        if now < loss.until {
            return true;
        }
        let (start, before) = loss.round;
        if now.saturating_duration_since(start) >= window.round_trip || window.bytes < before {
            loss.round = (now, window.bytes);
            return false;
        }
        let step = match window.bytes > loss.window.saturating_add(loss.window / 8) {
            true => window.bytes / 16,
            false => loss.window / 64,
        };
        window.bytes >= before.saturating_add(step.max(window.datagram))
    }
}

/// The window, in initial windows, up to which slow start doubles it in each round trip if the capacity is not known.
const DOUBLING: u64 = 2;

/// The round trips for which a full window grows by a datagram in each.
const FULL_ROUND_TRIPS: u32 = 32;

/// Returns the window that fills a path of this rate, in bytes a second, and not its queue. A little less than the
/// product, as the rate is measured roughly.
pub(crate) fn capacity(bytes_per_second: u64, round_trip: Duration) -> u64 {
    let product = u128::from(bytes_per_second).saturating_mul(round_trip.as_nanos());
    u64::try_from(product / 1_000_000_000 / 32 * 31).unwrap_or(u64::MAX)
}

/// Returns the time after which CUBIC's function reaches the window of a loss again: `K` of RFC 9438, section 4.2.
fn plateau(window: u64, datagram: u64) -> Duration {
    let datagrams = window as f64 / datagram.max(1) as f64;
    Duration::from_secs_f64((datagrams * (1.0 - CUBIC_BETA) / CUBIC_C).cbrt())
}

/// The factor by which CUBIC lowers its window (RFC 9438, section 4.6).
const CUBIC_BETA: f64 = 0.7;

/// CUBIC's constant of growth, in datagrams for each cubic second (RFC 9438, section 5).
const CUBIC_C: f64 = 0.4;

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(40);
    const DATAGRAM: u64 = 1000;

    fn window(datagrams: u64) -> Window {
        Window {
            bytes: datagrams * DATAGRAM,
            initial: 10 * DATAGRAM,
            datagram: DATAGRAM,
            round_trip: RTT,
        }
    }

    #[test]
    fn the_capacity_is_a_little_less_than_the_product() {
        assert_eq!(capacity(1_000_000, RTT), 40_000 / 32 * 31);
        assert_eq!(capacity(u64::MAX, Duration::MAX), u64::MAX);
        assert_eq!(capacity(1_000_000, Duration::ZERO), 0);
    }

    #[test]
    fn slow_start_grows_by_half_in_its_later_part_if_nothing_is_known() {
        let mut growth = Growth::new();
        let mut grown =
            |datagrams| growth.in_slow_start(Instant::now(), 2 * DATAGRAM, window(datagrams), None);
        assert_eq!(grown(10), 2 * DATAGRAM);
        assert_eq!(grown(19), 2 * DATAGRAM);
        assert_eq!(grown(20), DATAGRAM);
    }

    #[test]
    fn slow_start_doubles_up_to_the_capacity() {
        let mut growth = Growth::new();
        let mut grown = |datagrams, capacity| {
            let acknowledged = 2 * DATAGRAM;
            growth.in_slow_start(
                Instant::now(),
                acknowledged,
                window(datagrams),
                Some(capacity),
            )
        };
        assert_eq!(grown(30, 40_000), 2 * DATAGRAM);
        assert_eq!(grown(39, 40_000), DATAGRAM);
        // By a datagram for each window.
        let of_a_window: u64 = (0..20).map(|_| grown(40, 40_000)).sum();
        assert_eq!(of_a_window, DATAGRAM);
        let of_a_large_one: u64 = (0..5000).map(|_| grown(10_000, 40_000)).sum();
        assert_eq!(of_a_large_one, DATAGRAM);
        assert_eq!(grown(80, 90_000), 2 * DATAGRAM, "a faster path");
    }

    #[test]
    fn a_capacity_that_is_wrong_holds_back_for_some_round_trips() {
        let (mut growth, now) = (Growth::new(), Instant::now());
        let mut grown = |at| growth.in_slow_start(at, 16_000, window(40), Some(4000));
        assert_eq!([grown(now), grown(now)], [0, 0]);
        assert_eq!(grown(now + RTT * 31), DATAGRAM);
        assert_eq!(grown(now + RTT * 33), 1000);
    }

    #[test]
    fn after_a_loss_the_window_stays_below_it() {
        let (mut growth, now) = (Growth::new(), Instant::now());
        assert!(growth.is_starting() && !growth.is_held(now, window(40)));
        growth.on_loss(now, 40 * DATAGRAM, DATAGRAM, Some(32_000));
        assert!(!growth.is_starting());
        let ms = Duration::from_millis;
        // Two datagrams are more than a sixteenth; the third root of 0.75 * 40 is 3.1 s.
        assert!(!growth.is_held(now + ms(100), window(37)));
        assert!(growth.is_held(now + ms(100), window(38)));
        assert!(growth.is_held(now + ms(3100), window(38)));
        assert!(growth.is_held(now + ms(3100), window(45)));
        // A datagram in each round trip.
        let later = now + ms(3200);
        assert!(!growth.is_held(later, window(38)));
        assert!(!growth.is_held(later, window(38)));
        assert!(growth.is_held(later + ms(39), window(39)));
        assert!(!growth.is_held(later + ms(40), window(39)));
        // Clearly above the window of the loss, by a sixteenth.
        assert!(!growth.is_held(later + ms(80), window(64)));
        assert!(!growth.is_held(later + ms(90), window(67)));
        assert!(growth.is_held(later + ms(90), window(69)));
    }

    #[test]
    fn after_two_losses_the_window_stays_further_below() {
        let (mut growth, now) = (Growth::new(), Instant::now());
        growth.on_loss(now, 80 * DATAGRAM, DATAGRAM, Some(64_000));
        assert!(!growth.is_held(now, window(74)) && growth.is_held(now, window(76)));
        growth.on_loss(now + RTT * 10, 80 * DATAGRAM, DATAGRAM, Some(64_000));
        assert!(!growth.is_held(now + RTT * 10, window(69)));
        assert!(growth.is_held(now + RTT * 10, window(71)));
        // The third root of 0.75 * 80 is 3.9 s.
        growth.on_loss(now + RTT * 110, 80 * DATAGRAM, DATAGRAM, Some(64_000));
        assert!(!growth.is_held(now + RTT * 110, window(74)));
    }

    #[test]
    fn a_window_is_not_held_below_the_capacity() {
        let now = Instant::now();
        for capacity in [None, Some(48_000), Some(19_000)] {
            let mut growth = Growth::new();
            growth.on_loss(now, 40 * DATAGRAM, DATAGRAM, capacity);
            assert!(!growth.is_starting() && !growth.is_held(now, window(39)));
        }
        let mut growth = Growth::new();
        growth.on_loss(now, 33 * DATAGRAM, DATAGRAM, Some(34_000));
        // 31.9 datagrams.
        assert!(!growth.is_held(now, window(31)) && growth.is_held(now, window(32)));
    }

    #[test]
    fn a_large_window_grows_by_more_than_a_datagram() {
        let (mut growth, now) = (Growth::new(), Instant::now());
        growth.on_loss(now, 6400 * DATAGRAM, DATAGRAM, Some(6_000_000));
        let later = now + Duration::from_secs(17);
        assert!(!growth.is_held(later, window(6100)));
        assert!(!growth.is_held(later, window(6199)));
        assert!(growth.is_held(later, window(6200)));
    }

    /// Sends for ten seconds by rounds over a path that holds `path` datagrams and `queue` more. The controller doubles
    /// the window, halves it on a loss, and then adds a datagram in each round trip. Returns the datagrams lost.
    fn lost(mut growth: Option<Growth>, path: u64, queue: u64) -> u64 {
        let start = Instant::now();
        let (mut bytes, mut is_starting, mut lost) = (10 * DATAGRAM, true, 0);
        for round in 0..250 {
            let now = start + RTT * round;
            let too_many = (bytes / DATAGRAM).saturating_sub(path + queue);
            if too_many > 0 {
                lost += too_many;
                if let Some(growth) = &mut growth {
                    growth.on_loss(now, bytes, DATAGRAM, Some(path * DATAGRAM));
                }
                (bytes, is_starting) = (bytes / 2, false);
                continue;
            }
            let before = bytes;
            for _ in 0..before / DATAGRAM {
                let mut at = window(0);
                at.bytes = bytes;
                let one_a_round = DATAGRAM * DATAGRAM / before;
                bytes += match (&mut growth, is_starting) {
                    (Some(growth), true) => {
                        growth.in_slow_start(now, DATAGRAM, at, Some(path * DATAGRAM))
                    }
                    (Some(growth), false) => match growth.is_held(now, at) {
                        true => 0,
                        false => one_a_round,
                    },
                    (None, true) => DATAGRAM,
                    (None, false) => one_a_round,
                };
            }
        }
        lost
    }

    #[test]
    fn few_datagrams_are_lost_at_a_short_queue() {
        for (path, queue) in [(8, 5), (40, 2), (40, 5), (400, 10)] {
            let (held, plain) = (
                lost(Some(Growth::new()), path, queue),
                lost(None, path, queue),
            );
            assert!(
                held <= 6 && held * 2 < plain,
                "{path}, {queue}: {held} of {plain}"
            );
        }
    }
}
