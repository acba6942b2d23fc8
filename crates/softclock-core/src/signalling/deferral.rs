//! Waits without interrupts of a loaded thread: one timer in place of several wake-ups.
//!
//! A thread that waits between packets is woken by each of them, and a wake-up may cost as much as a packet's work. If
//! several packets arrive in an interval of looks, the thread waits for the end of the interval instead, as a kernel
//! does with `gro_flush_timeout`.
//!
//! Whether this pays is seen only by trying: peers that wait for an answer before they send again are slowed down. So
//! an attempt goes on only while the looks after such waits find two packets or more on average, and three quarters of
//! those that the rate before the attempt promised. Two looks in a row that find none end it at once. An attempt that
//! goes well ends after 256 looks, to measure the rate without it. Pauses are doubled as long as attempts fail.

use super::load::{WINDOW_NS, expected_16};
use super::rule::Looked;
use crate::Instant;

#[derive(Clone, Debug)]
pub(super) struct Deferral {
    is_on: bool,
    /// Whether the next look ends such a wait.
    is_waiting: bool,
    /// The packets a second when the attempt began.
    rate: u64,
    /// The smoothed numbers of packets found and promised, in sixteenths.
    found_16: u64,
    promised_16: u64,
    looks: u32,
    /// The looks in a row that found nothing.
    empty: u32,
    retry_at: Instant,
    pause_ns: u64,
}

impl Default for Deferral {
    fn default() -> Self {
        Self {
            is_on: false,
            is_waiting: false,
            rate: 0,
            found_16: 0,
            promised_16: 0,
            looks: 0,
            empty: 0,
            retry_at: Instant::ORIGIN,
            pause_ns: SHORTEST_PAUSE_NS,
        }
    }
}

impl Deferral {
    /// Returns whether a wait that begins at `now` needs no interrupts, at the present rate and interval of looks.
    pub(super) fn begin(&mut self, now: Instant, rate: u64, interval_ns: u64) -> bool {
        let promised_16 = expected_16(rate, interval_ns);
        if !self.is_on && now >= self.retry_at && promised_16 >= BEGIN_16 {
            *self = Self {
                is_on: true,
                rate,
                found_16: promised_16,
                promised_16,
                looks: 0,
                empty: 0,
                ..*self
            };
        }
        self.is_waiting = self.is_on;
        self.is_on
    }

    pub(super) fn on_look(&mut self, looked: &Looked) {
        if !core::mem::take(&mut self.is_waiting) {
            return;
        }
        self.looks += 1;
        let packets = looked.look.packets;
        let since_ns = looked.now.ns_since(looked.before);
        self.found_16 = smoothed(self.found_16, u64::from(packets) * 16);
        self.promised_16 = smoothed(self.promised_16, expected_16(self.rate, since_ns));
        self.empty = match packets {
            0 => self.empty + 1,
            _ => 0,
        };
        let least_16 = END_16.max(self.promised_16 * 3 / 4);
        if self.empty == MOST_EMPTY || self.found_16 < least_16 {
            self.pause(looked.now);
            self.pause_ns = (self.pause_ns * 2).min(LONGEST_PAUSE_NS);
        } else if self.looks >= PROVEN {
            self.pause_ns = SHORTEST_PAUSE_NS;
            if self.looks >= MOST_LOOKS {
                self.pause(looked.now);
            }
        }
    }

    /// Ends an attempt, or puts it off until the rate is known.
    pub(super) fn pause(&mut self, now: Instant) {
        self.is_on = false;
        self.retry_at = now.add_ns(self.pause_ns);
    }
}

const fn smoothed(before: u64, new: u64) -> u64 {
    (before * 7 + new) / 8
}

/// Three packets, as fewer would hardly save a wake-up.
const BEGIN_16: u64 = 48;

/// Two packets.
const END_16: u64 = 32;

const MOST_EMPTY: u32 = 2;

/// Looks after which an attempt counts as a success, and after which it ends.
const PROVEN: u32 = 16;
const MOST_LOOKS: u32 = 256;

/// The rate then is nearly that of the pause.
const SHORTEST_PAUSE_NS: u64 = 4 * WINDOW_NS;

/// A failed attempt costs a few intervals, at most 1 % of this for a bound of 100 us.
const LONGEST_PAUSE_NS: u64 = 64 * WINDOW_NS;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signalling::{Interrupts, Look};

    const fn at(us: u64) -> Instant {
        Instant::from_ns(us * 1_000)
    }

    /// A look at `us` after an interval of 100 us.
    fn looked(us: u64, packets: u32) -> Looked {
        Looked {
            now: at(us),
            look: Look {
                packets,
                ..Look::EMPTY
            },
            was: Interrupts::Masked,
            before: at(us.saturating_sub(100)),
            late_ns: Some(0),
        }
    }

    /// Begins with `packets` in 100 us.
    fn begin(deferral: &mut Deferral, us: u64, packets: u64) -> bool {
        deferral.begin(at(us), packets * 10_000, 100_000)
    }

    #[test]
    fn it_goes_on_while_looks_find_several() {
        let mut deferral = Deferral::default();
        assert!(!begin(&mut deferral, 0, 2));
        for look in 1..100 {
            assert!(begin(&mut deferral, look * 100, 3), "look {look}");
            deferral.on_look(&looked(look * 100 + 90, 2 + look as u32 % 3));
        }
        assert!(begin(&mut deferral, 10_000, 0), "what is found decides");
        deferral.on_look(&looked(10_000, 0));
        assert!(begin(&mut deferral, 10_000, 0));
        deferral.on_look(&looked(10_100, 0));
        assert!(!begin(&mut deferral, 10_100, 3), "two empty looks end it");
        assert!(!begin(&mut deferral, 14_000, 3), "a pause");
        assert!(begin(&mut deferral, 14_100, 3));
    }

    /// Returns how many of 10 000 waits, each for 100 us, are deferred.
    fn deferred(promised: u64, found: u32) -> u32 {
        let mut deferral = Deferral::default();
        let mut waits = 0;
        for look in 1..=10_000 {
            waits += u32::from(begin(&mut deferral, look * 100, promised));
            deferral.on_look(&looked(look * 100 + 100, found));
        }
        waits
    }

    #[test]
    fn pauses_grow_while_peers_wait_for_answers() {
        // One peer, and eight of them that sent three times as often without deferral.
        for (promised, found) in [(4, 1), (24, 8)] {
            let waits = deferred(promised, found);
            assert!((20..200).contains(&waits), "{waits} of 10 000 waits");
        }
        // 256 looks in 26 ms, and a pause of 4 ms.
        let waits = deferred(8, 8);
        assert!((8_500..9_000).contains(&waits), "{waits} of 10 000 waits");
    }

    #[test]
    fn looks_of_a_busy_thread_do_not_count() {
        let mut deferral = Deferral::default();
        assert!(begin(&mut deferral, 0, 4));
        deferral.on_look(&looked(90, 4));
        (0..50).for_each(|look| deferral.on_look(&looked(100 + look, 0)));
        assert!(begin(&mut deferral, 200, 4));
    }
}
