//! The virtual bottleneck and its queue.

use alloc::collections::VecDeque;

use softclock_core::{Instant, Rate};

/// A queue in front of a link of a given rate (*PSPacer/HT*, Figure 6): first in, first out, without loss.
///
/// The arithmetic is exact. Service is counted in units of 10^-9 bits, of which a link of r bits per second gives r
/// each nanosecond. Consecutive packets of equal length share one entry, and there are at most [`MOST_RUNS`] entries.
///
/// # Example
/// ```
/// use softclock_core::Instant;
/// use softclock_wire::burstiness::VirtualQueue;
///
/// let mut queue = VirtualQueue::new("100mbit".parse().unwrap(), None);
/// // 1250 bytes take 100 us at this rate.
/// let packets = [0, 20, 40, 1_000].map(|at_us| {
///     let occupancy = queue.on_packet(Instant::from_ns(at_us * 1_000), 1_250);
///     occupancy.unwrap().packets
/// });
/// assert_eq!(packets, [1, 2, 3, 1]);
/// ```
#[derive(Clone, Debug)]
pub struct VirtualQueue {
    rate: Rate,
    line: Option<Rate>,
    last: Instant,
    runs: VecDeque<Run>,
    occupancy: Occupancy,
    /// The service given to the packet at the head so far. If the queue is empty, the unused service since the last
    /// packet left.
    service: u128,
}

/// Consecutive packets of equal length.
#[derive(Clone, Copy, Debug)]
struct Run {
    bytes: u32,
    count: u32,
}

/// The content of the queue: the packets whose last bit has not left.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Occupancy {
    /// The number of packets.
    pub packets: u64,
    /// The sum of their lengths, including bits that have left.
    pub bytes: u64,
}

/// The error of a queue that exceeded [`MOST_RUNS`], usually because the rate is below that of the traffic. The queue
/// cannot be used any further.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueFull;

impl VirtualQueue {
    /// Creates an empty queue in front of a link of this rate.
    ///
    /// The time of a packet is that at which its last bit arrives. Without `line`, its first bit leaves at that time at
    /// the earliest, as in a store-and-forward switch. With `line`, the rate at which the bits arrive, each bit may
    /// leave as soon as it has arrived. The paper's estimate assumes the latter (equation 2): a burst of n packets
    /// gives an occupancy of n (line - rate) / line, rounded up; a store-and-forward switch may have one packet more. A
    /// `line` below `rate` counts as `rate`.
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

    /// Adds a packet that arrives at `now`, and returns the occupancy just after, which includes it. Packets that leave
    /// at the same instant do not count. `now` must not go backwards. Costs O(1), amortised over the packets.
    ///
    /// # Errors
    /// Returns [`QueueFull`] if more than [`MOST_RUNS`] entries would be needed.
    #[inline]
    pub fn on_packet(&mut self, now: Instant, bytes: u32) -> Result<Occupancy, QueueFull> {
        let passed = u128::from(now.ns_since(self.last)) * u128::from(self.rate.bps());
        self.last = now;
        self.service = self.service.saturating_add(passed);
        self.depart();
        // An idle link saves no service, except for the bits of this packet that could leave while it arrived.
        if self.runs.is_empty() {
            self.service = self.service.min(self.head_start(bytes));
        }
        self.append(bytes)?;
        self.occupancy.packets += 1;
        self.occupancy.bytes += u64::from(bytes);
        Ok(self.occupancy)
    }

    /// Removes the packets whose last bit has left.
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

    /// The service that an idle bottleneck can give to a packet while it arrives.
    fn head_start(&self, bytes: u32) -> u128 {
        self.line.map_or(0, |line| {
            work(bytes).saturating_mul(self.rate.bps().into()) / u128::from(line.bps())
        })
    }

    /// Adds a packet to the last run, or begins a new one.
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

/// The service that a packet needs, in units of 10^-9 bits.
const fn work(bytes: u32) -> u128 {
    bytes as u128 * 8_000_000_000
}

/// The number of packets, of `most` at most, that this service completes. All of them if they are empty.
fn whole_packets(service: u128, work: u128, most: u32) -> u32 {
    match service.checked_div(work) {
        Some(packets) => u32::try_from(packets).unwrap_or(u32::MAX).min(most),
        None => most,
    }
}

/// The most runs of packets of equal length in the queue, which take 8 MiB. At a rate above the mean of the traffic,
/// only a burst of a million packets of changing lengths can exceed it.
pub const MOST_RUNS: usize = 1 << 20;
