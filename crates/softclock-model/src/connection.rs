//! A model of one connection between two stacks, for `stateright`.
//!
//! The subject is the code itself. A connection cannot be copied, so a state is the sequence of steps that leads to it,
//! and each new state replays them; states are the same if all that can be seen of them is the same: both ends' states,
//! numbers, memory, timers and owners, and the segments on their way.
//!
//! Whether all ends well from a state is judged by an experiment, as `eventually` of a bounded search cannot see beyond
//! the bound: from a copy of the state the network is good and time passes, once with owners that go on to close
//! ([`Facts::closes`]), and once with owners that do nothing ([`Facts::agrees`]).

mod run;

use std::hash::{Hash, Hasher};

use stateright::{Model, Property};

use run::Run;

/// A step.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Step {
    /// The owner at an end opens the connection.
    Connect(usize),
    /// The segment at this place of those on their way to an end arrives.
    Deliver(usize, usize),
    /// The first segment on its way to an end is lost.
    Lose(usize),
    /// A copy of the first segment on its way to an end will arrive, too.
    Repeat(usize),
    /// Time passes until a timer is due.
    Time,
    /// The owner at an end writes.
    Write(usize),
    /// The owner at an end closes its half.
    Shutdown(usize),
    /// The owner at an end leaves.
    Close(usize),
    /// The owner at an end resets the connection.
    Abort(usize),
}

/// How the connection is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Opening {
    /// By one end; the other listens.
    Passive,
    /// By both ends at the same time (RFC 9293, 3.5).
    Simultaneous,
}

/// The bounds of a search: how many steps are taken, and how often each.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Steps in all. The model has no more, so the checker evaluates the properties of all states up to there: it skips
    /// those at its own `target_max_depth`.
    pub steps: usize,
    /// Segments that are lost.
    pub losses: usize,
    /// Segments that are repeated.
    pub repetitions: usize,
    /// Timers.
    pub times: usize,
    /// Writes of each end.
    pub writes: usize,
    /// Segments that may arrive before one that was sent earlier.
    pub reordering: usize,
    /// Whether owners leave and reset.
    pub has_aborts: bool,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            steps: 7,
            losses: 1,
            repetitions: 1,
            times: 3,
            writes: 1,
            reordering: 1,
            has_aborts: true,
        }
    }
}

/// A connection between two stacks.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionModel {
    /// How it is opened.
    pub opening: Opening,
    /// The bounds of the search.
    pub bounds: Bounds,
}

/// A state: the steps to it, and what can be seen of it.
#[derive(Clone, Debug)]
pub struct Place {
    /// The steps.
    pub steps: Vec<Step>,
    /// What can be seen.
    pub view: String,
    /// What is true of it.
    pub facts: Facts,
    possible: Vec<Step>,
}

/// What is true of a state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Why the stacks or an owner panicked.
    pub panic: Option<String>,
    /// Why the connection does not end when owners close and the network is good. `None`: it does.
    pub closes: Option<String>,
    /// Why one end is open for ever while the other is closed, without any step of the owners. `None`: they agree.
    pub agrees: Option<String>,
    /// Both ends are in ESTABLISHED.
    pub is_established: bool,
    /// Both ends are in TIME-WAIT.
    pub is_time_wait: bool,
    /// Both ends have read what the other wrote.
    pub has_exchanged: bool,
}

impl PartialEq for Place {
    fn eq(&self, other: &Self) -> bool {
        self.view == other.view
    }
}

impl Hash for Place {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.view.hash(state);
    }
}

impl ConnectionModel {
    fn place(&self, steps: Vec<Step>) -> Place {
        // A panic is a fact about the steps, so the checker reports them.
        let facts = std::panic::catch_unwind(|| {
            let run = || Run::after(self, &steps);
            let here = run();
            let mut facts = here.facts();
            facts.closes = run().close().err();
            facts.agrees = run().wait().err();
            (here.view(), here.possible(self), facts)
        });
        match facts {
            Ok((view, possible, facts)) => Place {
                steps,
                view,
                facts,
                possible,
            },
            Err(cause) => {
                let text = cause.downcast_ref::<String>().cloned();
                let text = text.unwrap_or_else(|| "a panic".to_owned());
                let facts = Facts {
                    panic: Some(text),
                    ..Facts::default()
                };
                Place {
                    view: format!("{steps:?}"),
                    steps,
                    facts,
                    possible: Vec::new(),
                }
            }
        }
    }
}

impl Model for ConnectionModel {
    type State = Place;
    type Action = Step;

    fn init_states(&self) -> Vec<Place> {
        vec![self.place(Vec::new())]
    }

    fn actions(&self, place: &Place, actions: &mut Vec<Step>) {
        if place.steps.len() < self.bounds.steps {
            actions.extend_from_slice(&place.possible);
        }
    }

    fn next_state(&self, place: &Place, step: Step) -> Option<Place> {
        let mut steps = place.steps.clone();
        steps.push(step);
        Some(self.place(steps))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            // Also that no byte is read twice or wrong, as reading asserts it.
            Property::always("no panic", |_, place: &Place| place.facts.panic.is_none()),
            Property::always("ends", |_, place: &Place| place.facts.closes.is_none()),
            Property::always("ends agree", |_, place: &Place| {
                place.facts.agrees.is_none()
            }),
            Property::sometimes("established", |_, place: &Place| place.facts.is_established),
            Property::sometimes("both in TIME-WAIT", |_, place: &Place| {
                place.facts.is_time_wait
            }),
            Property::sometimes("exchanged", |_, place: &Place| place.facts.has_exchanged),
            Property::sometimes("at the bound", |model: &Self, place: &Place| {
                place.steps.len() == model.bounds.steps
            }),
        ]
    }
}
