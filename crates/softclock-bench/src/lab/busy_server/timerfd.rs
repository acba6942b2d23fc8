//! A timer descriptor that a task of the server reads.

use std::io;
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use softclock::{Descriptor, JoinHandle, Transfer};

/// The time of a hardware timer's next event.
#[derive(Clone, Copy, Debug)]
pub enum Again {
    /// This long after the last was due.
    Each(Duration),
    /// This long after the last was handled; the timer is set anew each time.
    After(Duration),
}

/// Spawns a task that calls `handle` each time the timer has expired. The task ends only with an error.
///
/// # Errors
/// The system refuses a timer descriptor.
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
                .read_with(|fd| Ok(Transfer::short(rustix::io::read(fd, &mut expirations)?)))
                .await?;
            handle();
            // A one-shot timer: set it anew after the handler.
            if matches!(again, Again::After(_)) {
                set(timer.descriptor())?;
            }
        }
    }))
}
