//! The timer structures that are compared, each used as its documentation advises, with a resolution of one microsecond
//! and an 8-byte payload. The exception is the wheel as the runtime uses it, whose events are larger.
//!
//! Times are converted to the structure's own form before the measurement starts, because a program that uses the
//! structure would read its clock in that form.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fmt;
use std::rc::Rc;
use std::time::{Duration, Instant as StdInstant};

use bitwheel::timer::{BitWheelWithFailover, Timer, TimerHandle};
use hierarchical_hash_wheel_timer::wheels::Skip;
use hierarchical_hash_wheel_timer::wheels::cancellable::{
    CancellableTimerEntry, QuadWheelWithOverflow,
};
use nexus_timer::{Wheel, WheelBuilder};
use softclock_core::{FireWindow, Instant, SoftTimers, TimerKey, TimerWheel, TriggerState};

/// The handles that the timers' owners keep. An owner loses its handle when its timer fires.
pub(super) struct Owners<H> {
    handles: Vec<Option<H>>,
}

impl<H> Owners<H> {
    pub(super) fn new(timers: usize) -> Self {
        Self {
            handles: (0..timers).map(|_| None).collect(),
        }
    }

    #[inline]
    pub(super) fn take(&mut self, id: u32) -> Option<H> {
        self.handles[id as usize].take()
    }

    #[inline]
    pub(super) fn put(&mut self, id: u32, handle: H) {
        self.handles[id as usize] = Some(handle);
    }

    #[inline]
    fn fire(&mut self, id: u64) -> Option<H> {
        self.handles[id as usize].take()
    }

    pub(super) fn len(&self) -> usize {
        self.handles.len()
    }
}

/// A timer structure under test.
pub(super) trait Peer {
    const NAME: &'static str;
    type Handle;
    type Time: Copy;

    fn new(capacity: usize) -> Self;

    /// Returns the clock reading `ns` in the form that `poll` takes.
    fn at(&self, ns: u64) -> Self::Time;

    /// Returns the due time `ns` in the form that `schedule` takes: one tick later for structures that do not add the
    /// paper's tick themselves.
    fn due(&self, ns: u64) -> Self::Time;

    fn schedule(&mut self, due: Self::Time, id: u64) -> Self::Handle;

    fn cancel(&mut self, handle: Self::Handle);

    fn reschedule(&mut self, handle: Self::Handle, due: Self::Time, id: u64) -> Self::Handle {
        self.cancel(handle);
        self.schedule(due, id)
    }

    /// Advances the clock to `now` and fires all due timers.
    fn poll(&mut self, now: Self::Time, owners: &mut Owners<Self::Handle>);

    /// Returns whether a timer is due: the check at a trigger state.
    fn is_due(&self, now: Self::Time) -> bool;
}

/// softclock's wheel alone.
pub(super) struct Softclock(TimerWheel<u64>);

impl Peer for Softclock {
    const NAME: &'static str = "softclock";
    type Handle = TimerKey;
    type Time = Instant;

    fn new(capacity: usize) -> Self {
        Self(TimerWheel::with_capacity(capacity))
    }

    fn at(&self, ns: u64) -> Instant {
        Instant::from_ns(ns)
    }

    fn due(&self, ns: u64) -> Instant {
        Instant::from_ns(ns)
    }

    #[inline]
    fn schedule(&mut self, due: Instant, id: u64) -> TimerKey {
        self.0.schedule(due, id)
    }

    #[inline]
    fn cancel(&mut self, key: TimerKey) {
        self.0.cancel(key);
    }

    #[inline]
    fn reschedule(&mut self, key: TimerKey, due: Instant, _: u64) -> TimerKey {
        self.0.reschedule(key, due);
        key
    }

    #[inline]
    fn poll(&mut self, now: Instant, owners: &mut Owners<TimerKey>) {
        while self.is_due(now) {
            if let Some((_, id)) = self.0.pop_due(now) {
                owners.fire(id);
            }
        }
        self.0.advance(now);
    }

    #[inline]
    fn is_due(&self, now: Instant) -> bool {
        self.0.next_due().is_some_and(|next| next <= now)
    }
}

/// The same wheel as the runtime uses it: inside the soft-timer facility, which counts trigger states, intervals and
/// lateness, and with events of the size of the runtime's.
pub(super) struct SoftclockRuntime(SoftTimers<Event>);

/// Stands for the runtime's event, which holds a waker and the action to take, and has the same size.
pub(super) struct Event {
    owner: u64,
    _rest: [u64; 2],
}

// The runtime asserts the same size for its own events.
const _: () = assert!(SoftTimers::<Event>::NODE_BYTES == 64);

impl Peer for SoftclockRuntime {
    const NAME: &'static str = "softclock, as in its runtime";
    type Handle = TimerKey;
    type Time = Instant;

    fn new(_: usize) -> Self {
        Self(SoftTimers::new(Instant::ORIGIN, Duration::from_millis(32)))
    }

    fn at(&self, ns: u64) -> Instant {
        Instant::from_ns(ns)
    }

    fn due(&self, ns: u64) -> Instant {
        Instant::from_ns(ns)
    }

    #[inline]
    fn schedule(&mut self, due: Instant, id: u64) -> TimerKey {
        let event = Event {
            owner: id,
            _rest: [id; 2],
        };
        self.0.schedule(FireWindow::from(due), event)
    }

    #[inline]
    fn cancel(&mut self, key: TimerKey) {
        self.0.cancel(key);
    }

    #[inline]
    fn reschedule(&mut self, key: TimerKey, due: Instant, _: u64) -> TimerKey {
        self.0.reschedule(key, due);
        key
    }

    #[inline]
    fn poll(&mut self, now: Instant, owners: &mut Owners<TimerKey>) {
        let mut due = self.0.check(TriggerState::TaskEnd, now);
        loop {
            match due {
                Some(event) => _ = owners.fire(event.value.owner),
                None if !self.is_due(now) => return,
                None => {}
            }
            due = self.0.next_overdue(TriggerState::TaskEnd, now);
        }
    }

    #[inline]
    fn is_due(&self, now: Instant) -> bool {
        self.0.next_due().is_some_and(|next| next <= now)
    }
}

/// The standard library's tree, ordered by tick, then by order of scheduling.
pub(super) struct Tree {
    map: BTreeMap<(u64, u64), u64>,
    sequence: u64,
}

impl Peer for Tree {
    const NAME: &'static str = "BTreeMap";
    type Handle = (u64, u64);
    type Time = u64;

    fn new(_: usize) -> Self {
        Self {
            map: BTreeMap::new(),
            sequence: 0,
        }
    }

    fn at(&self, ns: u64) -> u64 {
        ns / TICK_NS
    }

    fn due(&self, ns: u64) -> u64 {
        ns / TICK_NS + 1
    }

    #[inline]
    fn schedule(&mut self, due: u64, id: u64) -> (u64, u64) {
        self.sequence += 1;
        self.map.insert((due, self.sequence), id);
        (due, self.sequence)
    }

    #[inline]
    fn cancel(&mut self, key: (u64, u64)) {
        self.map.remove(&key);
    }

    #[inline]
    fn poll(&mut self, now: u64, owners: &mut Owners<(u64, u64)>) {
        while self.is_due(now) {
            if let Some((_, id)) = self.map.pop_first() {
                owners.fire(id);
            }
        }
    }

    #[inline]
    fn is_due(&self, now: u64) -> bool {
        self.map
            .first_key_value()
            .is_some_and(|(&(tick, _), _)| tick <= now)
    }
}

/// The standard library's heap. Cancelling only marks the timer's place; the heap's entry is removed when it reaches
/// the top.
pub(super) struct Heap {
    heap: BinaryHeap<Reverse<(u64, u64, u32)>>,
    /// The sequence number of the place's valid heap entry, and the payload.
    places: Vec<(u64, u64)>,
    free: Vec<u32>,
    sequence: u64,
}

impl Peer for Heap {
    const NAME: &'static str = "BinaryHeap, lazy cancel";
    type Handle = u32;
    type Time = u64;

    fn new(capacity: usize) -> Self {
        Self {
            heap: BinaryHeap::with_capacity(2 * capacity),
            places: Vec::with_capacity(capacity),
            free: Vec::with_capacity(capacity),
            sequence: 0,
        }
    }

    fn at(&self, ns: u64) -> u64 {
        ns / TICK_NS
    }

    fn due(&self, ns: u64) -> u64 {
        ns / TICK_NS + 1
    }

    #[inline]
    fn schedule(&mut self, due: u64, id: u64) -> u32 {
        self.sequence += 1;
        // Reuse the place of a cancelled or fired timer, so that the table stays as large as the population.
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push((0, 0));
            self.places.len() as u32 - 1
        });
        self.places[place as usize] = (self.sequence, id);
        self.heap.push(Reverse((due, self.sequence, place)));
        place
    }

    #[inline]
    fn cancel(&mut self, place: u32) {
        self.places[place as usize].0 = 0;
        self.free.push(place);
    }

    #[inline]
    fn poll(&mut self, now: u64, owners: &mut Owners<u32>) {
        while let Some(&Reverse((tick, sequence, place))) = self.heap.peek() {
            if tick > now {
                return;
            }
            self.heap.pop();
            let (expected, id) = self.places[place as usize];
            // A different sequence number marks an entry whose timer was cancelled.
            if expected == sequence {
                self.cancel(place);
                owners.fire(id);
            }
        }
    }

    #[inline]
    fn is_due(&self, now: u64) -> bool {
        self.heap
            .peek()
            .is_some_and(|&Reverse((tick, _, _))| tick <= now)
    }
}

/// `nexus-timer` with a tick of a microsecond and `2^SHIFT` between its levels.
pub(super) struct Nexus<const SHIFT: u32> {
    wheel: Wheel<u64>,
    epoch: StdInstant,
    fired: Vec<u64>,
}

impl<const SHIFT: u32> Nexus<SHIFT> {
    /// Levels of 64 slots, enough to reach beyond the longest delay of the trace, 2^25 ticks.
    const LEVELS: usize = (25 - 6) / SHIFT as usize + 2;
}

impl<const SHIFT: u32> Peer for Nexus<SHIFT> {
    const NAME: &'static str = "nexus-timer";
    type Handle = nexus_timer::TimerHandle<u64>;
    type Time = StdInstant;

    fn new(capacity: usize) -> Self {
        let epoch = StdInstant::now();
        let wheel = WheelBuilder::default()
            .tick_duration(Duration::from_nanos(TICK_NS))
            .clk_shift(SHIFT)
            .num_levels(Self::LEVELS)
            .unbounded(capacity.max(64))
            .build(epoch)
            .expect("a valid configuration");
        Self {
            wheel,
            epoch,
            fired: Vec::new(),
        }
    }

    fn at(&self, ns: u64) -> StdInstant {
        self.epoch + Duration::from_nanos(ns)
    }

    fn due(&self, ns: u64) -> StdInstant {
        self.epoch + Duration::from_micros(ns / TICK_NS + 1)
    }

    #[inline]
    fn schedule(&mut self, due: StdInstant, id: u64) -> Self::Handle {
        self.wheel.schedule(due, id)
    }

    #[inline]
    fn cancel(&mut self, handle: Self::Handle) {
        self.wheel.cancel(handle);
    }

    #[inline]
    fn reschedule(&mut self, handle: Self::Handle, due: StdInstant, _: u64) -> Self::Handle {
        self.wheel.reschedule(handle, due)
    }

    #[inline]
    fn poll(&mut self, now: StdInstant, owners: &mut Owners<Self::Handle>) {
        if !self.is_due(now) {
            return;
        }
        self.wheel.poll_and_rebalance(now, &mut self.fired);
        for id in self.fired.drain(..) {
            if let Some(handle) = owners.fire(id) {
                self.wheel.free(handle);
            }
        }
    }

    #[inline]
    fn is_due(&self, now: StdInstant) -> bool {
        self.wheel.next_deadline().is_some_and(|next| next <= now)
    }
}

/// `bitwheel`, whose finest tick is a millisecond: its time is scaled by 1000 here.
///
/// Each slot has `SLOTS` places; timers that find none are kept in the library's overflow tree.
pub(super) struct Bitwheel<const SLOTS: usize> {
    wheel: Box<BitWheelWithFailover<BitTimer, 5, 1, SLOTS>>,
    epoch: StdInstant,
    fired: Vec<u64>,
}

pub(super) struct BitTimer(u64);

impl Timer for BitTimer {
    type Context = Vec<u64>;

    #[inline]
    fn fire(&mut self, fired: &mut Vec<u64>) {
        fired.push(self.0);
    }
}

impl<const SLOTS: usize> Bitwheel<SLOTS> {
    fn dilated(&self, tick: u64) -> StdInstant {
        self.epoch + Duration::from_millis(tick)
    }
}

impl<const SLOTS: usize> Peer for Bitwheel<SLOTS> {
    const NAME: &'static str = "bitwheel";
    type Handle = TimerHandle;
    type Time = StdInstant;

    fn new(_: usize) -> Self {
        let epoch = StdInstant::now();
        Self {
            wheel: BitWheelWithFailover::boxed_with_epoch(epoch),
            epoch,
            fired: Vec::new(),
        }
    }

    fn at(&self, ns: u64) -> StdInstant {
        self.dilated(ns / TICK_NS)
    }

    fn due(&self, ns: u64) -> StdInstant {
        self.dilated(ns / TICK_NS + 1)
    }

    #[inline]
    fn schedule(&mut self, due: StdInstant, id: u64) -> TimerHandle {
        self.wheel.insert(due, BitTimer(id))
    }

    #[inline]
    fn cancel(&mut self, handle: TimerHandle) {
        self.wheel.cancel(handle);
    }

    #[inline]
    fn poll(&mut self, now: StdInstant, owners: &mut Owners<TimerHandle>) {
        // `poll` steps through every tick from the first due one. Polling at each due time instead skips the empty
        // ticks between.
        while let Some(next) = self.wheel.peek_next_fire()
            && next < now
        {
            self.wheel.poll(next, &mut self.fired);
            if self.wheel.peek_next_fire() == Some(next) {
                break;
            }
        }
        self.wheel.poll(now, &mut self.fired);
        for id in self.fired.drain(..) {
            owners.fire(id);
        }
    }

    #[inline]
    fn is_due(&self, now: StdInstant) -> bool {
        self.wheel.peek_next_fire().is_some_and(|next| next <= now)
    }
}

/// `hierarchical_hash_wheel_timer`, whose millisecond stands for a microsecond here.
pub(super) struct HashWheel {
    wheel: QuadWheelWithOverflow<HashEntry>,
    tick: u64,
}

pub(super) struct HashEntry {
    id: u64,
}

impl fmt::Debug for HashEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.id.fmt(f)
    }
}

impl CancellableTimerEntry for HashEntry {
    type Id = u64;

    fn id(&self) -> &u64 {
        &self.id
    }
}

impl Peer for HashWheel {
    const NAME: &'static str = "hierarchical_hash_wheel_timer";
    type Handle = u64;
    type Time = u64;

    fn new(_: usize) -> Self {
        Self {
            wheel: QuadWheelWithOverflow::new(),
            tick: 0,
        }
    }

    fn at(&self, ns: u64) -> u64 {
        ns / TICK_NS
    }

    fn due(&self, ns: u64) -> u64 {
        ns / TICK_NS + 1
    }

    #[inline]
    fn schedule(&mut self, due: u64, id: u64) -> u64 {
        let delay = Duration::from_millis(due.saturating_sub(self.tick).max(1));
        self.wheel
            .insert_ref_with_delay(Rc::new(HashEntry { id }), delay)
            .expect("a delay of a tick or more");
        id
    }

    #[inline]
    fn cancel(&mut self, id: u64) {
        // The result only says whether the timer was pending.
        let _ = self.wheel.cancel(&id);
    }

    #[inline]
    fn poll(&mut self, now: u64, owners: &mut Owners<u64>) {
        while self.tick < now {
            // The wheel reports how many ticks are empty: skip those, and step only through the others.
            let ahead = now - self.tick;
            match self.wheel.can_skip() {
                Skip::Empty => {
                    self.wheel.skip(ahead as u32);
                    self.tick = now;
                }
                Skip::Millis(ticks) if ticks > 0 => {
                    let ticks = u64::from(ticks).min(ahead);
                    self.wheel.skip(ticks as u32);
                    self.tick += ticks;
                }
                _ => {
                    for entry in self.wheel.tick() {
                        owners.fire(entry.id);
                    }
                    self.tick += 1;
                }
            }
        }
    }

    #[inline]
    fn is_due(&self, now: u64) -> bool {
        self.tick < now && matches!(self.wheel.can_skip(), Skip::None)
    }
}

const TICK_NS: u64 = softclock_core::time::TICK_NS;
