//! Refused requests and their error pages.

use std::io;

use bytes::Bytes;
use http::header::{
    ALLOW, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, HeaderValue, RETRY_AFTER, SERVER, VARY,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{Response, StatusCode};
use softclock::fs::Failure;

use crate::site::body::Body;
use crate::syntax::path::PathError;
use crate::syntax::range;

/// The reason why a request gets an error page.
///
/// ```
/// use softclock_http::Refusal;
/// use std::fs::File;
///
/// let error = File::open("/no/such/file").unwrap_err();
/// assert_eq!(Refusal::of_file_error(&error).into_response().status(), 404);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The path is malformed or deceptive.
    BadPath,
    /// The request does not have exactly one Host, as HTTP/1.1 requires.
    BadHost,
    /// The file may not be read, is outside the root, or is not a regular file.
    Forbidden,
    /// No file exists at the path.
    NotFound,
    /// The method is not GET, HEAD or OPTIONS.
    MethodNotAllowed,
    /// Accept-Encoding excludes all available codings.
    NotAcceptable,
    /// The condition of If-Match or If-Unmodified-Since is false.
    PreconditionFailed,
    /// No requested range lies within the file, which has this length.
    RangeNotSatisfiable(u64),
    /// Descriptors or memory ran out, or the file changed while it was read.
    Unavailable,
    /// Reading from the disk failed.
    Internal,
}

impl Refusal {
    /// Returns the refusal for an error of the file system, by its error number. An error without one is
    /// [`Internal`](Self::Internal), except `UnexpectedEof`, which means that the file has shrunk.
    pub fn of_file_error(error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::UnexpectedEof {
            return Self::Unavailable;
        }
        match Failure::of(error) {
            Failure::Missing => Self::NotFound,
            Failure::Forbidden => Self::Forbidden,
            Failure::Exhausted => Self::Unavailable,
            _ => Self::Internal,
        }
    }

    /// Returns the error page as a response.
    pub fn into_response(self) -> Response<Body> {
        let (status, sentence) = self.words();
        let mut response = Self::page(status, sentence);
        let headers = response.headers_mut();
        match self {
            Self::MethodNotAllowed => {
                headers.insert(ALLOW, HeaderValue::from_static(ALLOWED_METHODS));
            }
            Self::Unavailable => {
                headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
            }
            Self::NotAcceptable => {
                headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
            }
            Self::RangeNotSatisfiable(length) => {
                let range = HeaderValue::from_str(&range::unsatisfied_content_range(length));
                headers.insert(CONTENT_RANGE, range.expect("ASCII"));
            }
            _ => {}
        }
        response
    }

    /// Returns a small plain-text page.
    pub(crate) fn page(status: StatusCode, sentence: &str) -> Response<Body> {
        let page = Bytes::from(format!("{status}: {sentence}\n"));
        let length = HeaderValue::from(page.len());
        let mut response = Response::new(Body::Bytes(page));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("text/plain; charset=utf-8"),
        );
        headers.insert(CONTENT_LENGTH, length);
        response
    }

    const fn words(self) -> (StatusCode, &'static str) {
        match self {
            Self::BadPath => (StatusCode::BAD_REQUEST, "the path is invalid."),
            Self::BadHost => (StatusCode::BAD_REQUEST, "a request needs one Host field."),
            Self::Forbidden => (StatusCode::FORBIDDEN, "this may not be read."),
            Self::NotFound => (StatusCode::NOT_FOUND, "nothing is here."),
            Self::MethodNotAllowed => (
                StatusCode::METHOD_NOT_ALLOWED,
                "files can only be read (GET, HEAD).",
            ),
            Self::NotAcceptable => (
                StatusCode::NOT_ACCEPTABLE,
                "the request refuses all encodings of this file.",
            ),
            Self::PreconditionFailed => (
                StatusCode::PRECONDITION_FAILED,
                "a condition of the request does not hold.",
            ),
            Self::RangeNotSatisfiable(_) => (
                StatusCode::RANGE_NOT_SATISFIABLE,
                "the file ends before that part.",
            ),
            Self::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, "try again in a moment."),
            Self::Internal => (StatusCode::INTERNAL_SERVER_ERROR, "the file can't be read."),
        }
    }
}

impl From<PathError> for Refusal {
    fn from(error: PathError) -> Self {
        match error {
            PathError::Malformed => Self::BadPath,
            // The same as for a missing file, so that clients cannot find out whether a hidden file exists.
            PathError::Hidden => Self::NotFound,
        }
    }
}

/// Returns a small page that is not part of a site; without its content if the request `is_head`.
pub(crate) fn own_page(status: StatusCode, sentence: &str, is_head: bool) -> Response<Body> {
    let mut response = Refusal::page(status, sentence);
    let headers = response.headers_mut();
    headers.insert(SERVER, HeaderValue::from_static("softclock"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if status == StatusCode::SERVICE_UNAVAILABLE {
        headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    match is_head {
        true => response.map(|_| Body::empty()),
        false => response,
    }
}

/// The value of Allow.
pub(crate) const ALLOWED_METHODS: &str = "GET, HEAD, OPTIONS";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_the_file_system_does_not_accept_are_not_found() {
        use rustix::io::Errno;
        for error in [Errno::INVAL, Errno::ILSEQ, Errno::NAMETOOLONG] {
            let error = io::Error::from_raw_os_error(error.raw_os_error());
            assert_eq!(Refusal::of_file_error(&error), Refusal::NotFound, "{error}");
        }
    }

    #[test]
    fn pages_say_what_they_are() {
        let response = Refusal::RangeNotSatisfiable(7).into_response();
        assert_eq!(response.status(), 416);
        assert_eq!(response.headers()[CONTENT_RANGE], "bytes */7");
        let Body::Bytes(page) = response.body() else {
            panic!("a page is in memory")
        };
        assert!(page.starts_with(b"416 Range Not Satisfiable: "));
        assert_eq!(
            Refusal::MethodNotAllowed.into_response().headers()[ALLOW],
            ALLOWED_METHODS
        );
    }
}
