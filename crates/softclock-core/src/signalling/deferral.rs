//! Waits without interrupts of a loaded thread: one timer in place of several wake-ups.
//!
//! A thread that waits between packets is woken by each of them, and a wake-up may cost as much as a packet's work. If
//! several packets arrive in an interval of looks, the thread waits for the end of the interval instead, as a kernel
//! does with `gro_flush_timeout`. Whether this pays is seen only by trying: peers that wait for an answer before they
//! send again are slowed down and no packet joins the first. So it goes on only while the looks after such waits find
//! two packets or more on average, ends at once when one finds none, and pauses are doubled as long as attempts fail.

use super::Look;
use super::load::WINDOW_NS;
use crate::Instant;

#[derive(Clone, Debug)]
pub(super) struct Deferral {
    is_on: bool,
    /// Whether the next look ends such a wait.
    is_waiting: bool,
    /// The mean of packets found, in sixteenths.
    found_16: u64,
    looks: u32,
    retry_at: Instant,
    pause_ns: u64,
}

impl Default for Deferral {
    fn default() -> Self {
        Self {
            is_on: false,
            is_waiting: false,
            found_16: 0,
            looks: 0,
            retry_at: Instant::ORIGIN,
            pause_ns: WINDOW_NS,
        }
    }
}

impl Deferral {
    /// Returns whether a wait that begins at `now` needs no interrupts, if `expected_16` packets (in sixteenths) arrive
    /// in an interval of looks.
    pub(super) fn begin(&mut self, now: Instant, expected_16: u64) -> bool {
        if !self.is_on && now >= self.retry_at && expected_16 >= BEGIN_16 {
            *self = Self {
                is_on: true,
                found_16: BEGIN_16,
                looks: 0,
                ..*self
            };
        }
        self.is_waiting = self.is_on;
        self.is_on
    }

    pub(super) fn on_look(&mut self, now: Instant, look: Look) {
        if !core::mem::take(&mut self.is_waiting) {
            return;
        }
        self.looks += 1;
        self.found_16 = (self.found_16 * 3 + u64::from(look.packets) * 16) / 4;
        if look.packets == 0 || self.found_16 < END_16 {
            self.is_on = false;
            self.retry_at = now.add_ns(self.pause_ns);
            self.pause_ns = (self.pause_ns * 2).min(LONGEST_PAUSE_NS);
        } else if self.looks >= PROVEN {
            self.pause_ns = WINDOW_NS;
        }
    }
}

/// Three packets, as fewer would hardly save a wake-up.
const BEGIN_16: u64 = 48;

/// Two packets.
const END_16: u64 = 32;

/// Looks after which an attempt counts as a success.
const PROVEN: u32 = 16;

/// A failed attempt costs a few intervals, at most 1 % of this for a bound of 100 us.
const LONGEST_PAUSE_NS: u64 = 64 * WINDOW_NS;

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(us: u64) -> Instant {
        Instant::from_ns(us * 1_000)
    }

    const fn found(packets: u32) -> Look {
        Look {
            packets,
            ..Look::EMPTY
        }
    }

    #[test]
    fn it_goes_on_while_looks_find_several() {
        let mut deferral = Deferral::default();
        assert!(!deferral.begin(at(0), 40));
        for look in 0..100 {
            assert!(deferral.begin(at(look * 100), 48), "look {look}");
            deferral.on_look(at(look * 100 + 90), found(2 + look as u32 % 3));
        }
        assert!(deferral.begin(at(20_000), 0), "what is found decides");
        deferral.on_look(at(20_000), Look::EMPTY);
        assert!(!deferral.begin(at(20_000), 48), "an empty look ends it");
        assert!(deferral.begin(at(21_000), 48));
    }

    #[test]
    fn pauses_grow_while_peers_wait_for_answers() {
        let mut deferral = Deferral::default();
        let (mut waits, mut us) = (0, 0);
        while us < 1_000_000 {
            waits += u32::from(deferral.begin(at(us), 64));
            us += 100;
            deferral.on_look(at(us), found(1));
        }
        assert!((20..100).contains(&waits), "{waits} of 10 000 waits");
    }

    #[test]
    fn looks_of_a_busy_thread_do_not_count() {
        let mut deferral = Deferral::default();
        assert!(deferral.begin(at(0), 64));
        deferral.on_look(at(90), found(4));
        (0..50).for_each(|look| deferral.on_look(at(100 + look), Look::EMPTY));
        assert!(deferral.begin(at(200), 64));
    }
}
