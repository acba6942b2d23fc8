//! The stream between an HTTP/1 socket and hyper: passes on only valid requests, and limits each wait.
//!
//! hyper receives whole heads, which the scanner has checked ([`head`](crate::syntax::head)). After the first head that
//! is refused or late, hyper reads the end of the stream, and therefore finishes the responses to the requests before
//! it; then the connection sends its last response ([`closing`](crate::exchange::closing)). Heads that arrive in pieces
//! are withheld until they are complete, which also saves hyper from parsing them again for every piece.
//!
//! Bytes after a request for an upgrade are withheld unscanned. If the connection becomes a tunnel, they are its first
//! input; if hyper reads the next request instead, they are scanned as HTTP.
//!
//! While a client waits for an upstream, the stream reads ahead, to notice when the client ends its side. That ends an
//! exchange whose response has not begun, and limits the silence of the upstream within a response.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::rt::{Read, ReadBufCursor, Write};
use softclock::GiveWay;

use crate::client::OnLeave;
use crate::client::members::{Awaits, MemberSlot};
use crate::client::options::ConnectionOptions;
use crate::client::patience::{ClientPatience, Wait};
use crate::exchange::session::Session;
use crate::net::buffers;
use crate::net::file_lane::FileLane;
use crate::net::socket::Socket;
use crate::observe::limit::Limit;
use crate::syntax::head::{Fault, Position, Scanner};

/// A socket that checks the requests and limits the delays of its client. hyper reads from it and writes to it.
pub(crate) struct GuardedStream<S> {
    socket: S,
    session: Rc<Session>,
    /// Sends files past hyper.
    lane: Rc<FileLane>,
    scanner: Scanner,
    withheld: Withheld,
    /// Delays reading the rest of a head until other tasks have run.
    slow_head: GiveWay,
    patience: ClientPatience,
    /// Records since when the connection waits for its client, for the limit of connections.
    slot: Option<MemberSlot>,
    /// Whether the client has sent any byte.
    heard: bool,
    /// Set once nothing more is read.
    end: Option<End>,
    /// Whether hyper has read up to the end, and so has answered all requests before it.
    end_was_read: bool,
    /// Whether hyper has finished writing.
    shut_down: bool,
    /// Whether the last write or flush had to wait.
    blocked: bool,
}

/// The reason why nothing more is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// The client has closed its side.
    Closed,
    /// The client has closed its side while it waited for a response. The response is abandoned.
    Left,
    /// A head is refused. If `is_head`, its method is HEAD, and the response must have no body.
    Refused { fault: Fault, is_head: bool },
    /// A head was not complete in time.
    SlowHead,
    /// A body has invalid framing. Its request may have been answered already.
    BrokenBody,
    /// The client has sent no request before the timeout.
    Silent,
    /// The client reads nothing, or too slowly.
    Stuck,
    /// A response without a length or chunks is incomplete, whose end would be that of the connection.
    CutShort,
    /// No request has followed the last response: at once, or within a pause for a client that sends requests quickly.
    /// Or the options have changed, which the next request must get. hyper is dropped until that arrives; the
    /// connection continues.
    Pause,
}

/// The caller that waits for bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reader {
    Hyper,
    /// The connection itself, while it runs without hyper.
    Nobody,
}

/// Bytes that were read from the socket but not passed to hyper.
#[derive(Default)]
struct Withheld {
    bytes: Vec<u8>,
    /// The number of bytes at the start that hyper may read. The rest begin a head, or follow a request for an upgrade.
    passed: usize,
}

impl<S: Socket> GuardedStream<S> {
    pub(crate) fn new(
        socket: S,
        session: Rc<Session>,
        options: &ConnectionOptions,
        slot: Option<MemberSlot>,
    ) -> Self {
        Self {
            socket,
            session,
            lane: Rc::default(),
            scanner: Scanner::new(options.head),
            withheld: Withheld::default(),
            slow_head: GiveWay::default(),
            patience: ClientPatience::new(options.timeouts),
            slot,
            heard: false,
            end: None,
            end_was_read: false,
            shut_down: false,
            blocked: false,
        }
    }

    /// Returns the lane that sends files past hyper, if the socket supports that at present.
    pub(crate) fn lane(&self) -> Option<&Rc<FileLane>> {
        self.socket.sends_files().then_some(&self.lane)
    }

    /// Returns whether nothing of the next request has arrived.
    pub(crate) fn is_between_requests(&self) -> bool {
        self.scanner.awaits_request() && self.withheld.is_empty()
    }

    /// Replaces the options by the current ones, between two requests.
    pub(crate) fn set_options(&mut self, options: &ConnectionOptions) {
        self.session.on_options_set();
        self.scanner.set_limits(options.head);
        self.patience.set_timeouts(options.timeouts);
    }

    /// Records that hyper has finished without an error. Needed as hyper does not call
    /// [`poll_shutdown`](Write::poll_shutdown) after a request for an upgrade: it treats the end of the connection as
    /// the upgrade.
    pub(crate) fn on_all_written(&mut self) {
        self.shut_down = true;
    }

    /// Records that a response is incomplete whose end would be that of the connection. Makes the close a reset.
    pub(crate) fn on_cut_short(&mut self) {
        self.socket.give_up();
        // A client that was too slow is counted as such.
        if self.end != Some(End::Stuck) {
            self.end = Some(End::CutShort);
        }
    }

    /// Returns whether hyper has ended because of a pause. If so, resets the end, so that the stream can be read again.
    pub(crate) fn take_pause(&mut self) -> bool {
        let paused = self.end == Some(End::Pause) && self.shut_down;
        if paused {
            self.end = None;
            self.end_was_read = false;
            self.shut_down = false;
        }
        paused
    }

    /// Records that all requests are answered. For an end that occurs while the connection runs without hyper.
    pub(crate) fn finish(&mut self) {
        self.end_was_read = true;
        self.shut_down = true;
    }

    /// Returns the socket together with the state that a close needs.
    pub(crate) fn into_ending(self) -> Ending<S> {
        Ending {
            end: self.end,
            end_was_read: self.end_was_read,
            shut_down: self.shut_down,
            mid_request: matches!(self.scanner.position(), Position::Body | Position::Upgrade),
            had_body: self.scanner.had_body(),
            patience: self.patience,
            socket: self.socket,
        }
    }

    /// Returns the socket of a connection that has become a tunnel, and the first input of the tunnel: the bytes that
    /// hyper has `read` but not parsed, and those withheld from it.
    pub(crate) fn into_tunnel(self, read: Bytes) -> (S, Bytes) {
        let early = match self.withheld.is_empty() {
            true => read,
            false => [&read[..], &self.withheld.bytes].concat().into(),
        };
        (self.socket, early)
    }

    /// Waits for a whole head while the connection runs without hyper. Returns false if the connection has ended.
    pub(crate) fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        loop {
            self.resume();
            if self.withheld.passed > 0 {
                return Poll::Ready(true);
            }
            if self.end.is_some() {
                self.finish();
                return Poll::Ready(false);
            }
            // The rest of a partial head is read only when no other task is ready, so that clients that send heads byte
            // by byte do not delay others.
            if !self.withheld.is_empty() && self.socket.poll_readable(cx).is_ready() {
                ready!(self.slow_head.poll(cx));
            }
            match self.poll_receive(cx, usize::MAX, None) {
                Poll::Ready(Ok(_)) => {}
                // Between requests a lost connection is no error; hyper treats it the same.
                Poll::Ready(Err(_)) => self.end = Some(End::Closed),
                Poll::Pending => self.end = Some(ready!(self.poll_patience(cx, Reader::Nobody))),
            }
        }
    }

    /// Reads up to `max` bytes from the socket and scans them. Returns true if bytes were put into `buffer`. Without a
    /// buffer, all bytes are withheld.
    fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        max: usize,
        buffer: Option<&mut ReadBufCursor<'_>>,
    ) -> Poll<io::Result<bool>> {
        // hyper's buffer is uninitialised memory, from which the scanner cannot read: scan first, then copy.
        buffers::with_scratch(|received| {
            let max = max.min(received.len());
            let result = self.socket.poll_receive(cx, &mut received[..max]);
            result.map_ok(|n| self.on_received(&received[..n], buffer))
        })
    }

    /// Scans bytes from the socket; none mean its end. Passes complete heads and bodies to `buffer`, and withholds the
    /// rest. Returns true if bytes were put into `buffer`.
    fn on_received(&mut self, bytes: &[u8], buffer: Option<&mut ReadBufCursor<'_>>) -> bool {
        if bytes.is_empty() {
            self.end = Some(End::Closed);
            return false;
        }
        let scanned = self.scanner.scan(bytes);
        let (passed, rest) = bytes.split_at(scanned.passed);
        let has_begun = !passed.is_empty() || !self.scanner.awaits_request();
        self.heard |= has_begun;
        // The first byte ends the wait for a request, and only a complete head ends the wait for a head.
        if let Some(slot) = &self.slot
            && let Some((awaits, _)) = self.patience.awaits()
            && (awaits == Awaits::Request && has_begun || !passed.is_empty())
        {
            slot.note(None);
        }
        if !passed.is_empty() {
            self.patience.on_received();
            match buffer {
                // Straight to hyper only if no earlier bytes wait, to keep the order.
                Some(buffer) if self.withheld.is_empty() => buffer.put_slice(passed),
                _ => self.withheld.pass(passed),
            }
        }
        match scanned.fault {
            None => self.withheld.keep(rest),
            Some(_) if self.scanner.broke_in_body() => self.end = Some(End::BrokenBody),
            Some(fault) => {
                let is_head = self.withheld.head_starts_with(rest, b"HEAD ");
                self.end = Some(End::Refused { fault, is_head });
            }
        }
        scanned.passed > 0 && self.withheld.passed == 0
    }

    /// Scans the bytes that were withheld after a request for an upgrade. Call it when hyper reads the next request,
    /// which it does only if the upgrade was refused.
    fn resume(&mut self) {
        if self.scanner.position() != Position::Upgrade || self.withheld.passed > 0 {
            return;
        }
        self.scanner.resume();
        let held = std::mem::take(&mut self.withheld.bytes);
        if !held.is_empty() {
            self.on_received(&held, None);
        }
    }

    /// Ready when the client is gone. Call it when hyper flushes: hyper flushes on every poll, but does not read while
    /// a request is being answered. While pending, arriving bytes wake the task.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.session.client.on_leave() == OnLeave::End {
            ready!(self.poll_left(cx));
            self.end = Some(End::Left);
            self.shut_down = true;
            return Poll::Ready(());
        }
        // Checked on the socket, regardless of `self.end`: a refused head may follow a request in progress, whose
        // client still waits.
        self.socket.poll_lost(cx)
    }

    /// Ready when the client has ended its side and no more of its response has come for [`HALF_CLOSED_SILENCE`]. Call
    /// it when all of the response that has come is written.
    ///
    /// [`HALF_CLOSED_SILENCE`]: crate::client::patience::HALF_CLOSED_SILENCE
    fn poll_silent(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // While the request's body is incomplete, the upstream may be silent because it waits for the rest. That of a
        // later request may have begun, too, which does not matter.
        let awaits_body = self.scanner.position() == Position::Body
            && self.scanner.heads() == self.session.begun();
        if self.session.client.on_leave() != OnLeave::LimitSilence || awaits_body {
            return Poll::Pending;
        }
        ready!(self.poll_left(cx));
        ready!(self.patience.poll_read(Wait::HalfClosed, cx));
        self.on_late(Wait::HalfClosed);
        Poll::Ready(())
    }

    /// Ready when the client has ended its side. Reads ahead up to [`READ_AHEAD_BYTES`], as TLS and some readiness
    /// mechanisms do not report an end that follows unread bytes. Reads no bodies, which hyper reads as the upstream
    /// accepts them.
    fn poll_left(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.end.is_none() && self.scanner.position() != Position::Body {
            let room = READ_AHEAD_BYTES.saturating_sub(self.withheld.bytes.len());
            if room == 0 {
                break;
            }
            ready!(self.socket.poll_readable(cx));
            if ready!(self.poll_receive(cx, room, None)).is_err() {
                return Poll::Ready(());
            }
        }
        match self.end {
            Some(End::Closed) => Poll::Ready(()),
            _ => self.socket.poll_ended(cx),
        }
    }

    /// Call it when no bytes have arrived. Ready with the reason to end when the time for the current wait is up.
    fn poll_patience(&mut self, cx: &mut Context<'_>, reader: Reader) -> Poll<End> {
        // An empty line after a request begins no other one (RFC 9112, section 2.2).
        let awaits_request = self.scanner.awaits_request();
        let (wait, end) = match self.scanner.position() {
            // hyper waits only for a moment; then the connection waits on without it.
            _ if awaits_request && reader == Reader::Hyper => (Wait::Pause, End::Pause),
            _ if awaits_request && !self.heard => (Wait::FirstByte, End::Silent),
            Position::Head if !awaits_request => (Wait::Head, End::SlowHead),
            Position::Between | Position::Head | Position::Upgrade => (Wait::Next, End::Silent),
            // The reader of the body limits this wait: only the reader knows whether it waits for the client.
            Position::Body | Position::Refused => return Poll::Pending,
        };
        let awaited = self.patience.awaits();
        let result = self.patience.poll_read(wait, cx);
        if let Some(slot) = &self.slot
            && awaited != self.patience.awaits()
        {
            slot.note(self.patience.awaits());
        }
        result.map(|()| {
            self.on_late(wait);
            end
        })
    }

    /// Counts the timeout of a wait.
    fn on_late(&self, wait: Wait) {
        match wait {
            Wait::FirstByte => Limit::FirstByteTimeout.count_one(),
            Wait::Head => Limit::HeadTimeout.reached(self.session.client.peer, "connection closed"),
            Wait::Next => Limit::IdleTimeout.count_one(),
            Wait::HalfClosed => Limit::HalfClosedTimeout.count_one(),
            Wait::Pause => {}
        }
    }

    /// Sends part of a file in place of the bytes that hyper `offered`, if these are placeholders for it
    /// ([`FileLane`]).
    fn poll_write_file(
        &mut self,
        cx: &mut Context<'_>,
        offered: impl FnOnce() -> usize,
    ) -> Option<Poll<io::Result<usize>>> {
        self.lane.poll_write(cx, &mut self.socket, offered)
    }

    /// Records the result of a write and returns it. Fails when the client has read too little for too long.
    fn watch(
        &mut self,
        written: Poll<io::Result<usize>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let was_blocked = std::mem::replace(&mut self.blocked, written.is_pending());
        if let Poll::Ready(written) = written {
            if let Ok(bytes) = &written {
                self.patience.on_written(*bytes);
            }
            if was_blocked {
                // hyper may have read the next request while the write was blocked, and would parse it only at the next
                // event.
                cx.waker().wake_by_ref();
            }
            return Poll::Ready(written);
        }
        ready!(self.patience.poll_blocked(&self.socket, cx));
        self.end = Some(End::Stuck);
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl Withheld {
    fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Adds the beginning of a head, or bytes after a request for an upgrade, which hyper must not read yet.
    fn keep(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Adds bytes that complete a head, or follow a complete one, and lets hyper read all bytes.
    fn pass(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.passed = self.bytes.len();
    }

    /// Moves bytes for hyper into `buffer`, as many as fit. Returns false if there are none.
    fn give(&mut self, buffer: &mut ReadBufCursor<'_>) -> bool {
        if self.passed == 0 {
            return false;
        }
        let now = self.passed.min(buffer.remaining());
        buffer.put_slice(&self.bytes[..now]);
        self.bytes.drain(..now);
        self.passed -= now;
        if self.bytes.is_empty() {
            // An idle connection keeps no memory.
            self.bytes = Vec::new();
        }
        true
    }

    /// Returns whether the head that begins in the withheld bytes and continues with `rest` starts with `word`, perhaps
    /// after an empty line.
    fn head_starts_with(&self, rest: &[u8], word: &[u8]) -> bool {
        let head = self.bytes[self.passed..].iter().chain(rest);
        let line_end = match head.clone().take(2).eq(b"\r\n") {
            true => 2,
            false => 0,
        };
        head.skip(line_end).take(word.len()).eq(word)
    }
}

impl<S: Socket> Read for GuardedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            this.resume();
            if this.withheld.give(&mut buffer) {
                return Poll::Ready(Ok(()));
            }
            if this.end.is_some() {
                this.end_was_read = true;
                return Poll::Ready(Ok(()));
            }
            // The next request must be scanned with the options of a reload, also if it has arrived.
            if this.is_between_requests() && this.session.has_old_options() {
                this.end = Some(End::Pause);
                continue;
            }
            let room = buffer.remaining();
            match this.poll_receive(cx, room, Some(&mut buffer)) {
                Poll::Ready(Ok(true)) => return Poll::Ready(Ok(())),
                Poll::Ready(Ok(false)) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => this.end = Some(ready!(this.poll_patience(cx, Reader::Hyper))),
            }
        }
    }
}

impl<S: Socket> Write for GuardedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = match self.poll_write_file(cx, || bytes.len()) {
            Some(written) => written,
            None => Pin::new(&mut self.socket).poll_write(cx, bytes),
        };
        self.watch(written, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let offered = || buffers.iter().map(|buffer| buffer.len()).sum();
        let written = match self.poll_write_file(cx, offered) {
            Some(written) => written,
            None => {
                let Self {
                    socket, session, ..
                } = &mut *self;
                let content = session.content.borrow();
                socket.poll_write_shared(cx, buffers, &content)
            }
        };
        self.watch(written, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    /// Flushes the socket. Fails when the client is gone, or when it has ended its side and the upstream of its
    /// response has been silent for too long.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.poll_gone(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        // hyper flushes once it has written everything.
        self.session.content.take();
        self.lane.on_flush(|| self.socket.sends_files())?;
        // With TLS, the flush waits until the client has read buffered records: this wait has its timeouts, too.
        let flushed = Pin::new(&mut self.socket).poll_flush(cx);
        ready!(self.watch(flushed.map_ok(|()| 0), cx))?;
        match self.poll_silent(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            Poll::Pending => Poll::Ready(Ok(())),
        }
    }

    /// Records that hyper has written all output. Closing itself happens later, without hyper and its buffers.
    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.shut_down = true;
        Poll::Ready(Ok(()))
    }
}

/// The socket of a connection that hyper has finished with, and the state that a close needs.
pub(crate) struct Ending<S> {
    pub(crate) socket: S,
    pub(crate) end: Option<End>,
    /// Whether all requests before the end were answered.
    pub(crate) end_was_read: bool,
    /// Whether hyper finished without an error.
    pub(crate) shut_down: bool,
    /// Whether the rest of a body, or bytes after a request for an upgrade, may still arrive.
    pub(crate) mid_request: bool,
    /// Whether any request had a body. hyper ends the connection after a request whose body was not read completely.
    pub(crate) had_body: bool,
    /// The timeouts of the client, for output that it has not read and for input that it still sends.
    pub(crate) patience: ClientPatience,
}

/// The most bytes that are read ahead from a client that waits for its response: enough for many requests, or for the
/// first frames after a request for an upgrade. The read that brought the request may have brought more.
const READ_AHEAD_BYTES: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use softclock::net::TcpStream;

    /// A server holds one guard for each idle connection.
    #[test]
    fn what_a_guard_adds_to_its_socket() {
        let size = size_of::<GuardedStream<TcpStream>>();
        assert!(size <= 576, "{size} bytes");
    }
}
