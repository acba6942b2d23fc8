//! Trains of datagrams, paced by soft events.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;

use softclock_linux::socket;

use super::UdpSocket;
use crate::net::pacing::{Pacing, TrainShape};
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
        let _train = self.pacing.train();
        let mut rest = bytes;
        let mut shape = TrainShape {
            segment_bytes: segment_bytes.into(),
            is_joined: true,
        };
        while !rest.is_empty() {
            let batch = loop {
                let (batch, at) = self.pacing.next_batch(runtime, shape);
                if at <= crate::now() {
                    break batch;
                }
                // Compute the time again after the sleep, since the pacing may have changed meanwhile.
                crate::sleep_until(at).await;
            };
            // If the train is late by more than a batch, several batches are sent together.
            let due = self.pacing.due(runtime, batch, shape);
            let now = &rest[..rest.len().min(due)];
            let segment = Some(segment_bytes);
            let sent = match poll_fn(|cx| self.io.poll_send_datagrams(cx, now, segment, peer)).await
            {
                // Without segmentation the call fails before anything is sent.
                Err(error)
                    if now.len() > shape.segment_bytes
                        && socket::udp::is_without_segments(&error) =>
                {
                    let first = &now[..shape.segment_bytes];
                    // The error may have another cause, which occurs again.
                    let sent = poll_fn(|cx| self.io.poll_send_datagrams(cx, first, None, peer));
                    let sent = sent.await?;
                    shape.is_joined = false;
                    if !socket::udp::exceeds_mtu(&error) {
                        self.pacing.on_uncut();
                    }
                    sent
                }
                sent => sent?,
            };
            self.pacing.on_sent(runtime, sent, batch);
            rest = &rest[sent..];
        }
        Ok(())
    }
}
