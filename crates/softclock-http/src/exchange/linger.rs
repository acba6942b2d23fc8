//! The wait between the end of the output and the close of a socket, in which input is discarded.
//!
//! Closing a socket with unread data resets the connection, and so does data that arrives later. The client's kernel
//! may then discard the end of the output, such as a response that explains the close (RFC 9112, section 9.6).

use std::task::{Context, Poll};
use std::time::Duration;

use softclock::Instant;

use crate::net::late_timer::LateTimer;
use crate::net::socket::Socket;

/// Discards input until the client closes its side, is silent for a time, has sent too much, or [`LIMIT`] has passed.
pub(crate) struct Linger {
    most_bytes: usize,
    silence: Duration,
    /// The end of the time of silence, if no input arrives.
    silent_until: Instant,
    until: Instant,
    discarded: usize,
    timer: LateTimer,
}

impl Linger {
    /// Begins the wait for a client that does not read the output if it sends more than `most_bytes` after its end, and
    /// sends no more if it is silent for `silence`.
    pub(crate) fn new(most_bytes: usize, silence: Duration, now: Instant) -> Self {
        Self {
            most_bytes,
            silence,
            silent_until: now + silence,
            until: now + LIMIT,
            discarded: 0,
            timer: LateTimer::default(),
        }
    }

    /// Ready when the socket can be closed.
    pub(crate) fn poll(&mut self, socket: &mut impl Socket, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let received = socket.poll_receive(cx, &mut [0; READ_BYTES]);
            let now = softclock::now();
            match received {
                Poll::Ready(Ok(n)) if n > 0 && self.goes_on(now) => self.discarded += n,
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => {
                    let deadline = self.silent_until.min(self.until);
                    return self.timer.poll_until(deadline, now, cx);
                }
            }
            self.silent_until = now + self.silence;
        }
    }

    fn goes_on(&self, now: Instant) -> bool {
        self.discarded < self.most_bytes && now < self.until
    }
}

/// The longest wait: enough for a response to cross the world and for the client to react.
pub(crate) const LIMIT: Duration = Duration::from_secs(2);

/// The size of one read.
const READ_BYTES: usize = 8 << 10;
