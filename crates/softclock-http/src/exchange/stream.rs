//! The socket as hyper sees it: only good requests come from it, and it does not wait for ever.
//!
//! hyper gets whole heads, each scanned before ([`head`](crate::syntax::head)). Behind the first that is refused, or
//! that takes too long, it sees the end of the stream, and so finishes the responses to the requests before it; then
//! the connection says why it ends ([`closing`](crate::exchange::closing)). Heads that arrive in pieces are kept here
//! until they are complete, which also spares hyper parsing them again for every piece.
//!
//! Bytes after a request for an upgrade are kept unscanned. If the connection becomes a tunnel they go into it; if
//! hyper asks for the next request instead, they are scanned as HTTP.
//!
//! While a client waits for an upstream its bytes are read ahead, to notice when it ends its side. That ends an
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

/// A socket whose client is watched.
pub(crate) struct GuardedStream<S> {
    socket: S,
    session: Rc<Session>,
    /// Where files are sent past hyper.
    lane: Rc<FileLane>,
    scanner: Scanner,
    withheld: Withheld,
    slow_head: GiveWay,
    patience: ClientPatience,
    slot: Option<MemberSlot>,
    /// Whether the client has sent anything at all.
    heard: bool,
    end: Option<End>,
    /// Whether hyper has asked for more after the end: then it has nothing more to answer.
    end_was_read: bool,
    shut_down: bool,
    /// Whether the last write or flush had to wait.
    blocked: bool,
}

/// Why nothing more is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// The client has closed its side.
    Closed,
    /// The client has closed its side while it waited for a response, which is given up.
    Left,
    /// A head is refused; if that of a HEAD request, the response has no body.
    Refused { fault: Fault, is_head: bool },
    /// A head was not complete in time.
    SlowHead,
    /// A body is framed wrongly, or does not arrive; its request may have been answered.
    BrokenBody,
    /// The client has sent no request for long.
    Silent,
    /// The client takes nothing, or too little.
    Stuck,
    /// Not the client's: no request has followed for a moment, and hyper does without the stream until one does.
    Pause,
}

/// Who waits for bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reader {
    Hyper,
    Nobody,
}

/// Bytes read that hyper has not got yet.
#[derive(Default)]
struct Withheld {
    bytes: Vec<u8>,
    /// This many at the start are for hyper; the others begin a head, or follow a request for an upgrade.
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

    /// The way of files past hyper, if the socket sends them now.
    pub(crate) fn lane(&self) -> Option<&Rc<FileLane>> {
        self.socket.sends_files().then_some(&self.lane)
    }

    /// Records that hyper has ended as it should. After a request for an upgrade hyper does not call
    /// [`poll_shutdown`](Write::poll_shutdown), as it takes the connection's end for the upgrade.
    pub(crate) fn on_all_written(&mut self) {
        self.shut_down = true;
    }

    /// Whether hyper has ended for a pause only; then the stream goes on.
    pub(crate) fn take_pause(&mut self) -> bool {
        let paused = self.end == Some(End::Pause) && self.shut_down;
        if paused {
            self.end = None;
            self.end_was_read = false;
            self.shut_down = false;
        }
        paused
    }

    /// Notes that there is nothing more to answer, while hyper does not have the stream.
    pub(crate) fn finish(&mut self) {
        self.end_was_read = true;
        self.shut_down = true;
    }

    /// The socket, and how the conversation ended.
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

    /// The socket of a connection that is HTTP's no more, and what was read from it: by hyper, and not passed to it
    /// yet.
    pub(crate) fn into_tunnel(self, read: Bytes) -> (S, Bytes) {
        let early = match self.withheld.is_empty() {
            true => read,
            false => [&read[..], &self.withheld.bytes].concat().into(),
        };
        (self.socket, early)
    }

    /// Waits, while hyper does not have the stream, until there is a whole head for it to read; false if none will
    /// come.
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
            // A client that sends a head byte by byte goes behind those that have sent theirs.
            if !self.withheld.is_empty() && self.socket.poll_readable(cx).is_ready() {
                ready!(self.slow_head.poll(cx));
            }
            match self.poll_receive(cx, usize::MAX, None) {
                Poll::Ready(Ok(_)) => {}
                // Between requests hyper, too, takes a lost connection for a closed one.
                Poll::Ready(Err(_)) => self.end = Some(End::Closed),
                Poll::Pending => self.end = Some(ready!(self.poll_patience(cx, Reader::Nobody))),
            }
        }
    }

    /// Reads up to `max` bytes from the socket: true if `buffer` was given something; without one all is withheld.
    fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        max: usize,
        buffer: Option<&mut ReadBufCursor<'_>>,
    ) -> Poll<io::Result<bool>> {
        // Bytes are scanned before they go to hyper, whose buffers are not initialised.
        buffers::with_scratch(|received| {
            let max = max.min(received.len());
            let result = self.socket.poll_receive(cx, &mut received[..max]);
            result.map_ok(|n| self.on_received(&received[..n], buffer))
        })
    }

    fn on_received(&mut self, bytes: &[u8], buffer: Option<&mut ReadBufCursor<'_>>) -> bool {
        if bytes.is_empty() {
            self.end = Some(End::Closed);
            return false;
        }
        self.heard = true;
        let scanned = self.scanner.scan(bytes);
        let (passed, rest) = bytes.split_at(scanned.passed);
        if let Some(slot) = &self.slot
            && let Some((awaits, _)) = self.patience.awaits()
            && (awaits == Awaits::Request || !passed.is_empty())
        {
            slot.note(None);
        }
        if !passed.is_empty() {
            self.patience.on_received();
            match buffer {
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

    /// Scans the bytes kept after a request for an upgrade. To be called when hyper asks for the next request, which
    /// means that the upgrade was refused.
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

    /// Ready when the client is gone. To be called when hyper flushes: it does so on every poll, but does not read
    /// while a request is answered. Until then arriving bytes wake the task, as for a read.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.session.client.on_leave() == OnLeave::End {
            ready!(self.poll_left(cx));
            self.end = Some(End::Left);
            self.shut_down = true;
            return Poll::Ready(());
        }
        // Whatever was read last, as refused bytes may stand behind a request in progress.
        self.socket.poll_lost(cx)
    }

    /// Ready when nothing of a response has come for [`HALF_CLOSED_SILENCE`], after its client has ended its side. To be
    /// called when all that has come is written.
    ///
    /// [`HALF_CLOSED_SILENCE`]: crate::client::patience::HALF_CLOSED_SILENCE
    fn poll_silent(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // An upstream may wait for the rest of the request.
        if self.session.client.on_leave() != OnLeave::LimitSilence
            || self.scanner.position() == Position::Body
        {
            return Poll::Pending;
        }
        ready!(self.poll_left(cx));
        ready!(self.patience.poll_read(Wait::HalfClosed, cx));
        self.on_late(Wait::HalfClosed);
        Poll::Ready(())
    }

    /// Ready when the client has ended its side. Reads ahead up to [`READ_AHEAD_BYTES`], as TLS and some mechanisms of
    /// readiness do not show an end behind unread bytes. Reads no body: hyper does, as the upstream takes it.
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

    /// Nothing has arrived: ready if it had to, or if hyper shall not wait for it.
    fn poll_patience(&mut self, cx: &mut Context<'_>, reader: Reader) -> Poll<End> {
        let (wait, end) = match self.scanner.position() {
            Position::Between if reader == Reader::Hyper => (Wait::Pause, End::Pause),
            Position::Between if !self.heard => (Wait::FirstByte, End::Silent),
            Position::Between | Position::Upgrade => (Wait::Next, End::Silent),
            Position::Head => (Wait::Head, End::SlowHead),
            // The body's reader limits this wait, as only the reader knows whether it waits for the client.
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

    /// Counts the limit of a wait whose time is up.
    fn on_late(&self, wait: Wait) {
        match wait {
            Wait::FirstByte => Limit::FirstByteTimeout.count_one(),
            Wait::Head => Limit::HeadTimeout.reached(self.session.client.peer, "connection closed"),
            Wait::Next => Limit::IdleTimeout.count_one(),
            Wait::HalfClosed => Limit::HalfClosedTimeout.count_one(),
            Wait::Pause => {}
        }
    }

    /// Sends a file's content if bytes that hyper writes now stand for it.
    fn poll_write_file(
        &mut self,
        cx: &mut Context<'_>,
        offered: impl FnOnce() -> usize,
    ) -> Option<Poll<io::Result<usize>>> {
        self.lane.poll_write(cx, &mut self.socket, offered)
    }

    /// Passes `written` on; an error when the client takes too little.
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
                // hyper may have read the next request meanwhile, and would go on with it at the next event only.
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

    /// Adds the beginning of a head, or bytes after a request for an upgrade.
    fn keep(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Adds what completes a head, and what may follow it.
    fn pass(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.passed = self.bytes.len();
    }

    /// Gives as much as `buffer` takes of what is for hyper; false if nothing is.
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

    /// Whether what is withheld, continued by `rest`, starts with `word`.
    fn head_starts_with(&self, rest: &[u8], word: &[u8]) -> bool {
        let head = self.bytes[self.passed..].iter().chain(rest);
        head.copied().take(word.len()).eq(word.iter().copied())
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
            None => Pin::new(&mut self.socket).poll_write_vectored(cx, buffers),
        };
        self.watch(written, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    /// Fails when the client is gone, or has ended its side and the response has been silent for too long.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.poll_gone(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        self.lane.on_flush(|| self.socket.sends_files())?;
        // Through TLS the end of a response waits here for the client.
        let flushed = Pin::new(&mut self.socket).poll_flush(cx);
        ready!(self.watch(flushed.map_ok(|()| 0), cx))?;
        match self.poll_silent(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            Poll::Pending => Poll::Ready(Ok(())),
        }
    }

    /// hyper has written all it had to write. What remains to be done is done without hyper and its buffers.
    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.shut_down = true;
        Poll::Ready(Ok(()))
    }
}

/// What is left when hyper has ended.
pub(crate) struct Ending<S> {
    pub(crate) socket: S,
    pub(crate) end: Option<End>,
    /// Whether all requests before the end were answered.
    pub(crate) end_was_read: bool,
    /// Whether hyper ended as it should.
    pub(crate) shut_down: bool,
    /// Whether the rest of a body, or bytes after a request for an upgrade, may still arrive.
    pub(crate) mid_request: bool,
    /// Whether there was one: hyper ends the connection behind a request whose body it has not read.
    pub(crate) had_body: bool,
    /// The patience with the client, for what is still to be sent, and for what is still to come.
    pub(crate) patience: ClientPatience,
}

/// The most that is read ahead of a waiting client: many requests, or the first frames after a request for an upgrade.
/// Bytes that arrived in one read with the request may be more.
const READ_AHEAD_BYTES: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use softclock::net::TcpStream;

    /// Idle connections are many, and should be small.
    #[test]
    fn what_a_guard_adds_to_its_socket() {
        let size = size_of::<GuardedStream<TcpStream>>();
        assert!(size <= 576, "{size} bytes");
    }
}
