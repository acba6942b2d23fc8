//! The queues of the interface that a thread receives from, and sends by.
//!
//! The thread with the device opens all of them, and keeps the first. Each of the others goes to the thread whose
//! number is that of the queue modulo the number of threads, while that thread is there; see
//! [`Lanes`](super::lane::Lanes).

use std::borrow::Borrow;
use std::cell::RefCell;
use std::io;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::task::{Context, Poll};

use softclock_core::{Clock, Instant, TriggerState};
use softclock_linux::link::{Device, Link, Received, Refused, XdpQueue};
use softclock_wire::packet::Offload;

use crate::net::Kernel;
use crate::net::registration::Registration;
use crate::runtime::sources::Direction;

/// Some queues, watched by the current runtime. Changed only by the task of the driver, and not while it receives.
#[derive(Default)]
pub(super) struct Queues(RefCell<Vec<Queue>>);

struct Queue {
    number: u32,
    device: Kernel<Rc<Device>>,
}

impl Queues {
    /// Watches a queue, to receive from it and send by it; returns it if it cannot be watched. With its link, frames
    /// with pending segmentation leave whole.
    pub(super) fn add(&self, queue: XdpQueue, link: Option<&Link>) -> Result<(), XdpQueue> {
        let number = queue.number();
        let device = Rc::new(Device::of_queue(queue, link));
        let added = self.watch(number, device.clone());
        added.map_err(|_| unwatched(device).expect("it was made of a queue"))
    }

    /// Watches the device of a queue.
    pub(super) fn add_device(&self, number: u32, device: Device) -> io::Result<()> {
        self.watch(number, Rc::new(device))
    }

    fn watch(&self, number: u32, device: Rc<Device>) -> io::Result<()> {
        // The chunks of the socket keep its file open, so that a close alone would not end the watch.
        let device = Kernel::duplicated(device)?;
        self.0.borrow_mut().push(Queue { number, device });
        Ok(())
    }

    /// Takes the queues whose numbers `is_taken` accepts, for another thread.
    pub(super) fn take(&self, is_taken: impl Fn(u32) -> bool) -> Vec<XdpQueue> {
        let mut queues = self.0.borrow_mut();
        let taken = queues.extract_if(.., |queue| is_taken(queue.number));
        let into_queue = |Queue { device, .. }| {
            let without_watch = device.descriptor().clone();
            drop(device);
            unwatched(without_watch)
        };
        taken.filter_map(into_queue).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.0.borrow().len()
    }

    /// Lets the next [`poll_receive`](Self::poll_receive) read each queue.
    pub(super) fn assume_readable(&self) {
        let queues = self.0.borrow();
        let each = queues.iter().map(|queue| queue.device.registration());
        each.for_each(Registration::assume_readable);
    }

    /// Passes frames that have arrived to `on_frame`, with the time now: at most a batch of each queue. Pending if none
    /// has arrived.
    pub(super) fn poll_receive(
        &self,
        cx: &Context<'_>,
        mut on_frame: impl FnMut(Instant, Result<Received, Refused>),
    ) -> Poll<io::Result<usize>> {
        let queues = self.0.borrow();
        let each = (queues.iter()).map(|queue| poll_device(&queue.device, cx, &mut on_frame));
        all(each)
    }

    /// Sends frames by the first queue, as [`Device::send_bytes`] does. `None` if there is no queue.
    pub(super) fn send<'a>(
        &self,
        frames: impl Iterator<Item = (&'a [u8], &'a Offload)> + Clone,
    ) -> Option<io::Result<usize>> {
        self.with_first(|device| {
            device.quiet_call(Direction::Write, |_| {
                device.descriptor().send_bytes(frames.clone())
            })
        })
    }

    /// Whether the first queue may have room again after [`send`](Self::send) had none; else `cx` is woken when it has.
    pub(super) fn poll_room(&self, cx: &Context<'_>) -> Poll<()> {
        let room = |device: &Kernel<_>| device.registration().poll_ready(cx, Direction::Write);
        self.with_first(room).unwrap_or(Poll::Ready(()))
    }

    pub(super) fn is_behind(&self) -> bool {
        let is_behind = self.with_first(|device| device.descriptor().is_behind());
        is_behind.unwrap_or(false)
    }

    pub(super) fn flush(&self) {
        self.with_first(|device| device.descriptor().flush());
    }

    pub(super) fn take_refused(&self) -> u64 {
        let refused = self.with_first(|device| device.descriptor().take_refused());
        refused.unwrap_or(0)
    }

    fn with_first<R>(&self, f: impl FnOnce(&Kernel<Rc<Device>>) -> R) -> Option<R> {
        self.0.borrow().first().map(|queue| f(&queue.device))
    }

    /// Counts frames that were lost since the last call.
    pub(super) fn take_lost(&self) -> io::Result<u64> {
        let queues = self.0.borrow();
        let lost = queues
            .iter()
            .map(|queue| queue.device.descriptor().take_lost());
        lost.sum()
    }
}

/// Returns the queue of a device, or `None` if the device is used elsewhere or is not one by AF_XDP.
fn unwatched(device: Rc<Device>) -> Option<XdpQueue> {
    Rc::into_inner(device)?.into_queue()
}

/// Passes a batch of frames that a device has received to `on_frame`, with the time now.
pub(super) fn poll_device<D: AsFd + Borrow<Device>>(
    device: &Kernel<D>,
    cx: &Context<'_>,
    mut on_frame: impl FnMut(Instant, Result<Received, Refused>),
) -> Poll<io::Result<usize>> {
    device.poll_call(cx, Direction::Read, TriggerState::Receive, |_| {
        let now = device.runtime().clock.now();
        let receiving: &Device = device.descriptor().borrow();
        receiving.receive(|received| on_frame(now, received))
    })
}

/// The sum of what has been received, if anything has, or an error.
pub(super) fn all(each: impl Iterator<Item = Poll<io::Result<usize>>>) -> Poll<io::Result<usize>> {
    each.fold(Poll::Pending, |before, received| match (before, received) {
        (before, Poll::Pending) => before,
        (Poll::Ready(Ok(before)), Poll::Ready(Ok(more))) => Poll::Ready(Ok(before + more)),
        (_, received) => received,
    })
}
