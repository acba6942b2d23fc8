//! Soft timers in a loop around `epoll_wait`: sends a datagram every 100 us, and receives it in the same loop.
use std::os::unix::net::UnixDatagram;
use std::{io, time::Duration};

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use softclock::embed::{FireWindow, LoopTimers, WakeTimer};

const PERIOD: Duration = Duration::from_micros(100);

fn main() -> io::Result<()> {
    let (sender, receiver) = UnixDatagram::pair()?;
    receiver.set_nonblocking(true)?;
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    epoll::add(&epoll, &receiver, EventData::new_u64(0), EventFlags::IN)?;
    // epoll_wait waits for whole milliseconds, so a descriptor ends its waits.
    let mut wake = WakeTimer::new()?;
    epoll::add(&epoll, &wake, EventData::new_u64(1), EventFlags::IN)?;
    let mut timers = LoopTimers::new();
    timers.schedule_after(PERIOD, "tick");
    let mut events = Vec::with_capacity(16);
    let mut received = 0;
    while received < 1000 {
        let limit = wake.limit(timers.before_wait());
        let limit = limit.map(|limit| limit.try_into().expect("zero fits"));
        epoll::wait(&epoll, spare_capacity(&mut events), limit.as_ref())?;
        timers.after_wait(events.drain(..).any(|event| event.data.u64() == 0));
        while let Some(due) = timers.next_overdue() {
            sender.send(due.value.as_bytes())?;
            timers.schedule(FireWindow::from(due.due + PERIOD), due.value);
        }
        while receiver.recv(&mut [0; 16]).is_ok() {
            received += 1;
        }
    }
    let late = timers.statistics().triggers.lateness().quantile_ns(0.5);
    println!("{received} datagrams, {late} ns late at p50");
    Ok(())
}
