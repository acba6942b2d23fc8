//! A paced stream: what its writer gave goes out piece by piece.
//!
//! At any time one of these holds: nothing is to be sent; an event will send the next piece; the piece waits to be
//! released; the kernel has no room, and a task waits for it. The event holds the stream, so that what was accepted is
//! still sent after the stream was dropped; what is left when the runtime ends goes to the kernel at once.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::mem;
use std::net::Shutdown;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use softclock_core::{Clock, FireWindow, Instant, TimerKey};

use super::state::{State, Waits};
use super::{Estimator, PacedBy, Pacer, Pacing, transmitted};
use crate::net::carrier::TcpIo;
use crate::runtime::soft_events::{PendingEvent, Transmit};
use crate::runtime::sources::Direction;
use crate::runtime::statistics::PacingCounts;
use crate::time::timeout;

/// A stream and what is to be sent on it.
pub(crate) struct Paced {
    pub(super) io: Rc<TcpIo>,
    pub(super) state: RefCell<State>,
    /// Nobody has the stream any more.
    is_dropped: Cell<bool>,
    /// The stream is being reset: nothing more is sent, and the connection closed at once.
    is_reset: Cell<bool>,
    /// The task that waits for the kernel to take more.
    kernel_waiter: Cell<Option<Waker>>,
}

impl Paced {
    pub(super) fn new(io: Rc<TcpIo>, pacer: &Pacer) -> Rc<Self> {
        Rc::new(Self {
            io,
            state: RefCell::new(State::new(pacer.clone())),
            is_dropped: Cell::new(false),
            is_reset: Cell::new(false),
            kernel_waiter: Cell::new(None),
        })
    }

    fn counts(&self) -> &PacingCounts {
        &self.io.runtime().pacing
    }

    pub(super) fn estimator(&self) -> &Estimator {
        Estimator::of(self.io.runtime())
    }

    /// Another pacer has the stream, and what waits now goes as that one says.
    pub(super) fn set_pacer(self: &Rc<Self>, pacer: &Pacer) {
        let mut state = self.state.borrow_mut();
        let former = mem::replace(&mut state.pacer, pacer.clone());
        state.version = None;
        state.reserved = None;
        let waits = state.waits;
        // What is dropped from here on may own what owns streams.
        drop(state);
        let event = match waits {
            Waits::Nothing | Waits::Kernel => return,
            Waits::Event(key) => self.cancel(key),
            Waits::Release => {
                former.forget(self);
                None
            }
        };
        Rc::clone(self).resume();
        drop((former, event));
    }

    /// Takes the event back that the stream waits for.
    fn cancel(&self, key: TimerKey) -> Option<PendingEvent> {
        self.estimator().on_waited();
        self.io.runtime().timers.borrow_mut().cancel(key)
    }

    /// Nobody has the stream any more: what was written is still sent, unless closing `resets` the connection.
    pub(super) fn on_dropped(&self, resets: bool) {
        self.is_dropped.set(true);
        let mut state = self.state.borrow_mut();
        let writers = mem::take(&mut state.writers);
        let mut event = None;
        if resets {
            self.discard(&mut state);
            if let Waits::Event(key) = state.waits {
                event = self.cancel(key);
            }
        }
        // Both may own what owns the stream.
        drop(state);
        drop((writers, event));
        if resets {
            // The task that waits for the kernel owns the stream, too, and must let go of it.
            self.is_reset.set(true);
            self.kernel_waiter.take().into_iter().for_each(Waker::wake);
        }
    }

    /// Ready when the kernel has all that was written.
    pub(crate) fn poll_sent(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.state.borrow_mut();
        match state.error.take() {
            Some(error) => Poll::Ready(Err(error)),
            None if state.pending.is_empty() => {
                // The waker may own what has the stream.
                drop(state);
                self.io.runtime().poll_allowance(cx).map(Ok)
            }
            None => {
                state.add_writer(cx.waker());
                Poll::Pending
            }
        }
    }

    /// Bytes that the kernel has not got yet.
    pub(crate) fn pending(&self) -> usize {
        self.state.borrow().pending.len()
    }

    /// Whether it is the rate that the next piece waits for, or a task's next turn, not the peer.
    pub(crate) fn is_held_back(&self) -> bool {
        let waits = self.state.borrow().waits;
        matches!(waits, Waits::Event(_) | Waits::Release)
            || self.io.registration().is_ready(Direction::Write)
    }

    pub(crate) fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        let mut state = self.state.borrow_mut();
        if how == Shutdown::Read || state.pending.is_empty() {
            drop(state);
            return self.io.shutdown(how);
        }
        state.end = true;
        drop(state);
        match how {
            Shutdown::Both => self.io.shutdown(Shutdown::Read),
            _ => Ok(()),
        }
    }

    /// How the next piece goes may have changed.
    pub(super) fn resume(self: Rc<Self>) {
        let now = self.io.runtime().clock.now();
        let mut state = self.state.borrow_mut();
        state.waits = Waits::Nothing;
        self.follow(&mut state, now);
        self.wait_until(&mut state, now);
    }

    /// Sends a piece of what is pending.
    fn transmit(self: &Rc<Self>, state: &mut State, now: Instant) {
        self.follow(state, now);
        if state.is_clocked()
            && let Some(at) = state.may_send(now)
        {
            return self.wait_until(state, at);
        }
        // While it is not paced, what is left goes at once.
        let max = state.pacing.map_or(usize::MAX, |_| state.due(now));
        let piece = state.pending.front(max);
        match self.io.send_quietly(piece) {
            Ok(sent) => {
                state.pending.consume(sent, &self.estimator().spare);
                self.counts().on_gone(sent);
                self.on_sent(state, now, sent);
                self.on_taken(state, now);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait_for_kernel(state),
            Err(error) => self.fail(state, error),
        }
    }

    pub(super) fn on_sent(&self, state: &mut State, now: Instant, sent: usize) {
        let begins = !state.clock.is_in_train();
        self.counts().on_piece(sent, begins);
        let forgotten = transmitted(&mut state.clock, state.pacing, now, [sent, state.piece]);
        self.counts().on_forgotten(forgotten);
        state.reserved = None;
    }

    /// The kernel took a piece: the next, or the end.
    fn on_taken(self: &Rc<Self>, state: &mut State, now: Instant) {
        if !state.pending.is_empty() {
            let at = match state.is_clocked() {
                true => state.clock.next_send(now),
                false => now,
            };
            return self.wait_until(state, at);
        }
        // A writer that waited for room is late as the thread was: it is woken now, and the train goes on if it comes
        // back soon. Else what the thread is behind by would be lost with each buffer that goes at once.
        if !state.writers.is_empty() && state.is_clocked() && !state.end {
            state.ends_at = Some(now + GRACE);
            return;
        }
        state.clock.end();
        if mem::take(&mut state.end) {
            // A connection that is gone needs no end.
            let _ = self.io.end_quietly();
        }
    }

    fn fail(&self, state: &mut State, error: io::Error) {
        self.discard(state);
        state.clock.end();
        state.end = false;
        state.error = Some(error);
    }

    fn discard(&self, state: &mut State) {
        let pending = state.pending.len();
        self.counts().on_gone(pending);
        state.pending.clear(&self.estimator().spare);
    }

    /// Has the next piece sent at `at`, or when it is released.
    pub(super) fn wait_until(self: &Rc<Self>, state: &mut State, at: Instant) {
        if state
            .pacing
            .is_some_and(|pacing| pacing.by == PacedBy::Release)
        {
            state.waits = Waits::Release;
            return state.pacer.wait_for_release(Rc::clone(self));
        }
        let event = PendingEvent::Transmit(self.clone());
        self.estimator().on_wait();
        let mut timers = self.io.runtime().timers.borrow_mut();
        state.waits = Waits::Event(timers.schedule(FireWindow::from(at), event));
    }

    /// Has a task wait for room in the kernel: this is rare.
    fn wait_for_kernel(self: &Rc<Self>, state: &mut State) {
        state.waits = Waits::Kernel;
        // The peer is late, not an event: there is nothing to catch up with.
        state.clock.end();
        let runtime = self.io.runtime();
        self.counts().on_blocked();
        let stream = Rc::clone(self);
        drop(runtime.spawn(async move {
            if stream.until_writable().await {
                stream.resume();
            }
        }));
    }

    /// Returns false if the stream was dropped and its peer takes nothing, or if the stream is being reset.
    async fn until_writable(&self) -> bool {
        loop {
            let writable = poll_fn(|cx| {
                if self.is_reset.get() {
                    return Poll::Ready(());
                }
                self.kernel_waiter.set(Some(cx.waker().clone()));
                self.io.registration().poll_ready(cx, Direction::Write)
            });
            match timeout(LINGER, writable).await {
                Ok(_) => return !self.is_reset.get(),
                Err(_) if self.is_dropped.get() => return false,
                Err(_) => {}
            }
        }
    }

    /// Learns what has changed at the pacer, and for how long pieces are made now.
    pub(super) fn follow(&self, state: &mut State, now: Instant) {
        let runtime = self.io.runtime();
        let version = Some(state.pacer.version());
        let turn = self.estimator().turn(runtime, now);
        // What follows has divisions, and hardly ever a reason.
        if (state.version, state.turn) == (version, turn) {
            return;
        }
        let before = mem::replace(&mut state.pacing, state.pacer.pacing());
        state.version = version;
        state.turn = turn;
        self.tell_kernel(before, state.pacing);
        if let Some(pacing) = state.pacing {
            state.set_piece(before, &pacing, pacing.piece(turn));
        }
    }

    /// Has the kernel pace, or no longer.
    fn tell_kernel(&self, before: Option<Pacing>, now: Option<Pacing>) {
        let rate = |pacing: Option<Pacing>| {
            let pacing = pacing.filter(|pacing| pacing.by == PacedBy::Kernel)?;
            Some(pacing.rate.bps().div_ceil(8))
        };
        if rate(before) != rate(now) {
            // A kernel that cannot, does not pace.
            let _ = self.io.set_max_pacing_rate(rate(now));
        }
    }
}

impl Transmit for Paced {
    fn on_due(self: Rc<Self>, now: Instant) {
        let mut state = self.state.borrow_mut();
        if let Waits::Event(_) = mem::replace(&mut state.waits, Waits::Nothing) {
            self.estimator().on_waited();
        }
        if state.pending.is_empty() {
            // Writers that are woken for each piece: none that waits is the end of the train.
            if state.writers.is_empty() {
                state.clock.end();
            }
        } else {
            self.transmit(&mut state, now);
        }
        // While the runtime waits for the kernel, the writer is told so, to be patient or not.
        let has_room = state.pending.len() <= state.room / 2 || state.waits == Waits::Kernel;
        let wake = if has_room {
            mem::take(&mut state.writers)
        } else {
            Vec::new()
        };
        drop(state);
        wake.into_iter().for_each(Waker::wake);
    }
}

impl fmt::Debug for Paced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Paced")
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

impl Drop for Paced {
    /// Sends what is left at the runtime's end, as far as the kernel has room.
    fn drop(&mut self) {
        let state = self.state.get_mut();
        let rest = state.pending.front(usize::MAX);
        if !rest.is_empty() {
            let _ = self.io.send_quietly(rest);
            self.io.runtime().pacing.on_gone(rest.len());
        }
    }
}

/// How long a writer may take to come back that was woken because all is sent: it is the next in this turn or so.
const GRACE: Duration = Duration::from_millis(5);

/// How long a peer may take nothing of what is left of a stream that was dropped.
const LINGER: Duration = Duration::from_secs(60);
