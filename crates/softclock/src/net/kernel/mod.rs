//! Sockets of the kernel, and other descriptors that the runtime watches.
//!
//! - `descriptor`: a nonblocking descriptor among the runtime's sources, and calls on it.
//! - `stream`: what stream sockets of all families can do; `tcp`, `udp`: what only those can.

mod descriptor;
mod stream;
mod tcp;
mod udp;

pub(crate) use descriptor::Kernel;
