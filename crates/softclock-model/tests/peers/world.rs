//! Two ends, the path between them, and the owners of their connections, in virtual time.

use core::cmp::Reverse;
use core::time::Duration;
use std::collections::BinaryHeap;

use softclock_core::Instant;
use softclock_linux::link::Tap;
use softclock_model::host::Version;
use softclock_net::checksum::Verify;
use softclock_net::tcp::segment;

use crate::kernel::Kernel;
use crate::ours::{Ours, OursPlan};
use crate::owner::{Ending, Owner, OwnerPlan};
use crate::path::{LINK_BYTES, Path, PathPlan, is_tcp};
use crate::random::Random;
use crate::smoltcp::{Smoltcp, SmoltcpPlan};

/// What a seed means. The first of two is softclock's.
#[derive(Clone, Debug)]
struct Plan {
    /// Whether softclock opens the connections.
    opens: bool,
    ours: OursPlan,
    peer: Peer,
    paths: [PathPlan; 2],
    owners: Vec<[OwnerPlan; 2]>,
}

/// How long everything may take, and how much there may be.
pub(crate) struct Scale {
    /// The longest delay of the path, in microseconds.
    pub(crate) delay_us: u64,
    /// The longest time between rounds of an owner's calls, in microseconds.
    pub(crate) latency_us: u64,
    /// The longest time until an idle connection is probed.
    pub(crate) idle_seconds: u64,
    /// The most bytes of a stream.
    pub(crate) bytes: u64,
    /// The most calls that write a stream.
    pub(crate) writes: u64,
    /// The highest chances of 1000 that a segment is lost or damaged.
    pub(crate) loss: u64,
}

impl Scale {
    const VIRTUAL: Self = Self {
        delay_us: 100_000,
        latency_us: 200_000,
        idle_seconds: 60,
        bytes: 120_000,
        writes: 400,
        loss: 120,
    };
    /// Each loss may cost a fifth of a second.
    const LIVE: Self = Self {
        delay_us: 4_000,
        latency_us: 8_000,
        idle_seconds: 0,
        bytes: 60_000,
        writes: 40,
        loss: 50,
    };
}

/// The stack at the other end.
#[derive(Clone, Debug)]
enum Peer {
    Smoltcp(SmoltcpPlan),
    /// That of the kernel, behind a TAP device.
    Kernel,
}

/// A stack with its connections.
pub(crate) trait End {
    fn on_frame(&mut self, now: Instant, frame: Vec<u8>);
    /// Does all that is due. Returns the frames to send.
    fn work(&mut self, now: Instant) -> Vec<Vec<u8>>;
    fn next_timeout(&mut self, now: Instant) -> Option<Instant>;
    fn accept(&mut self, now: Instant);
    /// Whether a connection has an owner.
    fn is_open(&self, connection: usize) -> bool;
    fn read(&mut self, now: Instant, connection: usize, into: &mut [u8]) -> Read;
    /// Returns the bytes that were taken. `None`: the connection was reset.
    fn write(&mut self, now: Instant, connection: usize, bytes: &[u8]) -> Option<usize>;
    /// Closes this half. Returns false while the connection is being opened.
    fn shut(&mut self, now: Instant, connection: usize) -> bool;
    fn leave(&mut self, now: Instant, connection: usize);
    fn abort(&mut self, now: Instant, connection: usize);
    /// What is not closed.
    fn left(&self) -> Option<String>;
}

/// The result of a read.
pub(crate) enum Read {
    Bytes(usize),
    End,
    Nothing,
    Reset,
}

/// A frame on its way: the time of arrival, a running number, the receiver, the bytes.
type Flying = (Instant, u64, usize, Vec<u8>);

pub(crate) struct World {
    plan: Plan,
    now: Instant,
    ends: [Box<dyn End>; 2],
    paths: [Path; 2],
    flying: BinaryHeap<Reverse<Flying>>,
    frames: u64,
    owners: Vec<[Option<Owner>; 2]>,
    random: Random,
    /// Whether segments are printed.
    prints: bool,
}

impl Plan {
    fn random(random: &mut Random, is_live: bool) -> Self {
        let number = random.pick(&[1, 1, 1, 2, 3]);
        let scale = if is_live {
            &Scale::LIVE
        } else {
            &Scale::VIRTUAL
        };
        Self {
            opens: random.chance(500),
            ours: OursPlan::random(random, scale),
            peer: match is_live {
                true => Peer::Kernel,
                false => Peer::Smoltcp(SmoltcpPlan::random(random)),
            },
            paths: [(); 2].map(|()| PathPlan::random(random, scale)),
            owners: (0..number)
                .map(|_| {
                    let mut plans = [(); 2].map(|()| OwnerPlan::random(random, scale));
                    OwnerPlan::choose_endings(&mut plans, random);
                    plans
                })
                .collect(),
        }
    }

    fn aborts(&self, connection: usize) -> bool {
        let mut plans = self.owners[connection].iter();
        plans.any(|plan| matches!(plan.ending, Ending::Aborts(_)))
    }
}

impl World {
    /// A world in virtual time, with smoltcp.
    pub(crate) fn with_smoltcp(random: &mut Random) -> Self {
        Self::new(random, Version::V4, None)
    }

    /// A world in real time, with the kernel's stack behind a TAP device.
    pub(crate) fn with_kernel(random: &mut Random, version: Version, tap: Tap) -> Self {
        Self::new(random, version, Some(tap))
    }

    fn new(random: &mut Random, version: Version, tap: Option<Tap>) -> Self {
        let plan = Plan::random(random, tap.is_some());
        let now = START;
        let (number, opens) = (plan.owners.len(), plan.opens);
        let (key, is_live) = (random.next(), tap.is_some());
        let ours = Ours::new(&plan.ours, version, key, now, number, opens, is_live);
        let seed = random.next();
        let peer: Box<dyn End> = match (&plan.peer, tap) {
            (Peer::Smoltcp(plan), _) => Box::new(Smoltcp::new(plan, seed, now, number, !opens)),
            (Peer::Kernel, tap) => {
                let tap = tap.expect("the peer was chosen by it");
                Box::new(Kernel::new(tap, version, number, !opens))
            }
        };
        let paths =
            [0, 1].map(|number: usize| Path::new(plan.paths[number].clone(), random.fork()));
        Self {
            now,
            ends: [Box::new(ours), peer],
            paths,
            flying: BinaryHeap::new(),
            frames: 0,
            owners: (0..number).map(|_| [None, None]).collect(),
            random: random.fork(),
            prints: false,
            plan,
        }
    }

    /// Prints what the seed means, and the segments.
    pub(crate) fn print(&mut self, prints: bool) {
        self.prints = prints;
        if prints {
            println!("{:#?}", self.plan);
        }
    }

    /// Runs until the owners have left and both stacks are empty.
    pub(crate) fn run(mut self) {
        let end = self.now + MOST_TIME;
        for _ in 0..MOST_STEPS {
            self.work();
            self.run_owners();
            self.work();
            let Some(next) = self.next() else {
                return self.judge();
            };
            assert!(next <= end, "it does not end in time: {}", self.report());
            self.now = self.now.max(next);
            self.deliver();
        }
        panic!("too many steps: {}", self.report());
    }

    /// The same, in real time.
    pub(crate) fn run_live(mut self) {
        let began = std::time::Instant::now();
        loop {
            self.now = START + began.elapsed();
            self.deliver();
            self.work();
            self.run_owners();
            self.work();
            let Some(next) = self.next() else {
                return self.judge();
            };
            assert!(
                began.elapsed() < MOST_LIVE_TIME,
                "it does not end in time: {}",
                self.report()
            );
            // The kernel's timers are unknown.
            let rest = next.since(self.now).min(LIVE_STEP);
            std::thread::sleep(rest.max(LIVE_STEP / 10));
        }
    }

    fn deliver(&mut self) {
        while let Some(Reverse((at, ..))) = self.flying.peek()
            && *at <= self.now
            && let Some(Reverse((_, _, to, frame))) = self.flying.pop()
        {
            self.ends[to].on_frame(self.now, frame);
        }
    }

    /// The time at which something happens next. `None`: all has ended.
    fn next(&mut self) -> Option<Instant> {
        let is_done = self.is_done();
        let is_left = self.ends.iter().any(|end| end.left().is_some());
        if is_done && !is_left && self.flying.is_empty() {
            return None;
        }
        let arrival = self.flying.peek().map(|Reverse((at, ..))| *at);
        let owners = self.owners.iter().flatten().flatten();
        let runs = owners
            .filter(|owner| !owner.is_done)
            .map(|owner| owner.runs_at)
            .min();
        let now = self.now;
        let timeouts = self.ends.each_mut().map(|end| end.next_timeout(now));
        let next = [arrival, runs, timeouts[0], timeouts[1]];
        let next = next.into_iter().flatten().min();
        assert!(next.is_some(), "it stands still: {}", self.report());
        next
    }

    fn is_done(&self) -> bool {
        self.owners.iter().enumerate().all(|(number, owners)| {
            let may_fail = self.plan.aborts(number);
            let is_done =
                |owner: &Option<Owner>| owner.as_ref().map_or(may_fail, |owner| owner.is_done);
            owners.iter().all(is_done)
        })
    }

    fn work(&mut self) {
        for number in 0..2 {
            for frame in self.ends[number].work(self.now) {
                self.send(number, &frame);
            }
        }
    }

    fn send(&mut self, from: usize, frame: &[u8]) {
        let copies = self.paths[from].carry(self.now, frame);
        if self.prints && is_tcp(frame) {
            let times: Vec<_> = copies.iter().map(|copy| copy.0.since(self.now)).collect();
            println!(
                "{:?} {from}: {}, after {times:?}",
                self.now,
                describe(frame)
            );
        }
        for (at, bytes) in copies {
            self.frames += 1;
            self.flying
                .push(Reverse((at, self.frames, 1 - from, bytes)));
        }
    }

    fn run_owners(&mut self) {
        for host in 0..2 {
            self.ends[host].accept(self.now);
            for connection in 0..self.owners.len() {
                if self.owners[connection][host].is_none() && self.ends[host].is_open(connection) {
                    self.owners[connection][host] = Some(self.owner(connection, host));
                }
                let owner = self.owners[connection][host].as_mut();
                if let Some(owner) =
                    owner.filter(|owner| !owner.is_done && owner.runs_at <= self.now)
                {
                    owner.run(self.now, &mut *self.ends[host], connection);
                }
            }
        }
    }

    fn owner(&mut self, connection: usize, host: usize) -> Owner {
        let plans = &self.plan.owners[connection];
        let streams = [host, 1 - host].map(|host| stream(connection, host));
        let expected = plans[1 - host].length;
        let random = self.random.fork();
        Owner::new(plans[host].clone(), streams, expected, random, self.now)
    }

    fn judge(&self) {
        for (number, owners) in self.owners.iter().enumerate() {
            if self.plan.aborts(number) {
                continue;
            }
            for (host, owner) in owners.iter().enumerate() {
                let owner = owner.as_ref().expect("it is done");
                let expected = self.plan.owners[number][1 - host].length;
                assert!(
                    !owner.was_reset,
                    "{number}.{host} was reset: {}",
                    self.report()
                );
                assert!(owner.has_end && owner.read == expected, "{}", self.report());
            }
        }
        let lost: u64 = self.paths.iter().map(|path| path.lost).sum();
        let owners = self.owners.iter().flatten().flatten();
        let work: u64 = owners
            .map(|owner| owner.calls + (owner.written + owner.read) / 100)
            .sum();
        let seconds = self.now.as_ns() / 1_000_000_000;
        let most = 1000 + 8 * work + 4 * lost + 2 * seconds;
        assert!(self.frames <= most, "{} frames of {most}", self.frames);
    }

    fn report(&self) -> String {
        let mut text = format!("at {:?}, {} frames\n", self.now, self.frames);
        for (number, owners) in self.owners.iter().enumerate() {
            for (host, owner) in owners.iter().enumerate() {
                text += &match owner {
                    None => format!("  {number}.{host}: no owner\n"),
                    Some(owner) => format!(
                        "  {number}.{host}: written {}, read {}, end {}, done {}, reset {}, {:?}\n",
                        owner.written,
                        owner.read,
                        owner.has_end,
                        owner.is_done,
                        owner.was_reset,
                        owner.plan.ending
                    ),
                };
            }
        }
        for end in &self.ends {
            text += &format!("  {:?}\n", end.left());
        }
        text
    }
}

/// A segment in a line of text.
fn describe(frame: &[u8]) -> String {
    let Ok(packet) = softclock_net::ip::parse(&frame[LINK_BYTES..]) else {
        return "no packet".to_owned();
    };
    match segment::parse(packet.addresses, packet.payload, Verify::Trusted) {
        Ok(segment) => format!(
            "{:?} seq {} len {} ack {} win {} {:?}",
            segment.header.flags,
            segment.header.sequence.0,
            segment.payload.len(),
            segment.header.acknowledgment.0,
            segment.header.window,
            segment.options
        ),
        Err(reason) => format!("{reason:?}"),
    }
}

/// The number of the stream that an end writes into a connection.
const fn stream(connection: usize, host: usize) -> u64 {
    0x9e37_79b9_7f4a_7c15_u64.wrapping_mul((2 * connection + host + 1) as u64)
}

pub(crate) const fn client_port(connection: usize) -> u16 {
    40_000 + connection as u16
}

pub(crate) const fn server_port(connection: usize) -> u16 {
    80 + connection as u16
}

pub(crate) const START: Instant = Instant::from_ns(1_000_000_000);
const MOST_TIME: Duration = Duration::from_secs(4 * 3600);
const MOST_STEPS: usize = 1_000_000;

/// Enough for any of the live scenarios on a machine under load.
const MOST_LIVE_TIME: Duration = Duration::from_secs(90);
const LIVE_STEP: Duration = Duration::from_millis(1);
