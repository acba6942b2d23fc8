//! tokio's timers on its current-thread runtime, and a timerfd per timer on the same runtime.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::unix::pipe::Receiver;
use tokio::runtime::{Builder, Runtime};
use tokio::task::yield_now;

use super::{Order, load, measure, sleep_forever};

pub(super) fn sleep_as(order: Order) -> io::Result<()> {
    runtime()?.block_on(async {
        tokio::spawn(work());
        for timer in 0..order.timers {
            tokio::spawn(sleep_forever(order.lengths(timer), tokio::time::sleep));
        }
        measure(order, tokio::time::sleep).await;
    });
    Ok(())
}

pub(super) fn sleep_by_timerfd(order: Order) -> io::Result<()> {
    runtime()?.block_on(async {
        tokio::spawn(work());
        for timer in 0..order.timers {
            let fd = timerfd()?;
            let sleep = move |length| wait(fd, length);
            tokio::spawn(sleep_forever(order.lengths(timer), sleep));
        }
        let fd = timerfd()?;
        measure(order, |length| wait(fd, length)).await;
        Ok(())
    })
}

fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

/// Creates a timer descriptor that lives until the process ends, so that tasks need not share its ownership.
#[allow(
    deprecated,
    reason = "an OwnedFd keeps what the replacement has its caller promise"
)]
fn timerfd() -> io::Result<&'static AsyncFd<OwnedFd>> {
    let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
    let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
    let timer = AsyncFd::with_interest(timer, Interest::READABLE)?;
    Ok(Box::leak(Box::new(timer)))
}

async fn wait(timer: &AsyncFd<OwnedFd>, length: Duration) {
    let length = Itimerspec {
        it_interval: Timespec::default(),
        it_value: Timespec::try_from(length).expect("sleeps are short"),
    };
    timerfd_settime(timer, TimerfdTimerFlags::empty(), &length).expect("a valid length");
    let read = |fd: &OwnedFd| Ok(rustix::io::read(fd, &mut [0; 8])?);
    let read = timer.async_io(Interest::READABLE, read).await;
    read.expect("a timerfd can be read");
}

async fn work() -> io::Result<()> {
    let input = Receiver::from_owned_fd(load::input()?.into())?;
    loop {
        input.readable().await?;
        match input.try_read(&mut [0]) {
            Ok(0) => return Ok(()),
            Ok(_) => load::burst(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        yield_now().await;
    }
}
