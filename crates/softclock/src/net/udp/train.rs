//! Trains of datagrams, paced by soft events.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;

use softclock_linux::socket;

use super::UdpSocket;
use crate::net::pacing::Pacing;
use crate::runtime::inner::allowance;

impl UdpSocket {
    /// Paces the trains of [`send_train`](Self::send_train) from the next batch on, by soft events that wake the
    /// sender. With `None` they are sent as fast as the send buffer accepts them. Other datagrams are not paced.
    /// [`Pacing::by`] and [`Pacing::buffer_bytes`] have no effect here.
    pub fn set_pacing(&self, pacing: Option<Pacing>) {
        self.pacing.set(pacing);
    }

    /// Sends `bytes` as datagrams of `segment_bytes`, of which the last may be shorter, to `peer` or to the connected
    /// one.
    ///
    /// Datagrams are sent in batches that the kernel segments (UDP_SEGMENT), or one by one if it cannot. A batch
    /// holds as much as the rate allows in the median time between trigger states: larger batches would be bursts,
    /// smaller ones would only take more system calls. Send one train at a time: two concurrent ones share the rate,
    /// in no defined order.
    ///
    /// # Cancel safety
    /// Not cancel-safe: a dropped future may have sent a part of the train, and its length is lost.
    ///
    /// # Errors
    /// Those of `sendmsg(2)`, after which a part of the train may have been sent. [`io::ErrorKind::InvalidInput`] if
    /// `segment_bytes` is 0.
    pub async fn send_train(
        &self,
        bytes: &[u8],
        segment_bytes: u16,
        peer: Option<SocketAddr>,
    ) -> io::Result<()> {
        if segment_bytes == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        if bytes.is_empty() {
            allowance().await;
        }
        let runtime = self.io.runtime();
        let mut rest = bytes;
        while !rest.is_empty() {
            let batch = loop {
                let (batch, at) = self.pacing.next_batch(runtime, segment_bytes.into());
                if at <= crate::now() {
                    break batch;
                }
                // Compute the time again after the sleep, since the pacing may have changed meanwhile.
                crate::sleep_until(at).await;
            };
            // If the train is late by more than a batch, several batches are sent together.
            let due = self.pacing.due(runtime, batch, segment_bytes.into());
            let now = &rest[..rest.len().min(due)];
            let segment = Some(segment_bytes);
            match poll_fn(|cx| self.io.poll_send_datagrams(cx, now, segment, peer)).await {
                Ok(sent) => {
                    self.pacing.on_sent(runtime, sent, batch);
                    rest = &rest[sent..];
                }
                // A device without segmentation fails the call before anything is sent: repeat it one datagram at a
                // time.
                Err(error)
                    if now.len() > segment_bytes.into()
                        && socket::udp::is_without_segments(&error) =>
                {
                    self.pacing.on_uncut();
                }
                Err(error) => return Err(error),
            }
        }
        self.pacing.end();
        Ok(())
    }
}
