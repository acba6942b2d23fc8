//! Listeners for TCP connections.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::task::{Context, Poll};

use softclock_linux::socket;
use softclock_linux::socket::tcp::ListenOptions;

use super::carrier::ListenerIo;
use super::kernel::Kernel;
use super::{IntoStdError, TcpStream};

/// A TCP socket that accepts connections.
///
/// # Example
/// An echo server for one connection, and its client:
/// ```
/// use softclock::net::{TcpListener, TcpStream};
///
/// # fn main() -> std::io::Result<()> {
/// softclock::Runtime::new()?.block_on(async {
///     let listener = TcpListener::bind(([127, 0, 0, 1], 0))?;
///     let address = listener.local_addr()?;
///     let server = softclock::spawn_local(async move {
///         let (stream, peer) = listener.accept().await?;
///         assert!(peer.ip().is_loopback());
///         let mut buffer = [0; 1024];
///         let length = stream.read(&mut buffer).await?;
///         stream.write_all(&buffer[..length]).await
///     });
///     let client = TcpStream::connect(address).await?;
///     client.write_all(b"hello").await?;
///     let mut answer = [0; 5];
///     client.read_exact(&mut answer).await?;
///     assert_eq!(&answer, b"hello");
///     server.await
/// })
/// # }
/// ```
pub struct TcpListener {
    io: ListenerIo,
}

impl TcpListener {
    /// Listens on `address` with the default options. With port 0 the kernel selects a port.
    ///
    /// # Errors
    /// Those of `socket(2)`, `bind(2)` (address in use, no permission) and `listen(2)`. Fails outside a runtime.
    pub fn bind(address: impl Into<SocketAddr>) -> io::Result<Self> {
        Self::bind_with(address, &ListenOptions::default())
    }

    /// Listens on `address` with `options`, for example to share the port with other threads.
    ///
    /// # Errors
    /// As for [`bind`](Self::bind).
    pub fn bind_with(address: impl Into<SocketAddr>, options: &ListenOptions) -> io::Result<Self> {
        Ok(Self {
            io: ListenerIo::bind(address.into(), options)?,
        })
    }

    /// Takes over a listener that was bound elsewhere: on another thread, or by the service manager. Makes its
    /// descriptor nonblocking.
    ///
    /// # Errors
    /// If the runtime cannot watch the descriptor. Fails outside a runtime.
    pub fn from_std(listener: std::net::TcpListener) -> io::Result<Self> {
        Ok(Self {
            io: ListenerIo::from_std(listener)?,
        })
    }

    /// Returns the listener as one of the standard library. Its descriptor stays nonblocking:
    /// [`set_nonblocking`](std::net::TcpListener::set_nonblocking) changes that.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] for a listener of a [stack](crate::net::stack). The error has the listener.
    pub fn into_std(self) -> Result<std::net::TcpListener, IntoStdError<Self>> {
        if self.io.as_kernel().is_none() {
            return Err(IntoStdError::not_kernel(self));
        }
        let kernel = self.io.into_kernel().expect("it is one, as was just seen");
        Ok(kernel.into_descriptor().into())
    }

    /// Returns the kernel's descriptor, such as for options that this type does not have; `None` for a listener of a
    /// [stack](crate::net::stack). Connections inherit most options of their listener.
    ///
    /// Do not accept by it, or make it blocking: the runtime does not see that.
    pub fn as_kernel_fd(&self) -> Option<BorrowedFd<'_>> {
        self.io.as_kernel().map(Kernel::lend)
    }

    /// Waits for a connection and accepts it.
    ///
    /// # Cancel safety
    /// Cancel-safe: a dropped future has accepted no connection.
    ///
    /// # Errors
    /// Those of `accept(2)`. A connection that ended before it was accepted (`ECONNABORTED`) and a lack of
    /// descriptors (`EMFILE`, `ENFILE`) do not affect the listener: wait a little and continue.
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        poll_fn(|cx| self.poll_accept(cx)).await
    }

    /// Like [`accept`](Self::accept), for hand-written futures.
    ///
    /// # Errors
    /// As for [`accept`](Self::accept).
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
        let accepted = self.io.poll_accept(cx);
        accepted.map_ok(|(stream, peer)| (TcpStream::new(stream), peer))
    }

    /// Returns the local address, with the port that the kernel selected.
    ///
    /// # Errors
    /// Those of `getsockname(2)`.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.io.local_addr()
    }
}

/// Binds a listener without a runtime, to be passed to [`TcpListener::from_std`] on another thread.
///
/// # Errors
/// As for [`TcpListener::bind`].
pub fn bind_tcp(address: SocketAddr, options: &ListenOptions) -> io::Result<std::net::TcpListener> {
    Ok(socket::tcp::listen(address, options)?.into())
}

impl fmt::Debug for TcpListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpListener")
            .field("local_addr", &self.local_addr().ok())
            .finish()
    }
}
