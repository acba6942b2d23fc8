//! A thread with some queues, in virtual time.
//!
//! Interrupts are as unforgiving as the contract allows: an arrival raises one only if they are enabled at that moment,
//! enabling them raises none for packets that are there, and one that is masked before it is seen is lost. A look sees
//! what is there when it begins.

use std::collections::VecDeque;

use softclock_core::Instant;
use softclock_core::signalling::{Interrupts, Look, Next, Policy, Signalling, Wait};

/// What the thread and its machine cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Costs {
    /// The work for a packet, without a trigger state in between.
    pub(crate) packet_ns: u64,
    pub(crate) look_ns: u64,
    /// The interval between the trigger states of other work: of a uniform distribution up to this.
    pub(crate) trigger_ns: u64,
    /// The lateness of a wait's end, likewise.
    pub(crate) wake_ns: u64,
    /// The packets that a look takes at most.
    pub(crate) batch: usize,
}

impl Costs {
    pub(crate) const TYPICAL: Self = Self {
        packet_ns: 5_000,
        look_ns: 500,
        trigger_ns: 5_000,
        wake_ns: 3_000,
        batch: 4_096,
    };

    /// The longest time between two looks at the clock.
    pub(crate) fn longest_ns(&self) -> u64 {
        let longest = self.packet_ns.max(self.trigger_ns).max(self.wake_ns);
        longest + self.look_ns
    }
}

/// Work that wakes the thread at a time of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    pub(crate) at_ns: u64,
    pub(crate) ns: u64,
}

pub(crate) struct Queue {
    pub(crate) signalling: Signalling,
    arrivals: VecDeque<u64>,
    ring: VecDeque<u64>,
    is_raised: bool,
    /// The time with masked interrupts, as the model sees it.
    pub(crate) masked_ns: u64,
    pub(crate) looks: u64,
    pub(crate) taken: u64,
    pub(crate) longest_wait_ns: u64,
    pub(crate) waits_ns: u64,
    /// Arrivals that have interrupted the thread's work.
    pub(crate) disturbances: u64,
}

pub(crate) struct Model {
    pub(crate) now: u64,
    pub(crate) queues: Vec<Queue>,
    costs: Costs,
    jobs: VecDeque<Job>,
    job_ns: u64,
    packets: u64,
    is_working: bool,
    /// Whether `before_wait` was asked and `after_wait` is to follow.
    is_asked: bool,
    /// Time in which the thread did not wait.
    pub(crate) busy_ns: u64,
    /// If packets are requests of clients that wait for the answer: the mean time to the next.
    think_ns: Option<u64>,
    random: SplitMix,
}

impl Model {
    pub(crate) fn new(policy: Policy, arrivals: Vec<Vec<u64>>, costs: Costs, seed: u64) -> Self {
        let queue = |arrivals: Vec<u64>| Queue {
            signalling: Signalling::new(policy, Instant::ORIGIN),
            arrivals: arrivals.into(),
            ring: VecDeque::new(),
            is_raised: false,
            masked_ns: 0,
            looks: 0,
            taken: 0,
            longest_wait_ns: 0,
            waits_ns: 0,
            disturbances: 0,
        };
        Self {
            now: 0,
            queues: arrivals.into_iter().map(queue).collect(),
            costs,
            jobs: VecDeque::new(),
            job_ns: 0,
            packets: 0,
            is_working: false,
            is_asked: false,
            busy_ns: 0,
            think_ns: None,
            random: SplitMix(seed),
        }
    }

    /// Adds work of the thread, in the order of its times.
    pub(crate) fn with_jobs(mut self, jobs: impl IntoIterator<Item = Job>) -> Self {
        self.jobs.extend(jobs);
        self
    }

    /// Makes each packet of the first queue the cause of another, so that as many clients as packets that have arrived
    /// wait for answers.
    pub(crate) fn with_clients(mut self, think_ns: u64) -> Self {
        self.think_ns = Some(think_ns);
        self
    }

    pub(crate) fn one(&self) -> &Queue {
        &self.queues[0]
    }

    /// Packets that have arrived and that no look has seen.
    pub(crate) fn is_left(&self) -> bool {
        self.queues.iter().any(|queue| !queue.ring.is_empty())
    }

    pub(crate) fn run(&mut self, until_ns: u64) {
        while self.now < until_ns {
            self.step(until_ns);
        }
    }

    /// One turn: what a trigger state does, and then a piece of work or a wait.
    fn step(&mut self, until_ns: u64) {
        for index in 0..self.queues.len() {
            self.pass_trigger(index);
        }
        while let Some(job) = self.jobs.front().filter(|job| job.at_ns <= self.now) {
            self.job_ns += job.ns;
            self.jobs.pop_front();
        }
        if self.packets > 0 || self.job_ns > 0 {
            self.end_wait();
            self.work();
        } else {
            self.rest(until_ns);
        }
    }

    fn pass_trigger(&mut self, index: usize) {
        let now = Instant::from_ns(self.now);
        let queue = &mut self.queues[index];
        let is_enabled = queue.signalling.current().interrupts == Interrupts::Enabled;
        if std::mem::take(&mut queue.is_raised) && is_enabled {
            let _ = queue.signalling.on_interrupt(now);
        }
        if queue.signalling.is_due(now) {
            self.look(index);
        }
    }

    fn look(&mut self, index: usize) {
        let queue = &mut self.queues[index];
        let taken = queue.ring.len().min(self.costs.batch);
        for arrived in queue.ring.drain(..taken) {
            queue.longest_wait_ns = queue.longest_wait_ns.max(self.now - arrived);
            queue.waits_ns += self.now - arrived;
        }
        queue.looks += 1;
        queue.taken += taken as u64;
        self.packets += taken as u64;
        self.advance(self.costs.look_ns);
        let look = Look {
            packets: taken as u32,
            completions: 0,
            has_more: taken == self.costs.batch,
        };
        let now = Instant::from_ns(self.now);
        let _ = self.queues[index].signalling.on_look(now, look);
    }

    fn work(&mut self) {
        self.is_working = true;
        if self.packets > 0 {
            self.packets -= 1;
            self.advance(self.costs.packet_ns.max(1));
            self.answer();
        } else {
            let piece = 1 + self.random.below(self.costs.trigger_ns);
            let piece = piece.min(self.job_ns);
            self.job_ns -= piece;
            self.advance(piece);
        }
        self.is_working = false;
    }

    fn answer(&mut self) {
        let Some(think_ns) = self.think_ns else {
            return;
        };
        let at = self.now + think_ns / 2 + self.random.exponential(think_ns / 2);
        let arrivals = &mut self.queues[0].arrivals;
        let index = arrivals.partition_point(|&other| other <= at);
        arrivals.insert(index, at);
    }

    fn rest(&mut self, until_ns: u64) {
        let now = Instant::from_ns(self.now);
        let job = self.jobs.front().map(|job| job.at_ns);
        let wakes_at = job.map(Instant::from_ns);
        self.is_asked = true;
        let nexts: Vec<Next> = (self.queues.iter_mut())
            .map(|queue| queue.signalling.before_wait(now, wakes_at))
            .collect();
        let look = match Wait::of(now, nexts) {
            Wait::Refused => return,
            Wait::Until(look) => Some(look.as_ns()),
            Wait::UntilInterrupt => None,
        };
        if self.queues.iter().all(|queue| !queue.is_raised) {
            let interrupt = self.queues.iter().filter_map(Queue::next_interrupt).min();
            let ends = [Some(until_ns), job, look, interrupt];
            let end = ends.into_iter().flatten().min().unwrap_or(until_ns);
            // The looks of this step may have gone beyond the end of the run.
            let end = end.max(self.now);
            let late = self.random.below(self.costs.wake_ns + 1);
            let before = self.busy_ns;
            if end >= until_ns {
                // The thread still waits when the run ends.
                self.advance(end - self.now);
                self.busy_ns = before;
                return;
            }
            self.advance(end + late - self.now);
            self.busy_ns = before;
        }
        self.end_wait();
    }

    fn end_wait(&mut self) {
        if std::mem::take(&mut self.is_asked) {
            let now = Instant::from_ns(self.now);
            for queue in &mut self.queues {
                let _ = queue.signalling.after_wait(now);
            }
        }
    }

    fn advance(&mut self, ns: u64) {
        let to = self.now + ns;
        for queue in &mut self.queues {
            let is_enabled = queue.signalling.current().interrupts == Interrupts::Enabled;
            queue.masked_ns += u64::from(!is_enabled) * ns;
            while let Some(at) = queue.arrivals.front().copied().filter(|&at| at <= to) {
                queue.arrivals.pop_front();
                queue.ring.push_back(at);
                queue.is_raised |= is_enabled;
                queue.disturbances += u64::from(is_enabled && self.is_working);
            }
        }
        self.busy_ns += ns;
        self.now = to;
    }
}

impl Queue {
    fn next_interrupt(&self) -> Option<u64> {
        let is_enabled = self.signalling.current().interrupts == Interrupts::Enabled;
        self.arrivals.front().copied().filter(|_| is_enabled)
    }

    pub(crate) fn mean_wait_ns(&self) -> f64 {
        self.waits_ns as f64 / self.taken as f64
    }
}

/// SplitMix64, as in `softclock_core::wan`.
#[derive(Clone, Debug)]
pub(crate) struct SplitMix(pub(crate) u64);

impl SplitMix {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    /// A time of an exponential distribution.
    pub(crate) fn exponential(&mut self, mean_ns: u64) -> u64 {
        let uniform = ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64;
        (-uniform.ln() * mean_ns as f64) as u64
    }

    /// The arrivals of a Poisson process from `from_ns` to `to_ns`.
    pub(crate) fn poisson(&mut self, from_ns: u64, to_ns: u64, gap_ns: u64) -> Vec<u64> {
        let mut at = from_ns;
        let next = std::iter::repeat_with(|| {
            at += self.exponential(gap_ns);
            at
        });
        next.take_while(|&at| at < to_ns).collect()
    }
}
