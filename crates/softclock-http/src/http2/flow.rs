//! How the client takes the responses of one connection: what is underway, and which streams are stalled.
//!
//! A response waits for one of three things: the client's windows of HTTP/2, the client's TCP, or this server's own
//! pacing. The last is no fault of the client's, and they look alike from within a stream. So each stream notes how far
//! the connection's output had come when something of the stream last went out, and the connection asks its socket now
//! and then how much the client has got ([`Delivery`]). A stream that has got all that was sent on it, and has room for
//! nothing more, waits for a window; one whose bytes are still underway is judged by whether the connection's bytes go
//! on at all.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::Duration;

use bytes::{Buf, Bytes};
use softclock::Instant;

use crate::connection::Timeouts;

/// The responses in progress on a connection.
pub(super) struct Flows {
    timeouts: Timeouts,
    line: Rc<Line>,
    live: RefCell<HashMap<u32, Rc<State>>>,
    next: Cell<u32>,
    /// When [`judge`](Self::judge) last looked, or when to begin with it was known; nothing while no response waits.
    judged: Cell<Option<Instant>>,
    /// The connection's task, which is to know when a response begins to wait.
    waker: Cell<Option<Waker>>,
    /// When a response last had something taken, or began to wait where none did.
    progress: Cell<Instant>,
    /// Responses that wait for room.
    waiting: Cell<usize>,
}

/// A connection's output, as its socket counts it.
#[derive(Default)]
pub(super) struct Line {
    /// Bytes written, before encryption.
    pub(super) written: Cell<u64>,
    /// Whether the socket is to say how much was delivered, and what it said.
    pub(super) is_asked: Cell<bool>,
    pub(super) delivery: Cell<Option<Delivery>>,
    /// Whether what was written last waits for the pace, as far as the socket was asked.
    pub(super) is_held_back: Cell<bool>,
    /// Bytes of the socket's that the client's kernel has, as far as the socket was asked.
    pub(super) acknowledged: Cell<u64>,
    /// Whether the socket was given up, as its client took nothing, or too little.
    pub(super) is_stuck: Cell<bool>,
    /// When something last arrived.
    pub(super) heard: Cell<Option<Instant>>,
}

/// How much of a connection's output has reached the client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Delivery {
    /// At least so many bytes of [`Line::written`] have.
    pub(super) bytes: u64,
    /// So many bytes of the socket's, encrypted ones, have.
    pub(super) acknowledged: u64,
    /// The client's kernel has all that was given to ours: what is left waits for the pace.
    pub(super) is_held_back: bool,
}

/// What [`Flows::judge`] has found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// So many streams take nothing, or too little, and are to be reset.
    Stalled(usize),
    /// All of them take nothing: the connection is to end.
    AllStalled,
}

struct State {
    line: Rc<Line>,
    /// Bytes given that have not been written.
    unwritten: Cell<usize>,
    /// How much had been written on the connection when something of this stream last was.
    position: Cell<u64>,
    /// Since when it waits for room, without anything being taken.
    waits: Cell<Option<Instant>>,
    rate: Cell<Rate>,
    /// Since when it waits with nothing left to write, as far as that time is not in `rate` yet.
    uncounted: Cell<Option<Instant>>,
    /// How much had been delivered when the wait was last found to be no fault of the client's.
    excused_at: Cell<Option<u64>>,
    is_stalled: Cell<bool>,
    waker: Cell<Option<Waker>>,
    /// When something of it was last written, or its wait was found to be no fault of the client's.
    progress: Cell<Option<Instant>>,
}

/// What was taken during some time of waiting.
#[derive(Clone, Copy, Default)]
struct Rate {
    waited: Duration,
    taken: u64,
}

impl Flows {
    pub(super) fn new(timeouts: Timeouts, line: Rc<Line>, now: Instant) -> Rc<Self> {
        Rc::new(Self {
            timeouts,
            line,
            live: RefCell::default(),
            next: Cell::new(0),
            judged: Cell::new(None),
            waker: Cell::new(None),
            progress: Cell::new(now),
            waiting: Cell::new(0),
        })
    }

    /// A response begins.
    pub(super) fn begin(self: &Rc<Self>) -> Flow {
        let id = self.next.get();
        self.next.set(id.wrapping_add(1));
        let state = Rc::new(State {
            line: Rc::clone(&self.line),
            unwritten: Cell::new(0),
            position: Cell::new(self.line.written.get()),
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

    /// When to [`judge`](Self::judge) next, if any response waits and its wait is limited. `cx` is woken when one
    /// begins to wait.
    pub(super) fn next_look(&self, now: Instant, cx: &Context<'_>) -> Option<Instant> {
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

    /// The least time without anything being taken after which a response is stalled.
    fn shortest_limit(&self) -> Option<Duration> {
        let rate_window = (self.timeouts.min_rate > 0).then_some(self.timeouts.rate_window);
        self.timeouts.send.into_iter().chain(rate_window).min()
    }

    /// Finds the responses whose client takes nothing, or too little, and wakes them to be reset. O(streams).
    pub(super) fn judge(&self, now: Instant, delivery: Delivery) -> Verdict {
        // Where nothing waits there is no next look.
        self.judged.set((self.waiting.get() > 0).then_some(now));
        let live = self.live.borrow();
        let (mut stalled, mut waiting) = (0, 0);
        let mut progress = self.progress.get();
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
        match stalled > 0 && waiting == live.len() && is_idle {
            true => Verdict::AllStalled,
            false => Verdict::Stalled(stalled),
        }
    }
}

impl State {
    /// Whether nothing was taken for as long as allowed.
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
        if delivery.bytes >= self.turn(streams) {
            return true;
        }
        // Something of this stream is underway, or its turn has not come: then the connection must go on.
        let (before, acknowledged) = (self.excused_at.get(), delivery.acknowledged);
        let goes_on = before.is_none_or(|before| acknowledged > before);
        if !goes_on && !delivery.is_held_back {
            return true;
        }
        self.excused_at.set(Some(acknowledged));
        self.waits.set(Some(now));
        self.progress.set(Some(now));
        false
    }

    /// Whether the stream's share of the least rate was not taken while it waited.
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
        // With many streams each has its share: the client need not be faster for them.
        let taken = rate.taken * waiting.max(1) as u64;
        !delivery.is_held_back && taken < timeouts.least_in_window()
    }

    /// Brings the time of waiting up to `now`. While there is something to write, the socket's own rate is looked at.
    fn count_wait(&self, now: Instant) {
        let mut rate = self.rate.get();
        if let Some(since) = self.uncounted.take() {
            rate.waited += now.since(since);
            self.rate.set(rate);
        }
        let is_blocked = self.waits.get().is_some() && self.unwritten.get() == 0;
        self.uncounted.set(is_blocked.then_some(now));
    }

    /// How much of the connection's output must have been delivered before it is the client's windows that this stream
    /// waits for. Where it has bytes to write, all streams may have had their turn before it.
    fn turn(&self, streams: usize) -> u64 {
        let others = match self.unwritten.get() {
            0 => 0,
            _ => streams as u64 * TURN_BYTES,
        };
        self.position.get() + others
    }

    fn on_written(&self, bytes: usize) {
        let now = softclock::now();
        self.unwritten.set(self.unwritten.get() - bytes);
        self.position.set(self.line.written.get());
        self.progress.set(Some(now));
        self.excused_at.set(None);
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

    fn wake(&self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// One response on its way.
pub(super) struct Flow {
    flows: Rc<Flows>,
    id: u32,
    state: Rc<State>,
}

impl Flow {
    /// Whether so much is given and not written that more has time. Else `cx` is woken when that changes, or when the
    /// stream is found to be stalled.
    pub(super) fn is_ahead(&self, cx: &Context<'_>) -> bool {
        self.state.waker.set(Some(cx.waker().clone()));
        self.state.unwritten.get() > AHEAD_BYTES
    }

    /// Whether its client has taken nothing, or too little, for too long.
    pub(super) fn is_stalled(&self) -> bool {
        self.state.is_stalled.get()
    }

    /// Notes whether it waits for room.
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
        if waits && waiting == 0 {
            flows.progress.set(now);
            if flows.judged.get().is_none()
                && let Some(waker) = flows.waker.take()
            {
                waker.wake();
            }
        }
        state.count_wait(now);
        state.waits.set(waits.then_some(now));
        state.count_wait(now);
    }

    /// A piece of the response, counted when it is written.
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

/// Bytes of a response that tell when they are written.
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

/// How often streams are looked at within the shortest of the times that they have.
const LOOKS: u32 = 4;

const LEAST_PAUSE: Duration = Duration::from_millis(10);

/// What may wait to be written before more of a response is read: with a chunk of a file behind it, the most that a
/// stream holds.
pub(super) const AHEAD_BYTES: usize = 64 << 10;

/// As much as each of the other streams may have written before it is a stream's turn: two frames.
const TURN_BYTES: u64 = 32 << 10;
