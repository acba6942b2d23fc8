//! One direction of the bridge: receive, decide, transmit on time.
//!
//! Each receive and each transmission is a trigger state. Transmissions that must wait are a soft event: whatever call
//! comes first after it is due sends them, and the idle rule bounds how late that is.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;

use softclock::{EventContext, FireWindow, Histogram, Instant, SoftEvent};
use softclock_linux::link::BATCH;

use crate::frame::{Counts, Discipline, Frame, Next, Row};
use crate::port::{Port, PortError};

/// Frames from one port to the other.
pub struct Direction<D> {
    from: Rc<Port>,
    to: Rc<Port>,
    discipline: RefCell<D>,
    /// Those that leave together, between their decision and their transmission.
    leaving: RefCell<Vec<Frame>>,
    /// The next transmission, from the first that has to wait on.
    event: OnceCell<SoftEvent>,
    /// When it is, while it is pending.
    due: Cell<Due>,
    /// How late the discipline's were, in nanoseconds.
    lateness: RefCell<Histogram>,
}

/// When the next transmission is.
#[derive(Clone, Copy)]
struct Due {
    at: Instant,
    /// The link had no room. Else it is what the discipline says, and is late if it comes later.
    is_retry: bool,
}

impl<D: Discipline> Direction<D> {
    /// A direction in which nothing is carried yet.
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

    /// Carries frames until a link is gone, and says which.
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
            // Two directions, or two bridges, see to each other's transmissions.
            softclock::trigger();
        }
    }

    /// The port that frames come from.
    pub fn from(&self) -> &Port {
        &self.from
    }

    /// The port that they go to.
    pub fn to(&self) -> &Port {
        &self.to
    }

    /// What happened so far. Takes time in proportion to the classes of the discipline.
    pub fn report(&self) -> DirectionReport {
        let lateness = self.lateness.borrow();
        let quantiles = || [0.5, 0.99, 0.999].map(|share| lateness.quantile_ns(share));
        DirectionReport {
            from: self.from.link().name().to_owned(),
            to: self.to.link().name().to_owned(),
            mechanism: self.from.mechanism(),
            rows: self.discipline.borrow().rows(),
            port_drops: self.from.drops(),
            port_lost: self.from.lost(),
            lateness_ns: (!lateness.is_empty()).then(quantiles),
        }
    }

    /// Sends what may leave now, [`BATCH`] frames at most, together; returns when to go on.
    fn transmit(&self) -> Option<Due> {
        let mut leaving = self.leaving.borrow_mut();
        let next = self.decide(&mut leaving);
        self.to.send(&leaving);
        leaving.clear();
        let due = |at, is_retry| Due { at, is_retry };
        if self.to.is_behind() {
            // No other frame may come that would take those along.
            let again = softclock::now().add_ns(ROOM_PAUSE_NS);
            if next.is_none_or(|next| again < next) {
                return Some(due(again, true));
            }
        }
        next.map(|next| due(next, false))
    }

    /// Collects what may leave now; tells when more may.
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

    /// Has the next transmission when it is due, unless one is scheduled before. Allocates the first time only.
    fn schedule(self: &Rc<Self>, due: Due) {
        let window = FireWindow::from(due.at);
        let Some(event) = self.event.get() else {
            self.due.set(due);
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

    /// The time of the next transmission has come.
    fn on_due(&self, context: &mut EventContext<'_>) {
        if !self.due.get().is_retry {
            let late = context.lateness().as_nanos();
            let late = u64::try_from(late).unwrap_or(u64::MAX);
            self.lateness.borrow_mut().record(late);
        }
        self.to.flush();
        if let Some(due) = self.transmit() {
            self.due.set(due);
            context.reschedule_within(FireWindow::from(due.at));
        }
    }
}

impl Due {
    /// Of no event.
    const NONE: Self = Self {
        at: Instant::ORIGIN,
        is_retry: false,
    };
}

/// What one direction did so far.
#[derive(Debug)]
pub struct DirectionReport {
    /// The name of the interface that frames come from.
    pub from: String,
    /// The name of the one that they go to.
    pub to: String,
    /// The mechanism by which frames are received.
    pub mechanism: &'static str,
    /// What each class did.
    pub rows: Vec<Row>,
    /// Frames lost at the port that receives, by reason.
    pub port_drops: Counts,
    /// Frames that were not taken there in time, if that is known.
    pub port_lost: Option<u64>,
    /// How late transmissions began that waited for an event, in nanoseconds: p50, p99 and p99.9.
    pub lateness_ns: Option<[u64; 3]>,
}

/// After which a link without room is asked again: what it sends meanwhile is 8 long frames at 1 Gbit/s.
const ROOM_PAUSE_NS: u64 = 100_000;
