//! Closed-loop clients: `wrk` if it is installed, otherwise a simple loop in this process.
//!
//! Both keep a number of requests outstanding, each on a separate connection, until they are stopped.

mod own;
mod wrk;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

pub(super) use own::request;
pub use own::response_bytes;

/// A generator of closed-loop load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// The program `wrk`, with one thread.
    Wrk,
    /// Clients in this process, which do not check the responses.
    Own,
}

/// The requests to send.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The server's address.
    pub address: SocketAddr,
    /// The path to request.
    pub path: &'a str,
    /// Requests outstanding at a time.
    pub connections: usize,
    /// Whether a connection carries request after request; otherwise each request opens one.
    pub keep_alive: bool,
}

/// The results of a load.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Bytes of responses, including those that were incomplete at the end.
    pub bytes: u64,
    /// The duration of the load.
    pub elapsed: Duration,
    /// The time within which half of the responses were complete, if measured.
    pub p50: Option<Duration>,
    /// The time within which 99 % of the responses were complete, if measured.
    pub p99: Option<Duration>,
    /// Connections that were refused or failed, and responses that took more than 2 seconds.
    pub errors: u64,
}

/// Returns whether an error of a load means that the server did not answer the first request, in time or at all,
/// although it listens.
pub fn is_unanswered(error: &io::Error) -> bool {
    use io::ErrorKind::{
        BrokenPipe, ConnectionAborted, ConnectionReset, TimedOut, UnexpectedEof, WouldBlock,
    };
    // A read that times out fails with WouldBlock.
    matches!(
        error.kind(),
        TimedOut | WouldBlock | ConnectionReset | ConnectionAborted | BrokenPipe | UnexpectedEof
    )
}

impl Load {
    /// Returns `wrk` if it is installed.
    pub fn detect() -> Self {
        if wrk::is_installed() {
            Self::Wrk
        } else {
            Self::Own
        }
    }

    /// Sends requests until `over` returns true, which is called for the first time when a connection is open.
    ///
    /// # Errors
    /// The server does not listen, does not answer ([`is_unanswered`]), or answers with another status than 200.
    pub fn run(self, target: &Target<'_>, over: impl Fn() -> bool) -> io::Result<Outcome> {
        match self {
            Self::Wrk => wrk::run(target, over),
            Self::Own => own::run(target, over),
        }
    }

    /// Returns the note on the generator for a report.
    pub fn note(self) -> &'static str {
        match self {
            Self::Wrk => "the load is wrk's, with one thread",
            Self::Own => {
                "wrk is not installed (Debian's package wrk): the load is made by clients in this process"
            }
        }
    }
}
