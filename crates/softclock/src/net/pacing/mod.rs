//! Pacing: writes that go out in pieces, clocked by soft events (*Soft Timers*, sections 4.1 and 5.5).
//!
//! A paced stream gives the kernel one piece at a time. The first of a train goes out in the write itself; what follows is
//! copied into a bounded buffer of the stream's own, from which an event sends a piece whenever the rate allows, at
//! whichever trigger state comes next, without waking the task. A train ends when the buffer is empty.
//!
//! Where the process is kept from its processor, each wait between pieces costs milliseconds. What is due by then goes
//! together, as far as the burst rate had time for it since the piece before, in 5 ms at most, and
//! [`Pacing::most_behind`] allows: at one piece a wait, a stream of 20 Mbit/s beside four computing processes on two
//! processors kept half of its rate.
//!
//! What pacing costs is above all the pieces: each is a system call and a walk through the kernel's protocols of its own.
//! So a piece is as large as the rate allows for: as much as goes out at it until the stream's next turn, if each trigger
//! state served one of the streams that wait, since a finer clock would not tick anyway. Where the thread is never idle,
//! pieces grow until it is, as their cost would be other work's. A piece is no less than a segment, and no more than a
//! millisecond's worth, which is what the kernel's own pacing sends at once.
//!
//! - [`Pacing`], [`PacedBy`]: how; [`Pacer`]: for which streams, changed while they are in use.
//! - `handle`: the pacing of a stream as its user has it; `paced`, `write`: a paced stream, and its writer's side; `state`:
//!   what it knows.
//! - `datagrams`: trains of datagrams.
//! - `buffer`: what a write accepted and the kernel has not got yet.
//! - `estimator`: for how long pieces are made.

mod buffer;
mod datagrams;
mod estimator;
mod handle;
mod paced;
mod state;
mod write;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use softclock_core::pacing::{MOST_BEHIND, RateClock, SharedRate};
use softclock_core::time::TICK_NS;
use softclock_core::{Instant, Rate};

use crate::runtime::inner::{Inner, allowance};
use crate::runtime::soft_events::Transmit;

pub(crate) use datagrams::DatagramPacing;
pub(super) use estimator::Estimator;
pub(crate) use handle::StreamPacing;
pub(crate) use paced::Paced;

/// How the writes of a stream are paced. Rates are of the stream's bytes, without the headers of packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pacing {
    /// The rate kept on average since a train began; never exceeded by more than a piece. If a piece takes less than a
    /// microsecond at it, no event could clock them: a write then sends its pieces one after the other.
    pub rate: Rate,
    /// The rate at which a train catches up that has fallen behind because events were late: the paper's maximal
    /// allowable burst rate. Less than `rate` is `rate`.
    pub burst: Rate,
    /// How far a train may fall behind and still catch up; what it is behind by more is lost to it, and counted
    /// ([`PacingStatistics::forgotten_bytes`](super::PacingStatistics::forgotten_bytes)). A piece at least is made up for.
    pub most_behind: Duration,
    /// Bytes of a piece, 1 to 65536. `None` is 1448, a segment of Ethernet, or as much as `rate` gives in the median time
    /// between trigger states, times the streams that wait, if that is more; and more where the thread is never idle. It is
    /// then no more than `rate` gives in a millisecond.
    pub piece_bytes: Option<usize>,
    /// Bytes that the stream takes from its writer ahead of time. With 0 it takes none, and the writer is woken for each
    /// piece, which costs more and is less exact. `None` is 50 ms at the rate, from two pieces to 64 KiB.
    pub buffer_bytes: Option<usize>,
    /// Who lets the pieces go.
    pub by: PacedBy,
}

/// Who lets the pieces of a paced stream go.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PacedBy {
    /// A soft event for each.
    #[default]
    SoftEvents,
    /// [`Pacer::release`], called for each by the program. The rate is not looked at, and there must be a buffer.
    Release,
    /// The kernel (SO_MAX_PACING_RATE), whatever its pieces and its clock. There is no catching up.
    Kernel,
}

impl Pacing {
    /// This rate, and up to twice as much to catch up with what 50 ms of lateness left behind.
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

    /// The bytes of a piece, where a stream's turn comes after this time.
    pub(super) fn piece(&self, turn: Duration) -> usize {
        let wanted = self.piece_bytes.unwrap_or_else(|| {
            let bytes = self.rate.bytes_in(turn.min(LONGEST_PIECE));
            usize::try_from(bytes)
                .unwrap_or(usize::MAX)
                .max(SEGMENT_BYTES)
        });
        wanted.clamp(1, MOST_BYTES)
    }

    /// Has a clock, by which pieces of `former` bytes went as `before` says, keep the rates with pieces of `piece` bytes. At
    /// the rate before, its train keeps its schedule.
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

    /// The bytes of the buffer, with pieces of this size.
    fn buffer(&self, piece: usize) -> usize {
        self.buffer_bytes.unwrap_or_else(|| {
            let bytes = usize::try_from(self.rate.bytes_in(BUFFERED)).unwrap_or(usize::MAX);
            bytes.min(MOST_BYTES).max(2 * piece)
        })
    }
}

/// Paces streams of one thread ([`TcpStream::paced`](super::TcpStream::paced)): each at a rate of its own, and, if so
/// asked, all together at a total rate. Changes reach the streams in use. Clones are the same pacer.
#[derive(Clone, Debug, Default)]
pub struct Pacer {
    shared: Rc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    pacing: Cell<Option<Pacing>>,
    /// Of the pacing: how often it was changed.
    version: Cell<u32>,
    total: RefCell<Option<SharedRate>>,
    /// Streams whose next piece waits to be released.
    waiting: RefCell<VecDeque<Rc<Paced>>>,
}

impl Pacer {
    /// Paces so; `None` does not pace, for now.
    pub fn new(pacing: Option<Pacing>) -> Self {
        let pacer = Self::default();
        pacer.shared.pacing.set(pacing);
        pacer
    }

    /// How streams are paced.
    pub fn pacing(&self) -> Option<Pacing> {
        self.shared.pacing.get()
    }

    /// Changes how streams are paced, from their next piece on.
    pub fn set(&self, pacing: Option<Pacing>) {
        let shared = &self.shared;
        shared.pacing.set(pacing);
        shared.version.set(shared.version.get().wrapping_add(1));
        let waiting = shared.waiting.take();
        waiting.into_iter().for_each(|stream| stream.resume());
    }

    /// The rate that all streams of this pacer keep together, in turn, piece by piece; `None` for any. Up to a
    /// millisecond's worth goes out at once after a pause.
    pub fn set_total(&self, total: Option<Rate>) {
        let mut shared = self.shared.total.borrow_mut();
        match (&mut *shared, total) {
            (Some(shared), Some(rate)) => shared.set_rate(rate),
            (shared, total) => *shared = total.map(|rate| SharedRate::new(rate, TOTAL_SLACK)),
        }
    }

    /// Sends a piece of each of the `most` streams that have waited for longest ([`PacedBy::Release`]); returns how many
    /// there were. May be called from a soft event's handler.
    ///
    /// # Panics
    /// Outside a runtime.
    pub fn release(&self, most: usize) -> usize {
        let waiting = &self.shared.waiting;
        let count = waiting.borrow().len().min(most);
        for _ in 0..count {
            let next = waiting.borrow_mut().pop_front();
            if let Some(stream) = next {
                stream.on_due(crate::now());
            }
        }
        count
    }

    fn version(&self) -> u32 {
        self.shared.version.get()
    }

    /// When `bytes` may go as far as the total is concerned.
    fn reserve(&self, now: Instant, bytes: usize) -> Instant {
        match &mut *self.shared.total.borrow_mut() {
            Some(total) => total.reserve(now, bytes as u64),
            None => now,
        }
    }

    /// Whether `bytes` more may go now as far as the total is concerned: their time is taken then.
    fn reserve_now(&self, now: Instant, bytes: usize) -> bool {
        match &mut *self.shared.total.borrow_mut() {
            Some(total) => total.reserve_now(now, bytes as u64),
            None => true,
        }
    }

    fn wait_for_release(&self, stream: Rc<Paced>) {
        self.shared.waiting.borrow_mut().push_back(stream);
    }

    /// The stream no longer waits to be released.
    fn forget(&self, stream: &Rc<Paced>) {
        let mut waiting = self.shared.waiting.borrow_mut();
        waiting.retain(|other| !Rc::ptr_eq(other, stream));
    }
}

/// Tells `clock`, which goes as `pacing` says, that `sent` bytes went where a piece has so many; returns the bytes that the
/// rate had time for and that are not made up for.
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

/// Waits until the kernel has all that paced streams of this thread accepted, those that were dropped too.
///
/// # Panics
/// Outside a runtime.
pub async fn all_paced_sent() {
    let pending = || Inner::with_current(|runtime| runtime.pacing.statistics().pending_bytes);
    allowance().await;
    while pending() > 0 {
        crate::sleep(LOOK_AGAIN).await;
    }
}

/// What a packet of Ethernet carries of TCP, with time stamps.
const SEGMENT_BYTES: usize = 1448;

/// Longer pieces would be bursts again, however many streams there are.
const LONGEST_PIECE: Duration = Duration::from_millis(1);

/// What soft events are clocked by.
const TICK: Duration = Duration::from_nanos(TICK_NS);

/// The kernel takes no larger piece at once for its own segmentation.
const MOST_BYTES: usize = 64 << 10;

/// The writer is woken when half of it is sent, so that it may be late by some milliseconds.
const BUFFERED: Duration = Duration::from_millis(50);

/// Trigger states of a crowded machine are sometimes that late.
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
