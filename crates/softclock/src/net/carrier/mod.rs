//! The carrier of a socket: the kernel, a network stack in this process, or memory in tests.
//!
//! Each kind of socket is an enum of its carriers, with a method for each operation. Other code does not know the
//! carrier of a socket. A method that returns `Pending` has registered the task to be woken.

mod listener;
mod tcp;
mod udp;

pub(crate) use listener::ListenerIo;
pub(crate) use tcp::TcpIo;
pub(crate) use udp::UdpIo;
