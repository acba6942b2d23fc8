//! TCP connections of a stack.
//!
//! The protocol runs in the call of the owner that reads or writes, on the owner's account. What the calls leave to
//! send goes out in the driver's next turn. A call that would block asks the stack to name the connection when it is
//! ready.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use softclock_core::{Instant, TriggerState};
use softclock_linux::file::{self, Wait};
use softclock_linux::link::Buffer;
use softclock_linux::readiness::Readiness;
use softclock_net::stack::{Interest, Stack, TcpError, TcpId};
use softclock_net::tcp::connection::{Connection, Error};
use softclock_net::tcp::settings::Settings;
use softclock_net::tcp::state::State;

use super::driver::{Driver, ends};
use super::share::StackShare;
use super::udp::bind_error;
use crate::net::options::TcpOption;
use crate::net::registration::Registration;
use crate::runtime::inner::Inner;
use crate::runtime::sources::Direction;

/// A connection of the runtime's stack. Dropping it closes it.
pub(crate) struct StackTcp {
    registration: Registration,
    driver: Rc<Driver>,
    id: TcpId,
    /// Whether dropping it resets the connection.
    resets: Cell<bool>,
    /// Whether this end reads no more.
    is_read_shut: Cell<bool>,
}

impl StackTcp {
    /// Begins to connect to `peer`, if the runtime has a stack with a route to it;
    /// [`poll_connected`](Self::poll_connected) returns the result.
    pub(crate) fn connect(peer: SocketAddr) -> Option<io::Result<Self>> {
        let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
        let Some(driver) = Driver::current() else {
            let is_shared = StackShare::current_reaches(peer.ip());
            return is_shared.then(|| Err(member_error()));
        };
        let is_reached = driver.reaches(peer.ip());
        is_reached.then(|| Self::connect_by(driver, peer))
    }

    fn connect_by(driver: Rc<Driver>, peer: SocketAddr) -> io::Result<Self> {
        let connect = |stack: &mut Stack<Buffer>, now| {
            let connected = stack.tcp_connect(now, None, peer, None);
            connected.map_err(bind_error)
        };
        let id = driver.with_tcp(connect)?;
        let stream = Self::accepted(driver, id)?;
        stream.runtime().trigger(TriggerState::SystemCall);
        Ok(stream)
    }

    /// The connection `id`, which no other stream has.
    pub(super) fn accepted(driver: Rc<Driver>, id: TcpId) -> io::Result<Self> {
        let registration = Registration::new(Readiness::READABLE | Readiness::WRITABLE)?;
        driver.add_connection(id, registration.id());
        Ok(Self {
            registration,
            driver,
            id,
            resets: Cell::new(false),
            is_read_shut: Cell::new(false),
        })
    }

    pub(crate) fn registration(&self) -> &Registration {
        &self.registration
    }

    fn runtime(&self) -> &Rc<Inner> {
        self.registration.runtime()
    }

    pub(crate) fn poll_connected(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        let connected = || {
            self.driver.with_tcp(|stack, now| {
                if stack.tcp_wait(now, self.id, Interest::WRITABLE) {
                    return Err(self.would_block(Direction::Write));
                }
                match stack.tcp_take_error(self.id) {
                    Some(error) => Err(connection_error(error)),
                    None => Ok(()),
                }
            })
        };
        (self.registration).poll_call(cx, Direction::Write, TriggerState::Send, connected)
    }

    /// Ready when the connection is known to be lost, by all that has arrived.
    pub(crate) fn poll_lost(&self, cx: &Context<'_>) -> Poll<()> {
        self.note_ends();
        self.registration.poll_lost(cx)
    }

    /// Ready when the peer is known to have ended its direction, by all that has arrived.
    pub(crate) fn poll_ended(&self, cx: &Context<'_>) -> Poll<()> {
        self.note_ends();
        self.registration.poll_ended(cx)
    }

    /// Does the protocol's work for what has arrived, and posts the ends that it shows.
    fn note_ends(&self) {
        let ended = match self.driver.has_arrived(self.id) {
            true => self.driver.with_tcp(|stack, now| {
                stack.tcp_process(now, self.id);
                Ok(ends(stack, self.id))
            }),
            false => self.driver.ends_of(self.id),
        };
        let ended = ended.unwrap_or(Readiness::WRITE_CLOSED | Readiness::READ_CLOSED);
        let mut sources = self.runtime().sources.borrow_mut();
        sources.post_new(self.registration.id(), ended);
    }

    pub(crate) fn poll_recv(&self, cx: &Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let receive = || self.read(buffer);
        let read =
            (self.registration).poll_call(cx, Direction::Read, TriggerState::Receive, receive);
        if let Poll::Ready(Ok(bytes)) = read {
            self.runtime().take_bytes(bytes);
        }
        read
    }

    pub(crate) fn try_recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.read(buffer);
        self.runtime().trigger(TriggerState::Receive);
        read
    }

    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.receive(|stack, now| {
            let read = stack.tcp_read(now, self.id, buffer)?;
            if read < buffer.len() && read > 0 {
                self.on_short(stack, now, Direction::Read);
            }
            Ok(read)
        })
    }

    pub(crate) fn poll_peek(&self, cx: &Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let receive = || self.receive(|stack, now| stack.tcp_peek(now, self.id, buffer));
        (self.registration).poll_call(cx, Direction::Read, TriggerState::Receive, receive)
    }

    /// Receives up to `max` bytes into the runtime's buffer and passes them to `take`.
    #[cfg(feature = "hyper")]
    pub(crate) fn poll_recv_with(
        &self,
        cx: &Context<'_>,
        max: usize,
        take: impl FnOnce(&[u8]),
    ) -> Poll<io::Result<()>> {
        let mut buffer = self.runtime().buffer.take();
        if buffer.len() < MOST_AT_ONCE {
            buffer.resize(MOST_AT_ONCE, 0);
        }
        let read = self.poll_recv(cx, &mut buffer[..max.min(MOST_AT_ONCE)]);
        let taken = read.map_ok(|bytes| take(&buffer[..bytes]));
        self.runtime().buffer.set(buffer);
        taken
    }

    /// Calls `read` until it succeeds or there is nothing to read; then the stack is asked to say when there is.
    fn receive(
        &self,
        mut read: impl FnMut(&mut Stack<Buffer>, Instant) -> Result<usize, TcpError>,
    ) -> io::Result<usize> {
        self.driver.with_tcp(|stack, now| {
            loop {
                match read(stack, now) {
                    Err(TcpError::WouldBlock) if self.is_read_shut.get() => return Ok(0),
                    Err(TcpError::WouldBlock) => {
                        if stack.tcp_wait(now, self.id, Interest::READABLE) {
                            return Err(self.would_block(Direction::Read));
                        }
                    }
                    result => return result.map_err(tcp_error),
                }
            }
        })
    }

    pub(crate) fn poll_send(&self, cx: &Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_send_vectored(cx, &[IoSlice::new(bytes)])
    }

    pub(crate) fn poll_send_vectored(
        &self,
        cx: &Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_send_shared(cx, parts, &Bytes::new())
    }

    /// Like [`poll_send_vectored`](Self::poll_send_vectored), but refers to the first long part within `shared` instead
    /// of copying it.
    pub(crate) fn poll_send_shared(
        &self,
        cx: &Context<'_>,
        parts: &[IoSlice<'_>],
        shared: &Bytes,
    ) -> Poll<io::Result<usize>> {
        let send = || self.send(parts, shared);
        let sent = (self.registration).poll_call(cx, Direction::Write, TriggerState::Send, send);
        if let Poll::Ready(Ok(bytes)) = sent {
            self.runtime().take_bytes(bytes);
        }
        sent
    }

    pub(crate) fn poll_send_piece(
        &self,
        cx: &Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let send = || self.send(parts, &Bytes::new());
        (self.registration).poll_call(cx, Direction::Write, TriggerState::Send, send)
    }

    /// Sends up to `len` bytes of `file` from `offset` on, as far as there is room, by reading them.
    pub(crate) fn poll_send_file(
        &self,
        cx: &Context<'_>,
        file: BorrowedFd<'_>,
        offset: u64,
        len: usize,
    ) -> Poll<io::Result<usize>> {
        let send = || {
            // The stack is not borrowed while the file is read. No other task runs meanwhile, so the room stays.
            let room = self.room(len)?;
            let mut bytes = Vec::new();
            match file::read_at(
                file,
                &mut bytes,
                room.min(MOST_AT_ONCE),
                offset,
                Wait::Allowed,
            )? {
                0 => Ok(0),
                _ => self.write(bytes.into()),
            }
        };
        let sent = (self.registration).poll_call(cx, Direction::Write, TriggerState::Send, send);
        if let Poll::Ready(Ok(bytes)) = sent {
            self.runtime().take_bytes(bytes);
        }
        sent
    }

    pub(crate) fn try_send_piece(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let sent = self.send(parts, &Bytes::new());
        self.runtime().trigger(TriggerState::Send);
        sent
    }

    pub(crate) fn send_quietly(&self, bytes: &[u8]) -> io::Result<usize> {
        self.send(&[IoSlice::new(bytes)], &Bytes::new())
    }

    /// Gives the parts to the stack, as far as there is room: the first long part within `shared` as a reference, and
    /// copies of the others.
    fn send(&self, parts: &[IoSlice<'_>], shared: &Bytes) -> io::Result<usize> {
        let offered = parts.iter().map(|part| part.len()).sum();
        if offered == 0 {
            return self.write(Bytes::new());
        }
        self.driver.with_tcp(|stack, now| {
            loop {
                let give = |room: usize| pieces(parts, room.min(offered), shared);
                match stack.tcp_write_with(now, self.id, give) {
                    Err(TcpError::WouldBlock) => {}
                    Ok(sent) => {
                        if sent < offered {
                            self.on_short(stack, now, Direction::Write);
                        }
                        return Ok(sent);
                    }
                    Err(error) => return Err(tcp_error(error)),
                }
                if stack.tcp_wait(now, self.id, Interest::WRITABLE) {
                    return Err(self.would_block(Direction::Write));
                }
            }
        })
    }

    /// The number of bytes, of those `offered`, that can be written now; at least one of any, or an error.
    fn room(&self, offered: usize) -> io::Result<usize> {
        self.driver.with_tcp(|stack, now| {
            loop {
                match stack.tcp_room(now, self.id) {
                    Ok(0) if offered > 0 => {}
                    Err(TcpError::WouldBlock) => {}
                    Ok(room) => return Ok(room.min(offered)),
                    Err(error) => return Err(tcp_error(error)),
                }
                if stack.tcp_wait(now, self.id, Interest::WRITABLE) {
                    return Err(self.would_block(Direction::Write));
                }
            }
        })
    }

    fn write(&self, bytes: Bytes) -> io::Result<usize> {
        self.driver.with_tcp(|stack, now| {
            let is_empty = bytes.is_empty();
            match stack.tcp_write(now, self.id, bytes) {
                Ok(0) if !is_empty => Err(self.would_block(Direction::Write)),
                Err(TcpError::WouldBlock) => {
                    stack.tcp_wait(now, self.id, Interest::WRITABLE);
                    Err(self.would_block(Direction::Write))
                }
                result => result.map_err(tcp_error),
            }
        })
    }

    fn would_block(&self, direction: Direction) -> io::Error {
        self.registration.on_would_block(direction);
        io::ErrorKind::WouldBlock.into()
    }

    /// Notes that a call has transferred all that it could, unless more has come meanwhile.
    fn on_short(&self, stack: &mut Stack<Buffer>, now: Instant, direction: Direction) {
        let interest = match direction {
            Direction::Read => Interest::READABLE,
            Direction::Write => Interest::WRITABLE,
        };
        if stack.tcp_wait(now, self.id, interest) {
            self.registration.on_short(direction);
        }
    }

    pub(crate) fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        let result = self.end(how);
        self.runtime().trigger(TriggerState::SystemCall);
        self.note_ends();
        result
    }

    pub(crate) fn end_quietly(&self) -> io::Result<()> {
        self.end(Shutdown::Write)
    }

    fn end(&self, how: Shutdown) -> io::Result<()> {
        self.driver.with_tcp(|stack, now| {
            stack.tcp_process(now, self.id);
            // An error stays for the next read or write.
            if stack
                .tcp_state(self.id)
                .is_none_or(|state| state == State::Closed)
            {
                return Err(io::ErrorKind::NotConnected.into());
            }
            match how {
                Shutdown::Read => Ok(()),
                _ => stack.tcp_shutdown_write(now, self.id).map_err(tcp_error),
            }
        })?;
        if how != Shutdown::Write {
            self.is_read_shut.set(true);
            let mut sources = self.runtime().sources.borrow_mut();
            sources.post(self.registration.id(), Readiness::READ_CLOSED);
        }
        Ok(())
    }

    /// Lets the stack pace the connection's segments.
    pub(crate) fn set_max_pacing_rate(&self, bytes_per_second: Option<u64>) -> io::Result<()> {
        self.driver.with_tcp(|stack, _| {
            stack.tcp_set_pace(self.id, bytes_per_second);
            Ok(())
        })
    }

    /// The bytes that wait for the rate. Passes no trigger state.
    pub(crate) fn held_back(&self) -> usize {
        self.driver.stack.borrow().tcp_held_back(self.id)
    }

    pub(crate) fn set(&self, option: TcpOption) -> io::Result<()> {
        let set = match option {
            // The settings would have to be copied for it.
            TcpOption::NoDelay(on) => self.driver.with_tcp(|stack, now| {
                stack.tcp_set_nagle(now, self.id, !on);
                Ok(())
            }),
            // The stack's send buffer takes about as much as a round trip can send, however large it may get.
            TcpOption::NotsentLowat(_) => Ok(()),
            TcpOption::Linger(linger) => {
                self.resets.set(linger.is_some());
                Ok(())
            }
            TcpOption::SendBuffer(_) | TcpOption::RecvBuffer(_) => Err(option.unsupported()),
            _ => option
                .check()
                .and_then(|()| self.change(|settings| option.apply(settings))),
        };
        self.runtime().trigger(TriggerState::SystemCall);
        set
    }

    /// Returns whether small segments are sent at once.
    pub(crate) fn nodelay(&self) -> io::Result<bool> {
        self.of_connection(|connection| !connection.has_nagle())
    }

    /// Reads the settings of the connection.
    pub(crate) fn setting<T>(&self, read: impl FnOnce(&Settings) -> T) -> io::Result<T> {
        self.of_connection(|connection| read(connection.settings()))
    }

    fn of_connection<T>(&self, read: impl FnOnce(&Connection<Buffer>) -> T) -> io::Result<T> {
        let stack = self.driver.stack.borrow();
        let read = stack.tcp_connection(self.id).map(read);
        drop(stack);
        self.runtime().trigger(TriggerState::SystemCall);
        read.ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Whether dropping the stream resets the connection.
    pub(crate) fn resets(&self) -> bool {
        self.runtime().trigger(TriggerState::SystemCall);
        self.resets.get()
    }

    fn change(&self, change: impl FnOnce(&mut Settings)) -> io::Result<()> {
        self.driver.with_tcp(|stack, now| {
            stack.tcp_change(now, self.id, change);
            Ok(())
        })
    }

    pub(crate) fn unacknowledged(&self) -> io::Result<u64> {
        let bytes = self.driver.with_tcp(|stack, now| {
            stack.tcp_process(now, self.id);
            Ok(stack.tcp_unacknowledged(self.id) as u64)
        });
        self.runtime().trigger(TriggerState::SystemCall);
        bytes
    }

    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        let local = self.driver.stack.borrow().tcp_local(self.id);
        self.runtime().trigger(TriggerState::SystemCall);
        local.ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    pub(crate) fn peer_addr(&self) -> io::Result<SocketAddr> {
        let remote = self.driver.stack.borrow().tcp_remote(self.id);
        self.runtime().trigger(TriggerState::SystemCall);
        remote.ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl Drop for StackTcp {
    fn drop(&mut self) {
        let source = self.registration.id();
        self.driver
            .remove_connection(self.id, source, self.resets.get());
    }
}

/// The first `room` bytes of the parts, one after the other, as copies and a reference to the first long part within
/// `shared`.
fn pieces(parts: &[IoSlice<'_>], room: usize, shared: &Bytes) -> [Bytes; 3] {
    let is_shared = |part: &IoSlice<'_>| part.len() >= LEAST_SHARED && lies_within(part, shared);
    let Some(at) = parts.iter().position(is_shared) else {
        return [copied(parts, room), Bytes::new(), Bytes::new()];
    };
    let before = copied(&parts[..at], room);
    let room = room - before.len();
    let mut part = shared.slice_ref(&parts[at]);
    part.truncate(room);
    let after = copied(&parts[at + 1..], room - part.len());
    [before, part, after]
}

/// Whether all bytes of `part` are those of `whole`, at the same place in memory.
fn lies_within(part: &[u8], whole: &[u8]) -> bool {
    let (part, whole) = (part.as_ptr_range(), whole.as_ptr_range());
    whole.start <= part.start && part.end <= whole.end
}

/// A copy of the first `room` bytes of the parts, one after the other.
fn copied(parts: &[IoSlice<'_>], room: usize) -> Bytes {
    if let [part] = parts {
        return Bytes::copy_from_slice(&part[..part.len().min(room)]);
    }
    let all: usize = parts.iter().map(|part| part.len()).sum();
    let mut bytes = Vec::with_capacity(room.min(all));
    for part in parts {
        let rest = room - bytes.len();
        bytes.extend_from_slice(&part[..part.len().min(rest)]);
    }
    bytes.into()
}

fn tcp_error(error: TcpError) -> io::Error {
    match error {
        TcpError::WouldBlock => io::ErrorKind::WouldBlock.into(),
        TcpError::Closed => io::ErrorKind::BrokenPipe.into(),
        TcpError::Failed(error) => connection_error(error),
        error => io::Error::other(error),
    }
}

fn connection_error(error: Error) -> io::Error {
    let kind = match error {
        Error::Refused => io::ErrorKind::ConnectionRefused,
        Error::Reset => io::ErrorKind::ConnectionReset,
        Error::TimedOut => io::ErrorKind::TimedOut,
        Error::Unreachable => io::ErrorKind::HostUnreachable,
        Error::NetworkUnreachable => io::ErrorKind::NetworkUnreachable,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}

/// The error of TCP sockets on threads that share the stack of another.
pub(super) fn member_error() -> io::Error {
    let reason = "TCP sockets of a stack belong to the threads of StackOptions::threads";
    io::Error::new(io::ErrorKind::Unsupported, reason)
}

/// The shortest part that is sent from shared memory: a shorter one costs less to copy than to refer to.
const LEAST_SHARED: usize = 1 << 10;

/// The most bytes that one call reads, from a file or for a caller without a buffer.
const MOST_AT_ONCE: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pieces_are_the_parts_as_far_as_there_is_room(
            lengths in prop::collection::vec(0..3000usize, 0..5),
            is_shared in prop::collection::vec(any::<bool>(), 5),
            room in 0..9000usize,
        ) {
            let memory: Vec<u8> = (0..20_000).map(|at| (at % 251) as u8).collect();
            let shared = Bytes::copy_from_slice(&memory);
            let mut at = 0;
            let mut parts = Vec::new();
            for (&length, &is_shared) in lengths.iter().zip(&is_shared) {
                let of: &[u8] = if is_shared { &shared } else { &memory };
                parts.push(IoSlice::new(&of[at..at + length]));
                at += length;
            }
            let room = room.min(at);
            let pieces = pieces(&parts, room, &shared);
            prop_assert_eq!(pieces.concat(), &memory[..room]);
            let [_, piece, _] = &pieces;
            prop_assert!(piece.is_empty() || lies_within(piece, &shared));
        }
    }

    #[test]
    fn a_long_part_of_shared_memory_is_not_copied() {
        let shared = Bytes::from(vec![7; 4000]);
        let parts = [IoSlice::new(b"head"), IoSlice::new(&shared[100..])];
        let [head, body, rest] = pieces(&parts, 2004, &shared);
        assert_eq!(&head[..], b"head");
        assert_eq!((body.len(), body.as_ptr()), (2000, shared[100..].as_ptr()));
        assert!(rest.is_empty());
    }
}
