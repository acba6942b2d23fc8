//! Toggles: events beside a busy server, of several kinds.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use softclock::alarm::{AlarmCounter, AlarmSafe};
use softclock::{AlarmId, EventContext, FireWindow, JoinHandle, SoftEvent};
use softclock_linux::alarm::SignalTimer;

use super::timerfd::{Again, read_timer};

/// Load that can be switched on and off. All methods are called on the server's thread, in its runtime.
pub trait Toggle {
    /// Switches the load on for about the time of a slice.
    ///
    /// # Errors
    /// The system refuses.
    fn start(&mut self, slice: Duration) -> io::Result<()>;

    /// Switches the load off; returns the number of events that it fired.
    ///
    /// # Errors
    /// The load failed while it was on.
    fn stop(&mut self) -> io::Result<u64>;

    /// Prepares a slice without the load.
    fn before_off(&mut self) {}

    /// Undoes [`before_off`](Self::before_off).
    fn after_off(&mut self) {}
}

/// No load: the cost that is measured for it is noise.
pub struct Nothing;

impl Toggle for Nothing {
    fn start(&mut self, _: Duration) -> io::Result<()> {
        Ok(())
    }

    fn stop(&mut self) -> io::Result<u64> {
        Ok(0)
    }
}

/// A soft event that reschedules itself.
pub struct Soft<H> {
    spacing: Spacing,
    handler: H,
    fired: Rc<Cell<u64>>,
    event: Option<SoftEvent>,
}

/// The spacing of events.
#[derive(Clone, Copy, Debug)]
pub enum Spacing {
    /// The next event is due this many ticks after the last fired, as in the paper; 0 is the next trigger state.
    Since(u64),
    /// The next event is due this many ticks after the last was due, however late that fired, so none is left out.
    Rate(u64),
}

impl<H> Soft<H> {
    /// Creates an event with this spacing and handler.
    pub fn new(spacing: Spacing, handler: H) -> Self {
        Self {
            spacing,
            handler,
            fired: Rc::default(),
            event: None,
        }
    }
}

impl<H: Fn() + Copy + 'static> Toggle for Soft<H> {
    fn start(&mut self, _: Duration) -> io::Result<()> {
        self.fired.set(0);
        let fired = Rc::clone(&self.fired);
        let handler = self.handler;
        let fire = move || {
            handler();
            fired.set(fired.get() + 1);
        };
        let event = match self.spacing {
            Spacing::Since(ticks) => {
                softclock::schedule_soft_event(ticks, move |event: &mut EventContext<'_>| {
                    fire();
                    event.reschedule(ticks);
                })
            }
            Spacing::Rate(ticks) => {
                let period = Duration::from_micros(ticks);
                let mut due = softclock::now() + period;
                let first = FireWindow::from(due);
                softclock::schedule_within(first, move |event: &mut EventContext<'_>| {
                    fire();
                    due += period;
                    event.reschedule_within(FireWindow::from(due));
                })
            }
        };
        self.event = Some(event);
        Ok(())
    }

    fn stop(&mut self) -> io::Result<u64> {
        if let Some(event) = self.event.take() {
            event.cancel();
        }
        Ok(self.fired.get())
    }
}

/// A POSIX timer's signal, repeatedly.
pub struct Signal {
    again: Again,
    handler: SignalHandler,
    timer: Option<SignalTimer>,
    before: u64,
}

/// A handler for signals, and its count of calls.
#[derive(Clone, Copy)]
pub struct SignalHandler {
    /// The handler, which a signal may call at any time.
    pub handler: &'static dyn AlarmSafe,
    /// Returns the number of calls.
    pub fires: fn() -> u64,
}

impl SignalHandler {
    /// Returns a handler that only counts.
    pub fn null() -> Self {
        Self {
            handler: &SIGNALS,
            fires: || SIGNALS.fires(),
        }
    }
}

impl Signal {
    /// Creates a signal with this repetition and handler.
    pub fn new(again: Again, handler: SignalHandler) -> Self {
        Self {
            again,
            handler,
            timer: None,
            before: 0,
        }
    }
}

impl Toggle for Signal {
    fn start(&mut self, slice: Duration) -> io::Result<()> {
        let handler = self.handler.handler;
        self.before = (self.handler.fires)();
        // Frequent signals can keep the thread from reaching the end of the slice, so the timer stops by itself.
        let until = softclock::now() + slice * 2;
        let timer = match self.again {
            Again::Each(period) => SignalTimer::start_until(handler, period, until)?,
            Again::After(delay) => SignalTimer::start_after(handler, delay, until)?,
        };
        self.timer = Some(timer);
        Ok(())
    }

    fn stop(&mut self) -> io::Result<u64> {
        self.timer = None;
        Ok((self.handler.fires)() - self.before)
    }
}

/// A timer descriptor that a task of the server reads.
pub struct Timerfd {
    again: Again,
    handler: fn(),
    fired: Rc<Cell<u64>>,
    reader: Option<JoinHandle<io::Result<()>>>,
}

impl Timerfd {
    /// Creates a timer descriptor with this repetition, and a task that calls the handler.
    pub fn new(again: Again, handler: fn()) -> Self {
        Self {
            again,
            handler,
            fired: Rc::default(),
            reader: None,
        }
    }
}

impl Toggle for Timerfd {
    fn start(&mut self, _: Duration) -> io::Result<()> {
        self.fired.set(0);
        let (fired, handler) = (Rc::clone(&self.fired), self.handler);
        self.reader = Some(read_timer(self.again, move || {
            handler();
            fired.set(fired.get() + 1);
        })?);
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

/// An alarm-safe event with a deadline (section 5.9 of the paper).
pub struct Deadline {
    period: Duration,
    slack: Duration,
    registered: Option<AlarmId>,
    before: u64,
}

impl Deadline {
    /// Creates an event every `period`, at most `slack` late.
    pub fn new(period: Duration, slack: Duration) -> Self {
        Self {
            period,
            slack,
            registered: None,
            before: 0,
        }
    }
}

impl Toggle for Deadline {
    fn start(&mut self, _: Duration) -> io::Result<()> {
        self.before = DEADLINES.fires();
        let registered = softclock::schedule_alarm_safe(&DEADLINES, self.period, Some(self.slack));
        self.registered = Some(registered.map_err(|_| io::ErrorKind::QuotaExceeded)?);
        Ok(())
    }

    fn stop(&mut self) -> io::Result<u64> {
        if let Some(id) = self.registered.take() {
            softclock::cancel_alarm_safe(id);
        }
        Ok(DEADLINES.fires() - self.before)
    }
}

/// The backup timer. It is always on otherwise, so it is switched off in the slices without it.
pub struct Backup {
    longest: Duration,
}

impl Backup {
    /// Creates a toggle of the backup timer with this longest period.
    pub fn new(longest: Duration) -> Self {
        Self { longest }
    }
}

impl Toggle for Backup {
    fn start(&mut self, _: Duration) -> io::Result<()> {
        softclock::set_backup(Some(self.longest));
        Ok(())
    }

    fn stop(&mut self) -> io::Result<u64> {
        softclock::set_backup(Some(LONGEST_BACKUP));
        Ok(0)
    }

    fn before_off(&mut self) {
        softclock::set_backup(None);
    }

    fn after_off(&mut self) {
        softclock::set_backup(Some(LONGEST_BACKUP));
    }
}

/// The counters of alarm-safe handlers; such handlers must be `'static`.
static SIGNALS: AlarmCounter = AlarmCounter::new();
static DEADLINES: AlarmCounter = AlarmCounter::new();

/// The runtime's default.
const LONGEST_BACKUP: Duration = Duration::from_millis(32);
