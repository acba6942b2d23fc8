//! What carries a socket: the kernel.
//!
//! Each kind of socket is an enum of its carriers, and what a socket does is a verb of that enum. Above it no code knows
//! which carrier a socket has; a verb gives `Pending` after it has noted who is to be woken.

mod listener;
mod tcp;
mod udp;

pub(crate) use listener::ListenerIo;
pub(crate) use tcp::TcpIo;
pub(crate) use udp::UdpIo;
