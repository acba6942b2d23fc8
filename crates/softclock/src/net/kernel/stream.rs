//! Receiving and sending on stream sockets of any family.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::Shutdown;
use std::os::fd::BorrowedFd;
use std::task::{Context, Poll};

use softclock_core::TriggerState;
use softclock_linux::socket;

use super::Kernel;
use crate::runtime::sources::Direction;

impl Kernel {
    pub(crate) fn poll_recv(&self, cx: &Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let offered = buffer.len();
        let recv = |fd: BorrowedFd<'_>| self.recv(fd, buffer);
        let read = self.poll_call(cx, Direction::Read, TriggerState::Receive, recv);
        if let Poll::Ready(Ok(n @ 1..)) = read {
            self.on_transferred(Direction::Read, n, offered);
        }
        read
    }

    /// Receives what has arrived, without waiting.
    pub(crate) fn try_recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let offered = buffer.len();
        self.try_recv_call(offered, |fd| self.recv(fd, buffer))
    }

    fn recv(&self, fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
        if !self.has_messages {
            return socket::tcp::recv(fd, buffer);
        }
        let (read, is_cut) = socket::unix::recv(fd, buffer)?;
        self.is_cut.set(is_cut);
        Ok(read)
    }

    /// Like [`try_recv`](Self::try_recv), into several buffers, one after the other.
    pub(crate) fn try_recv_vectored(&self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let most = buffers.len().min(socket::tcp::MOST_PARTS);
        let buffers = &mut buffers[..most];
        let offered = buffers.iter().map(|buffer| buffer.len()).sum();
        self.try_recv_call(offered, |fd| socket::tcp::recv_vectored(fd, buffers))
    }

    fn try_recv_call(
        &self,
        offered: usize,
        mut recv: impl FnMut(BorrowedFd<'_>) -> io::Result<usize>,
    ) -> io::Result<usize> {
        self.try_call(Direction::Read, TriggerState::Receive, |fd| {
            let read = recv(fd)?;
            // The end of the stream stays to be read.
            if 0 < read && read < offered {
                self.on_short_of_stream(Direction::Read);
            }
            Ok(read)
        })
    }

    pub(crate) fn poll_peek(&self, cx: &Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let peek = |fd: BorrowedFd<'_>| socket::tcp::peek(fd, buffer);
        self.poll_call(cx, Direction::Read, TriggerState::Receive, peek)
    }

    /// Receives up to `max` bytes into the runtime's buffer and passes them to `take`.
    #[cfg(feature = "hyper")]
    pub(crate) fn poll_recv_with(
        &self,
        cx: &Context<'_>,
        max: usize,
        take: impl FnOnce(&[u8]),
    ) -> Poll<io::Result<()>> {
        self.with_buffer(|buffer| {
            let max = max.min(buffer.len());
            self.poll_recv(cx, &mut buffer[..max])
                .map_ok(|n| take(&buffer[..n]))
        })
    }

    pub(crate) fn poll_send(&self, cx: &Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let send = |fd: BorrowedFd<'_>| socket::tcp::send(fd, bytes);
        self.poll_send_call(cx, bytes.len(), send)
    }

    pub(crate) fn poll_send_vectored(
        &self,
        cx: &Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        // The kernel rejects calls with more parts.
        let buffers = &buffers[..buffers.len().min(socket::tcp::MOST_PARTS)];
        let offered = buffers.iter().map(|buffer| buffer.len()).sum();
        let send = |fd: BorrowedFd<'_>| match buffers.len() > 1 && offered <= GATHERED_BYTES {
            true => self.with_buffer(|buffer| socket::tcp::send(fd, gathered(buffers, buffer))),
            false => socket::tcp::send_vectored(fd, buffers),
        };
        self.poll_send_call(cx, offered, send)
    }

    /// Sends up to `len` bytes of `file` from `offset` on.
    pub(crate) fn poll_send_file(
        &self,
        cx: &Context<'_>,
        file: BorrowedFd<'_>,
        offset: u64,
        len: usize,
    ) -> Poll<io::Result<usize>> {
        let send = |fd: BorrowedFd<'_>| socket::sendfile(fd, file, offset, len);
        let sent = self.poll_call(cx, Direction::Write, TriggerState::Send, send);
        if let Poll::Ready(Ok(n)) = sent {
            // A partial transfer may mean that the file ends there, not that the next call would block.
            self.on_transferred(Direction::Write, n, n);
        }
        sent
    }

    fn poll_send_call(
        &self,
        cx: &Context<'_>,
        offered: usize,
        send: impl FnMut(BorrowedFd<'_>) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        let sent = self.poll_call(cx, Direction::Write, TriggerState::Send, send);
        if let Poll::Ready(Ok(n)) = sent {
            self.on_transferred(Direction::Write, n, offered);
        }
        sent
    }

    /// Sends as much as the send buffer accepts, without waiting.
    pub(crate) fn try_send(&self, bytes: &[u8]) -> io::Result<usize> {
        self.try_send_call(bytes.len(), |fd| socket::tcp::send(fd, bytes))
    }

    /// Like [`try_send`](Self::try_send), from several buffers.
    pub(crate) fn try_send_vectored(&self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        let buffers = &buffers[..buffers.len().min(socket::tcp::MOST_PARTS)];
        let offered = buffers.iter().map(|buffer| buffer.len()).sum();
        self.try_send_call(offered, |fd| socket::tcp::send_vectored(fd, buffers))
    }

    fn try_send_call(
        &self,
        offered: usize,
        mut send: impl FnMut(BorrowedFd<'_>) -> io::Result<usize>,
    ) -> io::Result<usize> {
        self.try_call(Direction::Write, TriggerState::Send, |fd| {
            let sent = send(fd)?;
            if sent < offered {
                self.on_short(Direction::Write);
            }
            Ok(sent)
        })
    }

    pub(crate) fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.call(|fd| socket::tcp::shutdown(fd, how))
    }
}

/// Copies the parts into `buffer`, one after the other.
fn gathered<'a>(parts: &[IoSlice<'_>], buffer: &'a mut [u8]) -> &'a [u8] {
    let mut len = 0;
    for part in parts {
        buffer[len..][..part.len()].copy_from_slice(part);
        len += part.len();
    }
    &buffer[..len]
}

/// Largest size of parts that are copied together and sent as one: the kernel handles one buffer faster than several,
/// by more than the copying costs.
const GATHERED_BYTES: usize = 4096;
