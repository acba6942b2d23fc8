//! The driver's part for captures: frames pass through here on their way into the stack and out of it.

use std::task::{Context, Poll};

use softclock_core::{Clock, Instant};
use softclock_linux::link::Buffer;
use softclock_net::checksum::Verify;
use softclock_net::stack::{EndpointId, Frame, RingFrame, Stack, Taken};
use softclock_wire::packet::{Headers, complete_checksum, segments};

use super::Driver;
use crate::net::stack::CaptureEnd;
use crate::net::stack::capture::Capture;
use crate::net::stack::ring::SocketRing;

impl Driver {
    /// Gives a frame to the stack.
    pub(super) fn accept(
        &self,
        stack: &mut Stack<Buffer>,
        now: Instant,
        arrived: Instant,
        frame: Buffer,
        verify: Verify,
    ) {
        let Some(capture) = self.running_capture() else {
            stack.on_frame(now, arrived, frame, verify);
            return;
        };
        let copied = capture.copy(arrived, &frame);
        let before = stack.drops().clone();
        stack.on_frame(now, arrived, frame, verify);
        capture.on_received(&copied, &before, stack.drops());
    }

    /// Takes the next packet of a socket that has a ring.
    pub(in super::super) fn receive_next(
        &self,
        stack: &mut Stack<Buffer>,
        now: Instant,
        id: EndpointId,
        ring: &SocketRing,
    ) -> Taken<Buffer> {
        let Some(capture) = self.running_capture() else {
            return stack.receive_next(now, id, || ring.next(now));
        };
        let before = stack.drops().clone();
        let mut copied = None;
        let taken = stack.receive_next(now, id, || {
            let frame: RingFrame<Buffer> = ring.next(now)?;
            copied = Some(capture.copy(frame.arrived, &frame.bytes));
            Some(frame)
        });
        if let Some(copied) = copied {
            capture.on_received(&copied, &before, stack.drops());
        }
        taken
    }

    /// Captures a frame that leaves for the device, as the device sends it: cut into segments, with their checksums.
    pub(super) fn capture_sent(&self, frame: &Frame) {
        // A packet without link addresses is captured by the thread with the device, which completes it.
        let running = self.running_capture();
        let leaves_here = !self.is_without_device() || frame.is_complete();
        let Some(capture) = running.filter(|_| leaves_here) else {
            return;
        };
        let now = self.interface.runtime().clock.now();
        let Frame { bytes, offload } = frame;
        let headers = Headers::of_frame(bytes);
        let complete = |mut bytes: Vec<u8>| {
            if let Some(checksum) = offload.checksum {
                complete_checksum(&mut bytes, checksum);
            }
            capture.on_sent(now, &bytes);
        };
        match segments(bytes, &headers, offload) {
            Some(segments) => segments.for_each(complete),
            None => complete(bytes.clone()),
        }
    }

    pub(in super::super) fn finish_capture(&self) {
        if let Some(capture) = &self.capture
            && !self.is_without_device()
        {
            capture.finish();
        }
    }

    pub(in super::super) fn poll_capture_ended(&self, cx: &Context<'_>) -> Poll<CaptureEnd> {
        match &self.capture {
            Some(capture) => capture.poll_ended(cx),
            None => Poll::Pending,
        }
    }

    fn running_capture(&self) -> Option<&Capture> {
        let capture = self.capture.as_deref();
        capture.filter(|capture| capture.is_running())
    }
}
