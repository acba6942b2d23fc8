//! What asks a server for files: `wrk` where it is installed, else a few dozen lines of our own.
//!
//! Both keep so many requests outstanding, each on a connection of its own, for as long as they are told to.

mod own;
mod wrk;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

pub use own::response_bytes;

/// Who makes the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// The program `wrk`, with one thread.
    Wrk,
    /// Clients in this process, which do not look at the responses.
    Own,
}

/// What is asked for, and how.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The server's.
    pub address: SocketAddr,
    /// The file's.
    pub path: &'a str,
    /// Requests outstanding at a time.
    pub connections: usize,
    /// Whether a connection carries request after request; else each has one of its own.
    pub keep_alive: bool,
}

/// What came of it.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Bytes of responses, those that were not complete at the end included.
    pub bytes: u64,
    /// For how long.
    pub elapsed: Duration,
    /// 99 % of the responses were complete within this time, if that was measured.
    pub p99: Option<Duration>,
    /// Connections that were refused or broke, and responses that took more than 2 seconds.
    pub errors: u64,
}

impl Load {
    /// `wrk`, if it is there.
    pub fn detect() -> Self {
        if wrk::is_installed() {
            Self::Wrk
        } else {
            Self::Own
        }
    }

    /// Asks until it is over.
    ///
    /// # Errors
    /// A server that does not listen, or refuses what it is asked for.
    pub fn run(self, target: &Target<'_>, over: impl Fn() -> bool) -> io::Result<Outcome> {
        match self {
            Self::Wrk => wrk::run(target, over),
            Self::Own => own::run(target, over),
        }
    }

    /// For a report's notes.
    pub fn note(self) -> &'static str {
        match self {
            Self::Wrk => "the load is wrk's, with one thread",
            Self::Own => {
                "wrk is not installed (Debian's package wrk): the load is made by clients in this process"
            }
        }
    }
}
