//! Sockets: TCP and UDP over IPv4 and IPv6, and Unix sockets for streams and datagrams.
//!
//! Every call on a socket ends in a trigger state of its kind. A socket belongs to the runtime of the thread that
//! created it.
//!
//! # Carriers
//! The types for TCP and UDP hide the carrier of a socket (`carrier`): a descriptor of the kernel (`kernel`), an
//! endpoint of a network stack in this process ([`stack`]) or, for tests, a queue in memory (`memory`). So access to
//! the descriptor may fail: [`as_kernel_fd`](TcpStream::as_kernel_fd) returns an `Option`,
//! [`into_std`](TcpStream::into_std) gives the socket back with its error, and options that a carrier does not have
//! fail with [`Unsupported`](std::io::ErrorKind::Unsupported). `from_std` makes a socket of the kernel that was opened
//! elsewhere one of this thread's runtime. Unix sockets are always the kernel's, and implement
//! [`AsFd`](std::os::fd::AsFd).
//!
//! # Three ways to call
//! - `async` functions (`read`, `send_to`) wait until the call succeeds; the docs of each say whether a dropped future
//!   loses anything.
//! - `poll_` functions are the same for hand-written futures. `poll_read_ready` and `poll_write_ready` wait without a
//!   call.
//! - `try_` functions make the call once, whether or not the socket is known to be ready, and fail with
//!   [`WouldBlock`](std::io::ErrorKind::WouldBlock) if it is not. They may be called from the handler of a soft event.
//!   After a failure, or after fewer bytes than offered, `readable` and `writable` wait for the next event.
//!
//! [`relay`] has the state of connections that servers and proxies supervise: lost, ended, or held back by pacing.
//!
//! # Pacing and fairness
//!
//! Writes to a TCP stream can be paced ([`Pacing`]): soft events send them in pieces, evenly over time.
//!
//! A task may make 128 socket calls in one poll; then it is queued behind the other tasks. Every 2 KiB that a stream
//! or a batch of datagrams moves count as one more, and so do every four short datagrams of a batch.

mod carrier;
mod common;
mod into_std;
mod kernel;
mod listener;
mod lookup;
#[cfg(feature = "memory-net")]
mod memory;
mod options;
pub(crate) mod pacing;
mod receiving;
mod registration;
pub mod relay;
mod sending;
pub mod stack;
mod stream;
mod udp;
mod unix;

pub use crate::runtime::statistics::PacingStatistics;
pub use into_std::IntoStdError;
pub(crate) use kernel::{Interest, Kernel, Watched};
pub use listener::{TcpListener, bind_tcp};
pub use lookup::lookup_host;
pub use pacing::{PacedBy, Pacer, Pacing, all_paced_sent};
pub use softclock_linux::inherited::{Family, Inherited, take as take_inherited};
pub use softclock_linux::socket::tcp::ListenOptions;
pub use softclock_linux::socket::udp::{
    BatchFull, BindOptions, Datagram, Ecn, RecvBatch, RecvOptions, Segments, Transmit,
};
pub use stack::KeepAlive;
pub use stream::TcpStream;
pub use udp::UdpSocket;
pub use unix::{UnixDatagram, UnixListener, UnixStream, bind_unix, probe_unix};
