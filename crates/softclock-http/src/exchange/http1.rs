//! An HTTP/1.1 connection, which runs hyper only while requests are in progress.
//!
//! hyper uses more than 12 KB of memory for a connection, mostly buffers, and most connections of a server are idle
//! most of the time. So this module starts hyper only when a whole head has arrived. When no other request follows,
//! hyper reads the end of its stream, finishes all responses, and is dropped; it then holds no unread input. hyper
//! waits up to 10 ms for the next request of a client that sends requests quickly, and not at all for others. The
//! [`GuardedStream`] below hyper lives as long as the connection, with its timeouts and the client's state.

use std::cell::Cell;
use std::convert::Infallible;
use std::error::Error;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{Request, Version};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::server::conn::http1::{Builder, Connection};
use hyper::service::{HttpService, service_fn};

use crate::client::members::Membership;
use crate::client::options::{BUFFER_BYTES, ConnectionOptions};
use crate::exchange::answer::{CountedBody, answer};
use crate::exchange::closing;
use crate::exchange::session::Session;
use crate::exchange::stream::{End, GuardedStream};
use crate::net::carrier::Stream;
use crate::observe::limit::Limit;
use crate::syntax::head::HeadLimits;

/// An HTTP/1 connection, from its first byte to its close.
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

    /// Answers requests until either side closes the connection. Once the membership ends, closes it as soon as it is
    /// idle.
    #[expect(
        clippy::manual_async_fn,
        reason = "an async fn keeps room for its argument twice"
    )]
    pub(crate) fn run(mut self) -> impl Future<Output = Result<(), hyper::Error>> {
        async move {
            let mut result = Ok(());
            // Each round starts hyper for a burst of requests, and ends with a pause.
            while result.is_ok() && poll_fn(|cx| self.poll_request(cx)).await {
                let early;
                (result, early) = self.answer_requests().await;
                // After a 101 response the connection is no longer HTTP: the tunnel owns the socket until its end.
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

    /// Waits for a request, without hyper. Returns false if the connection must be closed.
    fn poll_request(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        if self.stream.is_between_requests() {
            // A reload may have changed them.
            let live = self.session.exchanges.live();
            let options = &live.options.connection;
            self.head = options.head;
            self.stream.set_options(options);
        }
        if let Poll::Ready(readable) = self.stream.poll_readable(cx) {
            return Poll::Ready(readable);
        }
        ready!(poll_end(&mut self.membership, cx));
        self.stream.finish();
        Poll::Ready(false)
    }

    /// Runs hyper until there is a pause, or the connection ends. Also returns the bytes that hyper has read but not
    /// parsed, which can exist only if the connection has become a tunnel.
    async fn answer_requests(&mut self) -> (Result<(), hyper::Error>, Bytes) {
        let session = &self.session;
        let lane = self.stream.lane().cloned();
        let ends_by_close = Cell::new(false);
        let service = service_fn(|request: Request<Incoming>| {
            let (session, lane) = (Rc::clone(session), lane.as_ref());
            let ends_by_close = &ends_by_close;
            async move {
                let is_old = request.version() <= Version::HTTP_10;
                let mut response = answer(session, request.map(Into::into)).await;
                // hyper sends a body of unknown length in chunks, which HTTP/1.0 does not have.
                ends_by_close.set(is_old && response.body().size_hint().exact().is_none());
                if let Some(lane) = lane
                    && response.headers().contains_key(CONTENT_LENGTH)
                {
                    response.body_mut().pass_along(lane);
                }
                Ok::<_, Infallible>(response)
            }
        });
        let connection = builder(self.head).serve_connection(&mut self.stream, service);
        let mut running = Running {
            connection: Some(Box::new(connection)),
            ends_by_close: &ends_by_close,
        };
        let result = poll_fn(|cx| {
            // Poll hyper before the membership: after `graceful_shutdown` hyper drops a connection that it has not read
            // from yet.
            if let Poll::Ready(result) = running.connection().poll(cx) {
                return Poll::Ready(result);
            }
            ready!(poll_end(&mut self.membership, cx));
            running.connection().graceful_shutdown();
            // hyper registers for events and learns of the shutdown only when it is polled.
            running.connection().poll(cx)
        })
        .await;
        let early = match &result {
            Ok(()) => running.finish(),
            Err(_) => Bytes::new(),
        };
        (result, early)
    }
}

/// hyper on a connection. If it is dropped before it has finished, by an error or with the task at the end of the
/// server, and the end of the response in progress would be that of the connection, the close becomes a reset: a close
/// in order would make the response complete (RFC 9112, section 8).
struct Running<'a, S>
where
    S: HttpService<Incoming, ResBody = CountedBody>,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
{
    /// `None` once hyper has finished.
    connection: Option<Box<Connection<&'a mut GuardedStream<Stream>, S>>>,
    ends_by_close: &'a Cell<bool>,
}

impl<'a, S> Running<'a, S>
where
    S: HttpService<Incoming, ResBody = CountedBody>,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
{
    fn connection(&mut self) -> Pin<&mut Connection<&'a mut GuardedStream<Stream>, S>> {
        let connection = self.connection.as_deref_mut();
        Pin::new(connection.expect("it is there until `finish`"))
    }

    /// Returns the bytes that hyper has read but not parsed.
    fn finish(mut self) -> Bytes {
        let connection = self.connection.take();
        connection.map_or_else(Bytes::new, |connection| connection.into_parts().read_buf)
    }
}

impl<S> Drop for Running<'_, S>
where
    S: HttpService<Incoming, ResBody = CountedBody>,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
{
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take()
            && self.ends_by_close.get()
        {
            connection.into_parts().io.on_cut_short();
        }
    }
}

fn poll_end(membership: &mut Option<Membership>, cx: &Context<'_>) -> Poll<()> {
    match membership {
        Some(membership) => membership.poll_end(cx),
        None => Poll::Pending,
    }
}

/// Returns hyper's settings for connections with these limits.
fn builder(head: HeadLimits) -> Builder {
    let mut builder = Builder::new();
    builder
        // The stream has its own timeout, which answers with 408.
        .header_read_timeout(None)
        .max_buf_size(BUFFER_BYTES.max(head.head_bytes + 1))
        // A client may close its side after its last request and still get the response.
        .half_close(true)
        // Copying the body behind the head would cost more from a few KB on, and gain nothing below that.
        .writev(true);
    if head.fields > HYPER_FIELDS {
        // Set only if needed, as it costs an allocation for each head.
        builder.max_headers(head.fields);
    }
    builder
}

/// The number of header fields for which hyper has room on its stack.
const HYPER_FIELDS: usize = 100;

#[cfg(test)]
mod tests {
    use softclock::net::{TcpListener, TcpStream};

    use super::*;
    use crate::exchange::live::{Exchanges, Live, WorkerOptions};
    use crate::net::carrier::Peer;
    use crate::site::content::Site;

    fn live(connection: ConnectionOptions) -> Live {
        let options = WorkerOptions {
            connection,
            ..WorkerOptions::default()
        };
        Live::of_site(Rc::new(Site::bundled()), options)
    }

    /// Returns the head of the response to HEAD for `target`.
    async fn head(client: &TcpStream, target: &str) -> String {
        let request = format!("HEAD {target} HTTP/1.1\r\nHost: t\r\n\r\n");
        client.write_all(request.as_bytes()).await.unwrap();
        let (mut head, mut buffer) = (String::new(), [0; 1_024]);
        while !head.ends_with("\r\n\r\n") {
            let read = client.read(&mut buffer).await.unwrap();
            head += std::str::from_utf8(&buffer[..read]).unwrap();
        }
        head
    }

    /// Its requests come while hyper waits for them.
    #[test]
    fn a_busy_connection_gets_the_options_of_a_reload() {
        let runtime = softclock::Runtime::new().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind(([127, 0, 0, 1], 0)).unwrap();
            let client = TcpStream::connect(listener.local_addr().unwrap());
            let client = softclock::spawn_local(client);
            let (server, _) = listener.accept().await.unwrap();
            let client = client.await.unwrap();
            let mut options = ConnectionOptions::default();
            let exchanges = Exchanges::new(live(options));
            let session = Session::new(Rc::clone(&exchanges), Peer::Local, false);
            let conversation = Conversation::new(server.into(), session, &options, None);
            drop(softclock::spawn_local(conversation.run()));
            let long = format!("/{}", "x".repeat(400));
            for _ in 0..10 {
                assert!(head(&client, &long).await.starts_with("HTTP/1.1 404 "));
            }
            options.head.line_bytes = 300;
            exchanges.set_live(live(options));
            let refused = head(&client, &long).await;
            assert!(refused.starts_with("HTTP/1.1 414 "), "{refused}");
        });
    }

    /// The size of the future is the memory that a task holds for an idle connection.
    #[test]
    fn a_connection_without_hyper_is_small() {
        fn size<F>(_: impl FnOnce(Conversation) -> F) -> usize {
            size_of::<F>()
        }
        let size = size(Conversation::run);
        assert!(size <= 768, "{size} bytes");
    }
}
