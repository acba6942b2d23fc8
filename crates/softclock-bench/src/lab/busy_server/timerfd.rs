//! A timer descriptor that a task of the server reads.

use std::io;
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use softclock::{Descriptor, JoinHandle};

/// When a hardware timer fires again.
#[derive(Clone, Copy, Debug)]
pub enum Again {
    /// So long after it was due.
    Each(Duration),
    /// So long after its event was handled, by being set anew.
    After(Duration),
}

/// A task that calls `handle` each time the timer has expired. It ends only by an error.
///
/// # Errors
/// Where the system refuses.
pub fn read_timer(
    again: Again,
    mut handle: impl FnMut() + 'static,
) -> io::Result<JoinHandle<io::Result<()>>> {
    let timer = timerfd_create(
        TimerfdClockId::Monotonic,
        TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
    )?;
    let timespec = |time| Timespec::try_from(time).map_err(io::Error::other);
    let setting = match again {
        Again::Each(period) => Itimerspec {
            it_interval: timespec(period)?,
            it_value: timespec(period)?,
        },
        Again::After(delay) => Itimerspec {
            it_interval: Timespec::default(),
            it_value: timespec(delay)?,
        },
    };
    let set = move |timer: &_| timerfd_settime(timer, TimerfdTimerFlags::empty(), &setting);
    set(&timer)?;
    let timer = Descriptor::new(timer)?;
    Ok(softclock::spawn_local(async move {
        let mut expirations = [0; 8];
        loop {
            timer
                .read_with(|fd| Ok(rustix::io::read(fd, &mut expirations)?))
                .await?;
            handle();
            if matches!(again, Again::After(_)) {
                set(timer.descriptor())?;
            }
        }
    }))
}
