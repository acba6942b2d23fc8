//! Why there is no response of an upstream, what the client is told, and whether another try may help.

use std::fmt;
use std::io;

use http::{Method, StatusCode};

/// What went wrong with one try.
#[derive(Debug)]
pub(super) enum Failure {
    /// There is nobody, or nobody reachable.
    Connect(io::Error),
    /// No connection in time.
    ConnectLate,
    /// We are out of descriptors or memory.
    Exhausted(io::Error),
    /// All have as many connections as they may.
    Busy,
    /// All upstreams together have as many connections as they may.
    NoRoom,
    /// As many uploads are in progress as may be.
    ManyUploads,
    /// It takes nothing of the request.
    SendLate,
    /// It does not begin to answer.
    FirstByteLate,
    /// It has begun to answer, but does not go on.
    MoreLate,
    /// It closed the connection before it answered.
    Closed,
    /// A connection used before was closed; no byte of the response had come.
    Stale,
    /// What came is no response.
    Malformed(String),
    /// The client did not send what it promised.
    ClientBody,
    /// The client sends its body too slowly.
    ClientLate,
}

/// How much of a request an upstream may have seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Sent {
    /// Anything at all.
    pub(super) any: bool,
    /// More of its body than is kept for another try.
    pub(super) body: bool,
    /// Something of the response has come.
    pub(super) answered: bool,
}

impl Failure {
    /// The status of our own response.
    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::Exhausted(_) | Self::Busy | Self::NoRoom | Self::ManyUploads => {
                StatusCode::SERVICE_UNAVAILABLE
            }
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

    /// A sentence for the client: nothing that is not its business.
    pub(super) fn sentence(&self) -> &'static str {
        match self {
            Self::Connect(_) => "the upstream can't be reached.",
            Self::ConnectLate => "the upstream did not accept a connection in time.",
            Self::Exhausted(_) | Self::NoRoom => {
                "too much is going on here; try again in a moment."
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

    /// Whether it tells something about the upstream's health.
    pub(super) fn is_the_upstream_s(&self) -> bool {
        let is_ours = matches!(
            self,
            Self::Exhausted(_) | Self::Busy | Self::NoRoom | Self::ManyUploads
        );
        !is_ours && !matches!(self, Self::Stale) && !self.is_the_client_s()
    }

    /// Returns whether the request's body failed, so that the rest of it will not be read.
    pub(super) fn is_the_client_s(&self) -> bool {
        matches!(self, Self::ClientBody | Self::ClientLate)
    }

    /// Whether the same request may be sent again, elsewhere or on a fresh connection.
    ///
    /// What nobody has seen may be; what somebody may have acted on only if acting twice is as good as once (RFC 9110,
    /// section 9.2.2), and as long as it is unanswered; neither if too much of the body is gone.
    pub(super) fn may_retry(&self, method: &Method, sent: Sent) -> bool {
        match self {
            Self::Exhausted(_)
            | Self::NoRoom
            | Self::ManyUploads
            | Self::ClientBody
            | Self::ClientLate => false,
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
            Self::Busy => f.write_str("as many connections as it may have"),
            Self::NoRoom => f.write_str("as many connections to upstreams as there may be"),
            Self::ManyUploads => f.write_str("as many uploads in progress as there may be"),
            Self::SendLate => f.write_str("it took nothing of the request for too long"),
            Self::FirstByteLate => f.write_str("no response in time"),
            Self::MoreLate => f.write_str("the response did not go on in time"),
            Self::Closed => f.write_str("connection closed before a response"),
            Self::Stale => f.write_str("a connection kept was closed"),
            Self::Malformed(reason) => write!(f, "not a response: {reason}"),
            Self::ClientBody => f.write_str("the client's body did not arrive"),
            Self::ClientLate => f.write_str("the client's body came too slowly"),
        }
    }
}

/// RFC 9110, section 9.2.2.
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
