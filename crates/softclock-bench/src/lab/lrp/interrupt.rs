//! The interrupt level: a real-time thread on the receivers' processor that owns the device and demultiplexes, or does
//! all protocol work, before any receiver runs.

use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use softclock_core::Instant;
use softclock_linux::clock::monotonic_ns;
use softclock_linux::link::{Buffer, Copies, Device, Link as Interface, XdpMemory};
use softclock_linux::priority::Priority;
use softclock_net::stack::{Architecture, Pending};

use super::eager_stack::{EagerStack, InterruptCounts};
use super::receiver::Outbox;
use super::stopping::Stop;
use super::{BUDGET, INTERRUPT_PRIORITY, STOP_CHECK};
use crate::measure::processors::pin;

/// The parameters of the thread.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) architecture: Architecture,
    pub(super) interface: String,
    pub(super) processor: Option<usize>,
    /// The ports with their rings.
    pub(super) endpoints: Vec<(u16, Outbox)>,
    pub(super) counts: Arc<InterruptCounts>,
}

/// Opens the device, reports on `opened`, and serves it until `stop`. Call it in a thread in the server's namespace.
pub(super) fn run(plan: Plan, stop: &Stop, opened: &mpsc::Sender<io::Result<()>>) {
    pin(plan.processor);
    let begun = open(&plan.interface).and_then(|device| {
        Priority::Fifo(INTERRUPT_PRIORITY).apply()?;
        // The device's memory stays on this thread.
        let copied = |packet: Pending<Buffer>| packet.copied();
        let stack = EagerStack::new(plan.architecture, plan.endpoints, copied)?;
        Ok((device, stack))
    });
    // The starter waits for this message.
    match begun {
        Ok((device, mut stack)) => {
            let _ = opened.send(Ok(()));
            while stop.goes_on() {
                round(&device, &mut stack, &plan.counts);
            }
        }
        Err(error) => {
            let _ = opened.send(Err(error));
        }
    }
}

fn open(interface: &str) -> io::Result<Device> {
    let memory = XdpMemory::new(1)?;
    let link = Interface::named(interface)?;
    Device::open_xdp(&memory, &link, Copies::Allowed).map_err(io::Error::other)
}

/// Takes what the device has, at most a budget; or waits for an interrupt.
fn round(device: &Device, stack: &mut EagerStack<Buffer>, counts: &InterruptCounts) {
    let now = Instant::from_ns(monotonic_ns());
    let mut taken = 0;
    let mut is_drained = false;
    while taken < BUDGET && !is_drained {
        let received = device.receive(|frame| {
            // No client sends frames that a device refuses.
            if let Ok(frame) = frame {
                stack.on_frame(now, frame);
            }
        });
        taken += *received.as_ref().unwrap_or(&0);
        is_drained = received.is_err();
    }
    stack.process(now, counts);
    if taken > 0 {
        counts.frames.fetch_add(taken as u64, Relaxed);
        counts
            .device
            .fetch_add(device.take_lost().unwrap_or(0), Relaxed);
    } else {
        let wait = match stack.has_more() {
            true => Duration::from_millis(1),
            false => STOP_CHECK,
        };
        let wait = Timespec::try_from(wait).unwrap_or_default();
        let _ = poll(&mut [PollFd::new(device, PollFlags::IN)], Some(&wait));
    }
}
