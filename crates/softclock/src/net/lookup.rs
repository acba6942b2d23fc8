//! Addresses of names.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};

/// Resolves a name and a port to addresses by the system's resolver (`getaddrinfo(3)`), on a helper thread as
/// [`spawn_blocking`](fn@crate::spawn_blocking) uses it. Accepts everything that the standard library resolves, such as
/// `"example.org:80"` and `(String, u16)`. Returns the addresses in the order in which they should be tried.
///
/// The resolver has time limits of its own, usually 5 seconds for each server in `/etc/resolv.conf` and each attempt.
/// Until then, a name whose servers do not answer occupies one of the 8 helper threads, which also read files. Works on
/// any executor, also outside a runtime.
///
/// # Errors
/// Those of the resolver: no such name, no answer. [`io::ErrorKind::InvalidInput`] if a text has no port.
///
/// # Cancel safety
/// If the future is dropped, the resolver ends its work on the helper thread and the result is discarded.
///
/// # Example
/// ```
/// use softclock::net::{TcpListener, TcpStream, lookup_host};
/// use std::io;
///
/// /// Connects to the first address of a name that answers.
/// async fn connect(name: &str, port: u16) -> io::Result<TcpStream> {
///     let mut last = io::ErrorKind::NotFound.into();
///     for address in lookup_host((name.to_owned(), port)).await? {
///         match TcpStream::connect(address).await {
///             Ok(stream) => return Ok(stream),
///             Err(error) => last = error,
///         }
///     }
///     Err(last)
/// }
///
/// # fn main() -> io::Result<()> {
/// softclock::Runtime::new()?.block_on(async {
///     let listener = TcpListener::bind(([127, 0, 0, 1], 0))?;
///     let port = listener.local_addr()?.port();
///     let stream = connect("localhost", port).await?;
///     assert_eq!(stream.peer_addr()?.port(), port);
///     io::Result::Ok(())
/// })
/// # }
/// ```
pub async fn lookup_host<N>(name: N) -> io::Result<impl Iterator<Item = SocketAddr> + use<N>>
where
    N: ToSocketAddrs + Send + 'static,
    N::Iter: Send,
{
    crate::spawn_blocking(move || name.to_socket_addrs()).await
}
