//! Finds the stalled streams of one connection.
//!
//! A response waits for one of three things: the client's HTTP/2 windows, the client's TCP, or this server's own
//! pacing. Pacing is not the client's fault, and a stream by itself cannot tell the three apart. So each stream records
//! the position in the connection's output at which it last wrote, and from time to time the connection asks its socket
//! how much has been delivered ([`Delivery`]). A stream whose bytes were all delivered waits for a window, and is
//! stalled if it waits too long. A stream whose bytes are still in flight is judged by whether the connection's bytes
//! make any progress. A client may also close the window of bytes that h2 has already (RFC 9113, section 6.9.2): they
//! wait for it if all that h2 could write was delivered.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::Duration;

use bytes::{Buf, Bytes};
use softclock::Instant;

use crate::client::options::Timeouts;

/// The responses in progress on a connection.
pub(super) struct Flows {
    timeouts: Timeouts,
    transport: Rc<Transport>,
    live: RefCell<HashMap<u32, Rc<State>>>,
    next: Cell<u32>,
    /// The time at which [`judge`](Self::judge) last ran or the first response began to wait; `None` while none waits.
    judged: Cell<Option<Instant>>,
    /// Wakes the connection's task when a response begins to wait.
    waker: Cell<Option<Waker>>,
    /// The time at which a response last made progress, or the first one began to wait.
    progress: Cell<Instant>,
    /// The number of responses that wait for room.
    waiting: Cell<usize>,
}

/// The progress of a connection's output. The socket updates it; streams and
/// [`KeepAlive`](super::keep_alive::KeepAlive) read it.
#[derive(Default)]
pub(super) struct Transport {
    /// Bytes written, before encryption.
    pub(super) written: Cell<u64>,
    /// Set to ask the socket for a [`Delivery`], which it then puts into `delivery`.
    pub(super) is_asked: Cell<bool>,
    pub(super) delivery: Cell<Option<Delivery>>,
    /// Whether the output waited for pacing only, when the socket was last asked.
    pub(super) is_held_back: Cell<bool>,
    /// Bytes that the client's kernel had acknowledged, when the socket was last asked.
    pub(super) acknowledged: Cell<u64>,
    /// Whether the client's kernel had acknowledged all output, when the socket was last asked.
    pub(super) is_delivered: Cell<bool>,
    /// Whether the socket was given up because its client read nothing, or too little.
    pub(super) is_stuck: Cell<bool>,
    /// The time at which bytes last arrived from the client.
    pub(super) heard: Cell<Option<Instant>>,
}

/// The part of a connection's output that has reached the client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Delivery {
    /// At least this many bytes of [`Transport::written`] were delivered.
    pub(super) bytes: u64,
    /// This many bytes of the socket were acknowledged; encrypted ones under TLS.
    pub(super) acknowledged: u64,
    /// Whether the client has acknowledged all output, and the socket has room for more.
    pub(super) is_complete: bool,
    /// Whether the client has acknowledged all that the kernel was given, so that the rest waits for pacing only.
    pub(super) is_held_back: bool,
}

/// The result of [`Flows::judge`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// This many streams were newly found to be stalled, and will be reset.
    Stalled(usize),
    /// All streams wait, and none has made progress: the connection must end.
    AllStalled,
}

/// The progress of one response.
struct State {
    transport: Rc<Transport>,
    /// Bytes given to h2 that it has not yet written to the socket.
    unwritten: Cell<usize>,
    /// The value of [`Transport::written`] when bytes of this stream were last written.
    position: Cell<u64>,
    /// The time since which the stream has waited for room without progress.
    waits: Cell<Option<Instant>>,
    rate: Cell<Rate>,
    /// The begin of a wait with no bytes left to write that is not included in `rate` yet.
    uncounted: Cell<Option<Instant>>,
    /// Bytes acknowledged when the wait was last excused as not the client's fault.
    excused_at: Cell<Option<u64>>,
    is_stalled: Cell<bool>,
    waker: Cell<Option<Waker>>,
    /// The time at which bytes of the stream were last written, or its wait was last excused.
    progress: Cell<Option<Instant>>,
}

/// The bytes that a client took while the stream waited for it.
#[derive(Clone, Copy, Default)]
struct Rate {
    waited: Duration,
    taken: u64,
}

impl Flows {
    pub(super) fn new(timeouts: Timeouts, transport: Rc<Transport>, now: Instant) -> Rc<Self> {
        Rc::new(Self {
            timeouts,
            transport,
            live: RefCell::default(),
            next: Cell::new(0),
            judged: Cell::new(None),
            waker: Cell::new(None),
            progress: Cell::new(now),
            waiting: Cell::new(0),
        })
    }

    /// Registers a response that begins.
    pub(super) fn begin(self: &Rc<Self>) -> Flow {
        let id = self.next.get();
        self.next.set(id.wrapping_add(1));
        let state = Rc::new(State {
            transport: Rc::clone(&self.transport),
            unwritten: Cell::new(0),
            position: Cell::new(self.transport.written.get()),
            waits: Cell::new(None),
            rate: Cell::default(),
            uncounted: Cell::new(None),
            excused_at: Cell::new(None),
            is_stalled: Cell::new(false),
            waker: Cell::new(None),
            progress: Cell::new(None),
        });
        self.live.borrow_mut().insert(id, Rc::clone(&state));
        Flow {
            flows: Rc::clone(self),
            id,
            state,
        }
    }

    /// Returns when to call [`judge`](Self::judge) next; `None` if no response waits, or waits are not limited. `cx` is
    /// woken when one begins to wait.
    pub(super) fn next_look(&self, now: Instant, cx: &Context<'_>) -> Option<Instant> {
        // Without waiting responses there are no checks, and the first one that waits wakes the task.
        let Some(judged) = self.judged.get() else {
            self.waker.set(Some(cx.waker().clone()));
            if self.waiting.get() == 0 {
                return None;
            }
            self.judged.set(Some(now));
            return self.next_look(now, cx);
        };
        Some(judged + (self.shortest_limit()? / LOOKS).max(LEAST_PAUSE))
    }

    /// Returns the shortest time after which a response may count as stalled.
    fn shortest_limit(&self) -> Option<Duration> {
        let rate_window = (self.timeouts.min_rate > 0).then_some(self.timeouts.rate_window);
        self.timeouts.send.into_iter().chain(rate_window).min()
    }

    /// Finds the stalled responses and wakes their tasks, which reset them. O(streams).
    pub(super) fn judge(&self, now: Instant, delivery: Delivery) -> Verdict {
        // While no response waits, no check is scheduled.
        self.judged.set((self.waiting.get() > 0).then_some(now));
        let live = self.live.borrow();
        let (mut stalled, mut waiting) = (0, 0);
        let mut progress = self.progress.get();
        // Counted first, as waiting streams share the minimum rate.
        for state in live.values() {
            waiting += usize::from(state.waits.get().is_some());
        }
        for state in live.values() {
            let is_stalled = state.takes_nothing(&self.timeouts, live.len(), now, delivery)
                || state.takes_too_little(&self.timeouts, waiting, now, delivery);
            if is_stalled && !state.is_stalled.replace(true) {
                stalled += 1;
                state.wake();
            }
            progress = progress.max(state.progress.get().unwrap_or(progress));
        }
        self.progress.set(progress);
        let limit = self.shortest_limit();
        let is_idle = limit.is_some_and(|limit| now.since(progress) >= limit);
        // While one stream goes on, resetting the stalled ones is enough.
        match stalled > 0 && waiting == live.len() && is_idle {
            true => Verdict::AllStalled,
            false => Verdict::Stalled(stalled),
        }
    }
}

impl State {
    /// Returns whether the client has taken nothing of the stream for the send timeout, without an excuse.
    fn takes_nothing(
        &self,
        timeouts: &Timeouts,
        streams: usize,
        now: Instant,
        delivery: Delivery,
    ) -> bool {
        let (Some(limit), Some(since)) = (timeouts.send, self.waits.get()) else {
            return false;
        };
        if now.since(since) < limit {
            return false;
        }
        // All of the stream's bytes that may be sent were delivered, so that it waits for a window that the client does
        // not open.
        if delivery.is_complete || delivery.bytes >= self.turn(streams) {
            return true;
        }
        // Bytes of this stream are in flight, or its turn has not come: excused as long as the connection makes
        // progress.
        let (before, acknowledged) = (self.excused_at.get(), delivery.acknowledged);
        let goes_on = before.is_none_or(|before| acknowledged > before);
        if !goes_on && !delivery.is_held_back {
            return true;
        }
        // Excused: the wait begins anew.
        self.excused_at.set(Some(acknowledged));
        self.waits.set(Some(now));
        self.progress.set(Some(now));
        false
    }

    /// Returns whether, over a window of waiting, the client took less than the stream's share of the minimum rate.
    fn takes_too_little(
        &self,
        timeouts: &Timeouts,
        waiting: usize,
        now: Instant,
        delivery: Delivery,
    ) -> bool {
        self.count_wait(now);
        let rate = self.rate.get();
        if timeouts.min_rate == 0 || (rate.waited < timeouts.rate_window && !delivery.is_held_back)
        {
            return false;
        }
        self.rate.set(Rate::default());
        // The minimum rate is the connection's: waiting streams share it equally.
        let taken = rate.taken * waiting.max(1) as u64;
        !delivery.is_held_back && taken < timeouts.least_in_window()
    }

    /// Adds the time waited until `now` to `rate`. Time with bytes left to write does not count, as the socket's own
    /// check of the rate covers it.
    fn count_wait(&self, now: Instant) {
        let mut rate = self.rate.get();
        if let Some(since) = self.uncounted.take() {
            rate.waited += now.since(since);
            self.rate.set(rate);
        }
        let is_blocked = self.waits.get().is_some() && self.unwritten.get() == 0;
        self.uncounted.set(is_blocked.then_some(now));
    }

    /// Returns how much of the connection's output must have been delivered before this stream counts as waiting for
    /// the client's windows. If it has bytes to write, every stream may have a turn before it.
    fn turn(&self, streams: usize) -> u64 {
        let others = match self.unwritten.get() {
            0 => 0,
            _ => streams as u64 * TURN_BYTES,
        };
        self.position.get() + others
    }

    /// Records that h2 has written bytes of the stream to the socket.
    fn on_written(&self, bytes: usize) {
        let now = softclock::now();
        self.unwritten.set(self.unwritten.get() - bytes);
        self.position.set(self.transport.written.get());
        self.progress.set(Some(now));
        self.excused_at.set(None);
        // Progress restarts a wait.
        if self.waits.get().is_some() {
            self.waits.set(Some(now));
        }
        let mut rate = self.rate.get();
        rate.taken += bytes as u64;
        self.rate.set(rate);
        self.count_wait(now);
        if self.unwritten.get() <= AHEAD_BYTES {
            self.wake();
        }
    }

    /// Records that h2 has dropped bytes of the stream, as the stream has ended.
    fn on_dropped(&self, bytes: usize) {
        self.unwritten.set(self.unwritten.get() - bytes);
        self.wake();
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// A response in progress, registered in [`Flows`] until it is dropped.
pub(super) struct Flow {
    flows: Rc<Flows>,
    id: u32,
    state: Rc<State>,
}

impl Flow {
    /// Returns whether h2 holds so many unwritten bytes of the stream that more can wait. `cx` is woken when that
    /// changes, or when the stream is found to be stalled.
    pub(super) fn is_ahead(&self, cx: &Context<'_>) -> bool {
        self.state.waker.set(Some(cx.waker().clone()));
        self.state.unwritten.get() > AHEAD_BYTES
    }

    /// Returns whether h2 has written, or dropped, all that it was given of the stream.
    pub(super) fn is_written(&self) -> bool {
        self.state.unwritten.get() == 0
    }

    /// Returns whether [`Flows::judge`] has found the stream to be stalled.
    pub(super) fn is_stalled(&self) -> bool {
        self.state.is_stalled.get()
    }

    /// Records whether the stream waits for room.
    pub(super) fn set_waiting(&self, waits: bool) {
        let (state, flows) = (&self.state, &self.flows);
        if state.waits.get().is_some() == waits {
            return;
        }
        let now = softclock::now();
        let waiting = flows.waiting.get();
        flows.waiting.set(match waits {
            true => waiting + 1,
            false => waiting - 1,
        });
        // The first response that waits starts the checks: time before that does not count as lack of progress.
        if waits && waiting == 0 {
            flows.progress.set(now);
            if flows.judged.get().is_none()
                && let Some(waker) = flows.waker.take()
            {
                waker.wake();
            }
        }
        // Closes the period under the old state, and opens one under the new.
        state.count_wait(now);
        state.waits.set(waits.then_some(now));
        state.count_wait(now);
    }

    /// Wraps a piece of the response, so that its bytes are counted when h2 writes them.
    pub(super) fn piece(&self, bytes: Bytes) -> Piece {
        let state = &self.state;
        state.unwritten.set(state.unwritten.get() + bytes.len());
        Piece {
            bytes,
            state: Rc::clone(state),
        }
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        self.set_waiting(false);
        self.flows.live.borrow_mut().remove(&self.id);
        if !self.is_stalled() {
            self.flows.progress.set(softclock::now());
        }
    }
}

/// Bytes of a response that update its [`State`] as h2 writes them.
pub(super) struct Piece {
    bytes: Bytes,
    state: Rc<State>,
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn advance(&mut self, bytes: usize) {
        self.bytes.advance(bytes);
        self.state.on_written(bytes);
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        if self.bytes.has_remaining() {
            self.state.on_dropped(self.bytes.len());
        }
    }
}

/// The number of checks within the shortest limit.
const LOOKS: u32 = 4;

/// The shortest pause between two checks.
const LEAST_PAUSE: Duration = Duration::from_millis(10);

/// More of a response is read only while its unwritten bytes are no more than this. With one chunk of a file in
/// addition, it bounds a stream's memory.
pub(super) const AHEAD_BYTES: usize = 64 << 10;

/// The bytes that every other stream may write before a stream has its turn: two frames.
const TURN_BYTES: u64 = 32 << 10;
