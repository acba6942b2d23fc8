//! TCP connections in memory.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::task::{Context, Poll};

use softclock_core::{SourceId, TriggerState};
use softclock_linux::readiness::Readiness;
use softclock_linux::socket::tcp::ListenOptions;
use softclock_net::tcp::settings::Settings;

use super::{Network, Queue};
use crate::net::options::TcpOption;
use crate::net::registration::Registration;
use crate::runtime::sources::Direction;

/// A listener. Dropping it resets connections that it has not accepted.
pub(crate) struct MemoryListener {
    registration: Registration,
    address: SocketAddr,
    queue: Rc<Queue<MemoryTcp>>,
}

impl MemoryListener {
    pub(crate) fn bind(address: SocketAddr, options: &ListenOptions) -> io::Result<Self> {
        let registration = Registration::new(Readiness::NONE)?;
        let network = Network::of(registration.runtime());
        let address = network.named(address);
        let queue = network
            .listeners
            .open(&registration, address, options.reuse_port)?;
        Ok(Self {
            registration,
            address,
            queue,
        })
    }

    pub(crate) fn poll_accept(
        &self,
        cx: &Context<'_>,
    ) -> Poll<io::Result<(MemoryTcp, SocketAddr)>> {
        let accept = || {
            let accepted = self.queue.waiting.borrow_mut().pop_front();
            let accepted =
                accepted.ok_or_else(|| would_block(&self.registration, Direction::Read))?;
            let peer = accepted.pair.addresses[1 - accepted.end];
            Ok((accepted, peer))
        };
        (self.registration).poll_call(cx, Direction::Read, TriggerState::Receive, accept)
    }

    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.registration
            .runtime()
            .trigger(TriggerState::SystemCall);
        Ok(self.address)
    }
}

impl Drop for MemoryListener {
    fn drop(&mut self) {
        // Dropping a stream resets its connection, which wakes the client.
        let waiting = self.queue.waiting.take();
        waiting.iter().for_each(|stream| stream.resets.set(true));
    }
}

/// One end of a connection.
pub(crate) struct MemoryTcp {
    registration: Registration,
    pair: Rc<Pair>,
    /// The index of this end: it reads from the pipe with this index, and writes to the other.
    end: usize,
    /// Whether dropping this end resets the connection.
    resets: Cell<bool>,
    settings: Box<RefCell<Settings>>,
}

struct Pair {
    addresses: [SocketAddr; 2],
    /// `None` for an end that was dropped.
    sources: [Cell<Option<SourceId>>; 2],
    pipes: [RefCell<Pipe>; 2],
    is_reset: Cell<bool>,
}

/// The bytes on their way to one end.
#[derive(Default)]
struct Pipe {
    bytes: VecDeque<u8>,
    /// Whether the writer has ended.
    ended: bool,
    /// Whether the writer waits for room.
    full: bool,
    /// Whether the reset of the connection has been reported to the reader.
    told: bool,
}

impl MemoryTcp {
    pub(crate) fn connect(peer: SocketAddr) -> io::Result<Self> {
        let registration = Registration::new(Readiness::WRITABLE)?;
        let network = Rc::clone(Network::of(registration.runtime()));
        let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
        let listener = network.listeners.find(peer).ok_or_else(refused)?;
        let mut own = peer;
        own.set_port(0);
        let accepted = Registration::new(Readiness::WRITABLE)?;
        let pair = Rc::new(Pair {
            addresses: [network.named(own), peer],
            sources: [&registration, &accepted].map(|of| Cell::new(Some(of.id()))),
            pipes: Default::default(),
            is_reset: Cell::new(false),
        });
        let end = |registration, end| Self {
            registration,
            pair: pair.clone(),
            end,
            resets: Cell::new(false),
            settings: Box::default(),
        };
        // The connection is complete before it is accepted, like one in the kernel's queue.
        listener.waiting.borrow_mut().push_back(end(accepted, 1));
        let client = end(registration, 0);
        let runtime = client.registration.runtime();
        network.post(listener.source, Readiness::READABLE);
        runtime.trigger(TriggerState::SystemCall);
        Ok(client)
    }

    pub(crate) fn registration(&self) -> &Registration {
        &self.registration
    }

    pub(crate) fn poll_connected(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        let connected = || Ok(());
        (self.registration).poll_call(cx, Direction::Write, TriggerState::Send, connected)
    }

    pub(crate) fn poll_recv(&self, cx: &Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let offered = buffer.len();
        let read = self.poll_take(cx, buffer, true);
        if let Poll::Ready(Ok(n @ 1..)) = read {
            self.registration.runtime().take_bytes(n);
            self.on_read(n, offered);
        }
        read
    }

    pub(crate) fn try_recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.take(buffer, true);
        if let Ok(n @ 1..) = read {
            self.on_read(n, buffer.len());
        }
        self.registration.runtime().trigger(TriggerState::Receive);
        read
    }

    /// Records that a read has taken `bytes` of the `offered`.
    fn on_read(&self, bytes: usize, offered: usize) {
        if bytes < offered && !self.pair.pipes[self.end].borrow().ended {
            self.registration.on_short(Direction::Read);
        }
    }

    pub(crate) fn poll_peek(&self, cx: &Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        self.poll_take(cx, buffer, false)
    }

    #[cfg(feature = "hyper")]
    pub(crate) fn poll_recv_with(
        &self,
        cx: &Context<'_>,
        max: usize,
        take: impl FnOnce(&[u8]),
    ) -> Poll<io::Result<()>> {
        let mut buffer = vec![0; max.min(PIPE_BYTES)];
        self.poll_recv(cx, &mut buffer)
            .map_ok(|n| take(&buffer[..n]))
    }

    fn poll_take(
        &self,
        cx: &Context<'_>,
        buffer: &mut [u8],
        removes: bool,
    ) -> Poll<io::Result<usize>> {
        let take = || self.take(buffer, removes);
        (self.registration).poll_call(cx, Direction::Read, TriggerState::Receive, take)
    }

    fn take(&self, buffer: &mut [u8], removes: bool) -> io::Result<usize> {
        let mut pipe = self.pair.pipes[self.end].borrow_mut();
        let count = buffer.len().min(pipe.bytes.len());
        if count == 0 && !buffer.is_empty() {
            // A reset is reported once, as by the kernel; later reads see the end of the stream.
            return match (self.pair.is_reset.get(), pipe.ended) {
                (true, _) if !pipe.told => {
                    pipe.told = true;
                    Err(io::ErrorKind::ConnectionReset.into())
                }
                (true, _) | (_, true) => Ok(0),
                _ => Err(would_block(&self.registration, Direction::Read)),
            };
        }
        let front = pipe.bytes.iter().take(count);
        buffer
            .iter_mut()
            .zip(front)
            .for_each(|(to, &from)| *to = from);
        if removes {
            pipe.bytes.drain(..count);
            // Only a writer that found the pipe full waits for this event.
            if std::mem::take(&mut pipe.full) {
                drop(pipe);
                self.post_to_peer(Readiness::WRITABLE);
            }
        }
        Ok(count)
    }

    pub(crate) fn poll_send(&self, cx: &Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_send_vectored(cx, &[IoSlice::new(bytes)])
    }

    pub(crate) fn poll_send_vectored(
        &self,
        cx: &Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let sent = self.poll_send_piece(cx, parts);
        if let Poll::Ready(Ok(n)) = sent {
            self.registration.runtime().take_bytes(n);
        }
        sent
    }

    pub(crate) fn poll_send_file(
        &self,
        cx: &Context<'_>,
        file: BorrowedFd<'_>,
        offset: u64,
        len: usize,
    ) -> Poll<io::Result<usize>> {
        let file = std::fs::File::from(file.try_clone_to_owned()?);
        let mut bytes = vec![0; len.min(PIPE_BYTES)];
        let read = file.read_at(&mut bytes, offset)?;
        match read {
            0 => Poll::Ready(Ok(0)),
            _ => self.poll_send(cx, &bytes[..read]),
        }
    }

    pub(crate) fn poll_send_piece(
        &self,
        cx: &Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let give = || self.give(parts);
        (self.registration).poll_call(cx, Direction::Write, TriggerState::Send, give)
    }

    pub(crate) fn try_send_piece(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let sent = self.give(parts);
        self.registration.runtime().trigger(TriggerState::Send);
        sent
    }

    pub(crate) fn send_quietly(&self, bytes: &[u8]) -> io::Result<usize> {
        self.give(&[IoSlice::new(bytes)])
    }

    fn give(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let peer = 1 - self.end;
        let mut pipe = self.pair.pipes[peer].borrow_mut();
        if pipe.ended || self.pair.is_reset.get() || self.pair.sources[peer].get().is_none() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let before = pipe.bytes.len();
        for part in parts {
            let room = PIPE_BYTES - pipe.bytes.len();
            pipe.bytes.extend(&part[..part.len().min(room)]);
        }
        let taken = pipe.bytes.len() - before;
        if taken == 0 && parts.iter().any(|part| !part.is_empty()) {
            pipe.full = true;
            return Err(would_block(&self.registration, Direction::Write));
        }
        drop(pipe);
        self.post_to_peer(Readiness::READABLE);
        Ok(taken)
    }

    pub(crate) fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        if self.pair.is_reset.get() {
            return Err(io::ErrorKind::NotConnected.into());
        }
        if how != Shutdown::Write {
            self.pair.pipes[self.end].borrow_mut().ended = true;
            // A reader that waits.
            self.post(Readiness::READABLE | Readiness::READ_CLOSED);
            self.post_to_peer(Readiness::WRITABLE);
        }
        if how != Shutdown::Read {
            self.end_quietly()?;
        }
        self.registration
            .runtime()
            .trigger(TriggerState::SystemCall);
        Ok(())
    }

    pub(crate) fn end_quietly(&self) -> io::Result<()> {
        self.pair.pipes[1 - self.end].borrow_mut().ended = true;
        self.post_to_peer(Readiness::READABLE | Readiness::READ_CLOSED);
        // A writer that waits.
        self.post(Readiness::WRITABLE);
        if self.pair.pipes[self.end].borrow().ended {
            // Both directions have ended.
            self.post_to_peer(Readiness::WRITE_CLOSED);
            self.post(Readiness::WRITE_CLOSED);
        }
        Ok(())
    }

    fn post(&self, readiness: Readiness) {
        self.network().post(self.registration.id(), readiness);
    }

    fn network(&self) -> &Network {
        Network::of(self.registration.runtime())
    }

    fn post_to_peer(&self, readiness: Readiness) {
        if let Some(source) = self.pair.sources[1 - self.end].get() {
            self.network().post(source, readiness);
        }
    }

    /// Returns 0, since data in memory is received at once.
    pub(crate) fn unacknowledged(&self) -> io::Result<u64> {
        self.pass_call();
        Ok(0)
    }

    /// Sets an option, most of which have no effect in memory.
    pub(crate) fn set(&self, option: TcpOption) -> io::Result<()> {
        self.pass_call();
        if let TcpOption::Linger(linger) = option {
            self.resets.set(linger.is_some());
        }
        option.check()?;
        option.apply(&mut self.settings.borrow_mut());
        Ok(())
    }

    /// Reads the settings, most of which have no effect in memory.
    pub(crate) fn setting<T>(&self, read: impl FnOnce(&Settings) -> T) -> T {
        self.pass_call();
        read(&self.settings.borrow())
    }

    /// Whether dropping this end resets the connection.
    pub(crate) fn resets(&self) -> bool {
        self.pass_call();
        self.resets.get()
    }

    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.pass_call();
        Ok(self.pair.addresses[self.end])
    }

    pub(crate) fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.pass_call();
        Ok(self.pair.addresses[1 - self.end])
    }

    fn pass_call(&self) {
        self.registration
            .runtime()
            .trigger(TriggerState::SystemCall);
    }
}

impl Drop for MemoryTcp {
    /// Closes this end like a socket: unread data resets the connection.
    fn drop(&mut self) {
        self.pair.sources[self.end].set(None);
        let unread = !self.pair.pipes[self.end].borrow().bytes.is_empty();
        if self.resets.get() || unread {
            self.pair.is_reset.set(true);
            let closed = Readiness::READ_CLOSED | Readiness::WRITE_CLOSED;
            let ready = Readiness::READABLE | Readiness::WRITABLE;
            self.post_to_peer(closed | ready | Readiness::ERROR);
        } else {
            let _ = self.end_quietly();
            // Wake a writer that waits for room, to let it see the end.
            self.post_to_peer(Readiness::WRITABLE);
        }
    }
}

fn would_block(registration: &Registration, direction: Direction) -> io::Error {
    registration.on_would_block(direction);
    io::ErrorKind::WouldBlock.into()
}

/// Capacity of a pipe: at least that of a kernel socket's buffer.
const PIPE_BYTES: usize = 256 << 10;
