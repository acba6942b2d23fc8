//! Adds advice to start errors: the flags that avoid them.

use std::fmt;

use crate::options::{contradiction, not_captured};
use softclock::net::stack::StackError;
use softclock_http::StartError;

/// Displays a start error on one line, with advice.
pub(super) struct Advised<'a>(pub(super) &'a StartError);

impl fmt::Display for Advised<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            error @ StartError::NoCertificate(_) => {
                write!(f, "{error}; give --tls-cert FILE and --tls-key FILE")
            }
            error @ StartError::UnusedCertificate => write!(
                f,
                "{error}; write tls: before one, such as --listen tls::443, or leave out --tls-cert and --tls-key"
            ),
            StartError::SlowBurst { burst, rate } => write!(
                f,
                "--pace-burst {burst} is less than --pace {rate}; leave it out for twice --pace"
            ),
            error @ StartError::Stack(StackError::NoAddress) => {
                write!(f, "{error}; give --address A/PREFIX with --dev")
            }
            error @ StartError::Stack(StackError::HostNeedsXdp) => {
                write!(
                    f,
                    "{error}; leave out --mechanism, and name an existing interface"
                )
            }
            error @ StartError::Stack(StackError::HostAndOwn) => write!(
                f,
                "{error}; give --address host alone, without --link-address"
            ),
            error @ StartError::Stack(StackError::NoHostPort) => {
                write!(
                    f,
                    "{error}; give --listen with an address of the interface, or :PORT"
                )
            }
            error @ StartError::Stack(StackError::Tcp(setting)) => match contradiction(setting) {
                Some(text) => write!(f, "cannot open the stack: {text}"),
                None => error.fmt(f),
            },
            StartError::Stack(StackError::Capture(path, error)) => {
                f.write_str(&not_captured(path, error))
            }
            StartError::NoUpstream => {
                f.write_str("cannot pass requests on: give --upstream http://HOST:PORT")
            }
            error => error.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_stays_on_one_line_and_names_flags() {
        for (error, flag) in [
            (
                StartError::NoCertificate("tls::1".parse().unwrap()),
                "--tls-cert FILE",
            ),
            (StartError::UnusedCertificate, "--listen tls::443"),
            (StartError::NoUpstream, "--upstream http://HOST:PORT"),
        ] {
            let line = Advised(&error).to_string();
            assert!(
                line.starts_with("cannot ") && line.contains(flag) && !line.contains('\n'),
                "{line}"
            );
        }
    }
}
