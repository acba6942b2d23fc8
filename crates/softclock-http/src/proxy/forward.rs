//! A request's way to an upstream, and its response's way back.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use http::header::{HOST, HeaderMap, HeaderValue};
use http::uri::PathAndQuery;
use http::{Method, Request, Response, StatusCode, Version};
use hyper::body::Incoming;

use super::body::{RequestBody, ResponseBody, Upload};
use super::failure::{Failure, Sent};
use super::headers::{self, Received};
use super::health;
use super::link::Link;
use super::stream::Watch;
use super::tunnel::Tunnel;
use super::upstream::{Attempt, Upstream, UpstreamReport};
use super::{Proxy, ProxyOptions};
use crate::body::Body;
use crate::exchange::{AnyBody, Client, own_page};

/// A proxy's part in one thread.
pub(crate) struct Forwarder {
    options: ProxyOptions,
    upstreams: Vec<Rc<Upstream>>,
    /// Whose turn it is.
    next: Cell<usize>,
}

/// Which upstream has answered, and how soon, for the log.
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
    /// Upstreams that stay keep their connections and what is known of them.
    pub(crate) fn new(proxy: Proxy, previous: Option<&Self>) -> Self {
        let known = previous.map_or(&[][..], |previous| &previous.upstreams);
        let mut known: Vec<_> = known.iter().collect();
        let upstream = |target: std::sync::Arc<super::target::Target>| {
            let is_it = |known: &&Rc<Upstream>| known.target().url == target.url;
            match known.iter().position(is_it) {
                Some(place) => {
                    let upstream = Rc::clone(known.swap_remove(place));
                    upstream.set_target(target);
                    upstream
                }
                None => Upstream::new(target),
            }
        };
        Self {
            upstreams: proxy.targets.into_iter().map(upstream).collect(),
            options: proxy.options,
            next: Cell::new(0),
        }
    }

    pub(crate) fn reports(&self) -> impl Iterator<Item = UpstreamReport> {
        self.upstreams.iter().map(|upstream| upstream.report())
    }

    /// Answers a request by an upstream, or says why not.
    pub(crate) async fn respond(
        &self,
        client: &Client,
        request: Request<Incoming>,
    ) -> (Response<AnyBody>, Option<Passed>) {
        crate::service::on_request();
        let is_head = request.method() == Method::HEAD;
        let outgoing = match Outgoing::of(request, client) {
            Ok(outgoing) => outgoing,
            Err((status, sentence)) => return (own_page(status, sentence, is_head), None),
        };
        let begun = softclock::now();
        match self.forward(client, &outgoing).await {
            Ok((response, upstream)) => {
                let time = softclock::now().since(begun);
                let passed = Passed { upstream, time };
                (response, Some(passed))
            }
            Err((failure, upstream)) => {
                let time = softclock::now().since(begun);
                let passed = upstream.map(|upstream| Passed { upstream, time });
                (
                    own_page(failure.status(), failure.sentence(), is_head),
                    passed,
                )
            }
        }
    }

    /// Tries one upstream after the other.
    async fn forward(
        &self,
        client: &Client,
        outgoing: &Outgoing,
    ) -> Result<(Response<AnyBody>, Rc<Upstream>), (Failure, Option<Rc<Upstream>>)> {
        let mut tried = Vec::new();
        let mut last = (Failure::Busy, None);
        while tried.len() < self.options.tries as usize {
            let Some(place) = self.choose(&tried) else {
                break;
            };
            let upstream = &self.upstreams[place];
            if !tried.is_empty() {
                upstream.count(|counts| counts.retries += 1);
            }
            tried.push(place);
            let failure = match self.try_one(client, upstream, outgoing).await {
                Ok(response) => return Ok((response, Rc::clone(upstream))),
                Err(failure) => failure,
            };
            let again = failure.may_retry;
            last = (failure.failure, Some(Rc::clone(upstream)));
            if !again {
                break;
            }
        }
        let upstream = last.1.as_ref().map(ToString::to_string);
        let (method, target) = (&outgoing.method, &outgoing.target);
        let status = last.0.status().as_u16();
        tracing::warn!(upstream, %method, %target, status, "no response: {}", last.0);
        Err(last)
    }

    /// Sends a request to an upstream, and if a connection that was kept turns out to be closed, once more on a fresh
    /// one.
    async fn try_one(
        &self,
        client: &Client,
        upstream: &Rc<Upstream>,
        outgoing: &Outgoing,
    ) -> Result<Response<AnyBody>, Failed> {
        if let Some(link) = upstream.pool.take() {
            match self.exchange(client, upstream, outgoing, Some(link)).await {
                Err(failed) if matches!(failed.failure, Failure::Stale) && failed.may_retry => {
                    // The others were closed for the same reason, most likely.
                    upstream.pool.clear();
                    upstream.count(|counts| counts.retries += 1);
                }
                result => return result,
            }
        }
        self.exchange(client, upstream, outgoing, None).await
    }

    async fn exchange(
        &self,
        client: &Client,
        upstream: &Rc<Upstream>,
        outgoing: &Outgoing,
        link: Option<Box<Link>>,
    ) -> Result<Response<AnyBody>, Failed> {
        let mut attempt = Attempt::begin(upstream);
        let result = self.send(&attempt, outgoing, link).await;
        let (response, link) = result.inspect_err(|failed| {
            tracing::info!(%upstream, "{}", failed.failure);
            if failed.failure.is_the_upstream_s() {
                attempt.on_failure(self.options.health);
            }
        })?;
        attempt.on_success();
        Ok(self.answer(client, response, link, attempt).await)
    }

    async fn send(
        &self,
        attempt: &Attempt,
        outgoing: &Outgoing,
        link: Option<Box<Link>>,
    ) -> Result<(Response<Incoming>, Box<Link>), Failed> {
        let upstream = &attempt.upstream;
        let mut link = match link {
            Some(link) => link,
            None => {
                let link = upstream.open(&self.options).await;
                link.map_err(|failure| outgoing.failed(failure, None))?
            }
        };
        link.watch.begin(self.options.timeouts);
        let received = match outgoing.request_for(upstream, &self.options, &link.watch) {
            Some(request) => link.send(request).await,
            None => Err(Failure::TooLong),
        };
        let received = received.and_then(|response| outgoing.checked(response));
        match received {
            Ok(response) => Ok((response, link)),
            Err(failure) => Err(outgoing.failed(failure, Some(&link.watch))),
        }
    }

    /// The client's response, whose body brings the rest; after an upgrade the tunnel is left with the client.
    async fn answer(
        &self,
        client: &Client,
        response: Response<Incoming>,
        link: Box<Link>,
        attempt: Attempt,
    ) -> Response<AnyBody> {
        let is_upgrade = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        if !is_upgrade {
            let body = |body| ResponseBody::new(body, link, attempt, self.options);
            return response.map(|incoming| AnyBody::Passed(body(incoming)));
        }
        let (upstream, early) = link.into_stream().await;
        client.set_tunnel(Tunnel {
            upstream,
            early,
            idle: self.options.tunnel_idle,
            attempt,
        });
        response.map(|_| AnyBody::Own(Body::empty()))
    }

    fn choose(&self, tried: &[usize]) -> Option<usize> {
        let count = self.upstreams.len();
        let chosen = health::choose(
            self.next.get(),
            count,
            softclock::now(),
            |place| self.upstreams[place].health(),
            |place| {
                let limit = self.options.max_connections;
                tried.contains(&place) || self.upstreams[place].is_full(limit)
            },
        )?;
        self.next.set((chosen + 1) % count);
        Some(chosen)
    }
}

/// A try that was in vain.
struct Failed {
    failure: Failure,
    may_retry: bool,
}

/// A request on its way.
struct Outgoing {
    method: Method,
    target: PathAndQuery,
    headers: HeaderMap,
    upgrade: Option<HeaderValue>,
    upload: Option<Rc<Upload>>,
}

impl Outgoing {
    fn of(request: Request<Incoming>, client: &Client) -> Result<Self, (StatusCode, &'static str)> {
        crate::service::check_host(&request)
            .map_err(|_| (StatusCode::BAD_REQUEST, "a request needs one Host field."))?;
        let (mut parts, body) = request.into_parts();
        if parts.method == Method::CONNECT {
            return Err((
                StatusCode::NOT_IMPLEMENTED,
                "there are no tunnels by CONNECT.",
            ));
        }
        let upload = Upload::of(body);
        let received = Received {
            version: parts.version,
            peer: client.address(),
            secure: client.is_secure,
            authority: parts.uri.authority().map(|authority| authority.as_str()),
            has_body: upload.is_some(),
        };
        let upgrade = headers::prepare_request(&mut parts.headers, &received)
            .map_err(|_| (StatusCode::BAD_REQUEST, "Content-Length is not one number."))?;
        let target = parts.uri.path_and_query().cloned();
        Ok(Self {
            method: parts.method,
            target: target.unwrap_or_else(|| PathAndQuery::from_static("/")),
            headers: parts.headers,
            upgrade,
            upload,
        })
    }

    fn request_for(
        &self,
        upstream: &Upstream,
        options: &ProxyOptions,
        watch: &Rc<Watch>,
    ) -> Option<Request<RequestBody>> {
        let target = upstream.target();
        let uri = target.url.target(&self.target)?;
        let body = RequestBody::new(self.upload.clone(), Rc::clone(watch));
        let mut request = Request::new(body);
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = uri;
        *request.headers_mut() = self.headers.clone();
        if options.rewrite_host || !self.headers.contains_key(HOST) {
            let host = target.url.host().clone();
            request.headers_mut().insert(HOST, host);
        }
        Some(request)
    }

    /// Makes the response fit for the client.
    fn checked(&self, mut response: Response<Incoming>) -> Result<Response<Incoming>, Failure> {
        let is_upgrade = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        if is_upgrade && self.upgrade.is_none() {
            return Err(Failure::Malformed("an upgrade nobody asked for".into()));
        }
        let version = response.version();
        *response.version_mut() = Version::HTTP_11;
        response.extensions_mut().clear();
        match headers::prepare_response(response.headers_mut(), version, is_upgrade) {
            Ok(()) => Ok(response),
            Err(_) => Err(Failure::Malformed(
                "a transfer coding that is not known".into(),
            )),
        }
    }

    fn failed(&self, failure: Failure, watch: Option<&Watch>) -> Failed {
        let sent = Sent {
            any: watch.is_some_and(|watch| watch.has_sent.get()),
            body: self
                .upload
                .as_ref()
                .is_some_and(|upload| upload.is_touched()),
            answered: watch.is_some_and(|watch| watch.has_received.get()),
        };
        Failed {
            may_retry: failure.may_retry(&self.method, sent),
            failure,
        }
    }
}
