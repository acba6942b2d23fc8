//! The carrier of a socket: the kernel, a network stack in this process, or memory in tests.
//!
//! Each kind of socket is an enum of its carriers, with a method for each operation. Other code does not know the
//! carrier of a socket. A method that returns `Pending` has registered the task to be woken.

mod listener;
mod tcp;
mod udp;

use std::io;
use std::os::fd::BorrowedFd;

use super::kernel::Kernel;
use super::options::unsupported;

pub(crate) use listener::ListenerIo;
pub(crate) use tcp::TcpIo;
pub(crate) use udp::UdpIo;

/// Reads an option that only sockets of the kernel have; `what` names it in the error of others.
pub(crate) fn kernel_option<T>(
    kernel: Option<&Kernel>,
    what: &str,
    read: impl FnOnce(BorrowedFd<'_>) -> io::Result<T>,
) -> io::Result<T> {
    kernel.ok_or_else(|| unsupported(what))?.call(read)
}

/// The name of a buffer in errors.
pub(crate) const BUFFER: &str = "buffer of a size of its own";
