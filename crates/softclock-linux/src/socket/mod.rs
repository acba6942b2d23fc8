//! Kernel sockets: thin wrappers with owned descriptors, nonblocking and closed on exec from birth.
//!
//! Every function is one system call unless it says otherwise, and fails with what that call fails with;
//! `WouldBlock` means to wait for readiness. No signal is raised where the peer is gone, but by [`sendfile`]: sending then
//! fails with `BrokenPipe`. Who the descriptor belongs to and when to try again is the caller's business.

pub mod tcp;
pub mod udp;
pub mod unix;

mod common;
mod sendfile;

pub(crate) use common::NEW_SOCKET;

pub use common::{local_addr, peer_addr, set_recv_buffer_bytes, set_send_buffer_bytes, take_error};
pub use sendfile::sendfile;
