//! A connection of HTTP/2: hyper's from its first byte to its last, since its frames are strict by themselves.
//!
//! What hyper leaves open is how long a client may take. It keeps a connection that never begins, one whose end it was
//! told but not the client, and a stream whose window the client never opens, with the file behind it. So here each
//! stream has a time in which the client must take what it was given, and the end of a connection does not wait for a
//! client that says nothing. What waits behind an ended stream without a time is a frame at most.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use h2::Reason;
use http::Request;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::server::conn::http2::Builder;
use hyper::service::service_fn;
use softclock::Instant;
use softclock::hyper::SoftTimer;

use crate::carrier::Stream;
use crate::clients::StreamPlace;
use crate::connection::{BUFFER_BYTES, ConnectionOptions, Timeouts};
use crate::exchange::{Client, CountedBody, answer};
use crate::late_timer::LateTimer;
use crate::members::{Membership, Seat};

/// Answers requests until either side closes the connection; when idle once the membership ends.
pub(crate) async fn converse(
    stream: Stream,
    client: Rc<Client>,
    options: &ConnectionOptions,
    mut membership: Membership,
) -> Result<(), hyper::Error> {
    let timeouts = options.timeouts;
    let mut rest = Rest::new(&client, membership.seat(), timeouts);
    // Our own rate is not the client's fault.
    let limit = (!client.worker.is_pacing()).then_some(timeouts);
    let streams = Streams::default();
    let builder = builder(streams.clone(), options);
    let service = service_fn(move |request: Request<Incoming>| {
        let place = client.open_stream();
        // Begun at once, so that the connection knows of it before the stream's task runs.
        let begun = place.map(|place| {
            let turn = streams.begin(limit, place);
            (turn, answer(Rc::clone(&client), request))
        });
        async move {
            let Some((turn, answer)) = begun else {
                return Err(h2::Error::from(Reason::REFUSED_STREAM));
            };
            let response = answer.await;
            Ok(response.map(|body| GivenBody::new(body, turn)))
        }
    });
    let mut connection = pin!(builder.serve_connection(stream, service));
    poll_fn(|cx| {
        let is_over = rest.poll_over(cx).is_ready() || membership.poll_end(cx).is_ready();
        if is_over {
            rest.is_over = true;
            connection.as_mut().graceful_shutdown();
        }
        if let Poll::Ready(result) = connection.as_mut().poll(cx) {
            return Poll::Ready(result);
        }
        rest.poll_leave(cx).map(Ok)
    })
    .await
}

fn builder(streams: Streams, options: &ConnectionOptions) -> Builder<Streams> {
    let mut builder = Builder::new(streams);
    builder
        .timer(SoftTimer)
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(u32::try_from(options.head.head_bytes).unwrap_or(u32::MAX))
        .max_send_buf_size(BUFFER_BYTES);
    if let Some(send) = options.timeouts.send {
        // Finds out whether the client is still there while it takes nothing.
        builder.keep_alive_interval(send).keep_alive_timeout(send);
    }
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
            Some(limit) if !self.is_over => self.poll_rested(limit, cx),
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

/// Runs hyper's task of each stream. One that has waited too long for its client is dropped, which resets the stream.
#[derive(Clone, Default)]
struct Streams {
    /// That of the stream that hyper is about to run.
    next: Rc<Cell<Option<Rc<Turn>>>>,
}

/// Whose turn it is in a stream.
struct Turn {
    timeouts: Option<Timeouts>,
    /// By when the client must have taken what it was given, if it was.
    deadline: Cell<Option<Instant>>,
    /// Among the streams of the client's address.
    _place: StreamPlace,
}

impl Streams {
    /// A stream of whose client so much patience is had, or no end of it.
    fn begin(&self, timeouts: Option<Timeouts>, place: StreamPlace) -> Rc<Turn> {
        let turn = Rc::new(Turn {
            timeouts,
            deadline: Cell::new(None),
            _place: place,
        });
        self.next.set(Some(Rc::clone(&turn)));
        turn
    }
}

impl<F> Executor<F> for Streams
where
    F: Future<Output = ()> + 'static,
{
    fn execute(&self, task: F) {
        let Some(turn) = self.next.take() else {
            softclock::spawn_local(task);
            return;
        };
        softclock::spawn_local(async move {
            let mut task = pin!(task);
            let mut timer = LateTimer::default();
            poll_fn(|cx| {
                if task.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(());
                }
                match turn.deadline.get() {
                    Some(deadline) => timer.poll_until(deadline, softclock::now(), cx),
                    None => Poll::Pending,
                }
            })
            .await;
        });
    }
}

/// A body that notes when it has given something. hyper asks for a piece as soon as it has passed on the one before, and
/// waits with it in hand until the client has made room: so there is a time for both.
///
/// hyper is done with a stream when it has got the last of it, however much that is. So if that may be large its last
/// byte is given by itself: hyper waits for room in the window for it, and so for all before it.
struct GivenBody {
    body: CountedBody,
    turn: Rc<Turn>,
    /// What is left to give of a piece that may be the body's last.
    last: Option<Bytes>,
    /// Bytes given last.
    given: usize,
}

impl GivenBody {
    const fn new(body: CountedBody, turn: Rc<Turn>) -> Self {
        Self {
            body,
            turn,
            last: None,
            given: 0,
        }
    }

    fn poll_given(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if let Some(last) = self.last.take() {
            return Poll::Ready(Some(Ok(Frame::data(last))));
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        Poll::Ready(frame.map(|frame| frame.map(|frame| self.without_last(frame))))
    }

    fn without_last(&mut self, frame: Frame<Bytes>) -> Frame<Bytes> {
        let more_comes = self.body.size_hint().lower() > 0;
        frame.map_data(|mut data| {
            if data.len() > FRAME_BYTES && !more_comes {
                self.last = Some(data.split_off(data.len() - 1));
            }
            data
        })
    }
}

impl Body for GivenBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let frame = self.poll_given(cx);
        let bytes = match &frame {
            Poll::Ready(Some(Ok(frame))) => frame.data_ref().map(Bytes::len),
            _ => None,
        };
        let limit = bytes.and_then(|bytes| {
            // Before this the client has to take what waits in hyper's buffer.
            let before = BUFFER_BYTES.max(std::mem::replace(&mut self.given, bytes));
            self.turn.timeouts?.for_bytes(before + bytes)
        });
        let deadline = limit.map(|limit| softclock::now() + limit);
        self.turn.deadline.set(deadline);
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.last.is_none() && self.body.is_end_stream()
    }

    /// As hyper asks for it: before anything was given.
    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Requests at a time on one connection, as in nginx.
const STREAMS: u32 = 128;

/// What clients take as one frame.
const FRAME_BYTES: usize = 16 << 10;

#[cfg(test)]
mod tests;
