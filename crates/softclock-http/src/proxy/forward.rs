//! Forwards a request to an upstream, with retries, and returns the response.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http::header::{CONNECTION, HeaderValue};
use http::{Method, Request, Response, StatusCode, Version};
use hyper::ext::ReasonPhrase;

use super::body::{AnyBody, ResponseBody};
use super::budget::Budget;
use super::failure::Failure;
use super::headers;
use super::health::{self, Tries};
use super::link::Link;
use super::options::{Proxy, ProxyOptions};
use super::outgoing::{Failed, Outgoing};
use super::tunnel::Tunnel;
use super::upload_share::UploadShare;
use super::upstream::{Attempt, Upstream};
use super::url;
use super::via::Via;
use crate::client::Client;
use crate::client::options::ConnectionOptions;
use crate::client::patience::HALF_CLOSED_SILENCE;
use crate::client::request_body::RequestBody;
use crate::observe::limit::Limit;
use crate::observe::telemetry::{self, UpstreamReport};
use crate::site::body::Body;
use crate::site::refusal::own_page;
use crate::syntax::response::Head;

/// A proxy's state in one thread.
pub(crate) struct Forwarder {
    options: Rc<ProxyOptions>,
    via: Via,
    upstreams: Vec<Rc<Upstream>>,
    /// Counts the connections to all upstreams, including those that a reload has removed.
    budget: Arc<Budget>,
    /// Counts the uploads to all upstreams whose clients still send.
    uploads: Arc<UploadShare>,
    /// Whether the URL of any upstream has a path prefix.
    has_prefix: bool,
    /// The index of the upstream whose turn is next.
    next: Cell<usize>,
}

/// A response, and the tunnel that the client's connection becomes after it.
pub(crate) struct Answered {
    pub(crate) response: Response<AnyBody>,
    /// Set after an accepted upgrade.
    pub(crate) tunnel: Option<Box<Tunnel>>,
}

impl Answered {
    fn by(response: Response<AnyBody>) -> Self {
        Self {
            response,
            tunnel: None,
        }
    }
}

/// The upstream that was tried last, and the time until its answer or failure, for the access log.
pub(crate) struct Passed {
    upstream: Rc<Upstream>,
    pub(crate) time: Duration,
}

impl Passed {
    pub(crate) fn upstream(&self) -> String {
        self.upstream.to_string()
    }
}

impl Forwarder {
    /// Creates the forwarder for the settings `proxy`. Upstreams that `previous` has, too, keep their connections,
    /// health and counters.
    pub(crate) fn new(proxy: Proxy, previous: Option<&Self>) -> Self {
        let known = previous.map_or(&[][..], |previous| &previous.upstreams);
        let mut known: Vec<_> = known.iter().collect();
        // Shared with the previous forwarder, so that connections and uploads from before a reload count, too.
        let (budget, uploads) = previous.map_or((proxy.budget, proxy.uploads), |previous| {
            (Arc::clone(&previous.budget), Arc::clone(&previous.uploads))
        });
        budget.set_limit(proxy.options.max_upstream_connections);
        let upstream = |target: Arc<super::target::Target>| {
            let is_it = |known: &&Rc<Upstream>| known.target().url == target.url;
            match known.iter().position(is_it) {
                Some(place) => {
                    let upstream = Rc::clone(known.swap_remove(place));
                    upstream.set_target(target);
                    upstream
                }
                None => Upstream::new(target, Arc::clone(&budget)),
            }
        };
        Self {
            has_prefix: proxy.targets.iter().any(|target| target.url.has_prefix()),
            upstreams: proxy.targets.into_iter().map(upstream).collect(),
            via: Via::new(proxy.options.via.as_ref()),
            budget,
            uploads,
            options: Rc::new(proxy.options),
            next: Cell::new(0),
        }
    }

    pub(crate) fn reports(&self) -> impl Iterator<Item = UpstreamReport> {
        self.upstreams.iter().map(|upstream| upstream.report())
    }

    /// Answers a request with the response of an upstream, or with an error page. Also returns the upstream for the
    /// access log, if one was tried.
    pub(crate) fn respond<'a>(
        &'a self,
        client: &'a Client,
        options: &ConnectionOptions,
        request: Request<RequestBody>,
    ) -> impl Future<Output = (Answered, Option<Passed>)> + use<'a> {
        telemetry::on_request();
        let is_head = request.method() == Method::HEAD;
        // Converted outside of the future, which would otherwise need memory for both.
        let mut outgoing = self.take(client, options, request);
        async move {
            let outgoing = match &mut outgoing {
                Ok(outgoing) => outgoing,
                Err((status, sentence)) => {
                    let page = own_page(*status, sentence, is_head);
                    return (Answered::by(page.map(AnyBody::Own)), None);
                }
            };
            // Held until there is a head to send. A client that leaves while the proxy reads the body, connects or
            // tries other upstreams ends the exchange.
            let _guard = (!self.options.half_close).then(|| client.end_on_leave());
            let begun = softclock::now();
            let result = self.forward(client, outgoing).await;
            let time = softclock::now().since(begun);
            // The log shows the time of upstreams, without waits for the client.
            let time = time.saturating_sub(outgoing.waited);
            match result {
                Ok((answered, upstream)) => (answered, Some(Passed { upstream, time })),
                Err((failure, upstream)) => {
                    let passed = upstream.map(|upstream| Passed { upstream, time });
                    let own = own_answer(&failure, outgoing, is_head);
                    (Answered::by(own), passed)
                }
            }
        }
    }

    /// Prepares a request, or refuses it with a status and a sentence if it cannot be forwarded.
    fn take(
        &self,
        client: &Client,
        options: &ConnectionOptions,
        request: Request<RequestBody>,
    ) -> Result<Outgoing, (StatusCode, &'static str)> {
        if self.has_prefix && url::may_climb(request.uri().path()) {
            return Err((
                StatusCode::BAD_REQUEST,
                "the path has a segment of two dots.",
            ));
        }
        Outgoing::of(request, client, options, &self.via)
    }

    /// Reads the beginning of the body, and tries one upstream after another.
    async fn forward(
        &self,
        client: &Client,
        outgoing: &mut Outgoing,
    ) -> Result<(Answered, Rc<Upstream>), (Failure, Option<Rc<Upstream>>)> {
        let mut tries = Tries::new(self.options.tries);
        let mut last = (Failure::Busy, None);
        // A client that waits for a 100 response sends its body only when `try_one` asks for it, after an upstream was
        // found to be reachable.
        if !outgoing.awaits_continue() || self.options.upload_buffer == 0 {
            let taken = self.take_beginning(outgoing).await;
            if let Err(failure) = taken {
                tell(outgoing, &failure, None);
                return Err((failure, None));
            }
        }
        while let Some(place) = self.choose(&tries) {
            let upstream = &self.upstreams[place];
            let Some(attempt) = Attempt::begin(upstream, self.options.max_connections) else {
                // Another thread has taken the last permit since the choice; choose again.
                continue;
            };
            if !tries.is_empty() {
                upstream.count(|counts| counts.retries += 1);
            }
            let failed = match self.try_one(client, upstream, outgoing, attempt).await {
                Ok(answered) => return Ok((answered, Rc::clone(upstream))),
                Err(failed) => failed,
            };
            tries.on_failure(place, failed.has_sent);
            // The client gets the failure of the last try.
            last = (failed.failure, Some(Rc::clone(upstream)));
            if !failed.may_retry {
                break;
            }
        }
        tell(outgoing, &last.0, last.1.as_deref());
        Err(last)
    }

    /// Reads the beginning of the body. If more is to come, also waits for a permit among the uploads in progress.
    async fn take_beginning(&self, outgoing: &mut Outgoing) -> Result<(), Failure> {
        outgoing.take_beginning(self.options.upload_buffer).await?;
        if !outgoing.needs_permit() {
            return Ok(());
        }
        let take = self.uploads.take(self.most_uploads());
        // An upload waits for its turn no longer than for a connection.
        let limit = self.options.timeouts.connect;
        // Boxed, as the future is rarely needed.
        Box::pin(outgoing.wait_for_permit(take, limit)).await
    }

    /// Returns how many uploads may be in progress: their share of the requests that the upstreams which are up accept.
    fn most_uploads(&self) -> usize {
        let up = (self.upstreams.iter()).filter(|upstream| upstream.health().is_up());
        let requests = match self.options.max_connections {
            0 => usize::MAX,
            each => each.saturating_mul(up.count().max(1)),
        };
        UploadShare::of(requests.min(self.budget.limit()))
    }

    /// Sends a request to an upstream. If a kept connection turns out to be closed, sends it again on a new one.
    async fn try_one(
        &self,
        client: &Client,
        upstream: &Upstream,
        outgoing: &mut Outgoing,
        mut attempt: Attempt,
    ) -> Result<Answered, Failed> {
        upstream.count(|counts| counts.requests += 1);
        // Asks until an upstream was found to be reachable. The beginning of the body is then kept for all tries.
        if outgoing.awaits_continue() {
            let asked = Box::pin(self.ask_for_body(upstream, outgoing, attempt)).await;
            attempt = asked.map_err(|failure| outgoing.failed(failure, None))?;
        }
        let mut kept = upstream.pool.take();
        let mut has_sent = false;
        loop {
            let mut failed = match self.send(client, upstream, outgoing, kept.take()).await {
                Ok((head, link)) => {
                    attempt.on_head(self.options.health);
                    return Ok(self.answer(head, link, outgoing, attempt));
                }
                Err(failed) => failed,
            };
            // Both sends count as one try, which has sent something if either has.
            has_sent |= failed.has_sent;
            failed.has_sent = has_sent;
            if !failed.failure.is_the_client_s() {
                tracing::info!(%upstream, "{}", failed.failure);
            }
            if !matches!(failed.failure, Failure::Stale) || !failed.may_retry {
                if failed.failure.is_the_upstream_s() {
                    attempt.on_failure(self.options.health);
                }
                return Err(failed);
            }
            // The upstream has most likely closed its other kept connections for the same reason. `kept` is empty in
            // the next round, which opens a new connection.
            upstream.pool.clear();
            attempt.begin_again();
        }
    }

    /// Sends 100 Continue to a client that waits for it, and reads the beginning of the body.
    ///
    /// Connects to the upstream first, so that the client does not send its body if the upstream is unreachable. The
    /// connection is put into the pool, and the attempt ends: while the client sends, other requests can use both.
    async fn ask_for_body(
        &self,
        upstream: &Upstream,
        outgoing: &mut Outgoing,
        mut attempt: Attempt,
    ) -> Result<Attempt, Failure> {
        let options = &self.options;
        if upstream.pool.len() == 0 {
            // Kept for this request, though no connection may be kept after one.
            let most = options.idle_connections.max(1);
            match upstream.open(options).await {
                Ok(link) => (upstream.pool).park(link, most, options.idle_time),
                Err(failure) => {
                    tracing::info!(%upstream, "{failure}");
                    if failure.is_the_upstream_s() {
                        attempt.on_failure(options.health);
                    }
                    return Err(failure);
                }
            }
        }
        let again = Rc::clone(&attempt.upstream);
        // Frees the request's permit at the upstream while the client sends.
        drop(attempt);
        self.take_beginning(outgoing).await?;
        Attempt::begin(&again, options.max_connections).ok_or(Failure::Busy)
    }

    /// Sends a request on `link`, or on a new connection, and waits for the head of the response.
    async fn send(
        &self,
        client: &Client,
        upstream: &Upstream,
        outgoing: &mut Outgoing,
        link: Option<Box<Link>>,
    ) -> Result<(Head, Box<Link>), Failed> {
        let mut link = match link {
            Some(link) => link,
            None => {
                // Boxed, as the future is large and rarely needed.
                let link = Box::pin(upstream.open(&self.options)).await;
                link.map_err(|failure| outgoing.failed(failure, None))?
            }
        };
        outgoing.begin(&mut link, upstream, client, &self.via, &self.options);
        let fields = &mut outgoing.parts.headers;
        let failure = match link.exchange(&mut outgoing.upload, fields).await {
            // The bytes after it would not be HTTP, and the client does not expect a tunnel.
            Ok(head)
                if head.status == StatusCode::SWITCHING_PROTOCOLS && outgoing.upgrade.is_none() =>
            {
                Failure::Malformed("status 101 for a request without an upgrade".into())
            }
            Ok(head) => return Ok((head, link)),
            Err(failure) => failure,
        };
        Err(outgoing.failed(failure, Some(&mut link)))
    }

    /// Returns the response for the client, given the head of the upstream's response. Its body reads the rest from
    /// `link`; after an upgrade, the tunnel does.
    fn answer(
        &self,
        head: Head,
        mut link: Box<Link>,
        outgoing: &mut Outgoing,
        mut attempt: Attempt,
    ) -> Answered {
        let is_upgrade = head.status == StatusCode::SWITCHING_PROTOCOLS;
        let mut response = Response::new(AnyBody::Own(Body::empty()));
        *response.status_mut() = head.status;
        if let Some(Ok(reason)) = head.reason.map(ReasonPhrase::try_from) {
            response.extensions_mut().insert(reason);
        }
        // hyper reuses the memory of this map for the client's next request.
        let fields = std::mem::take(&mut outgoing.parts.headers);
        *response.headers_mut() = fields;
        let via = self.via.in_response(head.version);
        // With 426 the field names the protocols that the client may upgrade to (RFC 9110, section 15.5.22).
        let may_upgrade = head.status == StatusCode::UPGRADE_REQUIRED
            && outgoing.parts.version == Version::HTTP_11;
        headers::prepare_response(response.headers_mut(), via, is_upgrade || may_upgrade);
        let mut tunnel = None;
        if is_upgrade {
            attempt.on_success();
            let (upstream, permit, early) = link.into_stream();
            tunnel = Some(Box::new(Tunnel {
                upstream,
                early,
                idle: self.options.tunnel_idle,
                half_closed: (!self.options.half_close).then_some(HALF_CLOSED_SILENCE),
                attempt,
                _permit: permit,
            }));
        } else {
            // First, as a connection with an unfinished request must not go back to the pool.
            detach_upload(&mut link, outgoing, &mut attempt);
            *response.body_mut() = ResponseBody::of(link, attempt, &self.options);
        }
        Answered { response, tunnel }
    }

    /// Chooses the upstream of the next try, and passes the turn to its successor.
    fn choose(&self, tries: &Tries) -> Option<usize> {
        let count = self.upstreams.len();
        let chosen = health::choose(
            self.next.get(),
            count,
            softclock::now(),
            tries,
            |place| self.upstreams[place].health(),
            |place| self.upstreams[place].is_full(self.options.max_connections),
        )?;
        self.next.set((chosen + 1) % count);
        Some(chosen)
    }
}

/// Spawns a task that sends the rest of a request whose response has begun: a client that does not read the response
/// yet must still be able to send. The connection counts as in use until the task ends.
fn detach_upload(link: &mut Link, outgoing: &mut Outgoing, attempt: &mut Attempt) {
    let Some(sending) = link.take_unfinished() else {
        return;
    };
    let (upload, share) = (outgoing.upload.take(), attempt.share());
    softclock::spawn_local(async move {
        sending.finish(upload).await;
        drop(share);
    });
}

/// Logs the reason why there is no response. Failures of upstreams, which an operator can fix, are warnings.
fn tell(outgoing: &Outgoing, failure: &Failure, upstream: Option<&Upstream>) {
    let (method, target) = (outgoing.method(), outgoing.target());
    let status = failure.status().as_u16();
    match failure {
        Failure::Busy => Limit::MaxRequests.reached("upstreams are full", "answered 503"),
        Failure::NoRoom => {
            Limit::UpstreamConnections.reached("connections to upstreams", "answered 503");
        }
        Failure::ManyUploads => Limit::Uploads.reached("uploads in progress", "answered 503"),
        _ => {}
    }
    match (failure, upstream) {
        (failure, _) if failure.is_the_client_s() => {
            tracing::debug!(%method, %target, status, "no response: {failure}");
        }
        (Failure::NoRoom | Failure::ManyUploads, _) | (_, None) => {
            tracing::info!(%method, %target, status, "no response: {failure}");
        }
        (_, Some(upstream)) => upstream.warn(|held_back| {
            tracing::warn!(%upstream, %method, %target, status, held_back, "no response: {failure}");
        }),
    }
}

/// Returns the answer to a request that no upstream has answered. If the rest of the request's body will not be read,
/// the answer ends the connection in HTTP/1, and the stream in HTTP/2.
fn own_answer(failure: &Failure, outgoing: &Outgoing, is_head: bool) -> Response<AnyBody> {
    let mut page = own_page(failure.status(), failure.sentence(), is_head);
    if failure.is_the_client_s() && outgoing.parts.version != Version::HTTP_2 {
        let close = HeaderValue::from_static("close");
        page.headers_mut().insert(CONNECTION, close);
    }
    page.map(AnyBody::Own)
}
