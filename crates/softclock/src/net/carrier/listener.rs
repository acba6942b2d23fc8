//! Listeners for TCP connections.

use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};

use softclock_linux::socket::tcp::ListenOptions;

use super::TcpIo;
use crate::net::kernel::Kernel;
#[cfg(feature = "memory-net")]
use crate::net::memory::MemoryListener;
use crate::net::stack::StackListener;
#[cfg(feature = "memory-net")]
use crate::runtime::inner::Inner;

/// A listener of TCP connections. Dropping it closes it.
pub(crate) enum ListenerIo {
    /// A socket of the kernel.
    Kernel(Kernel),
    /// A listener of the runtime's stack.
    Stack(StackListener),
    #[cfg(feature = "memory-net")]
    Memory(MemoryListener),
}

impl ListenerIo {
    pub(crate) fn bind(address: SocketAddr, options: &ListenOptions) -> io::Result<Self> {
        #[cfg(feature = "memory-net")]
        if Inner::current()?.is_in_memory {
            return Ok(Self::Memory(MemoryListener::bind(address, options)?));
        }
        match StackListener::bind(address, options) {
            Some(stack) => Ok(Self::Stack(stack?)),
            None => Ok(Self::Kernel(Kernel::listen(address, options)?)),
        }
    }

    /// Takes over a listener that was bound elsewhere.
    pub(crate) fn from_std(listener: std::net::TcpListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        Ok(Self::Kernel(Kernel::duplicated(listener.into())?))
    }

    /// Returns the kernel's socket, if it is one.
    pub(crate) fn as_kernel(&self) -> Option<&Kernel> {
        match self {
            Self::Kernel(kernel) => Some(kernel),
            _ => None,
        }
    }

    /// Returns the kernel's socket, if it is one.
    pub(crate) fn into_kernel(self) -> Option<Kernel> {
        match self {
            Self::Kernel(kernel) => Some(kernel),
            _ => None,
        }
    }

    /// Accepts a connection when there is one.
    pub(crate) fn poll_accept(&self, cx: &Context<'_>) -> Poll<io::Result<(TcpIo, SocketAddr)>> {
        match self {
            Self::Kernel(kernel) => {
                let accepted = kernel.poll_accept(cx);
                accepted.map_ok(|(stream, peer)| (TcpIo::Kernel(stream), peer))
            }
            Self::Stack(stack) => {
                let accepted = stack.poll_accept(cx);
                accepted.map_ok(|(stream, peer)| (TcpIo::Stack(stream), peer))
            }
            #[cfg(feature = "memory-net")]
            Self::Memory(memory) => {
                let accepted = memory.poll_accept(cx);
                accepted.map_ok(|(stream, peer)| (TcpIo::Memory(stream), peer))
            }
        }
    }

    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Kernel(kernel) => kernel.local_addr(),
            Self::Stack(stack) => stack.local_addr(),
            #[cfg(feature = "memory-net")]
            Self::Memory(memory) => memory.local_addr(),
        }
    }
}
