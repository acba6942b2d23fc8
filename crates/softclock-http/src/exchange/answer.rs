//! A request and its response: answered by a site or an upstream, counted, and told to the access log when the body has
//! ended.

use std::cell::{Cell, OnceCell};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{CONNECTION, EXPECT, HeaderValue, REFERER, USER_AGENT};
use http::{Method, Request, Response, StatusCode, Uri, Version};
use http_body::{Body as _, Frame, SizeHint};
use softclock::Instant;

use crate::client::by_address::{ConnectionPermit, StreamPermit};
use crate::client::request_body::RequestBody;
use crate::exchange::served::LiveServed;
use crate::exchange::unread;
use crate::net::carrier::Peer;
use crate::net::file_lane::FileLane;
use crate::observe::access_log::{Entry, RequestLine};
use crate::observe::limit::Limit;
use crate::proxy::body::ResponseBody;
use crate::proxy::forward::Passed;
use crate::proxy::tunnel::Tunnel;
use crate::server::worker::{Live, Worker};
use crate::site::body::Body;
use crate::site::refusal::own_page;
use crate::syntax::head::{Fault, check_parsed};

/// Answers a request by the settings of this moment. The exchange begins with the call.
pub(crate) fn answer(
    client: Rc<Client>,
    mut request: Request<RequestBody>,
) -> impl Future<Output = Response<CountedBody>> {
    let mut exchange = Exchange::begin(client, &request);
    // HTTP/2 has a frame for it.
    let may_close = request.version() <= Version::HTTP_11;
    async move {
        let mut response = match &exchange.live.served {
            _ if let Some(fault) = exchange.fault(&request) => {
                exchange.client.on_fault(fault, "request refused");
                let is_head = *request.method() == Method::HEAD;
                own_page(fault.status(), fault.sentence(), is_head).map(AnyBody::Own)
            }
            LiveServed::Site(site) => {
                // A client that waits to be asked sends nothing.
                if request.version() == Version::HTTP_2
                    && !request.body().is_end_stream()
                    && !request.headers().contains_key(EXPECT)
                {
                    Box::pin(unread::discard(request.body_mut())).await;
                }
                site.respond(&request).await.map(AnyBody::Own)
            }
            LiveServed::Proxy(forwarder) => {
                // In a box, as connections of a site would else be as big as this.
                let respond = Box::pin(forwarder.respond(&exchange.client, request));
                let (response, passed) = respond.await;
                exchange.passed = passed;
                response
            }
        };
        if let AnyBody::Passed(body) = response.body()
            && !body.keeps_half_closed()
        {
            exchange.client.on_leave.set(OnLeave::LimitSilence);
        }
        exchange.status = response.status();
        if exchange.client.worker.is_replaced()
            && may_close
            && response.status() != StatusCode::SWITCHING_PROTOCOLS
        {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(CONNECTION, close);
        }
        response.map(|body| CountedBody { body, exchange })
    }
}

/// Who sends requests over one connection.
pub(crate) struct Client {
    pub(crate) worker: Rc<Worker>,
    pub(crate) peer: Peer,
    /// Whether the connection is one through TLS.
    pub(crate) is_secure: bool,
    exchanges: Cell<usize>,
    active: Cell<bool>,
    /// Who waits for the end of all exchanges.
    waiting: Cell<Option<Waker>>,
    tunnel: Cell<Option<Box<Tunnel>>>,
    on_leave: Cell<OnLeave>,
    /// As a field's value, once it was asked for.
    address: OnceCell<HeaderValue>,
    /// Counts the connection for the client's address.
    permit: OnceCell<ConnectionPermit>,
}

impl Client {
    pub(crate) fn new(worker: Rc<Worker>, peer: Peer, is_secure: bool) -> Rc<Self> {
        Rc::new(Self {
            worker,
            peer,
            is_secure,
            exchanges: Cell::new(0),
            active: Cell::new(false),
            waiting: Cell::new(None),
            tunnel: Cell::new(None),
            on_leave: Cell::default(),
            address: OnceCell::new(),
            permit: OnceCell::new(),
        })
    }

    /// A local client of a server of the bundled site.
    #[cfg(test)]
    pub(crate) fn for_tests() -> Rc<Self> {
        let site = Rc::new(crate::site::content::Site::bundled());
        let worker = Worker::of_site(site, crate::server::worker::WorkerOptions::default());
        Self::new(worker, Peer::Local, false)
    }

    /// The client's address, if it has one, for upstreams.
    pub(crate) fn address(&self) -> Option<&HeaderValue> {
        let Peer::Internet(address) = self.peer else {
            return None;
        };
        let text = || HeaderValue::try_from(address.to_canonical().to_string());
        Some(self.address.get_or_init(|| text().expect("ASCII")))
    }

    /// Ends the connection, and the exchange in progress, if the client ends its side while the guard lives.
    pub(crate) fn end_on_leave(&self) -> EndOnLeave<'_> {
        self.on_leave.set(OnLeave::End);
        EndOnLeave(self)
    }

    /// Returns what becomes of the connection if the client ends its side.
    pub(crate) fn on_leave(&self) -> OnLeave {
        self.on_leave.get()
    }

    /// Counts the connection for its client's address as long as it lasts.
    pub(crate) fn set_permit(&self, permit: ConnectionPermit) {
        let _ = self.permit.set(permit);
    }

    /// Counts an HTTP/2 stream for the client's address. Returns `None` if that has too many.
    pub(crate) fn open_stream(&self) -> Option<StreamPermit> {
        let limit = self.worker.live().options.clients.streams;
        let permit = self
            .permit
            .get_or_init(ConnectionPermit::default)
            .open_stream(limit);
        if permit.is_none() {
            Limit::ClientStreams.reached(self.peer, "stream refused");
        }
        permit
    }

    /// The connection is to become a tunnel when the response is sent.
    pub(crate) fn set_tunnel(&self, tunnel: Tunnel) {
        self.tunnel.set(Some(Box::new(tunnel)));
    }

    /// What the connection has become, if it is HTTP's no more.
    pub(crate) fn take_tunnel(&self) -> Option<Box<Tunnel>> {
        self.tunnel.take()
    }

    /// Records that a request is refused for `fault`: counts the limit that it exceeds, if the fault is a limit.
    pub(crate) fn on_fault(&self, fault: Fault, action: &str) {
        if let Some(limit) = Limit::passed_by(fault) {
            limit.reached(self.peer, action);
        }
    }

    /// A request was answered with `status` without being understood.
    pub(crate) fn on_refused(&self, status: StatusCode) {
        let worker = &self.worker;
        worker.telemetry.on_refused(status);
        if let Some(log) = &worker.live().access_log {
            log.record(&Entry {
                time: SystemTime::now(),
                peer: self.peer,
                request: None,
                status,
                bytes: 0,
                duration: Duration::ZERO,
                referer: None,
                user_agent: None,
                upstream: None,
            });
        }
    }

    /// Whether an exchange is in progress, or has been since this was last asked.
    pub(crate) fn take_activity(&self) -> bool {
        self.active.replace(false) || self.exchanges.get() > 0
    }

    /// Ready while no exchange is in progress. To be polled by one task only.
    pub(crate) fn poll_idle(&self, cx: &Context<'_>) -> Poll<()> {
        if self.exchanges.get() == 0 {
            return Poll::Ready(());
        }
        self.waiting.set(Some(cx.waker().clone()));
        Poll::Pending
    }
}

/// What becomes of an HTTP/1 connection, with the exchange in progress, if the client ends its side.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum OnLeave {
    /// The exchange goes on, and the connection ends behind it.
    #[default]
    GoOn,
    /// The connection ends once nothing of the response has come for [`HALF_CLOSED_SILENCE`].
    ///
    /// [`HALF_CLOSED_SILENCE`]: crate::client::patience::HALF_CLOSED_SILENCE
    LimitSilence,
    /// The connection ends at once.
    End,
}

/// The guard of [`Client::end_on_leave`]. Of use in HTTP/1, where a connection has one exchange at a time; in HTTP/2
/// the end of the client's side ends the connection anyway.
pub(crate) struct EndOnLeave<'a>(&'a Client);

impl Drop for EndOnLeave<'_> {
    fn drop(&mut self) {
        self.0.on_leave.set(OnLeave::GoOn);
    }
}

/// What is known of an exchange; its end is when this is dropped.
struct Exchange {
    client: Rc<Client>,
    live: Rc<Live>,
    method: Method,
    status: StatusCode,
    bytes: u64,
    /// The upstream that was asked, if any.
    passed: Option<Passed>,
    /// Only where there is a log.
    details: Option<Box<Details>>,
}

struct Details {
    begun: Instant,
    time: SystemTime,
    target: Uri,
    version: Version,
    referer: Option<HeaderValue>,
    user_agent: Option<HeaderValue>,
}

impl Exchange {
    fn begin<B>(client: Rc<Client>, request: &Request<B>) -> Self {
        let live = client.worker.live();
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
        client.exchanges.set(client.exchanges.get() + 1);
        Self {
            details: live.access_log.is_some().then(details),
            client,
            live,
            method: request.method().clone(),
            // Of a client that left before there was a response; nginx's number for it.
            status: StatusCode::from_u16(499).expect("three digits"),
            bytes: 0,
            passed: None,
        }
    }
}

impl Exchange {
    /// Checks an HTTP/2 request. Those of HTTP/1 were checked by the scanner, before hyper saw them.
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
        let client = &self.client;
        client.exchanges.set(client.exchanges.get() - 1);
        client.active.set(true);
        client.on_leave.set(OnLeave::GoOn);
        if client.exchanges.get() == 0
            && let Some(waiting) = client.waiting.take()
        {
            waiting.wake();
        }
        let telemetry = &client.worker.telemetry;
        telemetry.on_response(&self.method, self.status, self.bytes);
        if let (Some(log), Some(details)) = (&self.live.access_log, &self.details) {
            log.record(&Entry {
                time: details.time,
                peer: client.peer,
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

/// The body of a response, whoever has made it.
pub(crate) enum AnyBody {
    Own(Body),
    Passed(ResponseBody),
}

/// Calls the method of whichever body it is.
macro_rules! each {
    ($any:expr, $body:ident => $call:expr) => {
        match $any {
            AnyBody::Own($body) => $call,
            AnyBody::Passed($body) => $call,
        }
    };
}

/// A body whose bytes are counted.
pub(crate) struct CountedBody {
    body: AnyBody,
    exchange: Exchange,
}

impl CountedBody {
    /// Returns whether the body waits for a disk at most, not for an upstream.
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

    /// Has a file sent along `lane`. For responses with a Content-Length.
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
        self.poll_up_to(usize::MAX, cx)
    }

    fn is_end_stream(&self) -> bool {
        each!(&self.body, body => body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        each!(&self.body, body => body.size_hint())
    }
}
