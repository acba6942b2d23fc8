//! Sockets of the kernel, and other descriptors that the runtime watches.
//!
//! - `descriptor`: a nonblocking descriptor as one of the runtime's sources, and calls on it.
//! - `stream`: operations of stream sockets of all families; `tcp`, `udp`: those of one protocol.

mod descriptor;
mod stream;
mod tcp;
mod udp;

pub(crate) use descriptor::{Interest, Kernel, Watched};
