//! A class: how it is treated, its packets, its clock, and what it did.

use alloc::collections::VecDeque;
use core::time::Duration;

use crate::units::Rate;

/// A class of a [`ByteClock`](super::ByteClock).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ClassId(pub(super) u32);

impl ClassId {
    /// Classes are numbered from 0 in the order in which they were added.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// How a class is treated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClassOptions {
    /// The rate it keeps on average, of bytes on the wire.
    pub rate: Rate,
    /// The rate at which it catches up; `None` for the link's. Below the rate it is the rate.
    pub peak: Option<Rate>,
    /// How many bytes it may be behind after it was idle, and still catch up. A bottleneck of its rate will hold as
    /// many. `None` for what is made up for by default.
    pub burst_bytes: Option<u64>,
    /// How far it may be behind because its packets were not taken in time, and still catch up. A bottleneck of its
    /// rate will hold what it sends in this time. `None` for what is made up for by default; never less than
    /// `burst_bytes`.
    pub most_behind: Option<Duration>,
    /// Packets that may wait.
    pub most_packets: usize,
    /// Bytes on the wire that may wait.
    pub most_bytes: u64,
}

impl ClassOptions {
    /// This rate, catching up as by default, and queues of 1000 packets or 1 MiB.
    pub const fn of_rate(rate: Rate) -> Self {
        Self {
            rate,
            peak: None,
            burst_bytes: None,
            most_behind: None,
            most_packets: 1000,
            most_bytes: 1 << 20,
        }
    }
}

/// What a class did so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ClassStatistics {
    /// Packets sent.
    pub sent_packets: u64,
    /// Their bytes on the wire.
    pub sent_bytes: u64,
    /// Packets not taken because as many waited as may.
    pub dropped_for_packets: u64,
    /// Packets not taken because as many bytes waited as may.
    pub dropped_for_bytes: u64,
    /// Bytes that its rate had for packets that were not taken in time, and that it does not make up for.
    pub forgotten_bytes: u64,
    /// Packets that wait.
    pub queued_packets: usize,
    /// Their bytes on the wire.
    pub queued_bytes: u64,
}

/// A class, and its packets.
#[derive(Debug)]
pub(super) struct Class<P> {
    pub(super) options: ClassOptions,
    pub(super) clock: u64,
    /// When the packet came that found none before it, and what the peak rate allows; in bytes of the global clock.
    pub(super) not_before: u64,
    /// What was left of the last division, in units of a byte times the scale over the class's rate.
    remainder: u64,
    /// The longest packet of late.
    pub(super) longest: u64,
    pub(super) queue: VecDeque<(P, u64)>,
    pub(super) statistics: ClassStatistics,
}

impl<P> Class<P> {
    pub(super) fn new(options: ClassOptions) -> Self {
        Self {
            options,
            clock: 0,
            not_before: 0,
            remainder: 0,
            longest: 0,
            queue: VecDeque::new(),
            statistics: ClassStatistics::default(),
        }
    }

    pub(super) fn set_options(&mut self, options: ClassOptions) {
        self.options = options;
        self.remainder = 0;
    }

    /// The first packet, which is counted as sent.
    pub(super) fn take(&mut self) -> (P, u64) {
        let first = self.queue.pop_front();
        let (packet, bytes) = first.expect("active classes have packets");
        let statistics = &mut self.statistics;
        statistics.queued_bytes -= bytes;
        statistics.sent_packets += 1;
        statistics.sent_bytes = statistics.sent_bytes.saturating_add(bytes);
        (packet, bytes)
    }

    /// The value of the global clock at which its next packet may go.
    pub(super) fn due(&self) -> u64 {
        self.clock.max(self.not_before)
    }

    /// What its clock moves by for so many bytes.
    pub(super) fn time_of(&self, bytes: u64, scale: u64) -> u64 {
        time_of(bytes, scale, self.options.rate)
    }

    /// A packet of so many bytes is sent.
    pub(super) fn advance(&mut self, bytes: u64, scale: u64) {
        let rate = u128::from(self.options.rate.bps());
        let total = u128::from(bytes) * u128::from(scale) + u128::from(self.remainder);
        self.remainder = (total % rate) as u64;
        let time = u64::try_from(total / rate).unwrap_or(u64::MAX);
        self.clock = self.clock.saturating_add(time);
    }

    /// The next packet goes so much after this one was due, or after `earliest`.
    pub(super) fn keep_apart(&mut self, apart: u64, earliest: u64) {
        self.not_before = self.not_before.max(earliest).saturating_add(apart);
    }

    /// A class that is behind by more than is allowed loses the rest: gives how many of its bytes that is since its
    /// packet was due. What the class had from before, while it was idle, was not lost to lateness.
    pub(super) fn move_up(&mut self, present: u64, allowed: u64, scale: u64) -> u64 {
        let earliest = present.saturating_sub(allowed);
        if self.clock >= earliest {
            return 0;
        }
        let late = earliest.saturating_sub(self.due());
        let lost = u128::from(late) * u128::from(self.options.rate.bps());
        self.clock = earliest;
        self.remainder = 0;
        (lost / u128::from(scale)) as u64
    }
}

/// What a clock moves by for so many bytes at a rate, where one at the rate `scale` moves by as many; rounded down.
pub(super) fn time_of(bytes: u64, scale: u64, rate: Rate) -> u64 {
    let time = u128::from(bytes) * u128::from(scale) / u128::from(rate.bps());
    u64::try_from(time).unwrap_or(u64::MAX)
}

/// The longest packet of late: longer ones count at once, and are forgotten over some hundred shorter ones.
pub(super) const fn longest(before: u64, bytes: u64) -> u64 {
    let fading = before - before.div_ceil(1 << 8);
    if bytes > fading { bytes } else { fading }
}
