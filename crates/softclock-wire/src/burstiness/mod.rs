//! Measures how bursty traffic is, by the virtual bottleneck queue (*PSPacer/HT*, section III-A) and other statistics.
//!
//! The observed packets pass through a virtual bottleneck of a given rate with an infinite queue, where packets above
//! the rate wait. The number of packets in the queue just after an arrival is the burstiness at that instant, and its
//! maximum over the stream is the burstiness of the stream. Well paced traffic has 1.
//!
//! Other statistics do not depend on a rate: the gaps between packets (Figure 8), the trains of packets that follow
//! each other closely, and the ratio of the peak rate to the mean in windows of given lengths.
//!
//! All results are computed as packets arrive, and are exact unless their documentation says otherwise. The memory does
//! not grow with the stream: the queue has a limit ([`MOST_RUNS`]), and distributions are [`Histogram`]s. A packet
//! costs some tens of nanoseconds, amortised. The [crate documentation](crate) has an example.

mod envelope;
mod gaps;
mod queue;
mod trains;
mod volume;
mod windows;

use alloc::vec::Vec;
use core::time::Duration;

use softclock_core::{Histogram, Instant, Rate};

pub use envelope::Envelope;
pub use gaps::Gaps;
pub use queue::{MOST_RUNS, Occupancy, QueueFull, VirtualQueue};
pub use trains::Trains;
pub use volume::Volume;
pub use windows::Window;

/// The settings of an analysis.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// The rate of the virtual bottleneck (the paper's target rate). `None` leaves out the queue.
    pub rate: Option<Rate>,
    /// The rate of the line on which the packets arrived (the paper's maximum rate), or `None` if packets arrive at
    /// once; see [`VirtualQueue::new`].
    pub line: Option<Rate>,
    /// The gap from which on a packet begins a new train.
    pub train_gap: Duration,
    /// The lengths of the windows for peak rates. A length of zero counts as one nanosecond.
    pub windows: Vec<Duration>,
}

/// Analyses a stream of packets; see the [module](self).
#[derive(Clone, Debug)]
pub struct Burstiness {
    volume: Volume,
    gaps: Gaps,
    trains: Trains,
    windows: Vec<Window>,
    queue: Option<Queue>,
}

#[derive(Clone, Debug)]
struct Queue {
    bottleneck: VirtualQueue,
    statistics: QueueStatistics,
}

/// Statistics of the virtual bottleneck queue.
#[derive(Clone, Debug, Default)]
pub struct QueueStatistics {
    /// The largest occupancy in packets and the largest in bytes, which may be of different instants.
    pub max: Occupancy,
    /// The distribution of the number of packets in the queue just after each arrival. Exact for values below 32.
    pub packets: Histogram,
    /// The largest occupancy in packets over time.
    pub envelope: Envelope,
    /// The time at which the queue exceeded its limit, if it did: the rate is below that of the traffic. The statistics
    /// do not include later packets.
    pub full_at: Option<Instant>,
    /// The arrival time of the last packet that found the queue empty. If it is long before the last packet, the rate
    /// is below that of the traffic.
    pub busy_since: Option<Instant>,
    arrivals: u64,
    sum_packets: u128,
    sum_bytes: u128,
}

impl Burstiness {
    /// Creates an analysis without packets.
    pub fn new(options: &Options) -> Self {
        let queue = options.rate.map(|rate| Queue {
            bottleneck: VirtualQueue::new(rate, options.line),
            statistics: QueueStatistics::default(),
        });
        Self {
            volume: Volume::default(),
            gaps: Gaps::default(),
            trains: Trains::new(options.train_gap),
            windows: options.windows.iter().copied().map(Window::new).collect(),
            queue,
        }
    }

    /// Adds a packet of `bytes` that was observed at `at`. A time before that of the last packet counts as the same
    /// time.
    #[inline]
    pub fn on_packet(&mut self, at: Instant, bytes: u32) {
        let gap_ns = self.volume.on_packet(at, bytes);
        let (Some(first), Some(now)) = (self.volume.first(), self.volume.last()) else {
            return;
        };
        if let Some(gap_ns) = gap_ns {
            self.gaps.record(gap_ns);
        }
        self.trains.on_packet(gap_ns);
        let since_first_ns = now.ns_since(first);
        for window in &mut self.windows {
            window.on_packet(since_first_ns, bytes);
        }
        if let Some(queue) = &mut self.queue {
            queue.on_packet(now, since_first_ns, bytes);
        }
    }

    /// The numbers of packets and bytes, the duration and the mean rate.
    pub const fn volume(&self) -> &Volume {
        &self.volume
    }

    /// The gaps between packets.
    pub const fn gaps(&self) -> &Gaps {
        &self.gaps
    }

    /// The trains of packets.
    pub const fn trains(&self) -> &Trains {
        &self.trains
    }

    /// The windows, in the order of [`Options::windows`].
    pub fn windows(&self) -> &[Window] {
        &self.windows
    }

    /// The statistics of the virtual bottleneck queue; `None` if the options have no rate.
    pub fn queue(&self) -> Option<&QueueStatistics> {
        self.queue.as_ref().map(|queue| &queue.statistics)
    }
}

impl Queue {
    #[inline]
    fn on_packet(&mut self, now: Instant, since_first_ns: u64, bytes: u32) {
        let statistics = &mut self.statistics;
        if statistics.full_at.is_some() {
            return;
        }
        match self.bottleneck.on_packet(now, bytes) {
            Ok(occupancy) => statistics.record(now, since_first_ns, occupancy),
            Err(QueueFull) => statistics.full_at = Some(now),
        }
    }
}

impl QueueStatistics {
    #[inline]
    fn record(&mut self, now: Instant, since_first_ns: u64, occupancy: Occupancy) {
        if occupancy.packets == 1 {
            self.busy_since = Some(now);
        }
        self.max.packets = self.max.packets.max(occupancy.packets);
        self.max.bytes = self.max.bytes.max(occupancy.bytes);
        self.arrivals += 1;
        self.sum_packets += u128::from(occupancy.packets);
        self.sum_bytes += u128::from(occupancy.bytes);
        self.packets.record(occupancy.packets);
        self.envelope.record(since_first_ns, occupancy.packets);
    }

    /// The mean number of packets in the queue just after an arrival; 0 without arrivals.
    pub fn mean_packets(&self) -> f64 {
        self.sum_packets as f64 / self.arrivals.max(1) as f64
    }

    /// The mean number of bytes in the queue just after an arrival; 0 without arrivals.
    pub fn mean_bytes(&self) -> f64 {
        self.sum_bytes as f64 / self.arrivals.max(1) as f64
    }
}

#[cfg(test)]
mod tests;
