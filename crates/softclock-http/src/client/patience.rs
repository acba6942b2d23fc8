//! How long a client may take, in each phase.
//!
//! A connection has one timer at most, and progress does not touch it ([`LateTimer`]): it notes the time.

use std::task::{Context, Poll, ready};
use std::time::Duration;

use softclock::Instant;

use crate::client::members::Awaits;
use crate::client::options::Timeouts;
use crate::net::late_timer::LateTimer;
use crate::net::socket::Socket;

/// What is waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wait {
    /// The first byte of the connection.
    FirstByte,
    /// The rest of a head.
    Head,
    /// The next request, by hyper.
    Pause,
    /// The next request.
    Next,
    /// More of a response whose client has ended its side.
    HalfClosed,
}

/// The patience with one client.
pub(crate) struct ClientPatience {
    timeouts: Timeouts,
    /// What is waited for, and since when.
    reading: Option<(Wait, Instant)>,
    sending: Sending,
    timer: LateTimer,
}

/// How the client takes what we send. Only the time counts in which the send buffer was full: at other times it waits
/// for us.
#[derive(Default)]
struct Sending {
    /// Since when the buffer is full.
    blocked: Option<Instant>,
    /// Since when nothing was taken, and what was not acknowledged then.
    stalled: Option<(Instant, u64)>,
    /// Starts when the buffer is first full.
    window: Option<Window>,
}

/// What was taken during some time of being blocked.
#[derive(Clone, Copy)]
struct Window {
    blocked: Duration,
    written: u64,
    unacknowledged: u64,
}

impl ClientPatience {
    pub(crate) fn new(timeouts: Timeouts) -> Self {
        Self {
            timeouts,
            reading: None,
            sending: Sending::default(),
            timer: LateTimer::default(),
        }
    }

    /// Something arrived that was waited for.
    pub(crate) fn on_received(&mut self) {
        self.reading = None;
    }

    /// Nothing has arrived; ready when the time for it is up.
    pub(crate) fn poll_read(&mut self, wait: Wait, cx: &mut Context<'_>) -> Poll<()> {
        let now = softclock::now();
        let since = match self.reading {
            Some((waiting, since)) if waiting == wait => since,
            // The same wait goes on.
            Some((Wait::Pause, since)) if wait == Wait::Next => since,
            _ => {
                if wait == Wait::Pause {
                    self.sending = Sending::default();
                }
                now
            }
        };
        self.reading = Some((wait, since));
        match self.limit(wait) {
            Some(limit) => self.timer.poll_until(since + limit, now, cx),
            None => Poll::Pending,
        }
    }

    /// What the connection waits for its client to send, and since when, if it does.
    pub(crate) fn awaits(&self) -> Option<(Awaits, Instant)> {
        let (wait, since) = self.reading?;
        match wait {
            Wait::Head => Some((Awaits::RestOfHead, since)),
            Wait::FirstByte | Wait::Pause | Wait::Next => Some((Awaits::Request, since)),
            Wait::HalfClosed => None,
        }
    }

    /// How long nothing of a body may come, if that is limited.
    pub(crate) fn body_limit(&self) -> Option<Duration> {
        self.timeouts.body
    }

    /// The send buffer took something; or the client is not waited for, but we hold back (0 bytes).
    pub(crate) fn on_written(&mut self, bytes: usize) {
        if bytes > 0 {
            self.reading.take_if(|(wait, _)| *wait == Wait::HalfClosed);
        }
        let sending = &mut self.sending;
        sending.stalled = None;
        if let Some(window) = &mut sending.window {
            window.written += bytes as u64;
            if let Some(since) = sending.blocked.take() {
                window.blocked += softclock::now().since(since);
            }
        }
    }

    /// Nothing was taken: ready when that is the client's fault, and lasts too long.
    pub(crate) fn poll_blocked(&mut self, socket: &impl Socket, cx: &mut Context<'_>) -> Poll<()> {
        // Our own rate is not the client's fault, and neither is that others have their turn.
        if socket.is_held_back() {
            self.on_written(0);
            return Poll::Pending;
        }
        self.poll_write(socket, cx)
    }

    /// The send buffer is full; ready when the client took nothing, or too little, for too long.
    fn poll_write(&mut self, socket: &impl Socket, cx: &mut Context<'_>) -> Poll<()> {
        let now = softclock::now();
        let progress = self.sending.poll_progress(&self.timeouts, socket, now);
        match ready!(progress) {
            Some(next_look) => self.timer.poll_until(next_look, now, cx),
            None => Poll::Ready(()),
        }
    }

    fn limit(&self, wait: Wait) -> Option<Duration> {
        match wait {
            Wait::FirstByte => self.timeouts.first_byte,
            Wait::Head => self.timeouts.head,
            Wait::Pause => Some(PAUSE),
            Wait::Next => self.timeouts.idle,
            Wait::HalfClosed => Some(HALF_CLOSED_SILENCE),
        }
    }
}

impl Sending {
    /// When to look again; pending if never, ready with `None` if patience is at its end.
    fn poll_progress(
        &mut self,
        timeouts: &Timeouts,
        socket: &impl Socket,
        now: Instant,
    ) -> Poll<Option<Instant>> {
        let stalled = self.next_stall(timeouts, socket, now);
        let window = self.next_window(timeouts, socket, now);
        match (stalled, window) {
            (Poll::Ready(None), _) | (_, Poll::Ready(None)) => Poll::Ready(None),
            (Poll::Ready(Some(stall)), Poll::Ready(Some(window))) => {
                Poll::Ready(Some(stall.min(window)))
            }
            (look, Poll::Pending) | (Poll::Pending, look) => look,
        }
    }

    /// As [`poll_progress`](Self::poll_progress), for taking nothing.
    fn next_stall(
        &mut self,
        timeouts: &Timeouts,
        socket: &impl Socket,
        now: Instant,
    ) -> Poll<Option<Instant>> {
        let Some(limit) = timeouts.send else {
            return Poll::Pending;
        };
        let (since, unacknowledged) = *self
            .stalled
            .get_or_insert_with(|| (now, socket.unacknowledged()));
        if now < since + limit {
            return Poll::Ready(Some(since + limit));
        }
        // A large buffer has room again only after much was taken.
        let left = socket.unacknowledged();
        if left >= unacknowledged {
            return Poll::Ready(None);
        }
        self.stalled = Some((now, left));
        Poll::Ready(Some(now + limit))
    }

    /// As [`poll_progress`](Self::poll_progress), for taking too little.
    fn next_window(
        &mut self,
        timeouts: &Timeouts,
        socket: &impl Socket,
        now: Instant,
    ) -> Poll<Option<Instant>> {
        if timeouts.min_rate == 0 {
            return Poll::Pending;
        }
        let since = *self.blocked.get_or_insert(now);
        let window = self
            .window
            .get_or_insert_with(|| Window::starting(socket.unacknowledged()));
        let blocked = window.blocked + now.since(since);
        if blocked < timeouts.rate_window {
            return Poll::Ready(Some(now + (timeouts.rate_window - blocked)));
        }
        let left = socket.unacknowledged();
        if window.taken(left) < timeouts.least_in_window() {
            return Poll::Ready(None);
        }
        *window = Window::starting(left);
        self.blocked = Some(now);
        Poll::Ready(Some(now + timeouts.rate_window))
    }
}

impl Window {
    fn starting(unacknowledged: u64) -> Self {
        Self {
            blocked: Duration::ZERO,
            written: 0,
            unacknowledged,
        }
    }

    /// What the client has acknowledged during the window.
    fn taken(&self, left: u64) -> u64 {
        (self.unacknowledged + self.written).saturating_sub(left)
    }
}

/// How long an upstream, or the other side of a tunnel, may be silent once one side has ended: a client that has closed
/// cannot be told from one that only sends no more. Enough for a stream of events with frequent signs of life; what is
/// sent to a client that is gone is answered by a reset.
pub(crate) const HALF_CLOSED_SILENCE: Duration = Duration::from_secs(5);

/// How long hyper waits for the next request. Longer, and a burst of clients with one request each costs more memory;
/// shorter, and hyper is made anew for more of the requests, which costs about a microsecond each time.
const PAUSE: Duration = Duration::from_millis(10);
