//! The connections of a metrics endpoint: a bounded set in which a stalled connection makes room for a new one.
//!
//! When all places are taken, a new connection replaces the one whose last progress (bytes received or sent) is oldest.
//! A connection whose page is being made waits for the server, not for its client, and is replaced last. So a scraper
//! that sends its request and reads the response is served, however many other connections are held open or newly made.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::rt::{Read, ReadBufCursor, Write};
use softclock::{Instant, JoinHandle};

use crate::net::carrier::{Peer, Stream};
use crate::net::late_timer::LateTimer;
use crate::net::socket::Socket;
use crate::observe::limit::Limit;

/// The connections of one endpoint, which end when this is dropped.
#[derive(Default)]
pub(super) struct Places {
    all: Vec<Taken>,
}

struct Taken {
    visit: Rc<Visit>,
    task: JoinHandle<()>,
}

/// The progress of a connection.
#[derive(Debug)]
pub(super) struct Visit {
    peer: Peer,
    /// The time of the last bytes received or sent; until a request is complete, the time of acceptance.
    progress: Cell<Instant>,
    state: Cell<State>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// No request has arrived.
    New,
    /// The page is being made.
    Served,
    /// The response is being sent, or has been sent.
    Answered,
    /// The client does not read the rest of the response.
    Stuck,
}

impl Places {
    /// Makes room for one more connection; returns true if another one was ended for it. O(n) in the number of
    /// connections.
    pub(super) fn make_room(&mut self) -> bool {
        self.all.retain(|taken| !taken.task.is_finished());
        if self.all.len() < PLACES {
            return false;
        }
        // `false` sorts first, so connections that wait for the server are the last choice.
        let stillest = (self.all.iter().enumerate()).min_by_key(|(_, taken)| {
            let visit = &taken.visit;
            (visit.state.get() == State::Served, visit.progress.get())
        });
        let place = stillest.map_or(0, |(place, _)| place);
        let taken = self.all.swap_remove(place);
        Limit::MetricsConnections.reached(
            taken.visit.peer,
            "metrics: connection ended to make room for another",
        );
        taken.task.abort();
        true
    }

    /// Adds a connection that is served by `task`.
    pub(super) fn take(&mut self, visit: Rc<Visit>, task: JoinHandle<()>) {
        self.all.push(Taken { visit, task });
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        self.all.drain(..).for_each(|taken| taken.task.abort());
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

    /// Records that a request has arrived.
    pub(super) fn begin_answer(&self) {
        self.state.set(State::Served);
    }

    /// Records that the response is ready to be sent.
    pub(super) fn end_answer(&self) {
        self.progress.set(softclock::now());
        self.state.set(State::Answered);
    }

    /// Ready when the client has taken too long to send its first request, or to read a response.
    pub(super) fn poll_late(&self, timer: &mut LateTimer, cx: &mut Context<'_>) -> Poll<()> {
        match self.state.get() {
            // Progress does not extend the time for the first head, as a slow client could send it byte by byte.
            State::New | State::Stuck => timer.poll_until(self.deadline(), softclock::now(), cx),
            State::Served | State::Answered => Poll::Pending,
        }
    }

    /// Counts and logs that the client took too long.
    pub(super) fn on_late(&self) {
        Limit::MetricsTimeout.reached(self.peer, "metrics: connection closed");
    }

    fn deadline(&self) -> Instant {
        self.progress.get() + PATIENCE
    }

    fn note<T>(&self, result: &Poll<io::Result<T>>) {
        // A partial head is no progress; see `poll_late`.
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

/// A connection that records its progress. If the client is not reading when it is dropped, the connection is reset, so
/// that the kernel discards its unsent bytes.
pub(super) struct ObservedStream {
    stream: Stream,
    visit: Rc<Visit>,
}

impl ObservedStream {
    pub(super) fn new(stream: Stream, visit: Rc<Visit>) -> Self {
        Self { stream, visit }
    }
}

impl Drop for ObservedStream {
    fn drop(&mut self) {
        if self.visit.state.get() == State::Stuck {
            self.stream.give_up();
        }
    }
}

impl Read for ObservedStream {
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

impl Write for ObservedStream {
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

/// Enough for a few scrapers and a person.
const PLACES: usize = 32;

/// How long a client may take to send its first request, or may pause while reading a response.
const PATIENCE: Duration = Duration::from_secs(10);
