//! Counters of signalling, for reports.

use super::{Interrupts, Look};
use crate::Instant;

/// The looks, interrupts and waits of a queue since its signalling began.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SignallingCounts {
    /// Looks at the queue.
    pub looks: u64,
    /// Looks that found a packet or a completion.
    pub found: u64,
    /// Packets that looks found.
    pub packets: u64,
    /// Completions of transmissions that looks found.
    pub completions: u64,
    /// Interrupts.
    pub interrupts: u64,
    /// Waits of the thread.
    pub waits: u64,
    /// Waits without interrupts, up to the time of a look.
    pub masked_waits: u64,
    /// Time with masked interrupts, in nanoseconds.
    pub masked_ns: u64,
    /// Time in waits, in nanoseconds.
    pub waited_ns: u64,
    /// Time since the start, in nanoseconds.
    pub elapsed_ns: u64,
}

impl SignallingCounts {
    /// Adds the counts of another queue. Times then are sums over the queues.
    pub const fn add(&mut self, more: &Self) {
        self.looks += more.looks;
        self.found += more.found;
        self.packets += more.packets;
        self.completions += more.completions;
        self.interrupts += more.interrupts;
        self.waits += more.waits;
        self.masked_waits += more.masked_waits;
        self.masked_ns += more.masked_ns;
        self.waited_ns += more.waited_ns;
        self.elapsed_ns += more.elapsed_ns;
    }
}

/// Counters, with the spans that are not over.
#[derive(Clone, Debug)]
pub(super) struct Counters {
    counts: SignallingCounts,
    start: Instant,
    masked_since: Option<Instant>,
    waiting_since: Option<Instant>,
}

impl Counters {
    pub(super) fn new(start: Instant) -> Self {
        Self {
            counts: SignallingCounts::default(),
            start,
            masked_since: None,
            waiting_since: None,
        }
    }

    pub(super) fn on_look(&mut self, look: Look) {
        self.counts.looks += 1;
        self.counts.found += u64::from(look.has_found());
        self.counts.packets += u64::from(look.packets);
        self.counts.completions += u64::from(look.completions);
    }

    pub(super) fn on_interrupt(&mut self) {
        self.counts.interrupts += 1;
    }

    pub(super) fn set_interrupts(&mut self, now: Instant, interrupts: Interrupts) {
        let is_masked = interrupts == Interrupts::Masked;
        match (is_masked, self.masked_since) {
            (true, None) => self.masked_since = Some(now),
            (false, Some(since)) => {
                self.counts.masked_ns += now.ns_since(since);
                self.masked_since = None;
            }
            _ => {}
        }
    }

    pub(super) fn begin_wait(&mut self, now: Instant) {
        if self.waiting_since.is_none() {
            self.waiting_since = Some(now);
            self.counts.waits += 1;
            self.counts.masked_waits += u64::from(self.masked_since.is_some());
        }
    }

    pub(super) fn end_wait(&mut self, now: Instant) {
        if let Some(since) = self.waiting_since.take() {
            self.counts.waited_ns += now.ns_since(since);
        }
    }

    /// Returns the counters, with the parts up to `now` of spans that are not over.
    pub(super) fn at(&self, now: Instant) -> SignallingCounts {
        let since = |start: Option<Instant>| start.map_or(0, |start| now.ns_since(start));
        let counts = self.counts;
        SignallingCounts {
            masked_ns: counts.masked_ns + since(self.masked_since),
            waited_ns: counts.waited_ns + since(self.waiting_since),
            elapsed_ns: now.ns_since(self.start),
            ..counts
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(us: u64) -> Instant {
        Instant::from_ns(us * 1_000)
    }

    #[test]
    fn spans_count_up_to_now() {
        let mut counters = Counters::new(at(10));
        counters.set_interrupts(at(20), Interrupts::Masked);
        counters.set_interrupts(at(25), Interrupts::Masked);
        counters.set_interrupts(at(30), Interrupts::Enabled);
        counters.begin_wait(at(30));
        let counts = counters.at(at(40));
        assert_eq!((counts.masked_ns, counts.waited_ns), (10_000, 10_000));
        assert_eq!(counts.elapsed_ns, 30_000);
        counters.end_wait(at(50));
        counters.set_interrupts(at(50), Interrupts::Masked);
        let counts = counters.at(at(60));
        assert_eq!((counts.masked_ns, counts.waited_ns), (20_000, 20_000));
        assert_eq!((counts.waits, counts.masked_waits), (1, 0));
    }

    #[test]
    fn queues_are_added_field_by_field() {
        let mut counters = Counters::new(at(0));
        counters.on_interrupt();
        counters.set_interrupts(at(10), Interrupts::Masked);
        counters.on_look(Look {
            packets: 5,
            completions: 2,
            has_more: false,
        });
        counters.begin_wait(at(30));
        let one = counters.at(at(40));
        let mut both = one;
        both.add(&one);
        let expected = SignallingCounts {
            looks: 2,
            found: 2,
            packets: 10,
            completions: 4,
            interrupts: 2,
            waits: 2,
            masked_waits: 2,
            masked_ns: 60_000,
            waited_ns: 20_000,
            elapsed_ns: 80_000,
        };
        assert_eq!(both, expected);
    }
}
