//! Pacing: writes that are sent in pieces, clocked by soft events (*Soft Timers*, sections 4.1 and 5.5).
//!
//! A paced stream gives the kernel one piece at a time. The first piece of a train is sent by the write itself.
//! Further data is copied into a bounded buffer of the stream, from which an event sends a piece whenever the rate
//! allows, at the next trigger state, without waking the task. A train ends when the buffer is empty.
//!
//! If other processes keep this one from its processor, each wait between pieces takes milliseconds. Pieces that are
//! due by then are sent together, as many as the burst rate allows since the last piece, limited to 5 ms and by
//! [`Pacing::most_behind`]. With one piece per wait, a stream of 20 Mbit/s beside four computing processes on two
//! processors kept half of its rate.
//!
//! The cost of pacing is mainly that of the pieces: each is a system call and a pass through the kernel's protocols.
//! A piece is therefore as large as the rate allows until the stream's next turn, assuming that each trigger state
//! serves one of the waiting streams: a finer clock could not tick anyway. If the thread is never idle, pieces grow
//! until it is, since otherwise their cost would slow down other work. A piece is at least one segment and covers at
//! most a millisecond, which is the burst that the kernel's own pacing allows.
//!
//! - [`Pacing`], [`PacedBy`]: the parameters; [`Pacer`]: a pacing shared by streams, which can be changed while they
//!   are in use.
//! - `handle`: the pacing of a stream as its owner sees it.
//! - `paced`, `write`, `state`: a paced stream, its writer's side, and its state.
//! - `datagrams`: trains of datagrams.
//! - `buffer`: bytes accepted from a writer and not yet given to the kernel.
//! - `estimator`: the time that pieces cover.

mod buffer;
mod datagrams;
mod estimator;
mod handle;
mod paced;
mod state;
mod write;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::time::Duration;

use softclock_core::pacing::{MOST_BEHIND, RateClock, SharedRate};
use softclock_core::time::TICK_NS;
use softclock_core::{Clock, Instant, Rate};

use crate::runtime::inner::{Inner, allowance};
use crate::runtime::soft_events::Transmit;

pub(crate) use datagrams::{DatagramPacing, TrainShape};
pub(super) use estimator::Estimator;
pub(crate) use handle::StreamPacing;
pub(crate) use paced::Paced;

/// The parameters for pacing the writes of a stream. Rates count the stream's bytes, without packet headers.
///
/// # Example
/// ```
/// use softclock::net::Pacing;
/// use std::time::Duration;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // 50 Mbit/s, and 60 while catching up with at most 10 ms of lateness.
/// let pacing = Pacing {
///     burst: "60mbit".parse()?,
///     most_behind: Duration::from_millis(10),
///     ..Pacing::of_rate("50mbit".parse()?)
/// };
/// assert_eq!(pacing.rate.bps(), 50_000_000);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pacing {
    /// Average rate since a train began, never exceeded by more than a piece. If a piece takes less than a
    /// microsecond at this rate, events cannot clock them, and a write sends its pieces one after the other.
    pub rate: Rate,
    /// Rate at which a train catches up after events were late: the paper's maximal allowable burst rate. A value
    /// below `rate` counts as `rate`.
    pub burst: Rate,
    /// Longest time that a train may be behind and still catch up, but at least a piece. The bytes of a longer delay
    /// are not made up, and counted
    /// ([`PacingStatistics::forgotten_bytes`](super::PacingStatistics::forgotten_bytes)).
    pub most_behind: Duration,
    /// Bytes per piece, 1 to 65536. `None` selects an Ethernet segment of 1448 bytes, or as much as `rate` allows in
    /// the median time between trigger states, times the number of waiting streams, if that is more, and more if the
    /// thread is never idle, but then at most a millisecond at `rate`.
    pub piece_bytes: Option<usize>,
    /// Bytes that the stream accepts from its writer in advance. With 0, the writer is woken for each piece, which
    /// costs more and is less exact. `None` selects 50 ms at the rate, within two pieces to 64 KiB.
    pub buffer_bytes: Option<usize>,
    /// The clock that sends the pieces.
    pub by: PacedBy,
}

/// The clock that sends the pieces of a paced stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum PacedBy {
    /// A soft event for each piece.
    #[default]
    SoftEvents,
    /// The program, which calls [`Pacer::release`] for each piece. The rate is ignored, and a buffer is required.
    Release,
    /// The kernel (SO_MAX_PACING_RATE), with its own pieces and clock. It does not catch up.
    Kernel,
}

impl Pacing {
    /// Returns parameters with this rate, a burst rate of twice as much, and catching up for at most 50 ms of
    /// lateness.
    pub const fn of_rate(rate: Rate) -> Self {
        let burst = match Rate::from_bps(rate.bps().saturating_mul(2)) {
            Some(burst) => burst,
            None => rate,
        };
        Self {
            rate,
            burst,
            most_behind: MOST_BEHIND,
            piece_bytes: None,
            buffer_bytes: None,
            by: PacedBy::SoftEvents,
        }
    }

    /// Returns the bytes per piece for a stream that has its turn once per `turn`.
    pub(super) fn piece(&self, turn: Duration) -> usize {
        let wanted = self.piece_bytes.unwrap_or_else(|| {
            let bytes = self.rate.bytes_in(turn.min(LONGEST_PIECE));
            usize::try_from(bytes)
                .unwrap_or(usize::MAX)
                .max(SEGMENT_BYTES)
        });
        wanted.clamp(1, MOST_BYTES)
    }

    /// Sets `clock`, which has paced pieces of `former` bytes by `before`, to these rates and pieces of `piece`
    /// bytes. If the rate does not change, its train keeps its schedule.
    fn set_clock(&self, clock: &mut RateClock, before: Option<Self>, former: usize, piece: usize) {
        let intervals =
            |bytes: usize| [self.rate, self.burst].map(|rate| rate.time_of(bytes as u64));
        let clocked = |pacing: Self| (pacing.by, pacing.rate);
        if before.map(clocked) != Some(clocked(*self)) {
            let [target, minimum] = intervals(former);
            clock.set_rates(target, minimum);
        }
        let [target, minimum] = intervals(piece);
        clock.set_intervals(target, minimum);
        clock.set_most_behind(self.most_behind);
    }

    /// Returns the capacity of the buffer in bytes, for pieces of this size.
    fn buffer(&self, piece: usize) -> usize {
        self.buffer_bytes.unwrap_or_else(|| {
            let bytes = usize::try_from(self.rate.bytes_in(BUFFERED)).unwrap_or(usize::MAX);
            bytes.min(MOST_BYTES).max(2 * piece)
        })
    }
}

/// Paces the streams of one thread ([`TcpStream::paced`](super::TcpStream::paced)): each at its own rate, and
/// optionally all together at a total rate. Changes apply to streams in use. Clones refer to the same pacer.
///
/// # Example
/// ```
/// use softclock::Rate;
/// use softclock::net::{Pacer, Pacing, TcpListener, TcpStream};
///
/// # fn main() -> std::io::Result<()> {
/// softclock::Runtime::new()?.block_on(async {
///     let rate: Rate = "100mbit".parse().expect("a valid rate");
///     let pacer = Pacer::new(Some(Pacing::of_rate(rate)));
///     // All streams together: 1 Gbit/s.
///     pacer.set_total(Rate::from_bps(1_000_000_000));
///
///     let listener = TcpListener::bind(([127, 0, 0, 1], 0))?;
///     let stream = TcpStream::connect(listener.local_addr()?).await?.paced(&pacer);
///     assert!(stream.is_paced());
///     // Applies to the stream in use.
///     pacer.set(None);
///     assert!(!stream.is_paced());
///     std::io::Result::Ok(())
/// })
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Pacer {
    shared: Rc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    pacing: Cell<Option<Pacing>>,
    /// Number of changes of `pacing`.
    version: Cell<u32>,
    total: RefCell<Option<SharedRate>>,
    /// Number of changes of `total`.
    total_version: Cell<u32>,
    /// Streams whose next piece waits to be released. The runtime keeps them: they refer to this pacer.
    waiting: RefCell<VecDeque<Weak<Paced>>>,
}

impl Pacer {
    /// Creates a pacer with these parameters; with `None` it does not pace until [`set`](Self::set) is called.
    pub fn new(pacing: Option<Pacing>) -> Self {
        let pacer = Self::default();
        pacer.shared.pacing.set(pacing);
        pacer
    }

    /// Returns the parameters.
    pub fn pacing(&self) -> Option<Pacing> {
        self.shared.pacing.get()
    }

    /// Changes the parameters of all streams, from their next piece on.
    pub fn set(&self, pacing: Option<Pacing>) {
        let shared = &self.shared;
        shared.pacing.set(pacing);
        shared.version.set(shared.version.get().wrapping_add(1));
        let waiting = shared.waiting.take();
        let waiting = waiting.iter().filter_map(Weak::upgrade);
        waiting.for_each(|stream| stream.resume());
    }

    /// Sets the rate that all streams of this pacer share, taking turns piece by piece; `None` for no limit. After a
    /// pause, up to a millisecond at this rate may be sent at once. Streams that wait for the former rate follow within
    /// 100 ms.
    pub fn set_total(&self, total: Option<Rate>) {
        let mut shared = self.shared.total.borrow_mut();
        let now = Inner::own().map(|runtime| runtime.clock.now());
        match (&mut *shared, total, now) {
            (Some(shared), Some(rate), _) if shared.rate() == rate => return,
            (Some(shared), Some(rate), Some(now)) => shared.set_rate(now, rate),
            // Without a runtime nothing is reserved.
            (shared, total, _) => *shared = total.map(|rate| SharedRate::new(rate, TOTAL_SLACK)),
        }
        let version = &self.shared.total_version;
        version.set(version.get().wrapping_add(1));
    }

    /// Sends a piece of each of the `most` streams that have waited longest ([`PacedBy::Release`]). Returns the
    /// number of streams. May be called from the handler of a soft event.
    ///
    /// # Panics
    /// If called outside a runtime.
    pub fn release(&self, most: usize) -> usize {
        let waiting = &self.shared.waiting;
        let count = waiting.borrow().len().min(most);
        for _ in 0..count {
            let next = waiting.borrow_mut().pop_front();
            if let Some(stream) = next.and_then(|stream| stream.upgrade()) {
                stream.on_due(crate::now());
            }
        }
        count
    }

    /// Whether the streams share a rate.
    fn has_total(&self) -> bool {
        self.shared.total.borrow().is_some()
    }

    fn version(&self) -> u32 {
        self.shared.version.get()
    }

    fn total_version(&self) -> u32 {
        self.shared.total_version.get()
    }

    /// Returns when `bytes` may be sent at the total rate, reserving their time.
    fn reserve(&self, now: Instant, bytes: usize) -> Instant {
        match &mut *self.shared.total.borrow_mut() {
            Some(total) => total.reserve(now, bytes as u64),
            None => now,
        }
    }

    /// Reserves the time for `bytes` if they may be sent at once at the total rate. Returns whether it did.
    fn reserve_now(&self, now: Instant, bytes: usize) -> bool {
        match &mut *self.shared.total.borrow_mut() {
            Some(total) => total.reserve_now(now, bytes as u64),
            None => true,
        }
    }

    fn wait_for_release(&self, stream: &Rc<Paced>) {
        let mut waiting = self.shared.waiting.borrow_mut();
        waiting.push_back(Rc::downgrade(stream));
    }

    /// Removes a stream that no longer waits to be released.
    fn forget(&self, stream: &Paced) {
        let mut waiting = self.shared.waiting.borrow_mut();
        waiting.retain(|other| !std::ptr::eq(other.as_ptr(), stream));
    }
}

/// Records in `clock`, set by `pacing`, that `sent` bytes were sent where a piece has `piece` bytes. Returns the
/// bytes that the rate allowed and that will not be made up.
fn transmitted(
    clock: &mut RateClock,
    pacing: Option<Pacing>,
    now: Instant,
    [sent, piece]: [usize; 2],
) -> u64 {
    let before = clock.forgotten();
    clock.on_transmit_bytes(now, sent as u64, piece as u64);
    let forgotten = clock.forgotten() - before;
    pacing.map_or(0, |pacing| pacing.rate.bytes_in(forgotten))
}

/// Waits until the kernel has all data that paced streams of this thread have accepted, including streams that were
/// dropped.
///
/// # Cancel safety
/// Cancel-safe: it only looks.
///
/// # Panics
/// If called outside a runtime.
pub async fn all_paced_sent() {
    let pending = || Inner::with_current(|runtime| runtime.pacing.statistics().pending_bytes);
    allowance().await;
    while pending() > 0 {
        crate::sleep(LOOK_AGAIN).await;
    }
}

/// TCP payload of an Ethernet packet with time stamps.
const SEGMENT_BYTES: usize = 1448;

/// Longest time covered by a piece of any number of streams: longer ones would be bursts.
const LONGEST_PIECE: Duration = Duration::from_millis(1);

/// The resolution of soft events.
const TICK: Duration = Duration::from_nanos(TICK_NS);

/// The largest piece that the kernel accepts at once for its own segmentation.
const MOST_BYTES: usize = 64 << 10;

/// Time covered by the default buffer. The writer is woken when half of it is sent, so it may be late by some
/// milliseconds.
const BUFFERED: Duration = Duration::from_millis(50);

/// Lateness that trigger states sometimes have on a crowded machine.
const TOTAL_SLACK: Duration = Duration::from_millis(1);

const LOOK_AGAIN: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    fn mbit(rate: u64) -> Rate {
        Rate::from_bps(rate * 1_000_000).unwrap()
    }

    #[test]
    fn pieces_are_as_large_as_trigger_states_are_apart() {
        let pacing = Pacing::of_rate(mbit(1000));
        assert_eq!(pacing.piece(Duration::from_micros(1)), SEGMENT_BYTES);
        assert_eq!(pacing.piece(Duration::from_micros(20)), 2_500);
        assert_eq!(pacing.piece(Duration::from_secs(1)), MOST_BYTES);
        let slower = Pacing::of_rate(mbit(100));
        assert_eq!(slower.piece(Duration::from_secs(1)), 12_500);
        let stated = Pacing {
            piece_bytes: Some(3_000),
            ..pacing
        };
        assert_eq!(stated.piece(Duration::from_micros(20)), 3_000);
    }

    #[test]
    fn buffers_hold_two_pieces_at_least() {
        assert_eq!(Pacing::of_rate(mbit(1000)).buffer(1_448), MOST_BYTES);
        assert_eq!(Pacing::of_rate(mbit(1)).buffer(1_448), 6_250);
        let slow = Pacing::of_rate(Rate::from_bps(9_600).unwrap());
        assert_eq!(slow.buffer(1_448), 2 * 1_448);
        assert_eq!(slow.burst.bps(), 19_200);
    }
}
