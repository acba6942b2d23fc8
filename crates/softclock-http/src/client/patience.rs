//! Timeouts and least rates of one client.
//!
//! A connection has at most one timer. Progress does not touch it ([`LateTimer`]) but only records the time.

use std::task::{Context, Poll, ready};
use std::time::Duration;

use softclock::Instant;

use crate::client::members::Awaits;
use crate::client::options::Timeouts;
use crate::net::late_timer::LateTimer;
use crate::net::socket::Socket;

/// The input that a connection waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wait {
    /// The first byte of the connection.
    FirstByte,
    /// The rest of a request head.
    Head,
    /// The next request, while hyper still owns the connection.
    Pause,
    /// The next request, after hyper has been dropped to save its memory.
    Next,
    /// More of a response whose client has ended its direction.
    HalfClosed,
}

/// The timeouts of one connection, and the client's progress that they are measured from.
pub(crate) struct ClientPatience {
    timeouts: Timeouts,
    /// The input that is waited for, and since when.
    reading: Option<(Wait, Instant)>,
    /// The number of further pauses for which hyper is kept: two after a request that came within [`PAUSE`] of the
    /// response before it, and one fewer after each other request.
    pauses: u8,
    sending: Sending,
    timer: LateTimer,
}

/// How fast the client takes the response. Only time in which the send buffer is full counts; at other times the client
/// waits for the server.
#[derive(Default)]
struct Sending {
    /// Since when the buffer has been full.
    blocked: Option<Instant>,
    /// Since when the client has taken no bytes, and the socket's counters then.
    stalled: Option<(Instant, Sent)>,
    /// The current measurement of the rate; begins when the buffer is first full.
    window: Option<Window>,
}

/// A client's progress over some time of being blocked.
#[derive(Clone, Copy)]
struct Window {
    blocked: Duration,
    written: u64,
    /// The socket's counters at the beginning.
    sent: Sent,
}

/// The output counters of a socket.
#[derive(Clone, Copy)]
struct Sent {
    accepted: u64,
    unacknowledged: u64,
}

impl Sent {
    /// Asks a socket, which costs a system call.
    fn of(socket: &impl Socket) -> Self {
        Self {
            accepted: socket.accepted(),
            unacknowledged: socket.unacknowledged(),
        }
    }

    /// Returns the bytes that were acknowledged since `before`. The number of unacknowledged bytes is not
    /// enough: while a write waits, the TLS layer may pass on more of its data.
    fn acknowledged_since(self, before: Self) -> u64 {
        let accepted = self.accepted - before.accepted;
        (before.unacknowledged + accepted).saturating_sub(self.unacknowledged)
    }
}

impl ClientPatience {
    pub(crate) fn new(timeouts: Timeouts) -> Self {
        Self {
            timeouts,
            reading: None,
            pauses: 0,
            sending: Sending::default(),
            timer: LateTimer::default(),
        }
    }

    /// Replaces the timeouts.
    pub(crate) fn set_timeouts(&mut self, timeouts: Timeouts) {
        self.timeouts = timeouts;
    }

    /// Records that the awaited input arrived.
    pub(crate) fn on_received(&mut self) {
        let is_quick = match self.reading.take() {
            Some((Wait::Pause, _)) => true,
            Some((Wait::Next, since)) => softclock::now().since(since) < PAUSE,
            _ => return,
        };
        self.pauses = match is_quick {
            true => 2,
            false => self.pauses.saturating_sub(1),
        };
    }

    /// Records that no input has arrived; ready when the timeout of `wait` has expired. A pause ends at once unless the
    /// client has sent its last requests soon after the responses.
    pub(crate) fn poll_read(&mut self, wait: Wait, cx: &mut Context<'_>) -> Poll<()> {
        let now = softclock::now();
        let since = match self.reading {
            Some((waiting, since)) if waiting == wait => since,
            // Dropping hyper does not restart the idle time.
            Some((Wait::Pause, since)) if wait == Wait::Next => since,
            _ => {
                if wait == Wait::Pause {
                    // The next response is measured afresh.
                    self.sending = Sending::default();
                }
                now
            }
        };
        self.reading = Some((wait, since));
        if wait == Wait::Pause && self.pauses == 0 {
            return Poll::Ready(());
        }
        match self.limit(wait) {
            Some(limit) => self.timer.poll_until(since + limit, now, cx),
            None => Poll::Pending,
        }
    }

    /// Returns the input that the connection waits for and since when, for shedding; `None` if it waits for none, or
    /// only to send.
    pub(crate) fn awaits(&self) -> Option<(Awaits, Instant)> {
        let (wait, since) = self.reading?;
        match wait {
            Wait::Head => Some((Awaits::RestOfHead, since)),
            Wait::FirstByte | Wait::Pause | Wait::Next => Some((Awaits::Request, since)),
            Wait::HalfClosed => None,
        }
    }

    /// Returns the longest silence within a body, if limited.
    pub(crate) fn body_limit(&self) -> Option<Duration> {
        self.timeouts.body
    }

    /// Records that the send buffer accepted `bytes`; 0 if the server itself holds data back, so that the time does not
    /// count against the client.
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

    /// Records that the send buffer accepted no bytes; ready when this is the client's fault and has lasted too long.
    pub(crate) fn poll_blocked(&mut self, socket: &impl Socket, cx: &mut Context<'_>) -> Poll<()> {
        // A wait for the server's own rate, or for the turns of other connections, is not the client's fault.
        if socket.is_held_back() {
            self.on_written(0);
            self.look_again(cx);
            return Poll::Pending;
        }
        self.poll_write(socket, cx)
    }

    /// Wakes the task after the shortest limit. A stack's stream gives no event when its write begins to wait for the
    /// client instead.
    fn look_again(&mut self, cx: &mut Context<'_>) {
        let window = (self.timeouts.min_rate > 0).then_some(self.timeouts.rate_window);
        let limit = self.timeouts.send.into_iter().chain(window).min();
        let now = softclock::now();
        // Never ready: the deadline lies ahead.
        if let Some(limit) = limit {
            let _ = self.timer.poll_until(now + limit, now, cx);
        }
    }

    /// Records that the send buffer is full; ready when the client has taken no bytes, or too few, for too long.
    fn poll_write(&mut self, socket: &impl Socket, cx: &mut Context<'_>) -> Poll<()> {
        let now = softclock::now();
        let ask = || Sent::of(socket);
        let progress = self.sending.poll_progress(&self.timeouts, &ask, now);
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
    /// Returns the time of the next check; pending if none is needed, ready with `None` if the client was too slow.
    /// `ask` asks the socket.
    fn poll_progress(
        &mut self,
        timeouts: &Timeouts,
        ask: &impl Fn() -> Sent,
        now: Instant,
    ) -> Poll<Option<Instant>> {
        let stalled = self.next_stall(timeouts, ask, now);
        let window = self.next_window(timeouts, ask, now);
        // Either limit can end the connection; otherwise the earlier of both checks comes next.
        match (stalled, window) {
            (Poll::Ready(None), _) | (_, Poll::Ready(None)) => Poll::Ready(None),
            (Poll::Ready(Some(stall)), Poll::Ready(Some(window))) => {
                Poll::Ready(Some(stall.min(window)))
            }
            (look, Poll::Pending) | (Poll::Pending, look) => look,
        }
    }

    /// Like [`poll_progress`](Self::poll_progress), for a client that takes no bytes.
    fn next_stall(
        &mut self,
        timeouts: &Timeouts,
        ask: &impl Fn() -> Sent,
        now: Instant,
    ) -> Poll<Option<Instant>> {
        let Some(limit) = timeouts.send else {
            return Poll::Pending;
        };
        let (since, before) = *self.stalled.get_or_insert_with(|| (now, ask()));
        if now < since + limit {
            return Poll::Ready(Some(since + limit));
        }
        // The buffer becomes writable only after much of it was acknowledged, so a slow client may have made progress
        // unseen.
        let sent = ask();
        if sent.acknowledged_since(before) == 0 {
            return Poll::Ready(None);
        }
        self.stalled = Some((now, sent));
        Poll::Ready(Some(now + limit))
    }

    /// Like [`poll_progress`](Self::poll_progress), for a client that takes bytes too slowly.
    fn next_window(
        &mut self,
        timeouts: &Timeouts,
        ask: &impl Fn() -> Sent,
        now: Instant,
    ) -> Poll<Option<Instant>> {
        if timeouts.min_rate == 0 {
            return Poll::Pending;
        }
        let since = *self.blocked.get_or_insert(now);
        let window = self.window.get_or_insert_with(|| Window::starting(ask()));
        // Time in which the buffer had room does not count, so the window may last longer than `rate_window`.
        let blocked = window.blocked + now.since(since);
        if blocked < timeouts.rate_window {
            return Poll::Ready(Some(now + (timeouts.rate_window - blocked)));
        }
        // Asking the socket costs a system call, which is made once per window.
        let sent = ask();
        if window.taken(sent) < timeouts.least_in_window() {
            return Poll::Ready(None);
        }
        *window = Window::starting(sent);
        self.blocked = Some(now);
        Poll::Ready(Some(now + timeouts.rate_window))
    }
}

impl Window {
    fn starting(sent: Sent) -> Self {
        Self {
            blocked: Duration::ZERO,
            written: 0,
            sent,
        }
    }

    /// Returns the bytes that the client has acknowledged during the window, if the counters are `sent` at its end. A
    /// socket without a counter of accepted bytes has accepted what was written.
    fn taken(&self, sent: Sent) -> u64 {
        let of_written =
            (self.sent.unacknowledged + self.written).saturating_sub(sent.unacknowledged);
        of_written.max(sent.acknowledged_since(self.sent))
    }
}

/// How long an upstream, or the other side of a tunnel, may be silent after one side has ended. A client that has
/// closed its socket looks like one that only sends no more until data sent to it is answered by a reset. Longer
/// than the pauses of an event stream that sends frequent keep-alive messages.
pub(crate) const HALF_CLOSED_SILENCE: Duration = Duration::from_secs(5);

/// How long hyper is kept for the next request of a client that sends one soon after another. With less, hyper is
/// created again for more of the requests, which costs about 1 us each time; with more, such clients use more memory
/// when they stop.
///
/// Other clients get no pause. If they did, many could have a hyper at a time, and the allocator could not return this
/// memory, since the state of new connections would lie between hyper's buffers.
const PAUSE: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    /// Whether a pause of the client waits for more.
    fn is_kept(patience: &mut ClientPatience, cx: &mut Context<'_>) -> bool {
        patience.poll_read(Wait::Pause, cx).is_pending()
    }

    /// The next request, at once or long after the response before it.
    async fn request(patience: &mut ClientPatience, is_quick: bool) {
        let _ = poll_fn(|cx| Poll::Ready(patience.poll_read(Wait::Next, cx))).await;
        if !is_quick {
            softclock::sleep(2 * PAUSE).await;
        }
        patience.on_received();
    }

    /// Acknowledged bytes are progress, though as many follow them from the TLS layer while the write waits.
    #[test]
    fn a_client_whose_socket_stays_full_is_not_stuck_while_it_acknowledges() {
        let timeouts = Timeouts {
            send: Some(Duration::from_secs(2)),
            min_rate: 4_000,
            rate_window: Duration::from_secs(4),
            ..Timeouts::default()
        };
        let at = |seconds: u64| Instant::from_ns(seconds * 1_000_000_000);
        let mut sending = Sending::default();
        let mut look = |seconds, accepted| {
            let ask = || Sent {
                accepted,
                unacknowledged: 64_000,
            };
            sending.poll_progress(&timeouts, &ask, at(seconds))
        };
        assert_eq!(look(10, 64_000), Poll::Ready(Some(at(12))));
        assert_eq!(look(12, 80_000), Poll::Ready(Some(at(14))));
        assert_eq!(look(14, 81_000), Poll::Ready(Some(at(16))));
        // Nothing in the time of a stall.
        assert_eq!(look(16, 81_000), Poll::Ready(None));
    }

    #[test]
    fn hyper_is_kept_for_clients_that_send_requests_quickly() {
        let runtime = softclock::Runtime::new().unwrap();
        runtime.block_on(async {
            let mut patience = ClientPatience::new(Timeouts::default());
            let _ = poll_fn(|cx| Poll::Ready(patience.poll_read(Wait::FirstByte, cx))).await;
            patience.on_received();
            assert!(!poll_fn(|cx| Poll::Ready(is_kept(&mut patience, cx))).await);
            // On a machine under load a request at once may be late.
            let mut tries = 0;
            while patience.pauses < 2 {
                tries += 1;
                assert!(tries < 100, "never quick");
                request(&mut patience, true).await;
            }
            assert!(poll_fn(|cx| Poll::Ready(is_kept(&mut patience, cx))).await);
            request(&mut patience, false).await;
            assert!(poll_fn(|cx| Poll::Ready(is_kept(&mut patience, cx))).await);
            request(&mut patience, false).await;
            assert!(!poll_fn(|cx| Poll::Ready(is_kept(&mut patience, cx))).await);
        });
    }
}
