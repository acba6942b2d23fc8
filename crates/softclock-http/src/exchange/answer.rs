//! An exchange: a request answered by a site or an upstream, counted, and recorded in the access log when the body of
//! its response ends.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::SystemTime;

use bytes::Bytes;
use http::header::{CONNECTION, EXPECT, HeaderValue, REFERER, USER_AGENT};
use http::{Method, Request, Response, StatusCode, Uri, Version};
use http_body::{Body as _, Frame, SizeHint};
use softclock::Instant;

use crate::client::OnLeave;
use crate::client::request_body::RequestBody;
use crate::exchange::live::Live;
use crate::exchange::served::LiveServed;
use crate::exchange::session::Session;
use crate::exchange::unread;
use crate::net::file_lane::FileLane;
use crate::observe::access_log::{Entry, RequestLine};
use crate::proxy::body::AnyBody;
use crate::proxy::forward::Passed;
use crate::site::body::Body;
use crate::site::refusal::own_page;
use crate::syntax::head::{Fault, check_parsed};

/// Answers a request with the current settings. The exchange begins with the call, before the future is polled, and
/// ends when the response's body is dropped.
pub(crate) fn answer(
    session: Rc<Session>,
    mut request: Request<RequestBody>,
) -> impl Future<Output = Response<CountedBody>> {
    let mut exchange = Exchange::begin(session, &request);
    // In HTTP/2 a GOAWAY frame ends the connection, not a header field.
    let may_close = request.version() <= Version::HTTP_11;
    async move {
        let mut response = match &exchange.live.served {
            _ if let Some(fault) = exchange.fault(&request) => {
                exchange.session.on_fault(fault, "request refused");
                let is_head = *request.method() == Method::HEAD;
                own_page(fault.status(), fault.sentence(), is_head).map(AnyBody::Own)
            }
            LiveServed::Site(site) => {
                // With an Expect field the client may send the body only after a 100 response, which is not sent here.
                if request.version() == Version::HTTP_2
                    && !request.body().is_end_stream()
                    && !request.headers().contains_key(EXPECT)
                {
                    Box::pin(unread::discard(request.body_mut())).await;
                }
                site.respond(&request).await.map(AnyBody::Own)
            }
            LiveServed::Proxy(forwarder) => {
                // Boxed: otherwise the connections of sites, too, would need memory for this large future.
                let options = &exchange.live.options.connection;
                let client = &exchange.session.client;
                let respond = Box::pin(forwarder.respond(client, options, request));
                let (answered, passed) = respond.await;
                exchange.passed = passed;
                if let Some(tunnel) = answered.tunnel {
                    exchange.session.set_tunnel(tunnel);
                }
                answered.response
            }
        };
        // The upstream still sends: if the client has ended its side, a silent upstream must not hold the exchange.
        if let AnyBody::Passed(body) = response.body()
            && !body.keeps_half_closed()
        {
            exchange.session.client.set_on_leave(OnLeave::LimitSilence);
        }
        exchange.status = response.status();
        // Moves the client to the process that replaces this one. An upgraded connection carries no further request.
        if exchange.session.exchanges.is_replaced()
            && may_close
            && response.status() != StatusCode::SWITCHING_PROTOCOLS
        {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(CONNECTION, close);
        }
        response.map(|body| CountedBody { body, exchange })
    }
}

/// An exchange in progress. Dropping it counts and logs its end.
struct Exchange {
    session: Rc<Session>,
    live: Rc<Live>,
    method: Method,
    status: StatusCode,
    bytes: u64,
    /// The upstream that was tried last, and its time, if this is a proxy.
    passed: Option<Passed>,
    /// The data that only the access log needs; `None` without a log.
    details: Option<Box<Details>>,
}

/// The data of an exchange for the access log.
struct Details {
    begun: Instant,
    time: SystemTime,
    target: Uri,
    version: Version,
    referer: Option<HeaderValue>,
    user_agent: Option<HeaderValue>,
}

impl Exchange {
    fn begin<B>(session: Rc<Session>, request: &Request<B>) -> Self {
        let live = session.exchanges.live();
        let details = || {
            let headers = request.headers();
            Box::new(Details {
                begun: softclock::now(),
                time: SystemTime::now(),
                target: request.uri().clone(),
                version: request.version(),
                referer: headers.get(REFERER).cloned(),
                user_agent: headers.get(USER_AGENT).cloned(),
            })
        };
        session.on_begun();
        Self {
            details: live.access_log.is_some().then(details),
            session,
            live,
            method: request.method().clone(),
            // Logged if the client leaves before there is a response; nginx's number for this case.
            status: StatusCode::from_u16(499).expect("three digits"),
            bytes: 0,
            passed: None,
        }
    }
}

impl Exchange {
    /// Checks the head of an HTTP/2 request. The scanner has checked HTTP/1 requests before hyper saw them.
    fn fault<B>(&self, request: &Request<B>) -> Option<Fault> {
        let limits = self.live.options.connection.head;
        match request.version() {
            Version::HTTP_2 => check_parsed(request, limits).err(),
            _ => None,
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.session.on_ended();
        let telemetry = &self.session.exchanges.telemetry;
        telemetry.on_response(&self.method, self.status, self.bytes);
        if let (Some(log), Some(details)) = (&self.live.access_log, &self.details) {
            log.record(&Entry {
                time: details.time,
                peer: self.session.client.peer,
                request: Some(RequestLine {
                    method: &self.method,
                    target: &details.target,
                    version: details.version,
                }),
                status: self.status,
                bytes: self.bytes,
                duration: softclock::now().since(details.begun),
                referer: details.referer.as_ref(),
                user_agent: details.user_agent.as_ref(),
                upstream: self
                    .passed
                    .as_ref()
                    .map(|passed| (passed.upstream(), passed.time)),
            });
        }
    }
}

/// Evaluates `$call` on the body of either variant.
macro_rules! each {
    ($any:expr, $body:ident => $call:expr) => {
        match $any {
            AnyBody::Own($body) => $call,
            AnyBody::Passed($body) => $call,
        }
    };
}

/// The body of a response, whose bytes are counted for its exchange.
pub(crate) struct CountedBody {
    body: AnyBody,
    exchange: Exchange,
}

impl CountedBody {
    /// Returns whether the body waits at most for a disk, and not for an upstream.
    pub(crate) const fn is_at_hand(&self) -> bool {
        matches!(self.body, AnyBody::Own(_))
    }

    /// Ready with the next frame, of at most `max` bytes if the body is [at hand](Self::is_at_hand).
    pub(crate) fn poll_up_to(
        &mut self,
        max: usize,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let frame = ready!(match &mut self.body {
            AnyBody::Own(body) => body.poll_up_to(max, cx),
            AnyBody::Passed(body) => http_body::Body::poll_frame(Pin::new(body), cx),
        });
        if let Some(Ok(frame)) = &frame {
            self.exchange.bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
        }
        Poll::Ready(frame)
    }

    /// Gives the slot for a read that waits for the disk to another body, until this one is polled again.
    pub(crate) fn release_turn(&mut self) {
        if let AnyBody::Own(body) = &mut self.body {
            body.release_turn();
        }
    }

    /// Sends a file past hyper along `lane`, if the body is a file. Only for responses with a Content-Length.
    pub(crate) fn pass_along(&mut self, lane: &Rc<FileLane>) {
        if let AnyBody::Own(Body::File(file)) = &mut self.body {
            file.pass_along(lane);
        }
    }
}

impl http_body::Body for CountedBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let frame = self.poll_up_to(usize::MAX, cx);
        if let AnyBody::Own(Body::Bytes(_)) = &self.body
            && let Poll::Ready(Some(Ok(frame))) = &frame
        {
            let content = frame.data_ref().cloned().unwrap_or_default();
            self.exchange.session.content.replace(content);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        each!(&self.body, body => body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        each!(&self.body, body => body.size_hint())
    }
}
