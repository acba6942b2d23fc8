//! The failures of a try: the answer to the client, and whether another try may help.

use std::fmt;
use std::io;

use http::{Method, StatusCode};

/// The failure of one try.
#[derive(Debug)]
pub(super) enum Failure {
    /// The upstream refused the connection, or is unreachable.
    Connect(io::Error),
    /// The upstream accepted no connection within [`connect`](super::options::UpstreamTimeouts::connect).
    ConnectLate,
    /// This process has no descriptors or memory left.
    Exhausted(io::Error),
    /// This machine has no address or port for a connection to the upstream's address. Either all ports are taken, or
    /// the machine does not use addresses of that kind, such as those of IPv6.
    NoLocalAddress(io::Error),
    /// All upstreams that could be tried have as many requests in progress as
    /// [`max_connections`](super::options::ProxyOptions::max_connections) allows.
    Busy,
    /// The upstreams together have the most connections allowed
    /// ([`max_upstream_connections`](super::options::ProxyOptions::max_upstream_connections)).
    NoRoom,
    /// The most uploads allowed are in progress ([`UploadShare`](super::upload_share::UploadShare)).
    ManyUploads,
    /// The upstream accepted no byte of the request for too long.
    SendLate,
    /// The upstream sent no byte of a response in time.
    FirstByteLate,
    /// The upstream stopped within its response for too long.
    MoreLate,
    /// The upstream closed the connection before it answered.
    Closed,
    /// The upstream had closed a kept connection, before any byte of the response.
    Stale,
    /// The upstream sent an invalid response; the reason.
    Malformed(String),
    /// The client did not send the body that its head announced.
    ClientBody,
    /// The client sends its body too slowly.
    ClientLate,
}

/// The parts of a request that an upstream may have received, and its reaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Sent {
    /// Whether any byte was sent.
    pub(super) any: bool,
    /// Whether more of the body was sent than is kept for another try.
    pub(super) body: bool,
    /// Whether any byte of a response has come.
    pub(super) answered: bool,
}

impl Failure {
    /// Returns the failure of an upstream with several addresses: the last one, but one of this machine
    /// ([`NoLocalAddress`](Self::NoLocalAddress)) only if all are. `before` is that of the addresses before.
    pub(super) fn after(self, before: Option<Self>) -> Self {
        match before {
            Some(before) if matches!(self, Self::NoLocalAddress(_)) => before,
            _ => self,
        }
    }

    /// Returns the status of the proxy's own response.
    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::Exhausted(_)
            | Self::NoLocalAddress(_)
            | Self::Busy
            | Self::NoRoom
            | Self::ManyUploads => StatusCode::SERVICE_UNAVAILABLE,
            Self::ConnectLate | Self::SendLate | Self::FirstByteLate | Self::MoreLate => {
                StatusCode::GATEWAY_TIMEOUT
            }
            Self::ClientBody => StatusCode::BAD_REQUEST,
            Self::ClientLate => StatusCode::REQUEST_TIMEOUT,
            Self::Connect(_) | Self::Closed | Self::Stale | Self::Malformed(_) => {
                StatusCode::BAD_GATEWAY
            }
        }
    }

    /// Returns a sentence for the client. It discloses no addresses and no system errors.
    pub(super) fn sentence(&self) -> &'static str {
        match self {
            Self::Connect(_) => "the upstream can't be reached.",
            Self::ConnectLate => "the upstream did not accept a connection in time.",
            Self::Exhausted(_) | Self::NoLocalAddress(_) | Self::NoRoom => {
                "the proxy is overloaded; try again in a moment."
            }
            Self::Busy => "all upstreams are busy; try again in a moment.",
            Self::ManyUploads => "too many uploads are in progress; try again in a moment.",
            Self::SendLate => "the upstream did not take the request in time.",
            Self::FirstByteLate => "the upstream did not answer in time.",
            Self::MoreLate => "the upstream stopped in the middle of its answer.",
            Self::Closed | Self::Stale => "the upstream closed the connection without an answer.",
            Self::Malformed(_) => "the upstream's answer can't be understood.",
            Self::ClientBody => "the request's body did not arrive.",
            Self::ClientLate => "the request's body came too slowly.",
        }
    }

    /// Returns whether the failure counts against the upstream's health.
    pub(super) fn is_the_upstream_s(&self) -> bool {
        let is_ours = matches!(
            self,
            Self::Exhausted(_)
                | Self::NoLocalAddress(_)
                | Self::Busy
                | Self::NoRoom
                | Self::ManyUploads
        );
        !is_ours && !matches!(self, Self::Stale) && !self.is_the_client_s()
    }

    /// Returns whether the request's body failed, so that the rest of it will not be read.
    pub(super) fn is_the_client_s(&self) -> bool {
        matches!(self, Self::ClientBody | Self::ClientLate)
    }

    /// Returns whether the same request may be sent again, to another upstream or on a new connection.
    ///
    /// A request of which no byte was sent may be; one that an upstream may have executed only if its method is
    /// idempotent (RFC 9110, section 9.2.2) and no byte of a response has come. Neither may be if part of its body is
    /// gone.
    pub(super) fn may_retry(&self, method: &Method, sent: Sent) -> bool {
        match self {
            Self::Exhausted(_)
            | Self::NoLocalAddress(_)
            | Self::NoRoom
            | Self::ManyUploads
            | Self::ClientBody
            | Self::ClientLate => false,
            // The body cannot be sent again, or an answer has begun that the client may have seen.
            _ if sent.body || sent.answered => false,
            _ => !sent.any || is_idempotent(method),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(error) => write!(f, "cannot connect: {error}"),
            Self::ConnectLate => f.write_str("no connection in time"),
            Self::Exhausted(error) => write!(f, "no descriptors or memory: {error}"),
            Self::NoLocalAddress(error) => write!(f, "no local address or port: {error}"),
            Self::Busy => f.write_str("the limit of requests to an upstream is reached"),
            Self::NoRoom => f.write_str("the limit of connections to all upstreams is reached"),
            Self::ManyUploads => f.write_str("the limit of uploads in progress is reached"),
            Self::SendLate => f.write_str("the upstream did not accept the request in time"),
            Self::FirstByteLate => f.write_str("no response in time"),
            Self::MoreLate => f.write_str("the response stopped for too long"),
            Self::Closed => f.write_str("connection closed before a response"),
            Self::Stale => f.write_str("a kept connection was closed"),
            Self::Malformed(reason) => write!(f, "malformed response: {reason}"),
            Self::ClientBody => f.write_str("the client's body did not arrive"),
            Self::ClientLate => f.write_str("the client's body came too slowly"),
        }
    }
}

/// Returns whether repeating a request with this method is as good as sending it once (RFC 9110, section 9.2.2).
fn is_idempotent(method: &Method) -> bool {
    matches!(
        *method,
        Method::GET | Method::HEAD | Method::OPTIONS | Method::PUT | Method::DELETE | Method::TRACE
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Sent = Sent {
        any: false,
        body: false,
        answered: false,
    };

    #[test]
    fn what_may_be_tried_again() {
        let sent = Sent {
            any: true,
            ..NOTHING
        };
        let refused = || Failure::Connect(io::ErrorKind::ConnectionRefused.into());
        for (failure, method, sent, again) in [
            (refused(), Method::POST, NOTHING, true),
            (Failure::ConnectLate, Method::POST, NOTHING, true),
            (Failure::Stale, Method::POST, NOTHING, true),
            (Failure::Stale, Method::POST, sent, false),
            (Failure::Stale, Method::PUT, sent, true),
            (Failure::Closed, Method::GET, sent, true),
            (Failure::FirstByteLate, Method::DELETE, sent, true),
            (
                Failure::Closed,
                Method::GET,
                Sent { body: true, ..sent },
                false,
            ),
            (
                Failure::MoreLate,
                Method::GET,
                Sent {
                    answered: true,
                    ..sent
                },
                false,
            ),
            (Failure::ClientBody, Method::GET, NOTHING, false),
            (Failure::ClientLate, Method::GET, NOTHING, false),
            (Failure::Busy, Method::POST, NOTHING, true),
            (Failure::NoRoom, Method::GET, NOTHING, false),
            (Failure::ManyUploads, Method::PUT, NOTHING, false),
            (Failure::Closed, Method::PATCH, sent, false),
        ] {
            assert_eq!(
                failure.may_retry(&method, sent),
                again,
                "{failure} {method}"
            );
        }
    }

    /// A name has addresses of IPv6 also for machines that do not use it.
    #[test]
    fn an_unusable_address_hides_no_failure_of_another() {
        let refused = || Failure::Connect(io::ErrorKind::ConnectionRefused.into());
        let late = || Failure::ConnectLate;
        let unusable = || Failure::NoLocalAddress(io::ErrorKind::AddrNotAvailable.into());
        for (failures, status) in [
            ([refused(), unusable()], 502),
            ([unusable(), refused()], 502),
            ([late(), unusable()], 504),
            ([unusable(), late()], 504),
            ([refused(), late()], 504),
            ([unusable(), unusable()], 503),
        ] {
            let join = |before, failure: Failure| Some(failure.after(before));
            let failure = failures.into_iter().fold(None, join).unwrap();
            assert_eq!(failure.status(), status, "{failure}");
            assert_eq!(failure.is_the_upstream_s(), status != 503, "{failure}");
        }
    }

    #[test]
    fn clients_learn_a_status_and_a_sentence() {
        for (failure, status) in [
            (Failure::Closed, 502),
            (Failure::FirstByteLate, 504),
            (Failure::Busy, 503),
            (Failure::NoRoom, 503),
            (Failure::ManyUploads, 503),
            (Failure::ClientBody, 400),
            (Failure::ClientLate, 408),
        ] {
            assert_eq!(failure.status(), status);
            assert!(failure.sentence().ends_with('.'));
        }
    }
}
