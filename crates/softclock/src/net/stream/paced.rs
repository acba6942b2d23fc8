//! Pacing of the writes of a connection.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};

use super::TcpStream;
use crate::net::pacing::{Pacer, Pacing};

impl TcpStream {
    /// Paces all writes from now on by `pacing`, or stops pacing with `None`. The change takes effect at once,
    /// including for data that was written before and has not been sent; none of it is lost.
    ///
    /// A paced write fills a bounded buffer, from which events send pieces ([`Pacing`]), including small segments
    /// (`TCP_NODELAY`). An error in sending a piece is returned by the next write. [`shutdown`](Self::shutdown) takes
    /// effect after the written data. Dropping the stream lets that data be sent at the rate, unless the runtime
    /// ends, which gives it to the kernel at once, or the peer accepts no data for a minute.
    ///
    /// For many streams, or a rate that they share, see [`paced`](Self::paced).
    ///
    /// # Example
    ///
    /// ```no_run
    /// # async fn pace(stream: softclock::net::TcpStream) -> Result<(), Box<dyn std::error::Error>> {
    /// use softclock::net::Pacing;
    ///
    /// stream.set_pacing(Some(Pacing::of_rate("50mbit".parse()?)));
    /// stream.write_all(&[0; 100_000]).await?; // takes 16 ms
    /// stream.set_pacing(Some(Pacing {
    ///     burst: "60mbit".parse()?, // where it has fallen behind
    ///     ..Pacing::of_rate("50mbit".parse()?)
    /// }));
    /// stream.set_pacing(None);
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_pacing(&self, pacing: Option<Pacing>) {
        self.set_pacer(&Pacer::new(pacing));
    }

    /// Lets `pacer` pace the writes of this stream, like [`set_pacing`](Self::set_pacing), together with other
    /// streams. [`Pacer::set`] then changes the pacing of streams in use.
    #[must_use]
    pub fn paced(self, pacer: &Pacer) -> Self {
        self.set_pacer(pacer);
        self
    }

    fn set_pacer(&self, pacer: &Pacer) {
        // Otherwise the kernel would wait for the rest of a segment.
        let _ = self.set_nodelay(true);
        self.pacing.set_pacer(pacer);
    }

    /// Returns whether writes are currently paced.
    pub fn is_paced(&self) -> bool {
        self.pacing.is_on()
    }

    /// Returns the number of bytes written that wait for their time, because the stream is [paced](Self::set_pacing):
    /// the [paced bytes](Self::paced_bytes), and those that a [stack](crate::net::stack) of this process has not sent
    /// while its next segment waits for the rate. Makes no system call.
    pub fn held_back_bytes(&self) -> usize {
        self.paced_bytes() + self.io.held_back()
    }

    /// Returns the number of bytes written but not yet given to the kernel because the stream is
    /// [paced](Self::set_pacing). Makes no system call.
    pub fn paced_bytes(&self) -> usize {
        self.pacing.paced().map_or(0, |paced| paced.pending())
    }

    /// Waits until the kernel has all written data: no time, unless the stream is [paced](Self::set_pacing).
    ///
    /// # Cancel safety
    /// Cancel-safe: the data is sent whether or not a task waits for that.
    ///
    /// # Errors
    /// Those of `send(2)`, for data accepted before.
    pub async fn sent(&self) -> io::Result<()> {
        poll_fn(|cx| self.poll_sent(cx)).await
    }

    /// Like [`sent`](Self::sent), for hand-written futures. The task is also woken when the kernel has no room; then
    /// the stream is not [held back](crate::net::relay::Supervise::is_held_back).
    ///
    /// # Errors
    /// As for [`sent`](Self::sent).
    pub fn poll_sent(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        match self.pacing.paced() {
            None => self.io.runtime().poll_allowance(cx).map(Ok),
            Some(paced) => paced.poll_sent(cx),
        }
    }
}
