//! Kernel sockets: thin wrappers that create and use descriptors which are nonblocking and close-on-exec from the
//! start.
//!
//! Every function makes one system call unless its documentation says otherwise, and returns the errors of that call.
//! `WouldBlock` means that the caller should wait for readiness and try again. Sending to a peer that has closed the
//! connection fails with `BrokenPipe`, and raises no signal, except in [`sendfile`].
//!
//! # Example
//! ```
//! use std::net::SocketAddr;
//! use std::os::fd::AsFd;
//!
//! use softclock_linux::socket::{local_addr, udp};
//!
//! # fn main() -> std::io::Result<()> {
//! let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
//! let sender = udp::bind(loopback, &udp::BindOptions::default())?;
//! let receiver = udp::bind(loopback, &udp::BindOptions::default())?;
//! let sent = udp::send_to(sender.as_fd(), b"hello", local_addr(receiver.as_fd())?)?;
//! assert_eq!(sent, 5);
//! # Ok(())
//! # }
//! ```

pub mod tcp;
pub mod udp;
pub mod unix;

mod common;
mod connected;
mod options;
mod sendfile;

pub(crate) use common::NEW_SOCKET;

pub use common::{local_addr, peer_addr, take_error};
pub use connected::{has_messages, send_now};
pub use options::{
    dscp, hop_limit, recv_buffer_bytes, send_buffer_bytes, set_dscp, set_hop_limit,
    set_recv_buffer_bytes, set_send_buffer_bytes,
};
pub use sendfile::sendfile;
