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

use softclock_core::{Clock, Instant};
use softclock_linux::link::{Device, Link, Received, Refused, XdpQueue};
use softclock_wire::packet::Offload;

use super::taking::{Short, Taken, take};
use crate::net::{Kernel, Watched};
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
        let device = Kernel::for_reading(device)?;
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

    /// Calls `f` with each queue.
    pub(super) fn for_watched(&self, f: &mut dyn FnMut(&dyn Watched)) {
        let queues = self.0.borrow();
        queues.iter().for_each(|queue| f(&queue.device));
    }

    /// Passes frames that have arrived to `on_frame`, with the time now: at most a batch of each queue.
    pub(super) fn take_frames(
        &self,
        mut on_frame: impl FnMut(Instant, Result<Received, Refused>),
    ) -> io::Result<Taken> {
        let queues = self.0.borrow();
        let each = (queues.iter()).map(|queue| take_from(&queue.device, &mut on_frame));
        all(each)
    }

    /// Whether there is a queue to send by.
    pub(super) fn can_send(&self) -> bool {
        let can_send = self.with_first(|device| device.descriptor().can_send());
        can_send.unwrap_or(false)
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

/// Passes a batch of frames that a device has received to `on_frame`, with the time now, and takes the completions of
/// its transmissions.
pub(super) fn take_from<D: AsFd + Borrow<Device>>(
    device: &Kernel<D>,
    mut on_frame: impl FnMut(Instant, Result<Received, Refused>),
) -> io::Result<Taken> {
    let receiving: &Device = device.descriptor().borrow();
    let short = match receiving {
        Device::Xdp(_) => Short::Empty,
        Device::Packet(..) | Device::Tap(_) => Short::Unknown,
    };
    let taken = take(device, short, |_| {
        let now = device.runtime().clock.now();
        receiving.receive(|received| on_frame(now, received))
    })?;
    Ok(Taken {
        completions: receiving.take_completions(),
        ..taken
    })
}

/// Adds up the frames taken from devices, or returns an error. Reads all devices in any case.
pub(super) fn all(each: impl Iterator<Item = io::Result<Taken>>) -> io::Result<Taken> {
    let mut taken = Ok(Taken::default());
    for more in each {
        taken = match (taken, more) {
            (Ok(before), Ok(more)) => Ok(before.and(more)),
            (Err(error), _) | (_, Err(error)) => Err(error),
        };
    }
    taken
}
