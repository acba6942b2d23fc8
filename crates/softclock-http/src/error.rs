//! Why a server does not start.

use std::fmt;
use std::io;
use std::path::PathBuf;

use softclock::Rate;

use crate::net::address::{ListenAddress, Place};
use crate::net::tls::TlsError;
use crate::proxy::url::UpstreamUrl;
use crate::site::error_page::ErrorPage;

/// Why a server did not start; displayed as one line.
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
                "cannot listen on {address}: metrics are told without TLS; leave out tls:"
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
            Self::NoUpstream => f.write_str("cannot pass requests on: there is no upstream"),
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
            "somebody answers there, or it is no socket; stop its owner, or choose another path",
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
