//! A class of packets: its options, queue, clock and statistics.

use alloc::collections::VecDeque;
use core::time::Duration;

use crate::units::Rate;

/// The id of a class of a [`ByteClock`](super::ByteClock).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ClassId(pub(super) u32);

impl ClassId {
    /// Returns the index of the class. Classes are numbered from 0 in the order in which they were added.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The options of a class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClassOptions {
    /// Average rate, in bits on the wire.
    pub rate: Rate,
    /// Rate at which the class catches up; `None` for the link's rate. Raised to `rate` if it is lower.
    pub peak: Option<Rate>,
    /// Bytes that the class may make up for after it was idle; a bottleneck of its rate will queue as many. `None`
    /// for the default limits (see the [module](super)).
    pub burst_bytes: Option<u64>,
    /// Time that the class may make up for after its packets were sent late; a bottleneck of its rate will queue the
    /// bytes of this time. At least the time of `burst_bytes`. `None` for the default limits (see the
    /// [module](super)).
    pub most_behind: Option<Duration>,
    /// Capacity of the queue in packets.
    pub most_packets: usize,
    /// Capacity of the queue in bytes on the wire.
    pub most_bytes: u64,
}

impl ClassOptions {
    /// Returns options with this rate, default limits for catching up, and a queue of 1000 packets or 1 MiB.
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

/// The statistics of a class.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ClassStatistics {
    /// Packets sent.
    pub sent_packets: u64,
    /// Bytes on the wire sent.
    pub sent_bytes: u64,
    /// Packets rejected since the queue held the maximum number of packets.
    pub dropped_for_packets: u64,
    /// Packets rejected since they would have exceeded the maximum number of bytes in the queue.
    pub dropped_for_bytes: u64,
    /// Bytes that the rate allowed while packets were late, and that the class did not make up for.
    pub forgotten_bytes: u64,
    /// Packets in the queue.
    pub queued_packets: usize,
    /// Bytes on the wire in the queue.
    pub queued_bytes: u64,
}

/// A class and its queued packets.
#[derive(Debug)]
pub(super) struct Class<P> {
    pub(super) options: ClassOptions,
    pub(super) clock: u64,
    /// Value of the global clock before which the next packet must not be sent: when it arrived at an empty queue, or
    /// as the peak rate allows.
    pub(super) not_before: u64,
    /// Remainder of the last division of `advance`, in units of 1 / class rate.
    remainder: u64,
    /// Size of the longest recent packet.
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

    /// Changes the options, and rescales the time until the next packet to the rate and the peak rate.
    pub(super) fn set_options(&mut self, options: ClassOptions, link: Rate, present: u64) {
        let (before, peak) = (self.options.rate, self.options.peak.unwrap_or(link));
        self.clock = rescaled(self.clock, present, before, options.rate);
        self.not_before = rescaled(self.not_before, present, peak, options.peak.unwrap_or(link));
        self.options = options;
        self.remainder = 0;
    }

    /// Takes the first packet and counts it as sent.
    pub(super) fn take(&mut self) -> (P, u64) {
        let first = self.queue.pop_front();
        let (packet, bytes) = first.expect("active classes have packets");
        let statistics = &mut self.statistics;
        statistics.queued_bytes -= bytes;
        statistics.sent_packets += 1;
        statistics.sent_bytes = statistics.sent_bytes.saturating_add(bytes);
        (packet, bytes)
    }

    /// Returns the value of the global clock at which the next packet may be sent.
    pub(super) fn due(&self) -> u64 {
        self.clock.max(self.not_before)
    }

    /// Returns by how much the clock advances for `bytes`.
    pub(super) fn time_of(&self, bytes: u64, scale: u64) -> u64 {
        time_of(bytes, scale, self.options.rate)
    }

    /// Advances the clock for a packet of `bytes`.
    pub(super) fn advance(&mut self, bytes: u64, scale: u64) {
        let rate = u128::from(self.options.rate.bps());
        let total = u128::from(bytes) * u128::from(scale) + u128::from(self.remainder);
        self.remainder = (total % rate) as u64;
        let time = u64::try_from(total / rate).unwrap_or(u64::MAX);
        self.clock = self.clock.saturating_add(time);
    }

    /// Delays the next packet until `apart` after this one was due, or after `earliest` if that is later.
    pub(super) fn keep_apart(&mut self, apart: u64, earliest: u64) {
        self.not_before = self.not_before.max(earliest).saturating_add(apart);
    }

    /// Advances the clock of a class that is behind by more than `allowed`. Returns how many of its bytes are lost
    /// since its packet was due: time from before, while it was idle, was not lost to lateness.
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

/// Returns by how much a clock advances for `bytes` at `rate`, if a class of the rate `scale` advances by `bytes`.
/// Rounded down.
pub(super) fn time_of(bytes: u64, scale: u64, rate: Rate) -> u64 {
    let time = u128::from(bytes) * u128::from(scale) / u128::from(rate.bps());
    u64::try_from(time).unwrap_or(u64::MAX)
}

/// Returns a value of the global clock, as far from `present` at the rate `after` as `clock` is at `before`. Rounded up.
/// Those that are not ahead of `present` stay.
fn rescaled(clock: u64, present: u64, before: Rate, after: Rate) -> u64 {
    let ahead = u128::from(clock.saturating_sub(present)) * u128::from(before.bps());
    let ahead = u64::try_from(ahead.div_ceil(after.bps().into())).unwrap_or(u64::MAX);
    match ahead {
        0 => clock,
        ahead => present.saturating_add(ahead),
    }
}

/// Returns the size of the longest recent packet: longer ones count at once, and are forgotten over some hundred
/// shorter ones.
pub(super) const fn longest(before: u64, bytes: u64) -> u64 {
    let fading = before - before.div_ceil(1 << 8);
    if bytes > fading { bytes } else { fading }
}
