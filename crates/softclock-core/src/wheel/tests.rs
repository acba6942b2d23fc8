use super::level::LAST_TICK;
use super::*;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;

extern crate std;

impl<T> TimerWheel<T> {
    /// Walks all lists and checks that links, slots and the bitmap agree, and that no event is lost.
    fn check_everything(&self) {
        let mut found = 0;
        for index in 0..level::LEVELS * level::SLOTS {
            let home = Home::from_index(index);
            let mut node = self.lists.first(home);
            assert_eq!(self.occupied.contains(home), node != slab::NIL);
            let mut prev = slab::NIL;
            while node != slab::NIL {
                let links = self.slab.links(node);
                assert_eq!((links.home, links.prev), (home, prev));
                self.check_home(home, slot_of(self.slab.due(node)).max(self.position));
                (prev, node) = (node, links.next);
                found += 1;
            }
        }
        if self.front != NIL {
            let tick = slot_of(self.slab.due(self.front)).max(self.position);
            assert_eq!(tick * TICK_NS, self.front_ns);
            found += 1;
        }
        assert_eq!(found, self.len());
    }

    fn check_home(&self, home: Home, tick: u64) {
        let level = level_of(self.position, tick).max(self.draining);
        if level == home.level() {
            assert_eq!(home, Home::at(level, tick));
        } else {
            // Already moved down, while its slot of a higher level is being drained.
            assert!(home.level() < self.draining);
            assert_eq!(home, Home::at(level_of(self.position, tick), tick));
        }
    }
}

/// The wheel and a model that is obviously correct: events ordered by slot, then by scheduling.
struct Pair {
    wheel: TimerWheel<u64>,
    model: BTreeMap<(u64, u64), (u64, Instant)>,
    /// All keys ever returned, with the place in the model of those that are pending.
    keys: Vec<(TimerKey, Option<(u64, u64)>)>,
    now: Instant,
    sequence: u64,
    fired: u64,
}

impl Pair {
    fn new() -> Self {
        Self {
            wheel: TimerWheel::new(),
            model: BTreeMap::new(),
            keys: Vec::new(),
            now: Instant::ORIGIN,
            sequence: 0,
            fired: 0,
        }
    }

    /// Returns the place of an event that is scheduled now.
    fn place(&mut self, due: Instant) -> (u64, u64) {
        self.sequence += 1;
        (slot_of(due).max(self.wheel.position), self.sequence)
    }

    fn schedule(&mut self, delay_ns: u64) {
        let due = self.now.add_ns(delay_ns);
        let place = self.place(due);
        let id = self.keys.len() as u64;
        let key = self.wheel.schedule(due, id);
        self.model.insert(place, (id, due));
        self.keys.push((key, Some(place)));
    }

    fn schedule_past(&mut self, ago_ns: u64) {
        let now = self.now;
        self.now = now.sub_ns(ago_ns);
        self.schedule(0);
        self.now = now;
    }

    fn pick(&self, choice: u64) -> Option<usize> {
        (!self.keys.is_empty()).then(|| (choice % self.keys.len() as u64) as usize)
    }

    fn cancel(&mut self, choice: u64) {
        let Some(id) = self.pick(choice) else { return };
        let (key, place) = self.keys[id];
        let expected = place.map(|_| id as u64);
        assert_eq!(self.wheel.get_mut(key).copied(), expected);
        assert_eq!(self.wheel.cancel(key), expected);
        assert_eq!(self.wheel.cancel(key), None);
        if let Some(place) = place {
            self.model.remove(&place);
        }
        self.keys[id].1 = None;
    }

    fn reschedule(&mut self, choice: u64, delay_ns: u64) {
        let Some(id) = self.pick(choice) else { return };
        let (key, place) = self.keys[id];
        let due = self.now.add_ns(delay_ns);
        assert_eq!(self.wheel.reschedule(key, due), place.is_some());
        if let Some(place) = place {
            self.model.remove(&place);
            let place = self.place(due);
            self.model.insert(place, (id as u64, due));
            self.keys[id].1 = Some(place);
        }
    }

    /// Calls the wheel once. Returns true while it has more work.
    fn pop(&mut self) -> bool {
        let fired = self.wheel.pop_due(self.now);
        match fired {
            Some((due, id)) => {
                let ((slot, _), expected) = self.model.pop_first().expect("fired out of nothing");
                assert_eq!((id, due), expected);
                assert!(slot <= self.now.tick(), "early");
                assert!(slot > due.tick());
                self.keys[id as usize].1 = None;
                self.fired += 1;
                true
            }
            None => self.wheel.next_due().is_some_and(|next| next <= self.now),
        }
    }

    fn pop_all(&mut self) {
        while self.pop() {}
        if let Some((&(slot, _), _)) = self.model.first_key_value() {
            assert!(slot > self.now.tick(), "lost");
        }
    }

    fn jump(&mut self, ns: u64) {
        self.now = self.now.add_ns(ns);
    }

    /// Advances to the time of the next event, as a sleeping caller would.
    fn sleep(&mut self) {
        if let Some(next) = self.wheel.next_due() {
            self.now = self.now.max(next);
        }
    }

    fn check(&self) {
        assert_eq!(self.wheel.len(), self.model.len());
        if let Some((&(slot, _), _)) = self.model.first_key_value() {
            let bound = self.wheel.next_due().unwrap_or(Instant::FAR_FUTURE);
            assert!(bound.as_ns() <= slot.saturating_mul(TICK_NS));
        }
    }
}

#[derive(Debug, Clone)]
enum Op {
    Schedule(u64),
    SchedulePast(u64),
    Cancel(u64),
    Reschedule(u64, u64),
    Pop(u8),
    PopAll,
    Jump(u64),
    Sleep,
    Advance,
    BackInTime(u64),
}

/// Delays of all magnitudes, from zero to years and to the largest.
fn delay() -> impl Strategy<Value = u64> {
    prop_oneof![
        8 => (0u32..60, any::<u64>()).prop_map(|(bits, ns)| ns & ((1 << bits) - 1)),
        2 => (0u64..20).prop_map(|ticks| ticks * TICK_NS),
        1 => (1u32..5, 0u64..3).prop_map(|(l, off)| ((1 << (level::LEVEL_BITS * l)) - 1 + off) * TICK_NS),
        1 => Just(u64::MAX),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let short = (0u32..36, any::<u64>()).prop_map(|(bits, ns)| ns & ((1 << bits) - 1));
    prop_oneof![
        12 => delay().prop_map(Op::Schedule),
        1 => delay().prop_map(Op::SchedulePast),
        5 => any::<u64>().prop_map(Op::Cancel),
        4 => (any::<u64>(), delay()).prop_map(|(key, ns)| Op::Reschedule(key, ns)),
        6 => any::<u8>().prop_map(Op::Pop),
        2 => Just(Op::PopAll),
        4 => short.prop_map(Op::Jump),
        1 => (0u32..56, any::<u64>()).prop_map(|(b, ns)| Op::Jump(ns & ((1 << b) - 1))),
        3 => Just(Op::Sleep),
        1 => Just(Op::Advance),
        1 => delay().prop_map(Op::BackInTime),
    ]
}

fn apply(pair: &mut Pair, op: &Op) {
    match *op {
        Op::Schedule(ns) => pair.schedule(ns),
        Op::SchedulePast(ns) => pair.schedule_past(ns),
        Op::Cancel(choice) => pair.cancel(choice),
        Op::Reschedule(choice, ns) => pair.reschedule(choice, ns),
        Op::Pop(times) => (0..times % 8).for_each(|_| _ = pair.pop()),
        Op::PopAll => pair.pop_all(),
        Op::Jump(ns) => pair.jump(ns),
        Op::Sleep => pair.sleep(),
        Op::Advance => pair.wheel.advance(pair.now),
        Op::BackInTime(ns) => pair.now = pair.now.sub_ns(ns),
    }
    pair.check();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn agrees_with_the_model(ops in prop::collection::vec(op(), 1..250)) {
        let mut pair = Pair::new();
        for op in &ops {
            apply(&mut pair, op);
        }
        pair.wheel.check_everything();
        pair.now = Instant::FAR_FUTURE;
        pair.pop_all();
        pair.wheel.check_everything();
        // An event due in the last tick of all never fires.
        prop_assert!(pair.model.keys().all(|&(slot, _)| slot == LAST_TICK));
    }

    #[test]
    fn agrees_when_thousands_share_a_far_slot(
        count in 1usize..1000,
        ops in prop::collection::vec(op(), 1..250),
    ) {
        let mut pair = Pair::new();
        for i in 0..count as u64 {
            pair.schedule(5_000_000 + i * 7919 % 2_000_000);
        }
        pair.sleep();
        for op in &ops {
            apply(&mut pair, op);
        }
        pair.wheel.check_everything();
    }
}

/// xorshift64*, for a reproducible sequence.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// Returns a value below 2^`bits`, with all magnitudes equally likely.
    fn magnitude(&mut self, bits: u64) -> u64 {
        let shift = self.below(bits);
        self.next() & ((1 << shift) - 1)
    }
}

#[test]
fn millions_of_random_operations_agree_with_the_model() {
    const SEED: u64 = 0x736f_6674_636c_6f63;
    const OPERATIONS: u64 = 2_500_000;
    std::println!("seed {SEED:#x}");
    let mut random = Random(SEED);
    let mut pair = Pair::new();
    for step in 0..OPERATIONS {
        match random.below(100) {
            0..35 => {
                let ns = random.magnitude(40);
                pair.schedule(ns);
            }
            35 => {
                let ns = random.magnitude(62);
                pair.schedule(ns);
            }
            36..58 => recent(&pair, &mut random, 2000)
                .into_iter()
                .for_each(|c| pair.cancel(c)),
            58..64 => {
                let choice = random.next();
                pair.cancel(choice);
            }
            64..74 => {
                let ns = random.magnitude(40);
                recent(&pair, &mut random, 2000)
                    .into_iter()
                    .for_each(|c| pair.reschedule(c, ns));
            }
            74..90 => _ = pair.pop(),
            90..96 => pair.jump(random.magnitude(24)),
            96..98 => pair.sleep(),
            98 => pair.pop_all(),
            _ => pair.jump(random.magnitude(if step % 1000 == 0 { 50 } else { 34 })),
        }
        pair.check();
        if step % 100_000 == 0 {
            pair.wheel.check_everything();
        }
    }
    std::println!("{} fired, {} scheduled", pair.fired, pair.keys.len());
    pair.now = Instant::FAR_FUTURE;
    pair.pop_all();
    assert!(pair.fired > 200_000);
}

/// Returns one of the last `span` events, which is more likely to be pending than an older one.
fn recent(pair: &Pair, random: &mut Random, span: u64) -> Option<u64> {
    let len = pair.keys.len() as u64;
    (len > 0).then(|| len - 1 - random.below(span.min(len)))
}

#[test]
fn a_full_far_slot_empties_in_steps_and_in_order() {
    const EVENTS: u64 = 100_000;
    // A slot of the second level.
    let width = level::SLOTS as u64 * TICK_NS;
    let start = width * 10;
    let mut pair = Pair::new();
    for i in 0..EVENTS {
        pair.schedule(start + i * 7919 % (width - 2 * TICK_NS));
    }
    pair.now = Instant::from_ns(start + width);
    let mut random = Random(7);
    let mut calls = 0;
    while pair.fired == 0 {
        let before = pair.wheel.len();
        assert!(pair.pop(), "something is due");
        calls += 1;
        assert!(before - pair.wheel.len() <= 1);
        // Into the slot being drained: past, present and future.
        pair.schedule(random.below(10_000_000));
        let past = random.below(8_000_000);
        pair.schedule_past(past);
        let choice = random.next();
        pair.cancel(choice);
        let choice = random.next();
        pair.reschedule(choice, 0);
    }
    assert!(calls > EVENTS / MAX_MOVES as u64);
    assert!(calls < EVENTS / 16);
    pair.wheel.check_everything();
    pair.pop_all();
    pair.jump(20_000_000);
    pair.pop_all();
    assert!(pair.wheel.is_empty());
}

#[test]
fn fires_at_the_first_later_tick() {
    let mut wheel = TimerWheel::new();
    for (due, fires) in [
        (0, 1_000),
        (1, 1_000),
        (999, 1_000),
        (1_000, 2_000),
        (1_001, 2_000),
    ] {
        let mut wheel = TimerWheel::new();
        wheel.schedule(Instant::from_ns(due), ());
        assert_eq!(wheel.next_due(), Some(Instant::from_ns(fires)));
        assert_eq!(wheel.pop_due(Instant::from_ns(fires - 1)), None);
        assert_eq!(
            wheel.pop_due(Instant::from_ns(fires)),
            Some((Instant::from_ns(due), ()))
        );
    }
    wheel.schedule(Instant::FAR_FUTURE, ());
    while wheel.next_due().is_some() {
        assert_eq!(wheel.pop_due(Instant::FAR_FUTURE), None);
    }
    assert_eq!(wheel.len(), 1);
}

#[test]
fn what_waits_in_front_keeps_its_turn() {
    let at = |tick: u64| Instant::from_ns(tick * TICK_NS);
    let mut wheel = TimerWheel::new();
    // The first of equal events stays in front until the second is scheduled; an earlier event then takes its place.
    wheel.schedule(at(5_000), "second");
    wheel.schedule(at(5_000), "third");
    wheel.schedule(at(4_000), "first");
    wheel.schedule(at(6_000), "fourth");
    let fired: Vec<_> = core::iter::from_fn(|| wheel.pop_due(at(10_000)))
        .map(|(_, name)| name)
        .collect();
    assert_eq!(fired, ["first", "second", "third", "fourth"]);
    // An event in front of the higher-level slot to which it would itself belong.
    wheel.schedule(at(20_500), "later");
    wheel.schedule(at(20_480), "sooner");
    assert_eq!(wheel.pop_due(at(20_480)), None);
    assert_eq!(wheel.pop_due(at(20_481)), Some((at(20_480), "sooner")));
    wheel.schedule(at(20_490), "between");
    assert_eq!(wheel.pop_due(at(30_000)), Some((at(20_490), "between")));
    assert_eq!(wheel.pop_due(at(30_000)), Some((at(20_500), "later")));
    assert!(wheel.is_empty());
}

#[test]
fn a_long_sleep_costs_a_few_calls() {
    let mut wheel = TimerWheel::new();
    let year = Instant::from_ns(365 * 86_400 * 1_000_000_000);
    wheel.schedule(year, 'a');
    let mut wakes = 0;
    let mut now = Instant::ORIGIN;
    loop {
        wakes += 1;
        if wheel.pop_due(now).is_some() {
            break;
        }
        now = wheel.next_due().unwrap();
    }
    assert!(wakes <= 6, "{wakes} wakes");
}

#[test]
fn a_wheel_told_the_time_moves_nothing() {
    let mut wheel = TimerWheel::new();
    let now = Instant::from_ns(3_600_000_000_000);
    wheel.advance(now);
    wheel.schedule(now.add_ns(10_000), ());
    assert_eq!(wheel.next_due(), Some(now.add_ns(11_000)));
}

#[test]
fn stale_keys_are_harmless() {
    let mut wheel = TimerWheel::new();
    let old = wheel.schedule(Instant::from_ns(5), 1);
    assert_eq!(wheel.cancel(old), Some(1));
    let new = wheel.schedule(Instant::from_ns(5), 2);
    assert_ne!(old, new);
    assert_eq!(wheel.cancel(old), None);
    assert!(!wheel.reschedule(old, Instant::ORIGIN));
    assert_eq!(wheel.get_mut(old), None);
    assert_eq!(wheel.get_mut(new), Some(&mut 2));
}

#[test]
fn drops_what_is_pending() {
    let value = alloc::rc::Rc::new(());
    let mut wheel = TimerWheel::with_capacity(2);
    let key = wheel.schedule(Instant::from_ns(1), value.clone());
    wheel.schedule(Instant::from_ns(1), value.clone());
    drop(wheel.cancel(key));
    assert_eq!(alloc::rc::Rc::strong_count(&value), 2);
    drop(wheel);
    assert_eq!(alloc::rc::Rc::strong_count(&value), 1);
}

#[test]
fn keys_are_numbers_too() {
    let mut wheel = TimerWheel::new();
    let key = wheel.schedule(Instant::from_ns(5), "value");
    assert_eq!(TimerKey::from_bits(key.to_bits()), Some(key));
    assert_eq!(TimerKey::from_bits(0), None);
    let foreign = TimerKey::from_bits(u64::MAX).expect("it could be one");
    assert_eq!(wheel.cancel(foreign), None);
    assert_eq!(wheel.cancel(key), Some("value"));
}

#[test]
fn keys_of_a_wheel_are_not_valid_in_its_successor() {
    let mut wheel = TimerWheel::new();
    let mut keys: Vec<TimerKey> = Vec::new();
    for _ in 0..3 {
        for round in 0..5 {
            let key = wheel.schedule(Instant::from_ns(round), ());
            keys.push(key);
            wheel.cancel(key);
        }
        keys.push(wheel.schedule(Instant::from_ns(7), ()));
        wheel = wheel.successor();
        let key = wheel.schedule(Instant::from_ns(9), ());
        assert!(keys.iter().all(|&old| wheel.cancel(old).is_none()));
        keys.push(key);
    }
}
