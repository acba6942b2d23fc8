//! Soft timers in a loop around mio: sends a datagram every 100 us, and receives it in the same loop.
use std::os::fd::{AsFd, AsRawFd};
use std::{io, time::Duration};

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, net::UnixDatagram};
use softclock::embed::{FireWindow, LoopTimers, WakeTimer};

const PERIOD: Duration = Duration::from_micros(100);
const SOCKET: Token = Token(0);

fn main() -> io::Result<()> {
    let (sender, mut receiver) = UnixDatagram::pair()?;
    let mut poll = Poll::new()?;
    (poll.registry()).register(&mut receiver, SOCKET, Interest::READABLE)?;
    // mio waits for whole milliseconds, so a descriptor ends its waits.
    let mut wake = WakeTimer::new()?;
    let descriptor = wake.as_fd().as_raw_fd();
    (poll.registry()).register(&mut SourceFd(&descriptor), Token(1), Interest::READABLE)?;

    let mut timers = LoopTimers::new();
    timers.schedule_after(PERIOD, "tick");
    let mut events = Events::with_capacity(16);
    let mut received = 0;
    while received < 1000 {
        poll.poll(&mut events, wake.limit(timers.before_wait()))?;
        timers.after_wait(events.iter().any(|event| event.token() == SOCKET));
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
