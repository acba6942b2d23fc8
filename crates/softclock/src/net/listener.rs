//! Accepting TCP connections.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};

use softclock_linux::socket;
use softclock_linux::socket::tcp::ListenOptions;

use super::TcpStream;
use super::carrier::ListenerIo;

/// A TCP socket that accepts connections.
pub struct TcpListener {
    io: ListenerIo,
}

impl TcpListener {
    /// Listens on `address` with the default options; port 0 lets the kernel choose.
    ///
    /// # Errors
    /// Those of `socket(2)`, `bind(2)` (address in use, no permission) and `listen(2)`; outside a runtime.
    pub fn bind(address: impl Into<SocketAddr>) -> io::Result<Self> {
        Self::bind_with(address, &ListenOptions::default())
    }

    /// Listens on `address`.
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    pub fn bind_with(address: impl Into<SocketAddr>, options: &ListenOptions) -> io::Result<Self> {
        Ok(Self {
            io: ListenerIo::bind(address.into(), options)?,
        })
    }

    /// Takes over a listener that was bound elsewhere: on another thread, or by the service manager.
    ///
    /// # Errors
    /// When the descriptor cannot be watched; outside a runtime.
    pub fn from_std(listener: std::net::TcpListener) -> io::Result<Self> {
        Ok(Self {
            io: ListenerIo::from_std(listener)?,
        })
    }

    /// Waits for a connection and accepts it.
    ///
    /// # Errors
    /// Those of `accept(2)`. A connection that ended before it was accepted (`ECONNABORTED`) and a lack of
    /// descriptors (`EMFILE`, `ENFILE`) concern one connection or a moment, not the listener: wait a little
    /// and go on.
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        poll_fn(|cx| self.poll_accept(cx)).await
    }

    /// As [`accept`](Self::accept), for futures written by hand.
    ///
    /// # Errors
    /// As [`accept`](Self::accept).
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
        let accepted = self.io.poll_accept(cx);
        accepted.map_ok(|(stream, peer)| (TcpStream::new(stream), peer))
    }

    /// The address listened on, with the port that was chosen.
    ///
    /// # Errors
    /// Those of `getsockname(2)`.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.io.local_addr()
    }
}

/// Binds without a runtime, for [`TcpListener::from_std`] on whatever thread.
///
/// # Errors
/// As [`TcpListener::bind`].
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
