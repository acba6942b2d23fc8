//! The virtual bottleneck and its queue.

use alloc::collections::VecDeque;

use softclock_core::{Instant, Rate};

/// A queue in front of a link of a given rate (*PSPacer/HT*, Figure 6): first in, first out, without loss.
///
/// The arithmetic is exact: service is counted in bits over 10^9, of which a rate of r bits a second gives r each
/// nanosecond. Packets of equal length that follow each other take one entry, of which there are at most [`MOST_RUNS`].
#[derive(Clone, Debug)]
pub struct VirtualQueue {
    rate: Rate,
    line: Option<Rate>,
    last: Instant,
    runs: VecDeque<Run>,
    occupancy: Occupancy,
    /// Given to the packet at the head; with nobody there, what could have been sent since the last one left.
    service: u128,
}

/// Packets of one length in a row.
#[derive(Clone, Copy, Debug)]
struct Run {
    bytes: u32,
    count: u32,
}

/// What is in the queue: packets whose last bit has not left.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Occupancy {
    /// How many.
    pub packets: u64,
    /// Their whole lengths.
    pub bytes: u64,
}

/// More waits than is kept: the rate is below that of the traffic. The queue is of no further use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueFull;

impl VirtualQueue {
    /// An empty queue before a link of this rate.
    ///
    /// A packet's time is that at which its last bit arrived. Without `line` its first bit leaves then at the earliest, as
    /// from any store-and-forward switch. With `line`, the rate at which the bits arrived, the first bit may leave as soon
    /// as it has arrived. That is what the paper's estimate assumes (equation 2): a burst of n packets gives n (line -
    /// rate) / line, rounded up, where a switch may have one packet more. A line below the rate counts as one of the rate.
    pub fn new(rate: Rate, line: Option<Rate>) -> Self {
        Self {
            rate,
            line: line.map(|line| line.max(rate)),
            last: Instant::ORIGIN,
            runs: VecDeque::new(),
            occupancy: Occupancy::default(),
            service: u128::MAX,
        }
    }

    /// A packet arrives; returns the occupancy just after that, the packet itself counted. What leaves at the same
    /// instant has left. O(1), amortised over the packets. `now` does not go backwards.
    ///
    /// # Errors
    /// More than [`MOST_RUNS`] runs of packets would wait.
    #[inline]
    pub fn on_packet(&mut self, now: Instant, bytes: u32) -> Result<Occupancy, QueueFull> {
        let passed = u128::from(now.ns_since(self.last)) * u128::from(self.rate.bps());
        self.last = now;
        self.service = self.service.saturating_add(passed);
        self.depart();
        if self.runs.is_empty() {
            self.service = self.service.min(self.head_start(bytes));
        }
        self.append(bytes)?;
        self.occupancy.packets += 1;
        self.occupancy.bytes += u64::from(bytes);
        Ok(self.occupancy)
    }

    /// Whose last bit has been sent leaves.
    #[inline]
    fn depart(&mut self) {
        while let Some(run) = self.runs.front_mut() {
            let work = work(run.bytes);
            if self.service < work {
                return;
            }
            let leaving = match self.service - work {
                rest if rest < work => 1,
                _ => whole_packets(self.service, work, run.count),
            };
            self.service -= work * u128::from(leaving);
            self.occupancy.packets -= u64::from(leaving);
            self.occupancy.bytes -= u64::from(leaving) * u64::from(run.bytes);
            run.count -= leaving;
            if run.count == 0 {
                self.runs.pop_front();
            }
        }
    }

    /// What an idle bottleneck can have sent of a packet while it arrived.
    fn head_start(&self, bytes: u32) -> u128 {
        self.line.map_or(0, |line| {
            work(bytes).saturating_mul(self.rate.bps().into()) / u128::from(line.bps())
        })
    }

    #[inline]
    fn append(&mut self, bytes: u32) -> Result<(), QueueFull> {
        let full = self.runs.len() == MOST_RUNS;
        match self.runs.back_mut() {
            Some(run) if run.bytes == bytes && run.count < u32::MAX => run.count += 1,
            _ if full => return Err(QueueFull),
            _ => self.runs.push_back(Run { bytes, count: 1 }),
        }
        Ok(())
    }
}

/// How much service a packet takes.
const fn work(bytes: u32) -> u128 {
    bytes as u128 * 8_000_000_000
}

/// How many of `most` packets this service completes.
fn whole_packets(service: u128, work: u128, most: u32) -> u32 {
    match service.checked_div(work) {
        Some(packets) => u32::try_from(packets).unwrap_or(u32::MAX).min(most),
        None => most,
    }
}

/// Runs of packets of equal length that may wait: 8 MiB of memory, and never reached by a rate above the traffic's mean
/// but in bursts of a million packets.
pub const MOST_RUNS: usize = 1 << 20;
