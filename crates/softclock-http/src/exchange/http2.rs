//! One HTTP/2 connection, on h2, with limits on how long a client may take.
//!
//! h2 implements frames and flow-control windows. hyper's server is not used on top of it, as it hides how much window
//! a client has left: through hyper, a stalled stream looks like a slow one, or like one held back by this server's own
//! pacing. Here each stream sends as much as its client's windows allow ([`reply`]), and the connection finds stalled
//! streams and resets them ([`flow`]).
//!
//! The connection ends when all its streams are stalled, when its socket accepts nothing ([`io`]), when the client does
//! not answer pings ([`keep_alive`]) or sends too many control frames ([`meter`]), and when it is idle for too long.
//! Closing does not wait for a silent client.

use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use h2::server::{Builder, Connection, Handshake, SendResponse};
use h2::{Reason, RecvStream};
use http::{Request, StatusCode};
use softclock::Instant;

use self::credit::Credit;
use self::endings::Endings;
use self::flow::{Flows, Piece, Transport, Verdict};
use self::in_use::StreamInUse;
use self::io::Watched;
use self::keep_alive::KeepAlive;
use crate::client::members::{Awaits, MemberSlot, Membership};
use crate::client::options::{BUFFER_BYTES, ConnectionOptions, Timeouts};
use crate::client::request_body::{RequestBody, awaits_continue};
use crate::exchange::answer::answer;
use crate::exchange::session::Session;
use crate::net::carrier::Stream;
use crate::net::late_timer::LateTimer;
use crate::observe::limit::Limit;
use crate::syntax::head::field_count;

mod credit;
mod endings;
mod field_lines;
mod flow;
mod frames;
mod head;
mod in_use;
mod io;
mod keep_alive;
mod meter;
mod refused_heads;
mod reply;
mod window;

/// Answers requests until either side closes the connection. Once the membership ends, closes it as soon as it is idle.
pub(crate) async fn converse(
    stream: Stream,
    session: Rc<Session>,
    options: &ConnectionOptions,
    mut membership: Membership,
) -> Result<(), h2::Error> {
    let mut idle = IdleWatch::new(&session, membership.slot(), options.timeouts);
    let mut server = Server::new(stream, session, options);
    poll_fn(|cx| {
        let is_over = idle.poll_over(cx).is_ready() || membership.poll_end(cx).is_ready();
        if is_over {
            idle.end();
            server.end();
        }
        if let Poll::Ready(result) = server.poll(cx) {
            return Poll::Ready(result);
        }
        idle.poll_leave(&server.transport, cx).map(Ok)
    })
    .await
}

/// Returns whether a connection ended because its client exceeded one of h2's built-in limits: of reset streams, of
/// DATA frames with little content, or of CONTINUATION frames in a head.
pub(crate) fn is_flood(error: &h2::Error) -> bool {
    error.is_library() && error.reason() == Some(Reason::ENHANCE_YOUR_CALM)
}

/// The server's side of a connection.
struct Server {
    session: Rc<Session>,
    timeouts: Timeouts,
    phase: Phase,
    transport: Rc<Transport>,
    credit: Rc<Credit>,
    flows: Rc<Flows>,
    endings: Rc<Endings>,
    /// The time of the next check for stalled streams; after the connection was given up, the end of the wait for the
    /// GOAWAY to be sent.
    look: LateTimer,
}

enum Phase {
    /// The client's preface has not arrived yet.
    Handshake {
        handshake: Handshake<Watched, Piece>,
        /// Whether the connection must shut down as soon as it is established.
        is_over: bool,
    },
    Serving {
        connection: Connection<Watched, Piece>,
        keep_alive: Option<KeepAlive>,
    },
    /// The connection was given up, and a GOAWAY is being sent.
    Leaving {
        connection: Connection<Watched, Piece>,
        until: Instant,
    },
    Ended,
}

impl Server {
    fn new(stream: Stream, session: Rc<Session>, options: &ConnectionOptions) -> Self {
        let timeouts = options.timeouts;
        let transport = Rc::<Transport>::default();
        let flows = Flows::new(timeouts, Rc::clone(&transport), softclock::now());
        let credit = Credit::new(options);
        let socket = Watched::new(stream, timeouts, Rc::clone(&transport), Rc::clone(&credit));
        Self {
            session,
            timeouts,
            phase: Phase::Handshake {
                handshake: builder(options).handshake(socket),
                is_over: false,
            },
            transport,
            credit,
            flows,
            endings: Rc::default(),
            look: LateTimer::default(),
        }
    }

    /// Shuts down gracefully: answers the requests that have arrived, and accepts no others.
    fn end(&mut self) {
        match &mut self.phase {
            Phase::Handshake { is_over, .. } => *is_over = true,
            Phase::Serving { connection, .. } => connection.graceful_shutdown(),
            Phase::Leaving { .. } | Phase::Ended => {}
        }
    }

    /// Ready when the connection has ended.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), h2::Error>> {
        let result = match self.phase {
            Phase::Leaving { .. } => self.poll_leaving(cx),
            _ => self.poll_in_credit(cx),
        };
        for _ in 0..self.credit.take_refused() {
            Limit::RequestHead.reached(self.session.client.peer, "answered 431");
            let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
            self.session.on_refused(status);
        }
        result
    }

    /// Serves the client, for as long as its credit covers what it sends.
    fn poll_in_credit(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), h2::Error>> {
        let result = self.poll_serving(cx);
        // Checked last: the socket charges for bytes while h2 reads, and then keeps them from h2.
        match self.credit.overdrawn() {
            Some(limit) => self.give_up(limit, Reason::ENHANCE_YOUR_CALM, cx),
            None => result,
        }
    }

    /// Completes the handshake, and then handles requests and checks for stalled streams.
    fn poll_serving(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), h2::Error>> {
        if let Phase::Handshake { handshake, is_over } = &mut self.phase {
            let mut connection = ready!(Pin::new(handshake).poll(cx))?;
            if *is_over {
                connection.graceful_shutdown();
            }
            let keep_alive = self.timeouts.send.and_then(|limit| {
                let pings = connection.ping_pong()?;
                Some(KeepAlive::new(pings, limit, Rc::clone(&self.transport)))
            });
            self.phase = Phase::Serving {
                connection,
                keep_alive,
            };
        }
        // The order matters: the socket answers the question of `poll_look` while h2 reads and writes in
        // `poll_requests`, and `judge` evaluates the answer.
        self.poll_look(cx);
        let result = self.poll_requests(cx);
        self.endings.sweep();
        if self.transport.is_stuck.take() {
            Limit::StalledConnection.reached(self.session.client.peer, "connection ended");
        }
        if result.is_pending() && self.judge(cx) == Some(Verdict::AllStalled) {
            return self.give_up(Limit::StalledConnection, Reason::ENHANCE_YOUR_CALM, cx);
        }
        result
    }

    /// Runs h2 and the pings, and begins the requests that have arrived, at most [`STREAMS_A_TURN`] of them.
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
        for _ in 0..STREAMS_A_TURN {
            let Some(request) = ready!(connection.poll_accept(cx)) else {
                return Poll::Ready(Ok(()));
            };
            let (request, stream) = request?;
            let id = stream.stream_id().as_u32();
            self.credit.on_request(id, field_count(request.headers()));
            let (session, flows) = (&self.session, &self.flows);
            begin(session, flows, &self.credit, &self.endings, request, stream);
        }
        // More requests may have arrived already: continue after other tasks have run.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Asks the socket how much it has delivered, if it is time to check streams for stalls. The socket reports when h2
    /// next calls it, during this turn.
    fn poll_look(&mut self, cx: &mut Context<'_>) {
        let now = softclock::now();
        if let Some(next) = self.flows.next_look(now, cx)
            && self.look.poll_until(next, now, cx).is_ready()
        {
            self.transport.is_asked.set(true);
        }
    }

    /// Finds stalled streams, once the socket has reported how much it has delivered; their tasks reset them. Returns
    /// `None` until it has.
    fn judge(&self, cx: &mut Context<'_>) -> Option<Verdict> {
        let delivery = self.transport.delivery.take()?;
        let verdict = self.flows.judge(softclock::now(), delivery);
        if let Verdict::Stalled(streams) = verdict {
            for _ in 0..streams {
                Limit::StalledStream.reached(self.session.client.peer, "stream reset");
            }
        }
        // The next turn sets the timer for the next check.
        cx.waker().wake_by_ref();
        Some(verdict)
    }

    /// Ends the connection because of a limit. Sends GOAWAY if the socket takes it at once.
    fn give_up(
        &mut self,
        limit: Limit,
        reason: Reason,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), h2::Error>> {
        // Counted once, though several limits may be exceeded in one turn.
        if !matches!(self.phase, Phase::Leaving { .. }) {
            limit.reached(self.session.client.peer, "connection ended");
        }
        self.phase = match std::mem::replace(&mut self.phase, Phase::Ended) {
            Phase::Serving { mut connection, .. } => {
                connection.abrupt_shutdown(reason);
                let until = softclock::now() + FAREWELL;
                Phase::Leaving { connection, until }
            }
            Phase::Leaving { connection, until } => Phase::Leaving { connection, until },
            Phase::Handshake { .. } | Phase::Ended => Phase::Ended,
        };
        self.poll_leaving(cx)
    }

    /// Ready when the kernel has taken all output including the GOAWAY, or [`FAREWELL`] has passed.
    fn poll_leaving(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), h2::Error>> {
        let Phase::Leaving { connection, until } = &mut self.phase else {
            return Poll::Ready(Ok(()));
        };
        // An error ends the connection, too; the reason for the end was logged before.
        if connection.poll_closed(cx).is_pending() {
            ready!(self.look.poll_until(*until, softclock::now(), cx));
        }
        self.phase = Phase::Ended;
        Poll::Ready(Ok(()))
    }
}

/// Spawns a task that answers one request, or refuses the stream if its client has too many.
fn begin(
    session: &Rc<Session>,
    flows: &Rc<Flows>,
    credit: &Rc<Credit>,
    endings: &Rc<Endings>,
    request: Request<RecvStream>,
    mut stream: SendResponse<Piece>,
) {
    let Some(permit) = session.open_stream() else {
        return stream.send_reset(Reason::REFUSED_STREAM);
    };
    // Only a request with a body can last longer than its response.
    let (permit, in_use) = match request.body().is_end_stream() {
        true => (Some(permit), None),
        false => (None, Some(StreamInUse::new(session, credit, permit))),
    };
    let asks = (in_use.clone()).filter(|_| awaits_continue(request.headers()));
    let request = request.map(|stream| RequestBody::of_stream(stream, in_use.clone()));
    // The exchange begins here, not in the task, so that the connection does not count as idle before the task runs.
    let (answer, flow) = (answer(Rc::clone(session), request), flows.begin());
    let endings = Rc::clone(endings);
    drop(softclock::spawn_local(async move {
        if let Some(unwritten) = reply::send(answer, stream, asks, flow).await {
            endings.add(unwritten, permit, in_use);
        }
    }));
}

/// Returns h2's settings for connections with these options.
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

/// Measures how long no request has been in progress, before and after the connection begins to shut down.
struct IdleWatch {
    session: Rc<Session>,
    slot: MemberSlot,
    timeouts: Timeouts,
    /// The time since which no request has been in progress; `None` while one is.
    since: Option<Instant>,
    /// Whether there was any request.
    asked: bool,
    /// The time at which the connection began to shut down.
    over: Option<Instant>,
    /// The time at which the socket was last asked whether the client has received all output.
    looked: Option<Instant>,
    timer: LateTimer,
}

impl IdleWatch {
    fn new(session: &Rc<Session>, slot: MemberSlot, timeouts: Timeouts) -> Self {
        Self {
            session: Rc::clone(session),
            slot,
            timeouts,
            since: None,
            asked: false,
            over: None,
            looked: None,
            timer: LateTimer::default(),
        }
    }

    /// Records that the connection begins to shut down.
    fn end(&mut self) {
        self.over.get_or_insert_with(softclock::now);
    }

    /// Updates `since`.
    fn look(&mut self, cx: &Context<'_>) {
        let active = self.session.take_activity();
        self.asked |= active;
        if active || self.since.is_none() {
            let is_idle = self.session.poll_idle(cx).is_ready();
            self.since = is_idle.then(softclock::now);
            self.slot
                .note(self.since.map(|since| (Awaits::Request, since)));
        }
    }

    /// Ready when no request has been in progress for the idle timeout; never once the connection is shutting down.
    fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.look(cx);
        match self.timeouts.idle {
            Some(limit) if self.over.is_none() => {
                ready!(self.poll_idle_for(limit, cx));
                Limit::IdleTimeout.count_one();
                Poll::Ready(())
            }
            _ => Poll::Pending,
        }
    }

    /// Ready when a connection that is shutting down can be dropped although the client has not closed it: soon after
    /// the client has received the last response, after the time that it has for that, or at once if there was no
    /// request. So a client that does not react to the GOAWAY cannot keep the connection open.
    fn poll_leave(&mut self, transport: &Transport, cx: &mut Context<'_>) -> Poll<()> {
        let Some(over) = self.over else {
            return Poll::Pending;
        };
        // A request may have begun in this turn.
        self.look(cx);
        if !self.asked {
            return self.poll_idle_for(Duration::ZERO, cx);
        }
        let Some(since) = self.since else {
            return Poll::Pending;
        };
        let (now, begin) = (softclock::now(), since.max(over));
        // The time that a slow but acceptable client needs for the buffered end of a response.
        let limit = self.timeouts.for_bytes(BUFFER_BYTES);
        if limit.is_some_and(|limit| now >= begin + limit) {
            return Poll::Ready(());
        }
        // A look before the end of the last response does not show its delivery.
        let looked = self.looked.filter(|&looked| looked >= begin);
        let next_look = looked.map_or(begin + LEAVE_TIME, |looked| looked + LOOK_PAUSE);
        ready!(self.timer.poll_until(next_look, now, cx));
        if looked.is_some() && transport.is_delivered.get() {
            return Poll::Ready(());
        }
        self.looked = Some(now);
        // Cleared, as the value may be from an earlier question.
        transport.is_delivered.set(false);
        transport.is_asked.set(true);
        // The socket reports during the next turn.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Ready when no request has been in progress for `limit`.
    fn poll_idle_for(&mut self, limit: Duration, cx: &mut Context<'_>) -> Poll<()> {
        match self.since {
            Some(since) => self.timer.poll_until(since + limit, softclock::now(), cx),
            None => Poll::Pending,
        }
    }
}

/// The limit of the wait for a GOAWAY to be sent.
const FAREWELL: Duration = Duration::from_secs(2);

/// The time that an idle client has to answer the GOAWAY, so that a request in flight is not lost.
const LEAVE_TIME: Duration = Duration::from_millis(500);

/// The pause between two checks of how much the client has received.
const LOOK_PAUSE: Duration = Duration::from_millis(100);

/// The most requests at a time on one connection, as in nginx.
const STREAMS: u32 = 128;

/// The number of streams that a connection begins before other tasks run. Each stream spawns a task; if a connection
/// began all of them at once, all other clients would wait for their first responses.
const STREAMS_A_TURN: u32 = 4;

/// The receive windows of a stream and of the connection: how many bytes of bodies a client may send before they are
/// read.
const RECEIVE_WINDOW: u32 = 1 << 20;

#[cfg(test)]
mod tests;
