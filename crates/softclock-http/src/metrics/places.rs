//! The places of a metrics endpoint: few, and never held by those that keep still.
//!
//! A connection that finds all places taken gets that of the one that has made no progress for longest: no byte received or
//! taken. One for which a page is being made waits for us, and keeps its place while there are others. So a scraper that
//! sends its request and reads the answer is served however many connections are held or made beside it.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::rt::{Read, ReadBufCursor, Write};
use softclock::{Instant, JoinHandle};

use crate::carrier::{Peer, Stream};
use crate::late_timer::LateTimer;
use crate::limit::Limit;
use crate::socket::Socket;

/// The connections of one endpoint.
#[derive(Default)]
pub(super) struct Places {
    all: Vec<Taken>,
}

struct Taken {
    visit: Rc<Visit>,
    task: JoinHandle<()>,
}

/// What is known of a connection.
#[derive(Debug)]
pub(super) struct Visit {
    peer: Peer,
    /// When it last took or gave something, or was accepted.
    progress: Cell<Instant>,
    state: Cell<State>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// It has not made a request.
    New,
    /// A page is being made for it.
    Served,
    /// It has a response, all or part of it.
    Answered,
    /// It does not take the rest of a response.
    Stuck,
}

impl Places {
    /// Makes room for one more; true if another had to go. As much work as there are places.
    pub(super) fn make_room(&mut self) -> bool {
        self.all.retain(|taken| !taken.task.is_finished());
        if self.all.len() < PLACES {
            return false;
        }
        let stillest = (self.all.iter().enumerate()).min_by_key(|(_, taken)| {
            let visit = &taken.visit;
            (visit.state.get() == State::Served, visit.progress.get())
        });
        let place = stillest.map_or(0, |(place, _)| place);
        let taken = self.all.swap_remove(place);
        Limit::MetricsConnections.reached(taken.visit.peer, "metrics: it made room for another");
        taken.task.abort();
        true
    }

    /// Keeps a connection that is served by `task`.
    pub(super) fn take(&mut self, visit: Rc<Visit>, task: JoinHandle<()>) {
        self.all.push(Taken { visit, task });
    }
}

impl Visit {
    pub(super) fn new(peer: Peer) -> Rc<Self> {
        Rc::new(Self {
            peer,
            progress: Cell::new(softclock::now()),
            state: Cell::new(State::New),
        })
    }

    /// A request has come.
    pub(super) fn begin_answer(&self) {
        self.state.set(State::Served);
    }

    /// Its response is there to be taken.
    pub(super) fn end_answer(&self) {
        self.progress.set(softclock::now());
        self.state.set(State::Answered);
    }

    /// Ready when the client has taken too long to send its first request, or to take what it was sent.
    pub(super) fn poll_late(&self, timer: &mut LateTimer, cx: &mut Context<'_>) -> Poll<()> {
        match self.state.get() {
            // Progress does not lengthen the first head's time: it may come by the byte.
            State::New | State::Stuck => timer.poll_until(self.deadline(), softclock::now(), cx),
            State::Served | State::Answered => Poll::Pending,
        }
    }

    /// The time for it was up.
    pub(super) fn on_late(&self) {
        Limit::MetricsTimeout.reached(self.peer, "metrics: connection closed");
    }

    fn deadline(&self) -> Instant {
        self.progress.get() + PATIENCE
    }

    fn note<T>(&self, result: &Poll<io::Result<T>>) {
        if matches!(result, Poll::Ready(Ok(_))) && self.state.get() != State::New {
            self.progress.set(softclock::now());
        }
    }

    fn note_written(&self, result: &Poll<io::Result<usize>>) {
        self.note(result);
        match (result.is_pending(), self.state.get()) {
            (true, State::Answered) => self.state.set(State::Stuck),
            (false, State::Stuck) => self.state.set(State::Answered),
            _ => {}
        }
    }
}

/// A connection whose progress is noted. One that is stuck is reset when dropped, so that the kernel keeps nothing of it.
pub(super) struct Watched {
    stream: Stream,
    visit: Rc<Visit>,
}

impl Watched {
    pub(super) fn new(stream: Stream, visit: Rc<Visit>) -> Self {
        Self { stream, visit }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if self.visit.state.get() == State::Stuck {
            self.stream.give_up();
        }
    }
}

impl Read for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        self.visit.note(&read);
        read
    }
}

impl Write for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Write::poll_write(Pin::new(&mut self.stream), cx, bytes);
        self.visit.note_written(&written);
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Write::poll_flush(Pin::new(&mut self.stream), cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Write::poll_shutdown(Pin::new(&mut self.stream), cx)
    }
}

/// A scraper or two, and a human.
const PLACES: usize = 32;

/// For a connection's first request, and for taking something of a response.
const PATIENCE: Duration = Duration::from_secs(10);
