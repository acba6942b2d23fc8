//! Connections of TCP.
//!
//! The caller does the same as for datagrams: [`on_frame`](Stack::on_frame), [`process`](Stack::process),
//! [`on_timer`](Stack::on_timer) at [`next_timeout`](Stack::next_timeout), and [`next_frame`](Stack::next_frame) until it
//! returns `None`. Connections and listeners have these calls of their own:
//!
//! ```text
//! tcp_listen(local: SocketAddr, settings: ListenSettings) -> Result<TcpListenerId, BindError>
//! tcp_accept(now, TcpListenerId) -> Option<(TcpId, SocketAddr)>
//! tcp_close_listener(now, TcpListenerId)                 // resets the connections that were not accepted
//! tcp_connect(now, local: Option<SocketAddr>, remote: SocketAddr, settings: Option<tcp::settings::Settings>)
//!     -> Result<TcpId, BindError>                        // Settings as those of the stack unless given
//! tcp_process(now, TcpId)                                // does the protocol's work for the segments that wait
//! tcp_read(now, TcpId, &mut [u8]) -> Result<usize, TcpError>      // 0: the peer has closed its half
//! tcp_take(now, TcpId) -> Result<Option<TcpPayload<B>>, TcpError> // None: the peer has closed its half
//! tcp_write(now, TcpId, Bytes) -> Result<usize, TcpError>         // the bytes taken; the rest again later
//! tcp_shutdown_write(now, TcpId) -> Result<(), TcpError>          // FIN behind all bytes
//! tcp_close(now, TcpId)                                  // the owner is gone; the id is no longer valid
//! tcp_abort(now, TcpId)                                  // RST; the id is no longer valid
//! tcp_wait(now, TcpId, Interest) -> bool                 // true: tcp_next_woken will name it; false: ready already
//! tcp_wait_accept(TcpListenerId) -> bool
//! tcp_next_woken() -> Option<TcpWoken>                   // TcpWoken::{Connection(TcpId), Listener(TcpListenerId)}
//! tcp_readiness(TcpId) -> Interest                       // of what is processed: readable, writable
//! tcp_state(TcpId) -> Option<State>                      // tcp::state::State; TIME-WAIT also after tcp_close
//! tcp_take_error(TcpId) -> Option<tcp::connection::Error>
//! tcp_local(TcpId), tcp_remote(TcpId) -> Option<SocketAddr>; tcp_listener_local(TcpListenerId)
//! tcp_stats(TcpId) -> Option<ConnectionStats>; tcp_counts() -> &TcpCounts
//! tcp_set_pace(TcpId, bytes_per_second: Option<u64>)
//! tcp_change(TcpId, impl FnOnce(&mut tcp::settings::Settings))    // options of a socket: linger, keep-alive, Nagle, …
//! ```
//!
//! An error of a connection, such as a reset, is returned once, by the next read or write or by `tcp_take_error`.

use core::fmt;

use crate::tcp::connection::Error;

/// The number of a connection in its stack. The number of a closed connection is never used again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TcpId(pub(super) SlotId);

/// The number of a listener in its stack. The number of a closed listener is never used again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TcpListenerId(pub(super) SlotId);

/// What an owner waits for, or what a connection is ready for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Interest {
    /// Bytes, the end of the stream, or an error.
    pub readable: bool,
    /// Room for bytes, or an error. A connection that is being opened becomes writable when it is established.
    pub writable: bool,
}

/// The owner to wake: see [`Stack::tcp_next_woken`](super::Stack::tcp_next_woken).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TcpWoken {
    /// A connection is ready for what its owner waits for.
    Connection(TcpId),
    /// A listener has a connection to accept.
    Listener(TcpListenerId),
}

/// Why a read or a write does not succeed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum TcpError {
    /// There is nothing to read, or no room to write: wait for readiness. Also while the connection is being opened.
    WouldBlock,
    /// This half of the connection is closed by its owner (EPIPE), or the number is not that of a connection.
    Closed,
    /// The connection has failed. Returned once; then reads return the end of the stream, and writes `Closed`.
    Failed(Error),
}
