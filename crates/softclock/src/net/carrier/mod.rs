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

/// Returns the size of a buffer of the kernel's socket; `Unsupported` without one.
pub(crate) fn buffer_bytes(
    kernel: Option<&Kernel>,
    read: impl FnOnce(BorrowedFd<'_>) -> io::Result<usize>,
) -> io::Result<usize> {
    let kernel = kernel.ok_or_else(|| unsupported("buffer of a size of its own"))?;
    kernel.call(read)
}
