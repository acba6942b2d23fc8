//! The errors of `softclock echo`, each as one line for the user.

use std::fmt;

use softclock::net::stack::StackError;
use softclock_http::StartError;
use softclock_link::PortError;

use crate::bridge::port_error;
use crate::options::not_captured;

/// The reason why the server did not start or has ended, as one line.
#[derive(Debug)]
pub(crate) struct EchoError(pub(super) String);

impl fmt::Display for EchoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<StackError> for EchoError {
    fn from(error: StackError) -> Self {
        Self(match error {
            StackError::Find(interface, error) => port_error(PortError::Find { interface, error }),
            StackError::Claim(interface, error) => {
                port_error(PortError::Claim { interface, error })
            }
            StackError::Open(error) => port_error(PortError::Open(error)),
            StackError::Gone(interface) => port_error(PortError::Gone { interface }),
            StackError::HostAddress(address) => {
                format!("{address} is an address of this host; give the stack one that is free")
            }
            StackError::NeedsXdp => {
                "--architecture ni-lrp demultiplexes in an XDP program: give an existing interface to --dev, and xdp \
                 or nothing to --mechanism"
                    .into()
            }
            StackError::Capture(path, error) => not_captured(&path, &error),
            StackError::Routes(error) => format!("--address and --gateway: {error}"),
            other => other.to_string(),
        })
    }
}

/// An error of the metrics.
impl From<StartError> for EchoError {
    fn from(error: StartError) -> Self {
        Self(format!("--metrics: {error}"))
    }
}
