//! Many datagrams by one call.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, ready};

use softclock_linux::socket::udp::{RecvBatch, Transmit};

use super::UdpSocket;
use crate::runtime::inner::allowance;

impl UdpSocket {
    /// Waits for datagrams and receives those that are there by one system call (`recvmmsg(2)`), as many as `batch` has
    /// slots. Returns the number of slots filled, at least 1. The former datagrams of `batch` are removed, also if the
    /// future is dropped; a dropped future has received nothing.
    ///
    /// [`RecvBatch::datagrams`] iterates over the datagrams received, with the sender of each datagram and whether it
    /// was too long for its slot. [`BindOptions::receive`](crate::net::BindOptions::receive) adds the destination, the
    /// ECN field and the time of arrival, and lets the kernel join the datagrams of a flow in one slot (UDP_GRO).
    ///
    /// The time of arrival is on the clock of [`softclock::now`](crate::now). The kernel stamps by CLOCK_REALTIME, and
    /// both clocks are read once after the call to convert the stamps, which is precise to about 1 us.
    ///
    /// The kernel does more for each slot than for [`recv_from`](Self::recv_from), so that a batch of single datagrams
    /// may cost more where system calls are cheap. Joined datagrams share the cost of their slot.
    ///
    /// Beside the call itself, every 2 KiB or four short datagrams count as one of the calls that a task may make in
    /// one poll.
    ///
    /// # Cancel safety
    /// Cancel-safe: a dropped future has received nothing.
    ///
    /// # Errors
    /// Those of `recvmmsg(2)`. `ECONNREFUSED` means that an earlier datagram found no receiver.
    ///
    /// # Example
    /// ```
    /// use softclock::net::{BindOptions, Ecn, RecvBatch, RecvOptions, UdpSocket};
    ///
    /// # fn main() -> std::io::Result<()> {
    /// softclock::Runtime::new()?.block_on(async {
    ///     let receive = RecvOptions { ecn: true, ..RecvOptions::default() };
    ///     let options = BindOptions { receive, ..BindOptions::default() };
    ///     let server = UdpSocket::bind_with(([127, 0, 0, 1], 0), &options)?;
    ///     let client = UdpSocket::bind(([127, 0, 0, 1], 0))?;
    ///     client.set_ecn(Ecn::Ect0)?;
    ///     for payload in [&b"one"[..], b"two"] {
    ///         client.send_to(payload, server.local_addr()?).await?;
    ///     }
    ///
    ///     // To be reused: receiving allocates nothing.
    ///     let mut batch = RecvBatch::new(32, 1500);
    ///     let mut received = 0;
    ///     while received < 2 {
    ///         server.recv_batch(&mut batch).await?;
    ///         for datagram in batch.datagrams() {
    ///             assert_eq!(datagram.source, client.local_addr()?);
    ///             assert_eq!(datagram.payload.len(), 3);
    ///             assert_eq!(datagram.ecn, Some(Ecn::Ect0));
    ///             received += 1;
    ///         }
    ///     }
    ///     std::io::Result::Ok(())
    /// })
    /// # }
    /// ```
    pub async fn recv_batch(&self, batch: &mut RecvBatch) -> io::Result<usize> {
        poll_fn(|cx| self.poll_recv_batch(cx, batch)).await
    }

    /// Like [`recv_batch`](Self::recv_batch), for hand-written futures.
    ///
    /// # Errors
    /// As for [`recv_batch`](Self::recv_batch).
    pub fn poll_recv_batch(
        &self,
        cx: &Context<'_>,
        batch: &mut RecvBatch,
    ) -> Poll<io::Result<usize>> {
        // While the call waits, the batch must not offer datagrams of an earlier one.
        batch.clear();
        let received = ready!(self.io.poll_recv_batch(cx, batch))?;
        let lengths = batch.iter().map(|datagram| datagram.payload.len());
        self.charge(lengths);
        Poll::Ready(Ok(received))
    }

    /// Charges the datagrams of these lengths to the task's allowance.
    fn charge(&self, lengths: impl Iterator<Item = usize>) {
        let bytes = lengths.map(|bytes| bytes.max(LEAST_CHARGED_BYTES)).sum();
        self.io.runtime().take_bytes(bytes);
    }

    /// Like [`recv_batch`](Self::recv_batch), without waiting. May be called from the handler of a soft event.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if no datagram has arrived; otherwise as for [`recv_batch`](Self::recv_batch). The
    /// batch is empty then.
    pub fn try_recv_batch(&self, batch: &mut RecvBatch) -> io::Result<usize> {
        batch.clear();
        self.io.try_recv_batch(batch)
    }

    /// Sends the first datagrams of `batch` when the send buffer has room, by one system call (`sendmmsg(2)`). Returns
    /// their number, which is at least 1 unless the batch is empty: continue with the rest. They are not
    /// [paced](Self::set_pacing).
    ///
    /// Consecutive datagrams of the same length, of which the last may be shorter, that differ in their payloads only
    /// pass the kernel's network stack as one (UDP_SEGMENT), which saves most of their cost. If the kernel or the
    /// device cannot do that, they are sent one by one. A call sends at most 128 datagrams, and 32 groups of joined
    /// ones.
    ///
    /// A server on a wildcard address answers from the address that a request was sent to with
    /// [`Transmit::source`], to which it assigns [`Datagram::destination`](crate::net::Datagram::destination).
    ///
    /// Beside the call itself, every 2 KiB or four short datagrams count as one of the calls that a task may make in
    /// one poll.
    ///
    /// # Cancel safety
    /// Cancel-safe: a dropped future has sent nothing.
    ///
    /// # Errors
    /// Those of `sendmsg(2)`, for the first datagram. If a later one cannot be sent, those before it are, and the call
    /// that begins with it returns the error. [`io::ErrorKind::InvalidInput`] if a [stack](crate::net::stack) does not
    /// have the stated source.
    ///
    /// # Example
    /// ```
    /// use softclock::net::{Transmit, UdpSocket};
    ///
    /// # fn main() -> std::io::Result<()> {
    /// softclock::Runtime::new()?.block_on(async {
    ///     let (one, two) = (UdpSocket::bind(([127, 0, 0, 1], 0))?, UdpSocket::bind(([127, 0, 0, 1], 0))?);
    ///     let there = two.local_addr()?;
    ///     let frame = [7; 10_000];
    ///     let batch: Vec<_> = frame.chunks(1_200).map(|part| Transmit::to(there, part)).collect();
    ///     let mut rest = &batch[..];
    ///     while !rest.is_empty() {
    ///         let sent = one.send_batch(rest).await?;
    ///         rest = &rest[sent..];
    ///     }
    ///     std::io::Result::Ok(())
    /// })
    /// # }
    /// ```
    pub async fn send_batch(&self, batch: &[Transmit<'_>]) -> io::Result<usize> {
        if batch.is_empty() {
            allowance().await;
            return Ok(0);
        }
        poll_fn(|cx| self.poll_send_batch(cx, batch)).await
    }

    /// Like [`send_batch`](Self::send_batch), for hand-written futures.
    ///
    /// # Errors
    /// As for [`send_batch`](Self::send_batch).
    pub fn poll_send_batch(
        &self,
        cx: &Context<'_>,
        batch: &[Transmit<'_>],
    ) -> Poll<io::Result<usize>> {
        let dscp = self.dscp_of(batch)?;
        let joins = self.pacing.joins();
        let sent = ready!(self.io.poll_send_batch(cx, batch, dscp, joins))?;
        let lengths = batch[..sent].iter().map(|datagram| datagram.payload.len());
        self.charge(lengths);
        Poll::Ready(Ok(sent))
    }

    /// Like [`send_batch`](Self::send_batch), without waiting. May be called from the handler of a soft event.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if the send buffer has no room; otherwise as for [`send_batch`](Self::send_batch).
    pub fn try_send_batch(&self, batch: &[Transmit<'_>]) -> io::Result<usize> {
        let dscp = self.dscp_of(batch)?;
        self.io.try_send_batch(batch, dscp, self.pacing.joins())
    }

    /// Returns the differentiated services code point for the datagrams that state an ECN field. The kernel replaces
    /// both by one value.
    fn dscp_of(&self, batch: &[Transmit<'_>]) -> io::Result<u8> {
        let states_ecn = batch.iter().any(|datagram| datagram.ecn.is_some());
        if !states_ecn {
            return Ok(0);
        }
        if let Some(dscp) = self.dscp.get() {
            return Ok(dscp);
        }
        let dscp = self.dscp()?;
        self.dscp.set(Some(dscp));
        Ok(dscp)
    }
}

/// The bytes for which a datagram of a batch counts at least, since short ones take time, too: a quarter of a call.
const LEAST_CHARGED_BYTES: usize = 512;
