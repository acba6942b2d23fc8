//! Plays the trace, or single operations, on a structure and measures the time.

use std::hint::black_box;
use std::io;
use std::time::Instant as StdInstant;

use super::peers::{Owners, Peer};
use super::trace::{Step, delay_ns};
use crate::random::Random;

/// A player of any structure; the trait object lets different structures take turns.
pub(super) trait Play {
    fn name(&self) -> &'static str;

    /// Plays these steps; returns the nanoseconds per step.
    ///
    /// # Errors
    /// The program that plays has ended.
    fn play(&mut self, steps: &[Step]) -> io::Result<f64>;

    /// Performs an operation `calls` times; returns the nanoseconds per call.
    ///
    /// # Errors
    /// The program that plays has ended.
    fn operation(&mut self, operation: Operation, calls: usize, seed: u64) -> io::Result<f64>;

    /// Returns how often the structure fired early or late in the trace.
    fn inexactness(&self) -> &Inexactness;
}

/// Counts of timers that did not fire on time.
#[derive(Default)]
pub(super) struct Inexactness {
    pub(super) steps: u64,
    /// Timers that had not fired one tick after their due time.
    pub(super) late: u64,
    /// Timers that had fired before their due time, found when their owner came to cancel them.
    pub(super) early: u64,
}

impl Inexactness {
    /// Returns a note with the shares, if any timer was early or late.
    pub(super) fn note(&self, name: &str, what: &str, pending: usize) -> Option<String> {
        if self.late + self.early == 0 {
            return None;
        }
        let percent = |count: u64| 100.0 * count as f64 / self.steps as f64;
        Some(format!(
            "{name}, {what}, {pending} pending: of the steps {:.2} % found their timer fired too early, \
             {:.2} % not yet fired a tick after it was due",
            percent(self.early),
            percent(self.late)
        ))
    }
}

/// Returns random timers with new due times in nanoseconds.
pub(super) fn choices(
    now_ns: u64,
    timers: usize,
    calls: usize,
    seed: u64,
) -> impl Iterator<Item = (u32, u64)> {
    let mut random = Random(seed);
    (0..calls).map(move |_| {
        let due_ns = now_ns + delay_ns(&mut random);
        (random.below(timers as u64) as u32, due_ns)
    })
}

/// An operation that is measured alone.
#[derive(Clone, Copy)]
pub(super) enum Operation {
    Schedule,
    Cancel,
    ScheduleAndCancel,
    Reschedule,
    IdleCheck,
}

impl Operation {
    pub(super) const ALL: [Self; 5] = [
        Self::Schedule,
        Self::Cancel,
        Self::ScheduleAndCancel,
        Self::Reschedule,
        Self::IdleCheck,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Schedule => "schedule",
            Self::Cancel => "cancel",
            Self::ScheduleAndCancel => "schedule + cancel",
            Self::Reschedule => "reschedule",
            Self::IdleCheck => "idle check",
        }
    }
}

/// A structure with its timers' owners.
pub(super) struct Player<P: Peer> {
    peer: P,
    owners: Owners<P::Handle>,
    now_ns: u64,
    found: Inexactness,
}

impl<P: Peer> Player<P> {
    pub(super) fn new(initial_ns: &[u64]) -> Self {
        let mut peer = P::new(initial_ns.len());
        let mut owners = Owners::new(initial_ns.len());
        for (id, &due_ns) in initial_ns.iter().enumerate() {
            let due = peer.due(due_ns);
            owners.put(id as u32, peer.schedule(due, id as u64));
        }
        Self {
            peer,
            owners,
            now_ns: 0,
            found: Inexactness::default(),
        }
    }

    /// Returns random timers with new due times, in the structure's form.
    fn choices(&self, calls: usize, seed: u64) -> Vec<(u32, P::Time)> {
        choices(self.now_ns, self.owners.len(), calls, seed)
            .map(|(id, due_ns)| (id, self.peer.due(due_ns)))
            .collect()
    }

    fn schedule_all(&mut self, choices: &[(u32, P::Time)]) -> Vec<P::Handle> {
        let schedule = |&(id, due): &(u32, P::Time)| self.peer.schedule(due, u64::from(id));
        choices.iter().map(schedule).collect()
    }

    fn time_schedule(&mut self, choices: &[(u32, P::Time)]) -> f64 {
        let start = StdInstant::now();
        let handles = black_box(self.schedule_all(choices));
        let ns = start.elapsed().as_nanos() as f64;
        handles.into_iter().for_each(|h| self.peer.cancel(h));
        ns
    }

    fn time_cancel(&mut self, choices: &[(u32, P::Time)]) -> f64 {
        // Cancel in another order than that of scheduling, as owners do.
        let mut handles = self.schedule_all(choices);
        shuffle(&mut handles);
        let start = StdInstant::now();
        for handle in handles {
            self.peer.cancel(handle);
        }
        start.elapsed().as_nanos() as f64
    }

    fn time_schedule_and_cancel(&mut self, choices: &[(u32, P::Time)]) -> f64 {
        let start = StdInstant::now();
        for &(id, due) in choices {
            if let Some(handle) = self.owners.take(id) {
                self.peer.cancel(handle);
            }
            self.owners.put(id, self.peer.schedule(due, u64::from(id)));
        }
        start.elapsed().as_nanos() as f64
    }

    fn time_reschedule(&mut self, choices: &[(u32, P::Time)]) -> f64 {
        let start = StdInstant::now();
        for &(id, due) in choices {
            let handle = match self.owners.take(id) {
                Some(handle) => self.peer.reschedule(handle, due, u64::from(id)),
                None => self.peer.schedule(due, u64::from(id)),
            };
            self.owners.put(id, handle);
        }
        start.elapsed().as_nanos() as f64
    }

    fn time_idle_check(&mut self, calls: usize) -> f64 {
        let now = self.peer.at(self.now_ns);
        let start = StdInstant::now();
        for _ in 0..calls {
            black_box(black_box(&self.peer).is_due(black_box(now)));
        }
        start.elapsed().as_nanos() as f64
    }
}

impl<P: Peer> Player<P> {
    #[inline]
    fn step(&mut self, step: &Step, at: P::Time, due: P::Time) {
        // As in a program: fire due timers first, then replace this timer.
        self.peer.poll(at, &mut self.owners);
        match self.owners.take(step.id) {
            Some(handle) => {
                self.found.late += u64::from(step.expired);
                self.peer.cancel(handle);
            }
            None => self.found.early += u64::from(!step.expired),
        }
        let handle = self.peer.schedule(due, u64::from(step.id));
        self.owners.put(step.id, handle);
    }
}

impl<P: Peer> Play for Player<P> {
    fn name(&self) -> &'static str {
        P::NAME
    }

    fn play(&mut self, steps: &[Step]) -> io::Result<f64> {
        // Conversions are not part of the structure's cost.
        let times: Vec<(P::Time, P::Time)> = steps
            .iter()
            .map(|step| (self.peer.at(step.at_ns), self.peer.due(step.due_ns)))
            .collect();
        let start = StdInstant::now();
        for (step, &(at, due)) in steps.iter().zip(&times) {
            self.step(step, at, due);
        }
        let ns = start.elapsed().as_nanos() as f64;
        self.found.steps += steps.len() as u64;
        if let Some(last) = steps.last() {
            self.now_ns = last.at_ns;
        }
        Ok(ns / steps.len() as f64)
    }

    fn operation(&mut self, operation: Operation, calls: usize, seed: u64) -> io::Result<f64> {
        let choices = self.choices(calls, seed);
        let ns = match operation {
            Operation::Schedule => self.time_schedule(&choices),
            Operation::Cancel => self.time_cancel(&choices),
            Operation::ScheduleAndCancel => self.time_schedule_and_cancel(&choices),
            Operation::Reschedule => self.time_reschedule(&choices),
            Operation::IdleCheck => self.time_idle_check(calls),
        };
        Ok(ns / calls as f64)
    }

    fn inexactness(&self) -> &Inexactness {
        &self.found
    }
}

impl<P: Peer> Drop for Player<P> {
    /// Cancels all timers, because nexus-timer requires each handle to be consumed, not dropped.
    fn drop(&mut self) {
        for id in 0..self.owners.len() as u32 {
            if let Some(handle) = self.owners.take(id) {
                self.peer.cancel(handle);
            }
        }
    }
}

fn shuffle<T>(items: &mut [T]) {
    let mut random = Random(1);
    for i in (1..items.len()).rev() {
        items.swap(i, random.below(i as u64 + 1) as usize);
    }
}
