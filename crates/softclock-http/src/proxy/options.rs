//! Where requests are passed on to, and how.

use std::sync::Arc;
use std::time::Duration;

use super::budget::Budget;
use super::health::HealthOptions;
use super::target::Target;
use super::upload_share::UploadShare;
use super::url::UpstreamUrl;
use super::via::ViaName;
use crate::error::StartError;

/// Where requests are passed on to, and how.
///
/// Clones are cheap and may go to other threads; each has its own connections, and judges upstreams by itself. The
/// limits of connections are for all of them.
#[derive(Clone, Debug)]
pub struct Proxy {
    pub(super) targets: Vec<Arc<Target>>,
    pub(super) options: ProxyOptions,
    pub(super) budget: Arc<Budget>,
    pub(super) uploads: Arc<UploadShare>,
}

/// How requests are passed on.
#[derive(Clone, Debug, PartialEq)]
pub struct ProxyOptions {
    /// Whether Host names the upstream, in place of what the client asked for.
    pub rewrite_host: bool,
    /// The name in Via. A request that has it already is answered 508. Without one, requests get a name that is unique
    /// to the process, and responses `softclock`.
    pub via: Option<ViaName>,
    /// How many upstreams one request may be sent to. Those that cannot be reached do not count, while there are others
    /// to try that are not left out.
    pub tries: u32,
    /// When an upstream is left out.
    pub health: HealthOptions,
    /// How long upstreams may take.
    pub timeouts: UpstreamTimeouts,
    /// Idle connections kept to each upstream; those of all threads of a server together, of which each keeps its
    /// share, rounded down, but one at least.
    pub idle_connections: usize,
    /// How long they are kept.
    pub idle_time: Duration,
    /// How many bytes of a request's body are read from the client before an upstream is chosen; all of a shorter body.
    /// So a client that sends slowly occupies no upstream. With 0 each piece is passed on as it arrives, for clients
    /// and upstreams that answer each other within a short body. This also bounds the memory for a request's body,
    /// apart from that of one read.
    ///
    /// Requests with longer bodies are passed on for half of the requests that the limits below allow, one at least, so
    /// that slow clients leave upstreams to others. One counts until its client has sent all of it. Those beyond wait
    /// for [`UpstreamTimeouts::connect`], and are then answered 503.
    pub upload_buffer: usize,
    /// Connections in use to each upstream at a time, all threads together; 0 for any number. One that a reload takes
    /// away and another brings back counts anew.
    pub max_connections: usize,
    /// Connections to all upstreams together at a time, of all threads: those in use, tunnels among them, and those
    /// kept, which are closed to make room. One at least. Each takes a descriptor, and descriptors that they use up are
    /// missing to accept clients.
    pub max_upstream_connections: usize,
    /// How long nothing may pass through a tunnel (WebSocket and the like).
    pub tunnel_idle: Option<Duration>,
    /// Whether to finish a request whose client has ended its side of the connection. If not, the request and its
    /// connection to the upstream are given up when that happens before the response begins: a client that has closed
    /// cannot be told from one that only sends no more. Within a response or a tunnel they are given up
    /// after 5 s of silence.
    pub half_close: bool,
    /// How old an upstream's addresses may be before its name is resolved again; zero for ever.
    pub resolve_every: Duration,
}

impl Default for ProxyOptions {
    fn default() -> Self {
        Self {
            rewrite_host: false,
            via: None,
            tries: 3,
            health: HealthOptions::default(),
            timeouts: UpstreamTimeouts::default(),
            idle_connections: 64,
            idle_time: Duration::from_secs(30),
            upload_buffer: 16 << 10,
            max_connections: 0,
            max_upstream_connections: 10_000,
            tunnel_idle: Some(Duration::from_secs(600)),
            half_close: false,
            resolve_every: Duration::from_secs(30),
        }
    }
}

/// How long an upstream may take, in each phase; `None` is for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpstreamTimeouts {
    /// For a connection; and for the turn of an upload, see [`ProxyOptions::upload_buffer`].
    pub connect: Option<Duration>,
    /// Without taking any of a request.
    pub send: Option<Duration>,
    /// From the end of a request, or an interim response behind that, to the first byte of what follows.
    pub first_byte: Option<Duration>,
    /// Between bytes of a response.
    pub read: Option<Duration>,
}

impl Default for UpstreamTimeouts {
    fn default() -> Self {
        Self {
            connect: Some(Duration::from_secs(5)),
            send: Some(Duration::from_secs(60)),
            first_byte: Some(Duration::from_secs(60)),
            read: Some(Duration::from_secs(60)),
        }
    }
}

impl Proxy {
    /// Passes requests on to `upstreams` in turn. Waits for their names to be resolved.
    ///
    /// # Errors
    /// [`StartError::NoUpstream`], [`StartError::Upstream`].
    pub fn new(upstreams: Vec<UpstreamUrl>, options: ProxyOptions) -> Result<Self, StartError> {
        if upstreams.is_empty() {
            return Err(StartError::NoUpstream);
        }
        let targets = upstreams.into_iter().map(Target::new);
        Ok(Self {
            targets: targets.collect::<Result<_, _>>()?,
            budget: Budget::new(options.max_upstream_connections),
            uploads: Arc::default(),
            options,
        })
    }

    /// The same for one of several threads.
    pub(crate) fn for_one_of(mut self, threads: usize) -> Self {
        let share = &mut self.options.idle_connections;
        if *share > 0 {
            *share = (*share / threads.max(1)).max(1);
        }
        self
    }
}
