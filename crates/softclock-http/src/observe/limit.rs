//! The limits that clients and upstreams can reach: each is counted, and logged at most once a second.
//!
//! Counters and log throttles are global to the process: a flood spread over many threads is one flood to an operator.
//! Limits are reached rarely compared with requests, so all threads can share an atomic counter.

use std::fmt;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use softclock::Instant;

use crate::syntax::head::Fault;

/// Declares the limits with their names in metrics and in the log.
macro_rules! limits {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal,)+) => {
        /// A limit that a client or an upstream can reach. `docs/limits.md` lists them with their defaults.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(crate) enum Limit {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl Limit {
            /// All limits in the order of their counters.
            pub(crate) const ALL: &[Limit] = &[$(Limit::$variant,)+];

            /// The name in metrics, in the log and in `docs/limits.md`.
            pub(crate) const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }
    };
}

limits! {
    /// Descriptors or memory ran out when a connection was to be accepted.
    Accept = "accept",
    /// Descriptors or memory ran out when a file was to be opened.
    Descriptors = "descriptors",
    /// Responses had the maximum number of files open.
    OpenFiles = "open_files",
    /// A connection arrived while the maximum number of connections was open.
    MaxConnections = "max_connections",
    /// An idle connection was closed to make room for others.
    ShedConnections = "shed_connections",
    /// A new connection sent no byte in time.
    FirstByteTimeout = "first_byte_timeout",
    /// A request's head was not complete in time.
    HeadTimeout = "head_timeout",
    /// A TLS handshake was not complete in time.
    HandshakeTimeout = "handshake_timeout",
    /// A client sent no further request in time.
    IdleTimeout = "idle_timeout",
    /// A client read nothing, or too slowly, from an HTTP/2 stream.
    StalledStream = "stalled_stream",
    /// A client read nothing, or too slowly, from a whole connection.
    StalledConnection = "stalled_connection",
    /// No byte of a request's body arrived within the body timeout.
    BodyTimeout = "body_timeout",
    /// A request's body arrived more slowly than the minimum upload rate.
    UploadRate = "upload_rate",
    /// Half of the requests that upstreams may have were uploads still being received from clients.
    Uploads = "uploads",
    /// All upstreams had the maximum number of requests in progress.
    MaxRequests = "max_requests",
    /// An upstream failed so often in a row that no requests are sent to it for a while.
    MaxFails = "max_fails",
    /// An upstream accepted no connection in time.
    ConnectTimeout = "connect_timeout",
    /// An upstream read nothing of a request for too long.
    UpstreamSendTimeout = "upstream_send_timeout",
    /// An upstream did not begin its response in time.
    ResponseTimeout = "response_timeout",
    /// An upstream paused within a response for too long.
    UpstreamReadTimeout = "upstream_read_timeout",
    /// No bytes passed through a tunnel for too long.
    TunnelTimeout = "tunnel_timeout",
    /// One side of a response or tunnel had ended, and the other sent nothing for too long.
    HalfClosedTimeout = "half_closed_timeout",
    /// All upstreams together had the maximum number of connections, and none of them was idle.
    UpstreamConnections = "upstream_connections",
    /// A connection to an upstream was closed after its response, as enough idle ones were kept.
    KeptConnections = "kept_connections",
    /// A connection to an upstream was closed, as it had been idle for too long.
    KeepTime = "keep_time",
    /// A proxy received a request that it had forwarded itself.
    Loop = "proxy_loop",
    /// Lines of the access log arrived faster than they could be written.
    AccessLog = "access_log",
    /// Lines of the program's own log, on standard error, arrived faster than they could be written.
    Log = "log",
    /// A request line, or a target in HTTP/2, was too long.
    RequestLine = "request_line",
    /// A request's head was too long.
    RequestHead = "request_head",
    /// A request had too many header fields.
    RequestFields = "request_fields",
    /// An HTTP/2 client sent too many control frames for the responses that it received.
    ControlFrames = "control_frames",
    /// An HTTP/2 connection exceeded a bound of the library h2: on resets, frames with little DATA, or frames of one
    /// head.
    Http2Flood = "http2_flood",
    /// A client address had the maximum number of connections.
    ClientConnections = "client_connections",
    /// A client address had the maximum number of HTTP/2 streams.
    ClientStreams = "client_streams",
    /// A new connection to the metrics endpoint replaced one that made no progress.
    MetricsConnections = "metrics_connections",
    /// A connection to the metrics endpoint sent no request, or read nothing of a response, for too long.
    MetricsTimeout = "metrics_timeout",
}

impl Limit {
    /// Returns the limit that a request with this fault exceeds, if the fault is a limit.
    pub(crate) const fn passed_by(fault: Fault) -> Option<Self> {
        match fault {
            Fault::LineTooLong => Some(Self::RequestLine),
            Fault::HeadTooLong => Some(Self::RequestHead),
            Fault::TooManyFields => Some(Self::RequestFields),
            _ => None,
        }
    }

    /// Counts that the limit was reached, and logs it with its `cause` (a peer or an error) and the `action` taken,
    /// unless the same limit was logged less than a second ago.
    pub(crate) fn reached(self, cause: impl fmt::Display, action: &str) {
        self.count_one();
        let state = &STATES[self as usize];
        if let Some(more) = state.log.pass(now()) {
            let more = (more > 0).then_some(more);
            tracing::warn!(limit = self.name(), %cause, more, "limit reached: {action}");
        }
    }

    /// Counts that the limit was reached, for callers that log it themselves.
    pub(crate) fn count_one(self) {
        let state = &STATES[self as usize];
        state.reached.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns how often the limit was reached.
    pub(crate) fn count(self) -> u64 {
        STATES[self as usize].reached.load(Ordering::Relaxed)
    }
}

/// Returns the names of all limits, as in the label `limit` of the metric `softclock_limits_reached_total`.
///
/// ```
/// assert!(softclock_http::limit_names().any(|name| name == "max_connections"));
/// ```
pub fn limit_names() -> impl Iterator<Item = &'static str> {
    Limit::ALL.iter().map(|limit| limit.name())
}

/// Returns the time since the first call. Limits are also reached on threads without a runtime, so this does not use a
/// runtime's clock.
fn now() -> Instant {
    static BEGIN: LazyLock<std::time::Instant> = LazyLock::new(std::time::Instant::now);
    Instant::from_ns(u64::try_from(BEGIN.elapsed().as_nanos()).unwrap_or(u64::MAX))
}

/// A counter and a throttle for each limit.
static STATES: [State; Limit::ALL.len()] = [const { State::new() }; Limit::ALL.len()];

struct State {
    reached: AtomicU64,
    log: Throttle,
}

impl State {
    const fn new() -> Self {
        Self {
            reached: AtomicU64::new(0),
            log: Throttle::new(),
        }
    }
}

/// Lets one event per second pass, and counts the events held back.
pub(crate) struct Throttle {
    /// When the next event may pass, in nanoseconds of the caller's clock.
    next_ns: AtomicU64,
    held_back: AtomicU64,
}

impl Throttle {
    pub(crate) const fn new() -> Self {
        Self {
            next_ns: AtomicU64::new(0),
            held_back: AtomicU64::new(0),
        }
    }

    /// Returns the number of events held back since the last one that passed. If that one passed less than a second
    /// before `now`, holds this event back too and returns `None`. `now` may be of any clock that does not go back.
    pub(crate) fn pass(&self, now: Instant) -> Option<u64> {
        let (now, next) = (now.as_ns(), self.next_ns.load(Ordering::Relaxed));
        // Of several threads, only the one that sets the next time may log.
        let is_first = now >= next
            && (self.next_ns)
                .compare_exchange(next, now + PAUSE_NS, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if !is_first {
            self.held_back.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(self.held_back.swap(0, Ordering::Relaxed))
    }
}

/// The pause between two log lines about the same limit.
const PAUSE_NS: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_event_a_second_passes() {
        let throttle = Throttle::new();
        let at = |ms: u64| Instant::from_ns(5_000_000_000 + ms * 1_000_000);
        assert_eq!(throttle.pass(at(0)), Some(0));
        assert_eq!(throttle.pass(at(1)), None);
        assert_eq!(throttle.pass(at(999)), None);
        assert_eq!(throttle.pass(at(1_000)), Some(2));
        assert_eq!(throttle.pass(at(3_000)), Some(0));
    }

    #[test]
    fn names_are_distinct() {
        let mut names: Vec<_> = Limit::ALL.iter().map(|limit| limit.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Limit::ALL.len());
    }
}
