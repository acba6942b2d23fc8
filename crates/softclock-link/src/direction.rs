//! One direction of the bridge: receive, decide, transmit on time.
//!
//! Each receive and each transmission is a trigger state. A transmission that must wait is a soft event: the first
//! trigger state after its due time sends it, and the idle rule bounds the lateness.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;

use softclock::{EventContext, FireWindow, Histogram, Instant, SoftEvent};
use softclock_linux::link::BATCH;

use crate::frame::{Discipline, Frame, NamedCounts, Next, Row};
use crate::port::{Port, PortError};

/// Forwards frames from one port to the other, at the times that a [`Discipline`] sets.
pub struct Direction<D> {
    from: Rc<Port>,
    to: Rc<Port>,
    discipline: RefCell<D>,
    /// The batch under construction: frames that leave together, from the decision to the transmission.
    leaving: RefCell<Vec<Frame>>,
    /// The event of the next transmission; created by the first transmission that must wait.
    event: OnceCell<SoftEvent>,
    /// The time of `event` while it is pending.
    due: Cell<Due>,
    /// Lateness of the transmissions that waited for the discipline, in nanoseconds.
    lateness: RefCell<Histogram>,
}

/// The time of the next transmission.
#[derive(Clone, Copy)]
struct Due {
    at: Instant,
    /// True if this is a retry because the link had no room. Only the discipline's times count in the lateness.
    is_retry: bool,
}

impl<D: Discipline> Direction<D> {
    /// Creates a direction. It forwards nothing until [`run`](Self::run) is polled.
    pub fn new(from: Rc<Port>, to: Rc<Port>, discipline: D) -> Rc<Self> {
        Rc::new(Self {
            from,
            to,
            discipline: RefCell::new(discipline),
            leaving: RefCell::new(Vec::with_capacity(BATCH)),
            event: OnceCell::new(),
            due: Cell::new(Due::NONE),
            lateness: RefCell::default(),
        })
    }

    /// Forwards frames until the interface that it receives from is deleted; returns the error.
    ///
    /// Runs in the runtime's thread. Each iteration handles at most [`BATCH`] frames.
    ///
    /// # Cancel safety
    /// If the future is dropped, no further frame is received. Those that wait still leave at their times, for as long
    /// as other references to the direction exist; calling this again continues.
    pub async fn run(self: Rc<Self>) -> PortError {
        let mut arrived = Vec::with_capacity(BATCH);
        loop {
            if let Err(error) = self.from.receive(&mut arrived).await {
                return error;
            }
            let now = softclock::now();
            for frame in arrived.drain(..) {
                self.discipline.borrow_mut().on_frame(frame, now);
            }
            if let Some(due) = self.transmit() {
                self.schedule(due);
            }
            // Serves the other direction, whose transmissions may be due while this one is busy.
            softclock::trigger();
        }
    }

    /// The port that frames are received from.
    pub fn from(&self) -> &Port {
        &self.from
    }

    /// The port that frames are sent to.
    pub fn to(&self) -> &Port {
        &self.to
    }

    /// Returns the counters and the lateness since the start. Takes time in proportion to the discipline's classes.
    pub fn report(&self) -> DirectionReport {
        let lateness = self.lateness.borrow();
        let quantiles = || [0.5, 0.99, 0.999].map(|share| lateness.quantile_ns(share));
        DirectionReport {
            from: self.from.link().name().to_owned(),
            to: self.to.link().name().to_owned(),
            mechanism: self.from.mechanism(),
            rows: self.discipline.borrow().rows(),
            port_drops: self.from.drops(),
            not_received: self.from.not_received(),
            not_sent: self.to.not_sent(),
            port_lost: self.from.lost(),
            lateness_ns: (!lateness.is_empty()).then(quantiles),
        }
    }

    /// Sends the frames that may leave now, at most [`BATCH`], by one call; returns the time to continue at, if any.
    fn transmit(&self) -> Option<Due> {
        let mut leaving = self.leaving.borrow_mut();
        let next = self.decide(&mut leaving);
        self.to.send(&mut leaving);
        leaving.clear();
        let due = |at, is_retry| Due { at, is_retry };
        if self.to.is_behind() {
            // The refused frames are in the port's ring: a timer must flush them, since no later frame may arrive.
            let again = softclock::now().add_ns(ROOM_PAUSE_NS);
            if next.is_none_or(|next| again < next) {
                return Some(due(again, true));
            }
        }
        next.map(|next| due(next, false))
    }

    /// Moves the frames that may leave now to `leaving`, at most [`BATCH`]; returns the time at which more may leave.
    fn decide(&self, leaving: &mut Vec<Frame>) -> Option<Instant> {
        let mut discipline = self.discipline.borrow_mut();
        let now = softclock::now();
        while leaving.len() < BATCH {
            match discipline.next(now) {
                Next::Send(frame) => leaving.push(frame),
                Next::Wait(due) => return Some(due),
                Next::Empty => return None,
            }
        }
        Some(now)
    }

    /// Schedules a transmission at `due`, unless an earlier one is pending. Allocates on the first call only.
    fn schedule(self: &Rc<Self>, due: Due) {
        let window = self.window(due);
        let Some(event) = self.event.get() else {
            self.due.set(due);
            // A weak reference, since the event is stored in the direction itself.
            let direction = Rc::downgrade(self);
            let event = softclock::schedule_within(window, move |context| {
                if let Some(direction) = direction.upgrade() {
                    direction.on_due(context);
                }
            });
            let _ = self.event.set(event);
            return;
        };
        if event.is_pending() && self.due.get().at <= due.at {
            return;
        }
        self.due.set(due);
        event.reschedule_within(window);
    }

    /// Handles the soft event: sends the frames that are due and schedules the next transmission.
    fn on_due(&self, context: &mut EventContext<'_>) {
        if !self.due.get().is_retry {
            let late = context.lateness().as_nanos();
            let late = u64::try_from(late).unwrap_or(u64::MAX);
            self.lateness.borrow_mut().record(late);
        }
        // Frames that an earlier transmission left in the port's ring go first, to keep the order.
        self.to.flush();
        if let Some(due) = self.transmit() {
            self.due.set(due);
            context.reschedule_within(self.window(due));
        }
    }

    fn window(&self, due: Due) -> FireWindow {
        match self.discipline.borrow().is_rough() {
            true => FireWindow::roughly(due.at),
            false => FireWindow::from(due.at),
        }
    }
}

impl Due {
    /// The value before any event is scheduled.
    const NONE: Self = Self {
        at: Instant::ORIGIN,
        is_retry: false,
    };
}

/// Counters and lateness of one direction since its start.
#[derive(Debug)]
pub struct DirectionReport {
    /// The name of the interface that frames are received from.
    pub from: String,
    /// The name of the interface that frames are sent to.
    pub to: String,
    /// The mechanism by which frames are received.
    pub mechanism: &'static str,
    /// The counters of each class.
    pub rows: Vec<Row>,
    /// Frames dropped at the receiving port, by reason, also those of the other direction that it could not send.
    pub port_drops: NamedCounts,
    /// Frames that the receiving port could not receive, by reason.
    pub not_received: NamedCounts,
    /// Frames that the sending port could not send, by reason. The rows count them as sent.
    pub not_sent: NamedCounts,
    /// Frames lost because the receive buffer was full; `None` if the count is not available.
    pub port_lost: Option<u64>,
    /// Lateness of the transmissions that waited for an event, in nanoseconds: p50, p99 and p99.9.
    pub lateness_ns: Option<[u64; 3]>,
}

/// The pause before retrying a link that had no room. At 1 Gbit/s it sends 8 frames of 1500 bytes in that time.
const ROOM_PAUSE_NS: u64 = 100_000;
