//! The writer's side of a paced stream: the first piece of a train is sent at once, the rest is queued.

use std::io::{self, IoSlice};
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use softclock_core::Clock;

use super::buffer::with_front;
use super::state::Waits;
use super::{Paced, PacedBy, TICK};
use crate::runtime::sources::Direction;

/// The next step of a write.
enum Step {
    /// Give all data to the kernel.
    Unpaced,
    /// Begin a train by sending a piece.
    Begin,
    /// Queue the data behind earlier data.
    Queue,
}

impl Paced {
    pub(crate) fn poll_write(
        self: &Rc<Self>,
        cx: &Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let allowance = || self.io.runtime().poll_allowance(cx);
        if parts.iter().all(|part| part.is_empty()) {
            return allowance().map(|()| Ok(0));
        }
        let begun = match self.next_step()? {
            Step::Unpaced => return self.io.poll_send_vectored(cx, parts),
            Step::Begin => ready!(self.begin(parts, |piece| self.io.poll_send_piece(cx, piece)))?,
            // This makes no call, so charge one to the task's allowance.
            Step::Queue => {
                ready!(allowance());
                0
            }
        };
        match begun + self.queue(parts, begun) {
            0 => {
                self.state.borrow_mut().add_writer(cx.waker());
                Poll::Pending
            }
            taken => Poll::Ready(Ok(taken)),
        }
    }

    /// Like [`poll_write`](Self::poll_write), without waiting.
    pub(crate) fn try_write(self: &Rc<Self>, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        if parts.iter().all(|part| part.is_empty()) {
            return Ok(0);
        }
        let send = |piece: &[IoSlice<'_>]| Poll::Ready(self.io.try_send_piece(piece));
        let begun = match self.next_step()? {
            Step::Unpaced => return self.io.try_send_vectored(parts),
            Step::Begin => match self.begin(parts, send) {
                Poll::Ready(begun) => begun?,
                Poll::Pending => 0,
            },
            Step::Queue => 0,
        };
        match begun + self.queue(parts, begun) {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            taken => Ok(taken),
        }
    }

    /// Ready when [`try_write`](Self::try_write) may take bytes: the buffer has room, or nothing waits and the kernel
    /// may have room. Until then the task is woken.
    pub(crate) fn poll_write_ready(&self, cx: &Context<'_>) -> Poll<()> {
        let mut state = self.state.borrow_mut();
        let is_queueing = !state.pending.is_empty() || state.waits != Waits::Nothing;
        if is_queueing && state.error.is_none() && state.pending.len() >= state.room {
            state.add_writer(cx.waker());
            return Poll::Pending;
        }
        drop(state);
        match is_queueing {
            true => self.io.runtime().poll_allowance(cx),
            false => self.io.registration().poll_ready(cx, Direction::Write),
        }
    }

    fn next_step(&self) -> io::Result<Step> {
        let mut state = self.state.borrow_mut();
        if let Some(error) = state.error.take() {
            return Err(error);
        }
        if state.end {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        if !state.pending.is_empty() || state.waits != Waits::Nothing {
            return Ok(Step::Queue);
        }
        let now = self.io.runtime().clock.now();
        // The writer that was woken at the end of the buffer came back too late: its train has ended.
        if state.ends_at.take().is_some_and(|end| end < now) {
            state.clock.end();
        }
        // The pacing may have changed since the last write.
        self.follow(&mut state, now);
        let by = state.pacing.map(|pacing| pacing.by);
        Ok(match by {
            None | Some(PacedBy::Kernel) => Step::Unpaced,
            Some(PacedBy::Release) => Step::Begin,
            Some(PacedBy::SoftEvents) if state.may_send(now).is_none() => Step::Begin,
            Some(PacedBy::SoftEvents) => Step::Queue,
        })
    }

    /// Sends the first piece of a train with `send`, or all pieces if none has to wait. Returns the number of bytes
    /// sent.
    fn begin(
        &self,
        parts: &[IoSlice<'_>],
        mut send: impl FnMut(&[IoSlice<'_>]) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let offered: usize = parts.iter().map(|part| part.len()).sum();
        let mut begun = 0;
        loop {
            let now = self.io.runtime().clock.now();
            let due = self.state.borrow().due(now);
            let sent = match with_front(parts, begun, due, &mut send) {
                Poll::Ready(Ok(sent)) => sent,
                // An error will occur again in the next call.
                _ if begun > 0 => return Poll::Ready(Ok(begun)),
                nothing => return nothing,
            };
            begun += sent;
            let now = self.io.runtime().clock.now();
            let mut state = self.state.borrow_mut();
            self.on_sent(&mut state, now, sent);
            // Pieces that take less than a tick cannot be clocked by events: continue with the next.
            if begun == offered || state.clock.target() >= TICK {
                return Poll::Ready(Ok(begun));
            }
        }
    }

    /// Queues bytes of `parts` after the first `skip`, as far as there is room. Returns their number.
    fn queue(self: &Rc<Self>, parts: &[IoSlice<'_>], skip: usize) -> usize {
        let runtime = self.io.runtime();
        let now = runtime.clock.now();
        let mut state = self.state.borrow_mut();
        let room = state.room.saturating_sub(state.pending.len());
        let spare = &self.estimator().spare;
        let taken = state.pending.append(parts, skip, room, spare);
        runtime.pacing.on_accepted(taken);
        if state.waits == Waits::Nothing {
            let at = state.clock.next_send(now);
            // Without a buffer, the event also ends the train.
            if !state.pending.is_empty() || state.room == 0 {
                self.wait_until(&mut state, at);
            } else {
                state.clock.end();
            }
        }
        taken
    }
}
