//! A paced stream, which sends the data of its writer piece by piece.
//!
//! At any time it is in one of these states: no data is pending; an event will send the next piece; the next piece
//! waits to be released; or the kernel has no room, and a task waits for it. The event owns the stream, so that
//! accepted data is sent even after the stream was dropped. Data left when the runtime ends is given to the kernel at
//! once.

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

/// A stream and its pending data.
pub(crate) struct Paced {
    pub(super) io: Rc<TcpIo>,
    pub(super) state: RefCell<State>,
    /// Whether the owner has dropped the stream.
    is_dropped: Cell<bool>,
    /// Whether the stream is being reset: nothing more is sent, and the connection is closed at once.
    is_reset: Cell<bool>,
    /// The waker of the task that waits for room in the kernel.
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

    /// Lets another pacer pace the stream, including its pending data.
    pub(super) fn set_pacer(self: &Rc<Self>, pacer: &Pacer) {
        let now = self.io.runtime().clock.now();
        let mut state = self.state.borrow_mut();
        let former = mem::replace(&mut state.pacer, pacer.clone());
        // Forces `follow` to read the parameters of the new pacer.
        state.version = None;
        state.reserved = None;
        // At once, as the kernel or the stack may have data that it paces.
        self.follow(&mut state, now);
        let waits = state.waits;
        if let Waits::Event(_) = waits {
            state.waits = Waits::Nothing;
        }
        // The values dropped from here on may own owners of streams.
        drop(state);
        let event = match waits {
            Waits::Nothing | Waits::Kernel => return,
            Waits::Event(key) => self.cancel(key),
            // The stream goes on below.
            Waits::Release(_) => {
                former.forget(self);
                None
            }
        };
        Rc::clone(self).resume();
        drop((former, event));
    }

    /// Takes the stream from those that wait to be released.
    fn leave(&self, place: usize) -> Option<Rc<dyn Transmit>> {
        let mut unreleased = self.io.runtime().unreleased.borrow_mut();
        unreleased.try_remove(place)
    }

    /// Cancels the event that the stream waits for.
    fn cancel(&self, key: TimerKey) -> Option<PendingEvent> {
        self.estimator().on_waited();
        self.io.runtime().timers.borrow_mut().cancel(key)
    }

    /// Handles the drop of the stream by its owner: pending data is still sent, unless closing `resets` the
    /// connection.
    pub(super) fn on_dropped(&self, resets: bool) {
        self.is_dropped.set(true);
        let mut state = self.state.borrow_mut();
        let writers = mem::take(&mut state.writers);
        let (mut event, mut unreleased) = (None, None);
        if resets {
            self.discard(&mut state);
            match state.waits {
                Waits::Event(key) => event = self.cancel(key),
                Waits::Release(place) => {
                    state.pacer.forget(self);
                    unreleased = self.leave(place);
                }
                Waits::Nothing | Waits::Kernel => {}
            }
        }
        // All of them may own an owner of this stream.
        drop(state);
        drop((writers, event, unreleased));
        if resets {
            // The task that waits for the kernel owns the stream as well, and must release it.
            self.is_reset.set(true);
            self.kernel_waiter.take().into_iter().for_each(Waker::wake);
        }
    }

    /// Ends the train of a stream without pending data, so that no event holds the stream. Returns false if there is
    /// pending data.
    pub(crate) fn end_train(self: &Rc<Self>) -> bool {
        let mut state = self.state.borrow_mut();
        if !state.pending.is_empty() {
            return false;
        }
        state.clock.end();
        let waits = mem::replace(&mut state.waits, Waits::Nothing);
        let writers = mem::take(&mut state.writers);
        let pacer = state.pacer.clone();
        // The values dropped from here on may own owners of streams.
        drop(state);
        let (mut event, mut unreleased) = (None, None);
        match waits {
            Waits::Event(key) => event = self.cancel(key),
            Waits::Release(place) => {
                pacer.forget(self);
                unreleased = self.leave(place);
            }
            Waits::Nothing | Waits::Kernel => {}
        }
        drop((writers, event, unreleased, pacer));
        true
    }

    /// Ready when the kernel has all written data.
    pub(crate) fn poll_sent(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.state.borrow_mut();
        match state.error.take() {
            Some(error) => Poll::Ready(Err(error)),
            None if state.pending.is_empty() => {
                // The waker may own an owner of the stream.
                drop(state);
                self.io.runtime().poll_allowance(cx).map(Ok)
            }
            None => {
                state.add_writer(cx.waker());
                Poll::Pending
            }
        }
    }

    /// Returns the number of bytes not yet given to the kernel.
    pub(crate) fn pending(&self) -> usize {
        self.state.borrow().pending.len()
    }

    /// Returns whether the next piece waits for the rate or for a task's next turn, rather than for the peer.
    pub(crate) fn is_held_back(&self) -> bool {
        let waits = self.state.borrow().waits;
        matches!(waits, Waits::Event(_) | Waits::Release(_))
            || self.io.registration().is_ready(Direction::Write)
    }

    pub(crate) fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        let mut state = self.state.borrow_mut();
        if how == Shutdown::Read || state.pending.is_empty() {
            drop(state);
            return self.io.shutdown(how);
        }
        // The end of the stream is sent after the pending data.
        state.end = true;
        let writers = mem::take(&mut state.writers);
        drop(state);
        writers.into_iter().for_each(Waker::wake);
        match how {
            Shutdown::Both => self.io.shutdown(Shutdown::Read),
            _ => Ok(()),
        }
    }

    /// Continues after a change that may affect how the next piece is sent.
    pub(super) fn resume(self: Rc<Self>) {
        let now = self.io.runtime().clock.now();
        let mut state = self.state.borrow_mut();
        self.end_wait(&mut state);
        self.follow(&mut state, now);
        self.wait_until(&mut state, now);
    }

    /// Ends the wait for an event, a release or the kernel.
    fn end_wait(self: &Rc<Self>, state: &mut State) {
        match mem::replace(&mut state.waits, Waits::Nothing) {
            Waits::Event(_) => self.estimator().on_waited(),
            // The caller has another reference, so that nothing ends here.
            Waits::Release(place) => drop(self.leave(place)),
            Waits::Nothing | Waits::Kernel => {}
        }
    }

    /// Sends a piece of the pending data.
    fn transmit(self: &Rc<Self>, state: &mut State, now: Instant) {
        self.follow(state, now);
        if state.is_clocked()
            && let Some(at) = state.may_send(now)
        {
            return self.wait_until(state, at);
        }
        // Once pacing is turned off, all pending data is sent at once.
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
        // The reserved time is used up.
        state.reserved = None;
    }

    /// Schedules the next piece after the kernel took one, or ends the train.
    fn on_taken(self: &Rc<Self>, state: &mut State, now: Instant) {
        if !state.pending.is_empty() {
            let at = match state.is_clocked() {
                true => state.clock.next_send(now),
                false => now,
            };
            return self.wait_until(state, at);
        }
        // A writer that waits for room has been delayed by this thread. It is woken now, and the train continues if
        // it writes again soon. Otherwise each buffer that is sent at once would lose the time by which the thread is
        // behind.
        if !state.writers.is_empty() && state.is_clocked() && !state.end {
            state.ends_at = Some(now + GRACE);
            return;
        }
        state.clock.end();
        if mem::take(&mut state.end) {
            // The connection may already have ended.
            let _ = self.io.end_quietly();
        }
    }

    fn fail(&self, state: &mut State, error: io::Error) {
        self.discard(state);
        state.clock.end();
        state.end = false;
        // Returned by the next write, as this one was accepted before.
        state.error = Some(error);
    }

    fn discard(&self, state: &mut State) {
        let pending = state.pending.len();
        self.counts().on_gone(pending);
        state.pending.clear(&self.estimator().spare);
    }

    /// Schedules the next piece for `at`, or queues the stream to be released.
    pub(super) fn wait_until(self: &Rc<Self>, state: &mut State, at: Instant) {
        if state
            .pacing
            .is_some_and(|pacing| pacing.by == PacedBy::Release)
        {
            let mut unreleased = self.io.runtime().unreleased.borrow_mut();
            state.waits = Waits::Release(unreleased.insert(self.clone()));
            return state.pacer.wait_for_release(self);
        }
        let event = PendingEvent::Transmit(self.clone());
        self.estimator().on_wait();
        let mut timers = self.io.runtime().timers.borrow_mut();
        state.waits = Waits::Event(timers.schedule(FireWindow::from(at), event));
    }

    /// Spawns a task that waits for room in the kernel. This is rare.
    fn wait_for_kernel(self: &Rc<Self>, state: &mut State) {
        state.waits = Waits::Kernel;
        // The delay is caused by the peer, not by events, so it is not made up.
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

    /// Waits for room in the kernel. Returns false if the stream was dropped and its peer accepts no data, or if the
    /// stream is being reset.
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

    /// Applies changes of the pacer's parameters and of the time that pieces cover.
    pub(super) fn follow(&self, state: &mut State, now: Instant) {
        let runtime = self.io.runtime();
        let version = Some(state.pacer.version());
        let turn = self.estimator().turn(runtime, now);
        let total_version = state.pacer.total_version();
        if mem::replace(&mut state.total_version, total_version) != total_version {
            state.reserved = None;
            // Streams that share a rate are not left to a carrier that paces itself.
            state.version = None;
        }
        // The rest takes divisions and is seldom needed.
        if (state.version, state.turn) == (version, turn) {
            return;
        }
        let before = mem::replace(&mut state.pacing, self.pacing_of(&state.pacer));
        state.version = version;
        state.turn = turn;
        self.tell_kernel(before, state.pacing);
        if let Some(pacing) = state.pacing {
            state.set_piece(before, &pacing, pacing.piece(turn));
        }
    }

    /// The pacer's parameters for this stream. A carrier that paces itself does so more exactly than pieces; only a
    /// rate that streams share needs them.
    fn pacing_of(&self, pacer: &Pacer) -> Option<Pacing> {
        let pacing = pacer.pacing()?;
        let is_left = self.io.paces_itself() && !pacer.has_total();
        match pacing.by {
            PacedBy::SoftEvents if is_left => Some(Pacing {
                by: PacedBy::Kernel,
                ..pacing
            }),
            _ => Some(pacing),
        }
    }

    /// Turns the pacing of the kernel, or of the stack, on or off.
    fn tell_kernel(&self, before: Option<Pacing>, now: Option<Pacing>) {
        let rate = |pacing: Option<Pacing>| {
            let pacing = pacing.filter(|pacing| pacing.by == PacedBy::Kernel)?;
            Some(pacing.rate.bps().div_ceil(8))
        };
        if rate(before) != rate(now) {
            // Without support in the kernel, the stream is not paced.
            let _ = self.io.set_max_pacing_rate(rate(now));
        }
    }
}

impl Transmit for Paced {
    fn on_due(self: Rc<Self>, now: Instant) {
        let mut state = self.state.borrow_mut();
        self.end_wait(&mut state);
        if state.pending.is_empty() {
            // Without a buffer, writers are woken for each piece: if none waits, the train ends.
            if state.writers.is_empty() {
                state.clock.end();
            }
        } else {
            self.transmit(&mut state, now);
        }
        // If the kernel has no room, the writer is woken too, to decide whether to keep waiting.
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
    /// Sends the pending data at the end of the runtime, as far as the kernel has room.
    fn drop(&mut self) {
        let state = self.state.get_mut();
        let rest = state.pending.front(usize::MAX);
        if !rest.is_empty() {
            let _ = self.io.send_quietly(rest);
            self.io.runtime().pacing.on_gone(rest.len());
        }
    }
}

/// Time in which a writer that was woken after the last piece may continue the train. It usually runs within the same
/// turn.
const GRACE: Duration = Duration::from_millis(5);

/// Time for which a peer may accept no data of a dropped stream before it is discarded.
const LINGER: Duration = Duration::from_secs(60);
