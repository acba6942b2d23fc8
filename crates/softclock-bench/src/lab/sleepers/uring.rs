//! Timeouts of an io_uring, in a loop without a runtime.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use softclock_linux::uring_timeout::TimeoutRing;

use super::{Lengths, Order, load, tally};

pub(super) fn sleep_as(order: Order) -> io::Result<()> {
    // Indices beyond the timers': the phase's timeout, and the readable input.
    let (phase, readable) = (order.timers, order.timers + 1);
    let mut ring = TimeoutRing::new(order.timers + 1)?;
    let mut timers: Vec<Timer> = (0..order.timers)
        .map(|timer| Timer {
            lengths: order.lengths(timer),
            due: Instant::now(),
        })
        .collect();
    for (index, timer) in timers.iter_mut().enumerate() {
        timer.set(&mut ring, index as u32)?;
    }
    let input = load::input()?;
    ring.watch(input.as_fd(), readable)?;
    ring.set(phase, Duration::from_millis(order.warm_up_ms))?;
    let mut counting = false;
    let mut over = Vec::new();
    loop {
        ring.wait(&mut over)?;
        for index in over.drain(..) {
            if let Some(timer) = timers.get_mut(index as usize) {
                tally::count(timer.due);
                timer.set(&mut ring, index)?;
            } else if index == readable {
                work(&input)?;
                ring.watch(input.as_fd(), readable)?;
            // The phase's timeout: the end of the warm-up, then the end of the measurement.
            } else if counting {
                tally::end();
                return Ok(());
            } else {
                tally::begin();
                counting = true;
                ring.set(phase, Duration::from_millis(order.milliseconds))?;
            }
        }
    }
}

/// A timer and its due time.
struct Timer {
    lengths: Lengths,
    due: Instant,
}

impl Timer {
    fn set(&mut self, ring: &mut TimeoutRing, index: u32) -> io::Result<()> {
        let length = self.lengths.next();
        self.due = Instant::now() + length;
        ring.set(index, length)
    }
}

fn work(input: &std::fs::File) -> io::Result<()> {
    load::take(input)?;
    load::burst();
    Ok(())
}
