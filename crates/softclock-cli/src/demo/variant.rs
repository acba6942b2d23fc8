//! Mechanisms that fire events on the server's thread.

use std::io;
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use softclock::{Descriptor, EventContext, FireWindow, JoinHandle, SoftEvent, Transfer};
use softclock_linux::alarm::{AlarmLateness, SignalTimer};

/// The mechanism that fires events beside the server, if any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Variant {
    Nothing,
    Soft,
    Timerfd,
    Signal,
}

impl Variant {
    pub(super) const ALL: [Self; 4] = [Self::Nothing, Self::Soft, Self::Timerfd, Self::Signal];

    /// The variants that fire events.
    pub(super) const FIRING: [Self; 3] = [Self::Soft, Self::Timerfd, Self::Signal];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Nothing => "no events",
            Self::Soft => "soft timer",
            Self::Timerfd => "timerfd",
            Self::Signal => "signal",
        }
    }

    /// Lateness of this variant's events so far.
    pub(super) fn lateness(self) -> &'static AlarmLateness {
        &LATENESS[self as usize]
    }

    /// Starts events. The slice's length bounds how long signals may keep the server from ending it.
    pub(super) fn start(self, slice: Duration) -> io::Result<Running> {
        let lateness = self.lateness();
        let now = softclock::now();
        lateness.restart(now, PERIOD);
        Ok(match self {
            Self::Nothing => Running::Nothing,
            Self::Soft => {
                let first = FireWindow::from(now + PERIOD);
                let again = |event: &mut EventContext<'_>| {
                    let next = lateness.record(event.now());
                    event.reschedule_within(FireWindow::from(next));
                };
                Running::Soft(softclock::schedule_within(first, again))
            }
            Self::Timerfd => Running::Timerfd(softclock::spawn_local(read_timer(lateness))),
            Self::Signal => {
                let until = now + slice;
                let timer = SignalTimer::start_until(lateness, PERIOD, until)?;
                Running::Signal(timer)
            }
        })
    }
}

/// Events that fire until [`stop`](Self::stop).
pub(super) enum Running {
    Nothing,
    Soft(SoftEvent),
    Timerfd(JoinHandle<io::Result<()>>),
    Signal(SignalTimer),
}

impl Running {
    pub(super) fn stop(self) -> io::Result<()> {
        match self {
            Self::Nothing => {}
            Self::Soft(event) => {
                event.cancel();
            }
            Self::Timerfd(reader) if reader.is_finished() => {
                return Err(io::Error::other("a timerfd cannot be read"));
            }
            Self::Timerfd(reader) => reader.abort(),
            Self::Signal(timer) => drop(timer),
        }
        Ok(())
    }
}

/// Reads the timerfd as an event loop usually does: it is one of the loop's descriptors, and its reader an ordinary
/// task.
async fn read_timer(lateness: &'static AlarmLateness) -> io::Result<()> {
    let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
    let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
    let period = Timespec::try_from(PERIOD).map_err(io::Error::other)?;
    let each = Itimerspec {
        it_interval: period,
        it_value: period,
    };
    timerfd_settime(&timer, TimerfdTimerFlags::empty(), &each)?;
    lateness.restart(softclock::now(), PERIOD);
    let timer = Descriptor::new(timer)?;
    let mut expirations = [0; 8];
    loop {
        let read = timer.read_with(|fd| {
            let read = rustix::io::read(fd, &mut expirations)?;
            // A read empties the timer.
            Ok(Transfer::short(read))
        });
        read.await?;
        lateness.record(softclock::now());
    }
}

/// Static, since a signal handler may run at any time and must not use memory that is freed.
static LATENESS: [AlarmLateness; Variant::ALL.len()] = [const { AlarmLateness::new() }; 4];

/// Interval between packets on a fast link in the *Soft Timers* paper.
pub(super) const PERIOD: Duration = Duration::from_micros(20);
