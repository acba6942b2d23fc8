//! The synthetic handler of *Soft Timers* (section 5.1), so long after it fired before, by one means or another.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use softclock::alarm::{SignalTimer, SyntheticHandler};
use softclock::{Descriptor, EventContext, JoinHandle, SoftEvent};

use super::toggles::Toggle;

/// As a soft event.
pub struct SoftTouch {
    ticks: u64,
    before: u64,
    event: Option<SoftEvent>,
}

impl SoftTouch {
    /// An event so many microseconds after it fired.
    pub fn new(us: u64) -> Self {
        Self {
            ticks: us,
            before: 0,
            event: None,
        }
    }
}

impl Toggle for SoftTouch {
    fn start(&mut self, _: Duration) -> io::Result<()> {
        self.before = HANDLER.fires();
        let ticks = self.ticks;
        let event = softclock::schedule_soft_event(ticks, move |event: &mut EventContext<'_>| {
            HANDLER.touch();
            event.reschedule(ticks);
        });
        self.event = Some(event);
        Ok(())
    }

    fn stop(&mut self) -> io::Result<u64> {
        if let Some(event) = self.event.take() {
            event.cancel();
        }
        Ok(HANDLER.fires() - self.before)
    }
}

/// In the signal handler of a POSIX timer.
pub struct SignalTouch {
    delay: Duration,
    before: u64,
    timer: Option<SignalTimer>,
}

impl SignalTouch {
    /// A signal so many microseconds after the one before was handled.
    pub fn new(us: u64) -> Self {
        Self {
            delay: Duration::from_micros(us),
            before: 0,
            timer: None,
        }
    }
}

impl Toggle for SignalTouch {
    fn start(&mut self, slice: Duration) -> io::Result<()> {
        self.before = HANDLER.fires();
        // Frequent signals leave the thread no time to notice that the slice is over.
        let until = softclock::now() + slice * 2;
        self.timer = Some(SignalTimer::start_after(&HANDLER, self.delay, until)?);
        Ok(())
    }

    fn stop(&mut self) -> io::Result<u64> {
        self.timer = None;
        Ok(HANDLER.fires() - self.before)
    }
}

/// In a task that reads a timer descriptor.
pub struct TimerfdTouch {
    delay: Duration,
    fired: Rc<Cell<u64>>,
    reader: Option<JoinHandle<io::Result<()>>>,
}

impl TimerfdTouch {
    /// A descriptor that becomes readable so many microseconds after it was read.
    pub fn new(us: u64) -> Self {
        Self {
            delay: Duration::from_micros(us),
            fired: Rc::default(),
            reader: None,
        }
    }
}

impl Toggle for TimerfdTouch {
    fn start(&mut self, _: Duration) -> io::Result<()> {
        let timer = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
        )?;
        let once = Itimerspec {
            it_interval: Timespec::default(),
            it_value: Timespec::try_from(self.delay).map_err(io::Error::other)?,
        };
        timerfd_settime(&timer, TimerfdTimerFlags::empty(), &once)?;
        let timer = Descriptor::new(timer)?;
        self.fired.set(0);
        let fired = Rc::clone(&self.fired);
        self.reader = Some(softclock::spawn_local(async move {
            let mut expirations = [0; 8];
            loop {
                timer
                    .read_with(|fd| {
                        rustix::io::read(fd, &mut expirations)?;
                        HANDLER.touch();
                        timerfd_settime(fd, TimerfdTimerFlags::empty(), &once)?;
                        Ok(())
                    })
                    .await?;
                fired.set(fired.get() + 1);
            }
        }));
        Ok(())
    }

    fn stop(&mut self) -> io::Result<u64> {
        if let Some(reader) = self.reader.take() {
            if reader.is_finished() {
                return Err(io::Error::other("a timer descriptor cannot be read"));
            }
            reader.abort();
        }
        Ok(self.fired.get())
    }
}

static HANDLER: SyntheticHandler = SyntheticHandler::new();
