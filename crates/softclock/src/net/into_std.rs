//! The error of turning a socket into one of the standard library.

use std::error::Error;
use std::fmt;
use std::io;

use super::options::unsupported;

/// The error of an `into_std`, with the socket unchanged.
///
/// # Example
/// ```
/// use softclock::net::UdpSocket;
///
/// # fn main() -> std::io::Result<()> {
/// softclock::Runtime::new()?.block_on(async {
///     let socket = UdpSocket::bind(([127, 0, 0, 1], 0))?;
///     match socket.into_std() {
///         Ok(socket) => socket.set_nonblocking(false)?,
///         // A socket of a stack in this process.
///         Err(error) => drop(error.into_socket()),
///     }
///     std::io::Result::Ok(())
/// })
/// # }
/// ```
pub struct IntoStdError<S> {
    /// On the heap, so that results of `into_std` are small.
    socket: Box<S>,
    error: io::Error,
}

impl<S> IntoStdError<S> {
    /// The error of a socket that is not the kernel's.
    pub(super) fn not_kernel(socket: S) -> Self {
        Self::new(socket, unsupported("descriptor"))
    }

    pub(super) fn new(socket: S, error: io::Error) -> Self {
        let socket = Box::new(socket);
        Self { socket, error }
    }

    /// Returns the socket, which is in use as before.
    pub fn into_socket(self) -> S {
        *self.socket
    }

    /// Returns the reason: [`io::ErrorKind::Unsupported`] for a socket that is not the kernel's, and
    /// [`io::ErrorKind::ResourceBusy`] for a stream with data that waits for its time.
    pub fn error(&self) -> &io::Error {
        &self.error
    }
}

impl<S> fmt::Debug for IntoStdError<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IntoStdError")
            .field("error", &self.error)
            .finish_non_exhaustive()
    }
}

impl<S> fmt::Display for IntoStdError<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.error, f)
    }
}

impl<S> Error for IntoStdError<S> {}

impl<S> From<IntoStdError<S>> for io::Error {
    fn from(error: IntoStdError<S>) -> Self {
        error.error
    }
}
