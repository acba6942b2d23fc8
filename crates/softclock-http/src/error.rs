//! What can go wrong: requests that are refused, and servers that can't start.

use std::fmt;
use std::io;
use std::path::PathBuf;

use bytes::Bytes;
use http::header::{
    ALLOW, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, HeaderValue, RETRY_AFTER, VARY,
};
use http::{Response, StatusCode};
use softclock::Rate;
use softclock::fs::Failure;

use crate::net::address::{ListenAddress, Place};
use crate::net::tls::TlsError;
use crate::proxy::UpstreamUrl;
use crate::site::body::Body;
use crate::site::error_page::ErrorPage;
use crate::syntax::path::PathError;
use crate::syntax::range;

/// Why a request gets an error page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The path is malformed or deceptive.
    BadPath,
    /// HTTP/1.1 asks for exactly one Host.
    BadHost,
    /// No permission, outside the root, or no regular file.
    Forbidden,
    /// Nothing here.
    NotFound,
    /// Neither GET, HEAD nor OPTIONS.
    MethodNotAllowed,
    /// Accept-Encoding refuses all there is.
    NotAcceptable,
    /// If-Match or If-Unmodified-Since does not hold.
    PreconditionFailed,
    /// The file, of this length, has no such part.
    RangeNotSatisfiable(u64),
    /// Descriptors or memory ran out, or the file changed while it was read.
    Unavailable,
    /// The disk failed.
    Internal,
}

impl Refusal {
    /// The refusal that an error of the file system calls for.
    pub fn of_file_error(error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::UnexpectedEof {
            return Self::Unavailable;
        }
        match Failure::of(error) {
            Failure::Missing => Self::NotFound,
            Failure::Forbidden => Self::Forbidden,
            Failure::Exhausted => Self::Unavailable,
            Failure::Broken => Self::Internal,
        }
    }

    /// The error page.
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

    /// A small plain page.
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
            Self::BadPath => (StatusCode::BAD_REQUEST, "this path can't be understood."),
            Self::BadHost => (StatusCode::BAD_REQUEST, "a request needs one Host field."),
            Self::Forbidden => (StatusCode::FORBIDDEN, "this may not be read."),
            Self::NotFound => (StatusCode::NOT_FOUND, "nothing is here."),
            Self::MethodNotAllowed => (
                StatusCode::METHOD_NOT_ALLOWED,
                "files can only be read (GET, HEAD).",
            ),
            Self::NotAcceptable => (
                StatusCode::NOT_ACCEPTABLE,
                "this is there in other encodings only.",
            ),
            Self::PreconditionFailed => (
                StatusCode::PRECONDITION_FAILED,
                "the file is not in the state you asked for.",
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
            // As if it did not exist: whether it does is nobody's business.
            PathError::Hidden => Self::NotFound,
        }
    }
}

/// Why a server did not start; displayed as one line that says what to do.
#[derive(Debug)]
pub enum StartError {
    /// The directory can't be served.
    Directory(PathBuf, io::Error),
    /// The address can't be listened on.
    Listen(ListenAddress, io::Error),
    /// No runtime, or no thread for one.
    Runtime(io::Error),
    /// The access log can't be written.
    AccessLog(PathBuf, io::Error),
    /// No certificate, or not its key.
    Tls(TlsError),
    /// An address speaks TLS, but there is no certificate.
    NoCertificate(ListenAddress),
    /// There is a certificate, but no address speaks TLS.
    UnusedCertificate,
    /// The file of an error page can't be read.
    ErrorPage(ErrorPage, io::Error),
    /// This address can't speak TLS.
    PlainOnly(ListenAddress),
    /// Connections would catch up at less than their rate.
    SlowBurst {
        /// The rate at which they would.
        burst: Rate,
        /// Theirs.
        rate: Rate,
    },
    /// An address stands twice among those to listen on.
    Repeated(ListenAddress),
    /// A proxy without upstreams.
    NoUpstream,
    /// The upstream's name can't be resolved.
    Upstream(UpstreamUrl, io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory(path, error) => {
                write!(f, "cannot serve {}: ", path.display())?;
                explain_directory(f, error)
            }
            Self::Listen(address, error) => {
                write!(f, "cannot listen on {address}: ")?;
                match address.place {
                    Place::Unix(_) => explain_unix(f, error),
                    _ => explain_listen(f, error),
                }
            }
            Self::Runtime(error) => write!(f, "cannot start the runtime: {error}"),
            Self::AccessLog(path, error) => {
                write!(f, "cannot write the access log {}: ", path.display())?;
                explain_log(f, error)
            }
            Self::Tls(error) => error.fmt(f),
            Self::NoCertificate(address) => write!(
                f,
                "cannot listen on {address}: TLS needs a certificate; give --tls-cert FILE and --tls-key FILE"
            ),
            Self::UnusedCertificate => f.write_str(
                "cannot use the certificate: no address speaks TLS; write tls: before one, such as \
                 --listen tls::443, or leave out --tls-cert and --tls-key",
            ),
            Self::ErrorPage(page, error) => {
                write!(f, "cannot show the error page {page}: ")?;
                explain_page(f, error)
            }
            Self::PlainOnly(address) => write!(
                f,
                "cannot listen on {address}: metrics are told without TLS; leave out tls:"
            ),
            Self::SlowBurst { burst, rate } => write!(
                f,
                "--pace-burst {burst} is less than --pace {rate}; leave it out for twice as much"
            ),
            Self::Repeated(address) => {
                write!(
                    f,
                    "cannot listen on {address}: it is given twice; leave one out"
                )
            }
            Self::NoUpstream => {
                f.write_str("cannot pass requests on: give --upstream http://HOST:PORT")
            }
            Self::Upstream(url, error) => {
                write!(f, "cannot find the upstream {url}: {error}")
            }
        }
    }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Directory(_, error)
            | Self::Listen(_, error)
            | Self::Runtime(error)
            | Self::AccessLog(_, error)
            | Self::ErrorPage(_, error)
            | Self::Upstream(_, error) => Some(error),
            Self::Tls(error) => Some(error),
            Self::NoCertificate(_)
            | Self::UnusedCertificate
            | Self::PlainOnly(_)
            | Self::SlowBurst { .. }
            | Self::Repeated(_)
            | Self::NoUpstream => None,
        }
    }
}

fn explain_directory(f: &mut fmt::Formatter<'_>, error: &io::Error) -> fmt::Result {
    match error.kind() {
        io::ErrorKind::NotFound => {
            f.write_str("no such directory; check the name, or leave it out for the bundled site")
        }
        io::ErrorKind::NotADirectory => {
            f.write_str("not a directory; give the directory that holds the files")
        }
        io::ErrorKind::PermissionDenied => f.write_str(
            "permission denied; let this user read and enter it (chmod a+rx), or run as another",
        ),
        _ => write!(f, "{error}"),
    }
}

fn explain_page(f: &mut fmt::Formatter<'_>, error: &io::Error) -> fmt::Result {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => f.write_str(
            "no such file in the directory that is served; create it, or leave the page out",
        ),
        io::ErrorKind::PermissionDenied => {
            f.write_str("permission denied; let this user read it (chmod a+r)")
        }
        io::ErrorKind::IsADirectory => f.write_str("it is no regular file; name one"),
        io::ErrorKind::CrossesDevices => {
            f.write_str("it leads out of the directory that is served; put a copy there")
        }
        _ => write!(f, "{error}"),
    }
}

fn explain_log(f: &mut fmt::Formatter<'_>, error: &io::Error) -> fmt::Result {
    match error.kind() {
        io::ErrorKind::NotFound => f.write_str("no such directory; create it first"),
        io::ErrorKind::PermissionDenied => {
            f.write_str("permission denied; let this user write it, or choose another file")
        }
        io::ErrorKind::IsADirectory => f.write_str("it is a directory; name a file in it"),
        _ => write!(f, "{error}"),
    }
}

fn explain_listen(f: &mut fmt::Formatter<'_>, error: &io::Error) -> fmt::Result {
    match error.kind() {
        io::ErrorKind::AddrInUse => f.write_str(
            "the port is taken; stop its owner (ss -ltnp names it), or choose another: --listen :0 takes any free one",
        ),
        io::ErrorKind::AddrNotAvailable => {
            f.write_str("this machine has no such address; `ip address` lists those it has")
        }
        io::ErrorKind::PermissionDenied => f.write_str(
            "permission denied; ports below 1024 need CAP_NET_BIND_SERVICE, others do not",
        ),
        _ => write!(f, "{error}"),
    }
}

fn explain_unix(f: &mut fmt::Formatter<'_>, error: &io::Error) -> fmt::Result {
    match error.kind() {
        io::ErrorKind::AddrInUse => f.write_str(
            "somebody answers there, or it is no socket; stop its owner, or choose another path",
        ),
        io::ErrorKind::NotFound => f.write_str("no such directory; create it first"),
        io::ErrorKind::PermissionDenied => {
            f.write_str("permission denied; let this user write its directory")
        }
        _ => write!(f, "{error}"),
    }
}

/// The value of Allow.
pub(crate) const ALLOWED_METHODS: &str = "GET, HEAD, OPTIONS";

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn start_errors_are_one_line() {
        for kind in [
            io::ErrorKind::NotFound,
            io::ErrorKind::NotADirectory,
            io::ErrorKind::PermissionDenied,
            io::ErrorKind::AddrInUse,
            io::ErrorKind::AddrNotAvailable,
            io::ErrorKind::Other,
        ] {
            let address = ListenAddress::DEFAULT;
            for error in [
                StartError::Directory("/srv".into(), kind.into()),
                StartError::Listen(address.clone(), kind.into()),
                StartError::Runtime(kind.into()),
                StartError::AccessLog("/log".into(), kind.into()),
                StartError::NoCertificate(address.clone()),
                StartError::UnusedCertificate,
                StartError::ErrorPage("404=/e.html".parse().unwrap(), kind.into()),
                StartError::PlainOnly(address.clone()),
                StartError::Repeated(address),
                StartError::NoUpstream,
                StartError::Upstream("http://a".parse().unwrap(), kind.into()),
            ] {
                let line = error.to_string();
                assert!(
                    line.starts_with("cannot ") && !line.contains('\n'),
                    "{line}"
                );
            }
        }
    }
}
