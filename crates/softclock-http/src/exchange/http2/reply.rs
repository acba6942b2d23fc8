//! Sends the response of one stream as fast as the client's windows and the socket allow.

use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, SendStream};
use http::{Response, StatusCode};
use http_body::{Body, Frame};

use super::flow::{AHEAD_BYTES, Flow, Piece};
use super::head;
use super::in_use::StreamInUse;
use crate::exchange::answer::CountedBody;
use crate::net::buffers::CHUNK_BYTES;

/// Awaits `answer` and sends it. Returns when h2 has all of it, or when either side has reset the stream: with the stream
/// if h2 has bytes of it that it has not written. `asks` is the stream of a client that waits for a 100 response, which
/// is sent once the body is awaited.
pub(super) async fn send(
    answer: impl Future<Output = Response<CountedBody>>,
    mut stream: SendResponse<Piece>,
    mut asks: Option<Rc<StreamInUse>>,
    flow: Flow,
) -> Option<(SendStream<Piece>, Flow)> {
    let mut answer = pin!(answer);
    let response = poll_fn(|cx| {
        if let Poll::Ready(response) = answer.as_mut().poll(cx) {
            return Poll::Ready(Some(response));
        }
        if asks.take_if(|asks| asks.is_awaited()).is_some() {
            // Fails only if the stream has ended.
            let _ = stream.send_informational(go_on());
        }
        // The client has reset the stream: dropping the answer ends the exchange.
        stream.poll_reset(cx).map(|_| None)
    })
    .await;
    let (mut head, body) = response?.into_parts();
    let has_ended = body.is_end_stream();
    // Not added to responses that end with their head: some of them, such as 204, must not have a length (RFC 9110,
    // section 8.6).
    let length = body.size_hint().exact().filter(|_| !has_ended);
    head::complete(&mut head.headers, length);
    match stream.send_response(Response::from_parts(head, ()), has_ended) {
        Ok(_) if has_ended => None,
        Ok(stream) => {
            let mut sending = Sending {
                stream,
                body,
                flow,
                held: Bytes::new(),
            };
            poll_fn(|cx| sending.poll(cx)).await;
            // The exchange ends here, with its body.
            let Sending { stream, flow, .. } = sending;
            (!flow.is_written()).then_some((stream, flow))
        }
        Err(error) => {
            tracing::debug!(%error, "the head of a response cannot be sent");
            stream.send_reset(Reason::INTERNAL_ERROR);
            None
        }
    }
}

/// Returns the interim response to a client that waits for it before it sends the body (RFC 9110, section 10.1.1).
fn go_on() -> Response<()> {
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::CONTINUE;
    response
}

/// A response whose body is being sent.
struct Sending {
    stream: SendStream<Piece>,
    body: CountedBody,
    flow: Flow,
    /// Data read from the body that waits for room.
    held: Bytes,
}

impl Sending {
    /// Ready when the stream has ended: given to h2 completely, reset by either side, or failed.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            if self.stream.poll_reset(cx).is_ready() {
                return Poll::Ready(());
            }
            // A body from an upstream may take long to arrive: it is awaited without reserving window, which other
            // streams would lack. A body at hand is read once there is room, and only as much, so that a stalled stream
            // holds no data.
            if self.held.is_empty() && !self.body.is_at_hand() {
                let frame = ready!(self.body.poll_up_to(CHUNK_BYTES, cx));
                match self.take(frame) {
                    Step::Ended => return Poll::Ready(()),
                    Step::GoOn => continue,
                    Step::Held => {}
                }
            }
            let room = self.poll_room(cx);
            self.flow.set_waiting(room.is_pending());
            if room.is_pending() {
                // A turn that comes during the wait would be lost to the other bodies.
                self.body.release_turn();
            }
            let Some(room) = ready!(room) else {
                return Poll::Ready(());
            };
            if self.held.is_empty() {
                let frame = ready!(self.body.poll_up_to(room, cx));
                match self.take(frame) {
                    Step::Ended => return Poll::Ready(()),
                    Step::GoOn => continue,
                    Step::Held => {}
                }
            }
            let piece = self.held.split_to(room.min(self.held.len()));
            let is_last = self.held.is_empty() && self.body.is_end_stream();
            if self.give(piece, is_last) == Step::Ended {
                return Poll::Ready(());
            }
        }
    }

    /// Handles a frame of the body: holds data until there is room, sends trailers, and resets the stream on an error.
    fn take(&mut self, frame: Option<std::io::Result<Frame<Bytes>>>) -> Step {
        let frame = match frame {
            Some(Ok(frame)) => frame,
            Some(Err(error)) => {
                tracing::debug!(%error, "a body failed");
                self.stream.send_reset(Reason::INTERNAL_ERROR);
                return Step::Ended;
            }
            None => return self.give(Bytes::new(), true),
        };
        match frame.into_data() {
            Ok(data) if data.is_empty() => match self.body.is_end_stream() {
                true => self.give(data, true),
                false => Step::GoOn,
            },
            Ok(data) => {
                self.held = data;
                Step::Held
            }
            Err(frame) => {
                if let Ok(trailers) = frame.into_trailers() {
                    self.stream.reserve_capacity(0);
                    // Fails only where the stream has ended.
                    let _ = self.stream.send_trailers(trailers);
                    return Step::Ended;
                }
                Step::GoOn
            }
        }
    }

    /// Passes data to h2, and ends the stream if it `is_last`.
    fn give(&mut self, data: Bytes, is_last: bool) -> Step {
        let piece = self.flow.piece(data);
        match self.stream.send_data(piece, is_last) {
            Ok(()) if !is_last => Step::GoOn,
            _ => Step::Ended,
        }
    }

    /// Ready with the number of bytes that the client has room for, at least 1; `None` when the stream has ended, or is
    /// reset because it is stalled.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Option<usize>> {
        let is_ahead = self.flow.is_ahead(cx);
        if self.flow.is_stalled() {
            self.stream.send_reset(Reason::CANCEL);
            return Poll::Ready(None);
        }
        if is_ahead {
            return Poll::Pending;
        }
        let wanted = match self.held.len() {
            0 => self.body.size_hint().lower().clamp(1, CHUNK_BYTES as u64) as usize,
            held => held,
        };
        // Tried with the full length first, which succeeds while the connection's window is free.
        self.stream.reserve_capacity(wanted);
        if self.stream.capacity() == 0 {
            // Streams that wait for the connection's window take turns. Small reservations keep the turns short, so
            // that no stream waits for long.
            self.stream.reserve_capacity(wanted.min(WINDOW_TURN_BYTES));
        }
        while self.stream.capacity() == 0 {
            match ready!(self.stream.poll_capacity(cx)) {
                Some(Ok(_)) => {}
                // The stream has ended.
                Some(Err(_)) | None => return Poll::Ready(None),
            }
        }
        Poll::Ready(Some(self.stream.capacity().min(wanted)))
    }
}

/// The state of sending after a step.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Read the next frame of the body.
    GoOn,
    /// Data is held until there is room.
    Held,
    /// The stream has ended.
    Ended,
}

/// The share of the connection's window that a stream takes after a wait for it, before other streams have their turn.
const WINDOW_TURN_BYTES: usize = 1 << 10;

/// The limit of h2's own buffer for a stream, above the most that this module gives it.
pub(super) const MOST_UNWRITTEN_BYTES: usize = AHEAD_BYTES + CHUNK_BYTES;
