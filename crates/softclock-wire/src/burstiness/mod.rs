//! How bursty traffic is: the virtual bottleneck queue (*PSPacer/HT*, section III-A) and its relatives.
//!
//! The observed packets go through a virtual bottleneck of a given rate with an infinite queue. What exceeds the rate
//! waits, and the number of packets that wait, just after each arrival, is the burstiness of that instant; its maximum
//! over the stream is *the* burstiness. Well paced traffic has 1. Beside it stand what does not depend on a rate: the
//! gaps between packets (Figure 8), trains of packets that follow each other closely, and the peak of the rate over its
//! mean in windows of some lengths.
//!
//! Everything is streaming and exact but where it says otherwise, in memory that does not grow with the stream: the queue
//! has a cap ([`MOST_RUNS`]), distributions are [`Histogram`]s. A packet costs some tens of nanoseconds, amortised.

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

/// What is to be found out about a stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// The rate of the virtual bottleneck (the paper's target rate); `None` leaves the queue out.
    pub rate: Option<Rate>,
    /// The rate of the line that the packets came from (the paper's maximum rate), if it matters: see
    /// [`VirtualQueue::new`].
    pub line: Option<Rate>,
    /// Packets whose gap is below this belong to one train.
    pub train_gap: Duration,
    /// The lengths of the windows in which peaks are looked for; one of zero counts as a nanosecond.
    pub windows: Vec<Duration>,
}

/// The analyser: packets in, figures out; see the [module](self).
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

/// What was seen of the virtual bottleneck queue.
#[derive(Clone, Debug, Default)]
pub struct QueueStatistics {
    /// The largest occupancy in packets, and that in bytes, not necessarily at the same time.
    pub max: Occupancy,
    /// Packets in the queue just after each arrival: each value below 32 has a bucket of its own.
    pub packets: Histogram,
    /// The largest occupancy over time.
    pub envelope: Envelope,
    /// When more waited than is kept, so that all after that is missing here; the rate is below the traffic's.
    pub full_at: Option<Instant>,
    /// When a packet last found the queue empty. Long before the last packet, it says that the rate is below the traffic's.
    pub busy_since: Option<Instant>,
    arrivals: u64,
    sum_packets: u128,
    sum_bytes: u128,
}

impl Burstiness {
    /// Nothing seen yet.
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

    /// A packet of `bytes` was seen `at` this instant; one before the last packet counts as at the same time.
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

    /// Packets, bytes, time and mean rate.
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

    /// The windows, as in the options.
    pub fn windows(&self) -> &[Window] {
        &self.windows
    }

    /// The virtual bottleneck queue, if a rate was given.
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

    /// The mean of the packets in the queue just after each arrival; 0 if there was none.
    pub fn mean_packets(&self) -> f64 {
        self.sum_packets as f64 / self.arrivals.max(1) as f64
    }

    /// The same in bytes.
    pub fn mean_bytes(&self) -> f64 {
        self.sum_bytes as f64 / self.arrivals.max(1) as f64
    }
}

#[cfg(test)]
mod tests;
