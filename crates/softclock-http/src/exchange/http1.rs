//! A connection of HTTP/1.1: hyper's while it is in use, and a small thing of our own while it waits for a request.
//!
//! hyper holds more than 12 KB for a connection, buffers mostly, and most connections of a server wait for a request
//! most of the time. So hyper is given one when a whole head has arrived. When no other has followed within a moment,
//! it reads the end of its stream, and so has first finished all it had to do; nothing is left in it. The guard of the
//! stream ([`GuardedStream`]) stays all the time, with the timeouts and all that is known of the client.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::Request;
use http::header::CONTENT_LENGTH;
use hyper::body::Incoming;
use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;

use crate::client::members::Membership;
use crate::client::options::{BUFFER_BYTES, ConnectionOptions};
use crate::exchange::answer::answer;
use crate::exchange::closing;
use crate::exchange::session::Session;
use crate::exchange::stream::{End, GuardedStream};
use crate::net::carrier::Stream;
use crate::observe::limit::Limit;
use crate::syntax::head::HeadLimits;

/// A connection from its first byte to its close.
pub(crate) struct Conversation {
    stream: GuardedStream<Stream>,
    session: Rc<Session>,
    head: HeadLimits,
    membership: Option<Membership>,
}

impl Conversation {
    pub(crate) fn new(
        stream: Stream,
        session: Rc<Session>,
        options: &ConnectionOptions,
        membership: Option<Membership>,
    ) -> Self {
        let slot = membership.as_ref().map(Membership::slot);
        Self {
            stream: GuardedStream::new(stream, Rc::clone(&session), options, slot),
            session,
            head: options.head,
            membership,
        }
    }

    /// Answers requests until either side closes the connection; when idle once the membership ends.
    #[expect(
        clippy::manual_async_fn,
        reason = "an async fn keeps room for its argument twice"
    )]
    pub(crate) fn run(mut self) -> impl Future<Output = Result<(), hyper::Error>> {
        async move {
            let mut result = Ok(());
            while result.is_ok() && poll_fn(|cx| self.poll_request(cx)).await {
                let early;
                (result, early) = self.answer_requests().await;
                if let Some(tunnel) = self.session.take_tunnel() {
                    if result.is_ok() {
                        let (stream, early) = self.stream.into_tunnel(early);
                        Box::pin(tunnel.run(stream, early)).await;
                    }
                    return result;
                }
                if result.is_ok() {
                    self.stream.on_all_written();
                }
                let has_ended = self.membership.as_ref().is_some_and(Membership::has_ended);
                if has_ended || !self.stream.take_pause() {
                    break;
                }
            }
            let Self {
                stream, session, ..
            } = self;
            let peer = session.client.peer;
            if let Err(error) = &result {
                tracing::debug!(%error, %peer, "connection ended");
            }
            let ending = stream.into_ending();
            if let Some(End::Refused { fault, .. }) = ending.end {
                session.on_fault(fault, "refused, and the connection closed");
            }
            let on_refused = |status| session.on_refused(status);
            if Box::pin(closing::close(ending, on_refused)).await.is_err() {
                Limit::StalledConnection.reached(peer, "connection reset");
            }
            result
        }
    }

    /// Waits for a request, without hyper; false if the connection is to be closed.
    fn poll_request(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        if let Poll::Ready(readable) = self.stream.poll_readable(cx) {
            return Poll::Ready(readable);
        }
        ready!(poll_end(&mut self.membership, cx));
        self.stream.finish();
        Poll::Ready(false)
    }

    /// Has hyper answer requests until there is a pause, or no more will come. Also gives what hyper has read and made
    /// nothing of, which is something only where the connection has become a tunnel.
    async fn answer_requests(&mut self) -> (Result<(), hyper::Error>, Bytes) {
        let session = &self.session;
        let lane = self.stream.lane().cloned();
        let service = service_fn(|request: Request<Incoming>| {
            let (session, lane) = (Rc::clone(session), lane.as_ref());
            async move {
                let mut response = answer(session, request.map(Into::into)).await;
                if let Some(lane) = lane
                    && response.headers().contains_key(CONTENT_LENGTH)
                {
                    response.body_mut().pass_along(lane);
                }
                Ok::<_, Infallible>(response)
            }
        });
        let connection = builder(self.head).serve_connection(&mut self.stream, service);
        let mut connection = Box::new(connection);
        let result = poll_fn(|cx| {
            // First, as hyper drops a connection that is to end before it has read anything.
            if let Poll::Ready(result) = Pin::new(&mut *connection).poll(cx) {
                return Poll::Ready(result);
            }
            ready!(poll_end(&mut self.membership, cx));
            Pin::new(&mut *connection).graceful_shutdown();
            Pin::new(&mut *connection).poll(cx)
        })
        .await;
        (result, connection.into_parts().read_buf)
    }
}

fn poll_end(membership: &mut Option<Membership>, cx: &Context<'_>) -> Poll<()> {
    match membership {
        Some(membership) => membership.poll_end(cx),
        None => Poll::Pending,
    }
}

fn builder(head: HeadLimits) -> Builder {
    let mut builder = Builder::new();
    builder
        // Ours is in the stream, and answers.
        .header_read_timeout(None)
        .max_buf_size(BUFFER_BYTES.max(head.head_bytes + 1))
        // A client that has said all it wants may close its side and still get the answer.
        .half_close(true)
        // Copying the body behind the head costs more from a few KB on, and below gains nothing.
        .writev(true);
    if head.fields > HYPER_FIELDS {
        // Costs an allocation for each head.
        builder.max_headers(head.fields);
    }
    builder
}

/// As many header fields as hyper has room for on its stack.
const HYPER_FIELDS: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    /// What a task holds for each connection that waits.
    #[test]
    fn a_connection_without_hyper_is_small() {
        fn size<F>(_: impl FnOnce(Conversation) -> F) -> usize {
            size_of::<F>()
        }
        let size = size(Conversation::run);
        assert!(size <= 768, "{size} bytes");
    }
}
