//! The load of a thread and the rate of a queue, over about two milliseconds.

use crate::Instant;

/// The share of time in which a thread does not wait, and the rate at which packets arrive.
///
/// Both are taken over windows of a millisecond, each of which halves the weight of those before it. Costs a few
/// additions an event, and two divisions a window.
#[derive(Clone, Debug)]
pub(super) struct Load {
    window: Instant,
    /// The time since which the thread runs, at the earliest `window`; `None` while it waits.
    running_since: Option<Instant>,
    busy_ns: u64,
    packets: u64,
    share: u32,
    rate: u64,
}

impl Load {
    /// Begins with a running thread and without load.
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            window: now,
            running_since: Some(now),
            busy_ns: 0,
            packets: 0,
            share: 0,
            rate: 0,
        }
    }

    pub(super) fn on_packets(&mut self, now: Instant, packets: u32) {
        self.packets += u64::from(packets);
        self.refresh(now);
    }

    pub(super) fn on_wait(&mut self, now: Instant) {
        if let Some(since) = self.running_since.take() {
            self.busy_ns += now.ns_since(since);
        }
        self.refresh(now);
    }

    pub(super) fn on_run(&mut self, now: Instant) {
        if self.running_since.is_none() {
            self.running_since = Some(now);
        }
        self.refresh(now);
    }

    /// Returns the share of busy time, of [`WHOLE`].
    pub(super) const fn share(&self) -> u32 {
        self.share
    }

    /// Returns the packets a second.
    pub(super) const fn rate(&self) -> u64 {
        self.rate
    }

    fn refresh(&mut self, now: Instant) {
        let elapsed = now.ns_since(self.window);
        if elapsed < WINDOW_NS {
            return;
        }
        if let Some(since) = &mut self.running_since {
            self.busy_ns += now.ns_since(*since);
            *since = now;
        }
        let share = self.busy_ns.saturating_mul(u64::from(WHOLE)) / elapsed;
        let rate = self.packets.saturating_mul(1_000_000_000) / elapsed;
        // A window of several milliseconds counts as several.
        let windows = (elapsed / WINDOW_NS).min(16) as u32;
        self.share = halved(share, u64::from(self.share), windows) as u32;
        self.rate = halved(rate, self.rate, windows);
        (self.window, self.busy_ns, self.packets) = (now, 0, 0);
    }
}

/// Returns the packets that arrive in `ns` (at most 1 s) at a rate, in sixteenths.
pub(super) const fn expected_16(rate: u64, ns: u64) -> u64 {
    rate.saturating_mul(ns) / (1_000_000_000 / 16)
}

/// Returns `before`, with its distance to `new` halved `times` times.
const fn halved(new: u64, before: u64, times: u32) -> u64 {
    match before > new {
        true => new + ((before - new) >> times),
        false => new - ((new - before) >> times),
    }
}

/// All of the time.
pub(super) const WHOLE: u32 = 1024;

/// Long enough for several packets at the rates at which signalling matters, and short enough to follow a step within
/// a few milliseconds.
pub(super) const WINDOW_NS: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(us: u64) -> Instant {
        Instant::from_ns(us * 1_000)
    }

    /// Runs for `busy` of each 100 us, and receives a packet in each.
    fn run(load: &mut Load, from_us: u64, to_us: u64, busy: u64) {
        for start in (from_us..to_us).step_by(100) {
            load.on_run(at(start));
            load.on_packets(at(start), 1);
            load.on_wait(at(start + busy));
        }
    }

    #[test]
    fn the_share_and_the_rate_follow_within_windows() {
        let mut load = Load::new(at(0));
        load.on_wait(at(0));
        run(&mut load, 0, 10_000, 30);
        assert!((300..315).contains(&load.share()), "{}", load.share());
        // 10 000 packets a second: one in 100 us.
        assert!((15..=17).contains(&expected_16(load.rate(), 100_000)));
        run(&mut load, 10_000, 12_100, 90);
        assert!(load.share() > 700, "{}", load.share());
    }

    #[test]
    fn a_long_wait_is_no_load() {
        let mut load = Load::new(at(0));
        run(&mut load, 0, 10_000, 80);
        load.on_run(at(1_000_000));
        assert_eq!(load.share(), 0);
        assert!(load.rate() < 20);
    }

    #[test]
    fn a_thread_that_never_waits_is_fully_loaded() {
        let mut load = Load::new(at(0));
        for us in (0..20_000).step_by(50) {
            load.on_packets(at(us), 1);
        }
        assert!(load.share() > WHOLE - 2);
    }
}
