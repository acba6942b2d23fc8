//! The state of connections that a program supervises or relays: lost, ended, or held back by pacing.
//!
//! A server or proxy ends the work of a request when its client has gone, does not count the time that its own pacing
//! takes against the client, and keeps idle connections until another task uses them. Programs that only read and
//! write need none of this: a read returns the end and the errors of a connection.

use std::task::{Context, Poll};

use super::{TcpStream, UnixStream};
use crate::runtime::sources::Direction;

/// The state of a stream, known without a system call.
///
/// # Example
/// Computes an answer as long as its client is there:
/// ```
/// use std::future::poll_fn;
/// use softclock::net::TcpStream;
/// use softclock::net::relay::Supervise;
///
/// async fn answer(client: &TcpStream, work: impl Future<Output = Vec<u8>>) -> std::io::Result<()> {
///     let mut work = std::pin::pin!(work);
///     let answer = poll_fn(|cx| match client.poll_lost(cx) {
///         std::task::Poll::Ready(()) => std::task::Poll::Ready(None),
///         std::task::Poll::Pending => work.as_mut().poll(cx).map(Some),
///     });
///     match answer.await {
///         Some(answer) => client.write_all(&answer).await,
///         None => Ok(()),
///     }
/// }
/// ```
pub trait Supervise {
    /// Ready when the connection is known to be lost: the peer has reset or closed it, the kernel has given up, or both
    /// directions have ended. A peer that has ended only its own direction may still read. Until then `cx` is woken by
    /// the loss and by arriving data. Makes no system call. [`Mechanism::Select`](crate::Mechanism) does not report a
    /// loss.
    fn poll_lost(&self, cx: &Context<'_>) -> Poll<()>;

    /// Ready when the peer is known to have ended its direction, as by a shutdown of it, or when the connection is
    /// [lost](Self::poll_lost). Data that the peer sent before may be unread. Until then `cx` is woken by the end and
    /// by arriving data. Makes no system call. [`Mechanism::Select`](crate::Mechanism) does not report the end.
    fn poll_ended(&self, cx: &Context<'_>) -> Poll<()>;

    /// Removes the tasks that wait to read, so that arriving data does not wake them until they poll again. Use it
    /// before passing the stream on to another task, such as from a pool of idle connections. Makes no system call.
    fn forget_readers(&self);

    /// Returns whether a pending write waits for its time, because the stream is [paced](TcpStream::set_pacing), or for
    /// the task's next turn, rather than for the peer: a limit on how slowly a peer may read must not count this time.
    /// Makes no system call.
    ///
    /// The writer of a [stack](crate::net::stack)'s stream is not woken when it has to wait for the peer instead: ask
    /// again after a while.
    fn is_held_back(&self) -> bool;
}

impl Supervise for TcpStream {
    fn poll_lost(&self, cx: &Context<'_>) -> Poll<()> {
        self.io().poll_lost(cx)
    }

    fn poll_ended(&self, cx: &Context<'_>) -> Poll<()> {
        self.io().poll_ended(cx)
    }

    fn forget_readers(&self) {
        self.io().registration().forget_waiters(Direction::Read);
    }

    fn is_held_back(&self) -> bool {
        let waits = match self.pacing().paced() {
            Some(paced) => paced.is_held_back(),
            None => self.io().registration().is_ready(Direction::Write),
        };
        waits || self.io().held_back() > 0
    }
}

impl Supervise for UnixStream {
    fn poll_lost(&self, cx: &Context<'_>) -> Poll<()> {
        self.registration().poll_lost(cx)
    }

    fn poll_ended(&self, cx: &Context<'_>) -> Poll<()> {
        self.registration().poll_ended(cx)
    }

    fn forget_readers(&self) {
        self.registration().forget_waiters(Direction::Read);
    }

    fn is_held_back(&self) -> bool {
        self.registration().is_ready(Direction::Write)
    }
}
