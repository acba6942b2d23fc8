//! Soft timers in a loop around `softclock::events`: sends a datagram every 100 us, and receives it in the same loop.
use std::io;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use softclock::embed::{FireWindow, LoopTimers};
use softclock::events::{EventQueue, Readiness, SourceEvent};

const PERIOD: Duration = Duration::from_micros(100);

fn main() -> io::Result<()> {
    let (sender, receiver) = UnixDatagram::pair()?;
    receiver.set_nonblocking(true)?;
    let queue = EventQueue::new()?;
    let receiver = queue.add(receiver);
    queue.declare_interest(&receiver, Readiness::READABLE, None)?;

    let mut timers = LoopTimers::new();
    timers.schedule_after(PERIOD, "tick");
    let mut events = [SourceEvent::NONE; 16];
    let mut received = 0;
    while received < 1000 {
        let found = queue.get_next_event(&mut events, timers.before_wait())?;
        timers.after_wait(found > 0);
        while let Some(due) = timers.next_overdue() {
            sender.send(due.value.as_bytes())?;
            timers.schedule(FireWindow::from(due.due + PERIOD), due.value);
        }
        while receiver.recv(&mut [0; 16]).is_ok() {
            received += 1;
        }
        receiver.consumed(Readiness::READABLE);
    }
    let late = timers.statistics().triggers.lateness().quantile_ns(0.5);
    println!("{received} datagrams, {late} ns late at p50");
    Ok(())
}
