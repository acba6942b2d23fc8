//! The reasons why a server does not start.

use std::fmt;
use std::io;
use std::path::PathBuf;

use softclock::Rate;
use softclock::net::stack::StackError;

use crate::net::address::{ListenAddress, Place};
use crate::net::tls::TlsError;
use crate::proxy::url::UpstreamUrl;
use crate::site::error_page::ErrorPage;

/// The reason why a server did not start. Displays as one line that starts with `cannot` and suggests a remedy.
///
/// ```
/// use softclock_http::{Site, StartError};
///
/// let error = Site::directory("/no/such/directory").unwrap_err();
/// assert!(matches!(error, StartError::Directory(..)));
/// assert!(error.to_string().starts_with("cannot serve /no/such/directory: no such directory"));
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// The directory of the site cannot be opened.
    Directory(PathBuf, io::Error),
    /// Listening on the address failed: the port is taken, the address is not local, or a permission is missing.
    Listen(ListenAddress, io::Error),
    /// A runtime, or a thread for one, could not be created.
    Runtime(io::Error),
    /// The server's own network stack cannot be opened.
    Stack(StackError),
    /// The access log cannot be opened for writing.
    AccessLog(PathBuf, io::Error),
    /// The certificate or its key cannot be used.
    Tls(TlsError),
    /// The address speaks TLS, but the settings have no certificate.
    NoCertificate(ListenAddress),
    /// The settings have a certificate, but no address speaks TLS.
    UnusedCertificate,
    /// The file of an error page cannot be read.
    ErrorPage(ErrorPage, io::Error),
    /// The address is one for metrics, which are served without TLS only.
    PlainOnly(ListenAddress),
    /// The address for metrics is one of the server's own stack, and the server has several threads: they divide the
    /// connections of the stack, but one thread serves metrics.
    DividedMetrics(ListenAddress),
    /// The burst rate is below the rate, so that a connection that has fallen behind could not catch up.
    SlowBurst {
        /// The rate of a connection that catches up ([`Pace::burst`](crate::Pace::burst)).
        burst: Rate,
        /// The rate of a connection ([`Pace::rate`](crate::Pace::rate)).
        rate: Rate,
    },
    /// The address occurs twice among those to listen on.
    Repeated(ListenAddress),
    /// The proxy has no upstreams.
    NoUpstream,
    /// The name of the upstream cannot be resolved.
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
            Self::Stack(error) => write!(f, "cannot open the stack: {error}"),
            Self::AccessLog(path, error) => {
                write!(f, "cannot write the access log {}: ", path.display())?;
                explain_log(f, error)
            }
            Self::Tls(error) => error.fmt(f),
            Self::NoCertificate(address) => {
                write!(f, "cannot listen on {address}: TLS needs a certificate")
            }
            Self::UnusedCertificate => {
                f.write_str("cannot use the certificate: no address speaks TLS")
            }
            Self::ErrorPage(page, error) => {
                write!(f, "cannot show the error page {page}: ")?;
                explain_page(f, error)
            }
            Self::PlainOnly(address) => write!(
                f,
                "cannot listen on {address}: metrics are served without TLS; leave out tls:"
            ),
            Self::DividedMetrics(address) => write!(
                f,
                "cannot listen on {address}: metrics of several threads need an address of the host, such as \
                 127.0.0.1:9180"
            ),
            Self::SlowBurst { burst, rate } => write!(
                f,
                "cannot pace: the burst rate {burst} is less than the rate {rate}; leave it out for twice as much"
            ),
            Self::Repeated(address) => {
                write!(
                    f,
                    "cannot listen on {address}: it is given twice; leave one out"
                )
            }
            Self::NoUpstream => f.write_str("cannot pass requests on: no upstream is given"),
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
            Self::Stack(error) => Some(error),
            Self::Tls(error) => Some(error),
            Self::NoCertificate(_)
            | Self::UnusedCertificate
            | Self::PlainOnly(_)
            | Self::DividedMetrics(_)
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
            "the port is taken; stop its owner (ss -ltnp names it), or choose another: port 0 takes any free one",
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
            "another server uses the path, or it is not a socket; stop that server, or choose another path",
        ),
        io::ErrorKind::NotFound => f.write_str("no such directory; create it first"),
        io::ErrorKind::PermissionDenied => {
            f.write_str("permission denied; let this user write its directory")
        }
        _ => write!(f, "{error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::pace::Pace;

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
                StartError::DividedMetrics(address.clone()),
                StartError::SlowBurst {
                    burst: Pace::LEAST,
                    rate: Pace::LEAST,
                },
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
