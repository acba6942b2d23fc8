use super::*;
use alloc::collections::VecDeque;
use alloc::vec;
use proptest::prelude::*;

const READ: Readiness = Readiness::READABLE;
const WRITE: Readiness = Readiness::WRITABLE;
const NONE: Readiness = Readiness::NONE;

/// A plain model of the queues.
struct Model {
    sources: Vec<ModelSource>,
    queues: Vec<ModelQueue>,
}

#[derive(Clone)]
struct ModelSource {
    state: Readiness,
    delivery: Delivery,
    /// Queues and their masks, in the order of their turns.
    interests: Vec<(usize, Readiness)>,
}

#[derive(Default, Clone)]
struct ModelQueue {
    pending: VecDeque<usize>,
    idle: bool,
}

impl Model {
    fn pending(&self, queue: usize, source: usize) -> bool {
        self.queues[queue].pending.contains(&source)
    }

    fn post(&mut self, source: usize, arrived: Readiness) {
        self.sources[source].state |= arrived;
        self.notify(source, arrived);
    }

    fn notify(&mut self, source: usize, arrived: Readiness) {
        let interested: Vec<usize> = self.sources[source]
            .interests
            .iter()
            .filter(|(_, mask)| mask.intersects(arrived))
            .map(|&(queue, _)| queue)
            .collect();
        match self.sources[source].delivery {
            Delivery::Each => {
                for queue in interested {
                    if !self.pending(queue, source) {
                        self.queues[queue].pending.push_back(source);
                    }
                }
            }
            Delivery::One => self.notify_one(source, arrived),
        }
    }

    /// Gives an event to waiting queues, unless an idle one already has it pending. Remaining conditions go to any
    /// queue, unless one has them pending.
    fn notify_one(&mut self, source: usize, arrived: Readiness) {
        let state = self.sources[source].state;
        let is_idle = |model: &Self, queue: usize| model.queues[queue].idle;
        let mut left = arrived & !self.told(source, &is_idle);
        let waits = |model: &Self, queue: usize| {
            is_idle(model, queue) && model.queues[queue].pending.is_empty()
        };
        while let Some((_, mask)) = self.tell_first(source, left, waits) {
            left = left & !mask;
            for (busy, wanted) in self.sources[source].interests.clone() {
                if !is_idle(self, busy) && mask.contains(state & wanted) {
                    self.queues[busy].pending.retain(|&of| of != source);
                }
            }
        }
        left = left & !self.told(source, &|_, _| true);
        while let Some((_, mask)) = self.tell_first(source, left, |_, _| true) {
            left = left & !mask;
        }
    }

    /// Returns the conditions that the queues with a pending event of the source are interested in.
    fn told(&self, source: usize, among: &dyn Fn(&Self, usize) -> bool) -> Readiness {
        let interests = self.sources[source].interests.iter();
        interests
            .filter(|&&(queue, _)| self.pending(queue, source) && among(self, queue))
            .fold(NONE, |all, &(_, mask)| all | mask)
    }

    /// Queues an event for the first interested queue, whose turn is then the last.
    fn tell_first(
        &mut self,
        source: usize,
        conditions: Readiness,
        among: impl Fn(&Self, usize) -> bool,
    ) -> Option<(usize, Readiness)> {
        let interests = &self.sources[source].interests;
        let chosen = interests.iter().position(|&(queue, mask)| {
            mask.intersects(conditions) && !self.pending(queue, source) && among(self, queue)
        })?;
        let turn = self.sources[source].interests.remove(chosen);
        self.sources[source].interests.push(turn);
        self.queues[turn.0].pending.push_back(source);
        Some(turn)
    }

    fn declare(&mut self, queue: usize, source: usize, mask: Readiness) {
        let interests = &mut self.sources[source].interests;
        let at = interests.iter().position(|&(of, _)| of == queue);
        let old = at.map_or(NONE, |at| interests[at].1);
        let mask = if mask.is_empty() { mask } else { mask | ALWAYS };
        match at {
            None if mask.is_empty() => return,
            None => interests.push((queue, mask)),
            Some(at) if mask.is_empty() => drop(interests.remove(at)),
            Some(at) => interests[at].1 = mask,
        }
        let was_pending = self.pending(queue, source);
        if mask.is_empty() {
            self.queues[queue].pending.retain(|&of| of != source);
        }
        if was_pending && self.sources[source].delivery == Delivery::One {
            let left = self.sources[source].state & old & !mask;
            self.notify(source, left);
        }
    }

    fn remove_source(&mut self, source: usize) {
        self.sources[source].interests.clear();
        self.sources[source].state = NONE;
        for queue in &mut self.queues {
            queue.pending.retain(|&of| of != source);
        }
    }

    fn next(&mut self, queue: usize) -> Option<(usize, Readiness)> {
        loop {
            let source = self.queues[queue].pending.pop_front()?;
            let ModelSource {
                state, interests, ..
            } = &self.sources[source];
            let of_queue = interests.iter().find(|&&(of, _)| of == queue);
            let readiness = *state & of_queue.expect("only the interested have events").1;
            if !readiness.is_empty() {
                return Some((source, readiness));
            }
        }
    }

    /// Checks that no event is lost: a queue interested in a condition that was posted and still holds has an event
    /// pending, or took one since it was posted.
    fn check_nothing_is_lost(&self, owed: &[Vec<Readiness>]) {
        for (index, source) in self.sources.iter().enumerate() {
            for &(queue, mask) in &source.interests {
                let owed = owed[index][queue] & source.state & mask;
                let told = source.interests.iter().filter(|&&(other, _)| {
                    self.pending(other, index)
                        && (other == queue || source.delivery == Delivery::One)
                });
                let told = told.fold(NONE, |all, &(_, mask)| all | mask);
                assert!((owed & !told).is_empty(), "{owed:?} of {index} for {queue}");
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Op {
    Post(usize, Readiness),
    Consume(usize, Readiness),
    SetState(usize, Readiness),
    Declare(usize, usize, Readiness),
    Take(usize, usize),
    Idle(usize, bool),
    Replace(usize, Delivery, Readiness),
    ReplaceQueue(usize),
}

const SOURCES: usize = 5;
const QUEUES: usize = 3;

fn op() -> impl Strategy<Value = Op> {
    let mask = || {
        prop_oneof![
            3 => Just(READ), 3 => Just(WRITE), 3 => Just(READ | WRITE), 1 => Just(NONE),
            1 => Just(Readiness::ERROR), 1 => Just(Readiness::PRIORITY), 1 => Just(READ | Readiness::READ_CLOSED),
        ]
    };
    let delivery = prop_oneof![Just(Delivery::Each), Just(Delivery::One)];
    prop_oneof![
        6 => (0..SOURCES, mask()).prop_map(|(s, m)| Op::Post(s, m)),
        3 => (0..SOURCES, mask()).prop_map(|(s, m)| Op::Consume(s, m)),
        2 => (0..SOURCES, mask()).prop_map(|(s, m)| Op::SetState(s, m)),
        4 => (0..QUEUES, 0..SOURCES, mask()).prop_map(|(q, s, m)| Op::Declare(q, s, m)),
        4 => (0..QUEUES, 0usize..4).prop_map(|(q, n)| Op::Take(q, n)),
        2 => (0..QUEUES, any::<bool>()).prop_map(|(q, idle)| Op::Idle(q, idle)),
        1 => (0..SOURCES, delivery, mask()).prop_map(|(s, d, m)| Op::Replace(s, d, m)),
        1 => (0..QUEUES).prop_map(Op::ReplaceQueue),
    ]
}

/// The queues and the model.
struct Pair {
    events: EventQueues,
    model: Model,
    sources: Vec<SourceId>,
    queues: Vec<QueueId>,
    removed: Vec<SourceId>,
    /// By source and queue, the conditions posted since the queue last took an event of the source.
    owed: Vec<Vec<Readiness>>,
}

impl Pair {
    fn new() -> Self {
        let mut events = EventQueues::new();
        let source = ModelSource {
            state: NONE,
            delivery: Delivery::Each,
            interests: Vec::new(),
        };
        Self {
            sources: (0..SOURCES)
                .map(|_| events.add_source(NONE, Delivery::Each))
                .collect(),
            queues: (0..QUEUES).map(|_| events.add_queue()).collect(),
            events,
            model: Model {
                sources: vec![source; SOURCES],
                queues: vec![ModelQueue::default(); QUEUES],
            },
            removed: Vec::new(),
            owed: vec![vec![NONE; QUEUES]; SOURCES],
        }
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Post(source, arrived) => {
                self.events.post(self.sources[source], arrived);
                self.model.post(source, arrived);
                for &(queue, mask) in &self.model.sources[source].interests {
                    self.owed[source][queue] |= arrived & mask;
                }
            }
            Op::Consume(source, consumed) => {
                self.events.consume(self.sources[source], consumed);
                let state = &mut self.model.sources[source].state;
                *state = *state & !consumed;
                for owed in &mut self.owed[source] {
                    *owed = *owed & !consumed;
                }
            }
            Op::SetState(source, state) => {
                self.events.set_state(self.sources[source], state);
                self.model.sources[source].state = state;
                for owed in &mut self.owed[source] {
                    *owed = *owed & state;
                }
            }
            Op::Declare(queue, source, mask) => {
                let state =
                    self.events
                        .declare_interest(self.queues[queue], self.sources[source], mask);
                assert_eq!(state, Some(self.model.sources[source].state));
                self.model.declare(queue, source, mask);
                let owed = &mut self.owed[source][queue];
                *owed = *owed & (mask | ALWAYS);
                if mask.is_empty() {
                    *owed = NONE;
                }
            }
            Op::Take(queue, most) => self.take(queue, most),
            Op::Idle(queue, idle) => {
                self.events.set_idle(self.queues[queue], idle);
                self.model.queues[queue].idle = idle;
            }
            Op::Replace(source, delivery, state) => {
                assert!(self.events.remove_source(self.sources[source]));
                assert!(!self.events.remove_source(self.sources[source]));
                self.removed.push(self.sources[source]);
                self.model.remove_source(source);
                self.sources[source] = self.events.add_source(state, delivery);
                self.model.sources[source].state = state;
                self.model.sources[source].delivery = delivery;
                self.owed[source].fill(NONE);
            }
            Op::ReplaceQueue(queue) => {
                // The order in which the interests of a queue end determines which queues receive its events.
                let mut of_queue = self.events.interests.of_queue(self.queues[queue].0);
                of_queue.sort_unstable();
                let place = |source: u32| {
                    self.sources
                        .iter()
                        .position(|id| id.index == source)
                        .unwrap()
                };
                let sources: Vec<_> = of_queue
                    .iter()
                    .map(|&i| place(self.events.interests[i].source))
                    .collect();
                self.events.remove_queue(self.queues[queue]);
                for source in sources {
                    self.model.declare(queue, source, NONE);
                }
                self.model.queues[queue] = ModelQueue::default();
                self.queues[queue] = self.events.add_queue();
                self.owed.iter_mut().for_each(|of| of[queue] = NONE);
            }
        }
    }

    fn take(&mut self, queue: usize, most: usize) {
        let mut events = [SourceEvent::NONE; 4];
        let found = self
            .events
            .get_next_event(self.queues[queue], &mut events[..most]);
        for event in &events[..found] {
            let (source, readiness) = self.model.next(queue).expect("no more than the model");
            assert_eq!(event.source, self.sources[source]);
            assert_eq!(event.readiness, readiness);
            let ModelSource {
                delivery,
                interests,
                ..
            } = &self.model.sources[source];
            let taker = interests.iter().find(|&&(of, _)| of == queue).unwrap();
            for (of, owed) in self.owed[source].iter_mut().enumerate() {
                if of == queue || *delivery == Delivery::One {
                    *owed = *owed & !taker.1;
                }
            }
        }
        if found < most {
            assert_eq!(self.model.next(queue), None);
        }
    }

    fn check(&mut self) {
        self.model.check_nothing_is_lost(&self.owed);
        for &removed in &self.removed {
            assert_eq!(self.events.state(removed), None);
            self.events.post(removed, READ);
            assert_eq!(
                self.events.declare_interest(self.queues[0], removed, READ),
                None
            );
        }
        for (queue, model) in self.queues.iter().zip(&self.model.queues) {
            assert_eq!(self.events.is_pending(*queue), !model.pending.is_empty());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn agrees_with_the_model(ops in prop::collection::vec(op(), 1..200)) {
        let mut pair = Pair::new();
        for op in &ops {
            pair.apply(op);
            pair.check();
        }
        (0..QUEUES).for_each(|queue| pair.take(queue, 4));
    }
}

fn take(events: &mut EventQueues, queue: QueueId) -> Vec<(SourceId, Readiness)> {
    core::iter::from_fn(|| events.pop_event(queue))
        .map(|event| (event.source, event.readiness))
        .collect()
}

#[test]
fn events_are_coalesced_and_come_in_order() {
    let mut events = EventQueues::new();
    let queue = events.add_queue();
    let [a, b] = [READ, NONE].map(|state| events.add_source(state, Delivery::Each));
    assert_eq!(events.declare_interest(queue, a, READ), Some(READ));
    assert_eq!(events.declare_interest(queue, b, READ | WRITE), Some(NONE));
    assert!(!events.is_pending(queue), "the state was told");
    events.post(b, READ);
    events.post(a, READ);
    events.post(b, WRITE);
    assert_eq!(take(&mut events, queue), [(b, READ | WRITE), (a, READ)]);
    assert!(take(&mut events, queue).is_empty());
}

#[test]
fn what_has_become_meaningless_is_suppressed() {
    let mut events = EventQueues::new();
    let queue = events.add_queue();
    let source = events.add_source(NONE, Delivery::Each);
    events.declare_interest(queue, source, READ);
    events.post(source, READ);
    events.consume(source, READ);
    assert!(take(&mut events, queue).is_empty());
    events.post(source, READ);
    events.declare_interest(queue, source, NONE);
    assert!(take(&mut events, queue).is_empty());
}

#[test]
fn wake_one_prefers_the_idle_and_starves_nobody() {
    let mut events = EventQueues::new();
    let queues = [(); 3].map(|()| events.add_queue());
    let source = events.add_source(NONE, Delivery::One);
    for queue in queues {
        events.declare_interest(queue, source, READ);
    }
    events.set_idle(queues[2], true);
    events.post(source, READ);
    assert_eq!(take(&mut events, queues[2]), [(source, READ)]);
    events.set_idle(queues[2], false);
    let mut taken = [0; 3];
    for _ in 0..30 {
        events.post(source, READ);
        for (queue, taken) in queues.into_iter().zip(&mut taken) {
            *taken += take(&mut events, queue).len();
        }
    }
    assert_eq!(taken, [10; 3]);
}

#[test]
fn wake_one_leaves_nothing_to_a_busy_queue_while_another_waits() {
    let mut events = EventQueues::new();
    let [busy, other] = [(); 2].map(|()| events.add_queue());
    let source = events.add_source(NONE, Delivery::One);
    events.declare_interest(busy, source, READ);
    events.declare_interest(other, source, READ);
    events.post(source, READ);
    assert!(events.is_pending(busy) && !events.is_pending(other));
    events.set_idle(other, true);
    for _ in 0..3 {
        events.post(source, READ);
        assert_eq!(take(&mut events, other), [(source, READ)]);
    }
    assert!(!events.is_pending(busy), "one is told, not both");
}

#[test]
fn wake_one_lets_a_busy_queue_keep_what_the_other_is_not_told() {
    let mut events = EventQueues::new();
    let [busy, other] = [(); 2].map(|()| events.add_queue());
    let source = events.add_source(NONE, Delivery::One);
    events.declare_interest(busy, source, READ | WRITE);
    events.declare_interest(other, source, READ);
    events.post(source, READ | WRITE);
    events.set_idle(other, true);
    events.post(source, READ);
    assert_eq!(take(&mut events, other), [(source, READ)]);
    events.consume(source, READ);
    assert_eq!(take(&mut events, busy), [(source, WRITE)]);
}

#[test]
fn the_state_that_was_looked_at_counts() {
    let mut events = EventQueues::new();
    let queue = events.add_queue();
    let source = events.add_source(NONE, Delivery::Each);
    events.declare_interest(queue, source, READ | WRITE);
    events.set_state(source, READ);
    assert!(!events.is_pending(queue));
    events.post(source, WRITE);
    assert_eq!(take(&mut events, queue), [(source, READ | WRITE)]);
    events.post(source, READ);
    events.set_state(source, NONE);
    assert!(take(&mut events, queue).is_empty());
}

#[test]
fn an_event_goes_to_another_when_its_taker_leaves() {
    let mut events = EventQueues::new();
    let queues = [(); 2].map(|()| events.add_queue());
    let source = events.add_source(NONE, Delivery::One);
    for queue in queues {
        events.declare_interest(queue, source, READ);
    }
    events.post(source, READ);
    assert!(events.is_pending(queues[0]) && !events.is_pending(queues[1]));
    events.remove_queue(queues[0]);
    assert_eq!(take(&mut events, queues[1]), [(source, READ)]);
}
