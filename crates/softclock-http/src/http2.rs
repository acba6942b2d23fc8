//! A connection of HTTP/2: h2's, with the limits of how long a client may take.
//!
//! h2 sees to frames and windows. It is used without hyper's server on top, which does not show how much of a response
//! the client has room for: so a stream that takes nothing looks there like one that takes little, or like one whose
//! bytes wait for this server's own pacing. Here each stream sends what its client has room for ([`reply`]), and the
//! connection finds those that are stalled ([`flow`]): they are reset, and when all are, the connection ends. So it
//! does when its socket takes nothing ([`io`]), when the client does not answer pings ([`keep_alive`]), and when
//! nothing was asked for long. The end of a connection does not wait for a client that says nothing.

use std::future::poll_fn;
use std::io::ErrorKind;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use h2::server::{Builder, Connection, Handshake, SendResponse};
use h2::{Reason, RecvStream};
use http::Request;
use softclock::Instant;

use self::credit::Credit;
use self::flow::{Flows, Line, Piece, Verdict};
use self::io::Watched;
use self::keep_alive::KeepAlive;
use crate::carrier::Stream;
use crate::connection::{BUFFER_BYTES, ConnectionOptions, Timeouts};
use crate::exchange::{Client, answer};
use crate::head::field_count;
use crate::late_timer::LateTimer;
use crate::limit::Limit;
use crate::members::{Membership, Seat};

mod credit;
mod field_lines;
mod flow;
mod frames;
mod head;
mod io;
mod keep_alive;
mod meter;
mod refused_heads;
mod reply;

/// Answers requests until either side closes the connection; when idle once the membership ends.
pub(crate) async fn converse(
    stream: Stream,
    client: Rc<Client>,
    options: &ConnectionOptions,
    mut membership: Membership,
) -> Result<(), h2::Error> {
    let mut rest = Rest::new(&client, membership.seat(), options.timeouts);
    let mut server = Server::new(stream, client, options);
    poll_fn(|cx| {
        let is_over = rest.poll_over(cx).is_ready() || membership.poll_end(cx).is_ready();
        if is_over {
            rest.is_over = true;
            server.end();
        }
        if let Poll::Ready(result) = server.poll(cx) {
            return Poll::Ready(result);
        }
        rest.poll_leave(cx).map(Ok)
    })
    .await
}

/// Whether a connection ended because its client passed a bound of h2's own: on streams that are reset, on frames of little
/// DATA, on CONTINUATION frames of a head.
pub(crate) fn is_flood(error: &h2::Error) -> bool {
    error.is_library() && error.reason() == Some(Reason::ENHANCE_YOUR_CALM)
}

/// The server's side of a connection.
struct Server {
    client: Rc<Client>,
    timeouts: Timeouts,
    phase: Phase,
    line: Rc<Line>,
    credit: Rc<Credit>,
    flows: Rc<Flows>,
    /// When streams are looked at next.
    look: LateTimer,
}

enum Phase {
    /// Until the client's preface has come.
    Handshake {
        handshake: Handshake<Watched, Piece>,
        is_over: bool,
    },
    Serving {
        connection: Connection<Watched, Piece>,
        keep_alive: Option<KeepAlive>,
    },
}

impl Server {
    fn new(stream: Stream, client: Rc<Client>, options: &ConnectionOptions) -> Self {
        let timeouts = options.timeouts;
        let line = Rc::<Line>::default();
        let flows = Flows::new(timeouts, Rc::clone(&line), softclock::now());
        let credit = Credit::new(client.peer, options);
        let socket = Watched::new(stream, timeouts, Rc::clone(&line), Rc::clone(&credit));
        Self {
            client,
            timeouts,
            phase: Phase::Handshake {
                handshake: builder(options).handshake(socket),
                is_over: false,
            },
            line,
            credit,
            flows,
            look: LateTimer::default(),
        }
    }

    /// Answers the requests that have come, and no others.
    fn end(&mut self) {
        match &mut self.phase {
            Phase::Handshake { is_over, .. } => *is_over = true,
            Phase::Serving { connection, .. } => connection.graceful_shutdown(),
        }
    }

    /// Ready when the connection has ended.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), h2::Error>> {
        let result = self.poll_serving(cx);
        match self.credit.overdrawn() {
            Some(limit) => self.give_up(limit, Reason::ENHANCE_YOUR_CALM, cx),
            None => result,
        }
    }

    fn poll_serving(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), h2::Error>> {
        if let Phase::Handshake { handshake, is_over } = &mut self.phase {
            let mut connection = ready!(Pin::new(handshake).poll(cx))?;
            if *is_over {
                connection.graceful_shutdown();
            }
            let keep_alive = self.timeouts.send.and_then(|limit| {
                let pings = connection.ping_pong()?;
                Some(KeepAlive::new(pings, limit, Rc::clone(&self.line)))
            });
            self.phase = Phase::Serving {
                connection,
                keep_alive,
            };
        }
        self.poll_look(cx);
        let result = self.poll_requests(cx);
        if let Poll::Ready(Err(error)) = &result
            && error
                .get_io()
                .is_some_and(|error| error.kind() == ErrorKind::TimedOut)
        {
            Limit::StalledConnection.reached(self.client.peer, "connection ended");
        }
        if result.is_pending() && self.judge(cx) == Some(Verdict::AllStalled) {
            return self.give_up(Limit::StalledConnection, Reason::ENHANCE_YOUR_CALM, cx);
        }
        result
    }

    fn poll_requests(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), h2::Error>> {
        let Phase::Serving {
            connection,
            keep_alive,
        } = &mut self.phase
        else {
            return Poll::Pending;
        };
        if let Some(keep_alive) = keep_alive
            && keep_alive.poll_gone(cx).is_ready()
        {
            return self.give_up(Limit::StalledConnection, Reason::NO_ERROR, cx);
        }
        while let Some(request) = ready!(connection.poll_accept(cx)) {
            let (request, stream) = request?;
            let id = stream.stream_id().as_u32();
            self.credit.on_request(id, field_count(request.headers()));
            begin(&self.client, &self.flows, request, stream);
        }
        Poll::Ready(Ok(()))
    }

    /// Has the socket tell how much was delivered, when streams are to be looked at.
    fn poll_look(&mut self, cx: &mut Context<'_>) {
        let now = softclock::now();
        if let Some(next) = self.flows.next_look(now, cx)
            && self.look.poll_until(next, now, cx).is_ready()
        {
            self.line.is_asked.set(true);
        }
    }

    /// Has the streams reset that are stalled, once the socket has told how much was delivered.
    fn judge(&self, cx: &mut Context<'_>) -> Option<Verdict> {
        let delivery = self.line.delivery.take()?;
        let verdict = self.flows.judge(softclock::now(), delivery);
        if let Verdict::Stalled(streams) = verdict {
            for _ in 0..streams {
                Limit::StalledStream.reached(self.client.peer, "stream reset");
            }
        }
        // For the next look.
        cx.waker().wake_by_ref();
        Some(verdict)
    }

    /// Ends the connection for a limit, and says so to the client if it listens.
    fn give_up(
        &mut self,
        limit: Limit,
        reason: Reason,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), h2::Error>> {
        limit.reached(self.client.peer, "connection ended");
        if let Phase::Serving { connection, .. } = &mut self.phase {
            connection.abrupt_shutdown(reason);
            let _ = connection.poll_closed(cx);
        }
        Poll::Ready(Ok(()))
    }
}

/// Answers a request by a task of its own.
fn begin(
    client: &Rc<Client>,
    flows: &Rc<Flows>,
    request: Request<RecvStream>,
    mut stream: SendResponse<Piece>,
) {
    let Some(place) = client.open_stream() else {
        return stream.send_reset(Reason::REFUSED_STREAM);
    };
    // Begun at once, so that the connection knows of it before the stream's task runs.
    let answer = answer(Rc::clone(client), request.map(Into::into));
    let flow = flows.begin();
    drop(softclock::spawn_local(async move {
        reply::send(answer, stream, flow).await;
        drop(place);
    }));
}

fn builder(options: &ConnectionOptions) -> Builder {
    let mut builder = Builder::new();
    builder
        .initial_window_size(RECEIVE_WINDOW)
        .initial_connection_window_size(RECEIVE_WINDOW)
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(u32::try_from(options.head.head_bytes).unwrap_or(u32::MAX))
        .max_send_buffer_size(reply::MOST_UNWRITTEN_BYTES);
    builder
}

/// The time between requests, and the one after the last.
struct Rest {
    client: Rc<Client>,
    seat: Seat,
    timeouts: Timeouts,
    /// Since when no request has been in progress.
    since: Option<Instant>,
    /// Whether there was any request.
    asked: bool,
    /// Whether the client was told that the connection ends.
    is_over: bool,
    timer: LateTimer,
}

impl Rest {
    fn new(client: &Rc<Client>, seat: Seat, timeouts: Timeouts) -> Self {
        Self {
            client: Rc::clone(client),
            seat,
            timeouts,
            since: None,
            asked: false,
            is_over: false,
            timer: LateTimer::default(),
        }
    }

    /// Learns whether requests are in progress.
    fn look(&mut self, cx: &Context<'_>) {
        let active = self.client.take_activity();
        self.asked |= active;
        if active || self.since.is_none() {
            let is_idle = self.client.poll_idle(cx).is_ready();
            self.since = is_idle.then(softclock::now);
            self.seat.note_idle(self.since);
        }
    }

    /// Ready once, when nothing was asked for too long.
    fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.look(cx);
        match self.timeouts.idle {
            Some(limit) if !self.is_over => {
                ready!(self.poll_rested(limit, cx));
                Limit::IdleTimeout.count_one();
                Poll::Ready(())
            }
            _ => Poll::Pending,
        }
    }

    /// After the end was told: ready when the client has had its time to take what is left of the last response, and
    /// at once where there was none.
    fn poll_leave(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.is_over {
            return Poll::Pending;
        }
        // A request may just have come.
        self.look(cx);
        let limit = match self.asked {
            true => self.timeouts.for_bytes(BUFFER_BYTES),
            false => Some(Duration::ZERO),
        };
        match limit {
            Some(limit) => self.poll_rested(limit, cx),
            None => Poll::Pending,
        }
    }

    /// Ready when no request has been in progress for `limit`.
    fn poll_rested(&mut self, limit: Duration, cx: &mut Context<'_>) -> Poll<()> {
        match self.since {
            Some(since) => self.timer.poll_until(since + limit, softclock::now(), cx),
            None => Poll::Pending,
        }
    }
}

/// Requests at a time on one connection, as in nginx.
const STREAMS: u32 = 128;

/// What a client may send of bodies before they are read, of one and of all together.
const RECEIVE_WINDOW: u32 = 1 << 20;

#[cfg(test)]
mod tests;
