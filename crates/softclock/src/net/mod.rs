//! Sockets: TCP and UDP over IPv4 and IPv6, and Unix stream sockets.
//!
//! Every call on a socket ends in a trigger state of its kind. A socket belongs to the runtime of the thread that
//! created it. Each type hides its carrier (`carrier`): a descriptor of the kernel (`kernel`), an endpoint of a network
//! stack in this process ([`stack`]) or, for tests, a queue in memory (`memory`). It therefore gives no access
//! to a raw descriptor.
//!
//! Writes to a TCP stream can be paced ([`Pacing`]): soft events send them in pieces, evenly over time.
//!
//! A task may make 128 socket calls in one poll; then it is queued behind the other tasks. Every 2 KiB that a stream
//! or a batch of datagrams moves count as one more, and so do every four short datagrams of a batch.

mod carrier;
mod common;
mod kernel;
mod listener;
#[cfg(feature = "memory-net")]
mod memory;
pub(crate) mod pacing;
mod registration;
pub mod stack;
mod stream;
mod udp;
mod unix;

pub use crate::runtime::statistics::PacingStatistics;
pub(crate) use kernel::{Interest, Kernel, Watched};
pub use listener::{TcpListener, bind_tcp};
pub use pacing::{PacedBy, Pacer, Pacing, all_paced_sent};
pub use softclock_linux::inherited::{Family, Inherited, take as take_inherited};
pub use softclock_linux::socket::tcp::ListenOptions;
pub use softclock_linux::socket::udp::{
    BatchFull, BindOptions, Datagram, Ecn, RecvBatch, RecvOptions, Segments,
};
pub use stream::TcpStream;
pub use udp::UdpSocket;
pub use unix::{UnixListener, UnixStream, bind_unix};
