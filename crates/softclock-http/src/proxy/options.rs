//! The options of a proxy.

use std::sync::Arc;
use std::time::Duration;

use super::budget::Budget;
use super::health::HealthOptions;
use super::target::Target;
use super::upload_share::UploadShare;
use super::url::UpstreamUrl;
use super::via::ViaName;
use crate::error::StartError;

/// A reverse proxy: forwards requests to upstreams in turn.
///
/// Clones are cheap and can be sent to other threads. Each thread has its own connections, and judges the health of
/// upstreams by itself; the limits of connections are for all threads together.
///
/// ```
/// use softclock_http::{Proxy, ProxyOptions, Server};
///
/// let options = ProxyOptions {
///     max_connections: 100,
///     ..ProxyOptions::default()
/// };
/// let upstreams = vec!["http://127.0.0.1:3000".parse()?, "unix:/run/app.sock".parse()?];
/// let server = Server::builder(Proxy::new(upstreams, options)?)
///     .listen("127.0.0.1:0".parse()?)
///     .bind()?;
/// # drop(server);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Proxy {
    pub(super) targets: Vec<Arc<Target>>,
    pub(super) options: ProxyOptions,
    pub(super) budget: Arc<Budget>,
    pub(super) uploads: Arc<UploadShare>,
}

/// The options with which a [`Proxy`] forwards requests.
#[derive(Clone, Debug, PartialEq)]
pub struct ProxyOptions {
    /// Whether the Host field names the upstream, in place of the host that the client requested.
    pub rewrite_host: bool,
    /// The name of this proxy in Via. A request that has the name already is answered with 508. Without a name,
    /// requests get one that is unique to the process, and responses get `softclock`.
    pub via: Option<ViaName>,
    /// The most upstreams to which one request is sent. Upstreams that could not be reached do not count as long as
    /// others are left to try that are up.
    pub tries: u32,
    /// The conditions under which an upstream is left out.
    pub health: HealthOptions,
    /// The timeouts of upstreams.
    pub timeouts: UpstreamTimeouts,
    /// The most idle connections kept to each upstream, of all threads of a server together. Each thread keeps its
    /// share, rounded down, but at least one unless this is 0.
    pub idle_connections: usize,
    /// The longest time that an idle connection is kept.
    pub idle_time: Duration,
    /// The number of bytes of a request's body that are read from the client before an upstream is chosen; a shorter
    /// body is read completely. So a client that sends slowly occupies no upstream. With 0, each piece is forwarded as
    /// it arrives, for clients and upstreams that react to each other within a short body. The number also bounds the
    /// memory for a request's body, apart from one read.
    ///
    /// Requests with longer bodies may occupy at most half of the requests that the limits below allow, but at least
    /// one, so that slow clients leave upstreams to others. A request counts until its client has sent the whole body.
    /// Requests beyond that wait for [`UpstreamTimeouts::connect`], and are then answered with 503.
    pub upload_buffer: usize,
    /// The most connections in use to each upstream at a time, of all threads together; 0 for any number. An upstream
    /// that one reload removes and a later one adds again is counted anew.
    pub max_connections: usize,
    /// The most connections to all upstreams together at a time, of all threads; at least one. Counts connections in
    /// use, tunnels, and idle connections, which are closed to make room. Each connection takes a descriptor, and the
    /// server also needs descriptors to accept clients.
    pub max_upstream_connections: usize,
    /// The longest time without traffic in a tunnel (WebSocket and the like); `None` for no limit.
    pub tunnel_idle: Option<Duration>,
    /// Whether to finish a request whose client has ended its side of the connection. If not, the request and its
    /// connection to the upstream are abandoned when that happens before the response begins, as a client that has
    /// closed cannot be distinguished from one that only sends no more. Within a response or a tunnel they are
    /// abandoned after 5 s of silence.
    pub half_close: bool,
    /// The age of an upstream's addresses at which its name is resolved again; zero to resolve it only at the start.
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
            idle_connections: 1024,
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

/// The timeouts of an upstream in each phase of a request; `None` for no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpstreamTimeouts {
    /// The longest wait for a connection to all addresses of the upstream together, and for the turn of an upload (see
    /// [`ProxyOptions::upload_buffer`]).
    pub connect: Option<Duration>,
    /// The longest time in which the upstream accepts no byte of a request.
    pub send: Option<Duration>,
    /// The longest time from the end of a request, or from an interim response after it, to the next byte of a
    /// response.
    pub first_byte: Option<Duration>,
    /// The longest time between bytes of a response.
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
    /// Creates a proxy that forwards requests to `upstreams` in turn. Blocks the thread while it resolves their names.
    ///
    /// # Errors
    /// [`StartError::NoUpstream`] if `upstreams` is empty, [`StartError::Upstream`] if a name cannot be resolved.
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

    /// Returns the proxy for one of several threads, with the thread's share of idle connections.
    pub(crate) fn for_one_of(mut self, threads: usize) -> Self {
        let share = &mut self.options.idle_connections;
        if *share > 0 {
            *share = (*share / threads.max(1)).max(1);
        }
        self
    }
}
