//! One attack on one server: a victim without it, under it and after it.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{getpriority_process, setpriority_process};
use softclock::fs::raise_descriptor_limit;

use super::link::Against;
use super::subject::{Front, Identity, Role, Subject};
use super::tally::Tally;
use super::upstream::Upstream;
use super::victim::{Seen, Victim};
use crate::measure::processors::{Processors, pin};
use crate::output::report::Context;
use crate::servers::{Server, readable_by_all};

/// An attack, the servers that meet it, and what is asked of them meanwhile.
pub struct Case {
    /// Its name in tables.
    pub name: String,
    /// What each of its threads does until the tally says that it is over.
    pub attack: Box<dyn Fn(&Against<'_>) + Sync>,
    /// How many threads; an attack has one connection or more in each.
    pub threads: usize,
    /// What the tally's units are: frames, requests.
    pub units: &'static str,
    /// The servers, ours first.
    pub subjects: Vec<Subject>,
    /// What they do.
    pub ground: Ground,
}

/// What servers do, and what a victim asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ground {
    /// They serve files; the victim asks for one of 1 KB.
    Files,
    /// They serve files; the victim asks for metrics.
    Metrics,
    /// They pass so many requests on at a time; the victim's are answered at once.
    Proxy(usize),
}

/// How long it all takes.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Pairs of phases, without and under the attack, of each server.
    pub rounds: usize,
    /// Of a phase.
    pub phase: Duration,
    /// Of a step in which the victim is looked at after the attack.
    pub step: Duration,
    /// So long after the attack at most.
    pub after: Duration,
    /// The victim's.
    pub patience: Duration,
}

impl Plan {
    /// The full one, or the smallest.
    pub fn of(context: &Context) -> Self {
        let ms = Duration::from_millis;
        if context.smoke {
            Self {
                rounds: 1,
                phase: ms(150),
                step: ms(100),
                after: ms(100),
                patience: ms(200),
            }
        } else {
            Self {
                rounds: context.rounds.unwrap_or(7),
                phase: ms(2000),
                step: ms(500),
                after: ms(10_000),
                patience: ms(2000),
            }
        }
    }
}

/// What one pair of phases gave.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// What the victim saw before.
    pub without: Seen,
    /// What it saw under the attack.
    pub under: Seen,
    /// Share of the victim's requests that failed under it.
    pub failed: f64,
    /// From the end of the attack to the end of the first step that was normal.
    pub recovery: Duration,
    /// Share of a processor that the server took under the attack.
    pub busy: f64,
    /// How long the attack took.
    pub attack: Duration,
    /// Its counts.
    pub bytes: u64,
    /// See [`Case::units`].
    pub units: u64,
    /// Connections that the server ended or did not take.
    pub ended: u64,
    /// Requests that were open at the upstream, a second after the attack's end or after the first step.
    pub open_upstream: usize,
}

/// What all trials of an experiment share.
#[derive(Debug)]
pub struct Stage {
    /// The server has one, all others share the other.
    pub processors: Processors,
    identity: Identity,
    site: tempfile::TempDir,
    /// Behind proxies.
    pub upstream: Upstream,
}

impl Stage {
    /// Writes files and starts the upstream.
    ///
    /// # Errors
    /// There is no place for files.
    pub fn build() -> io::Result<Self> {
        // For attackers; servers have a limit of their own.
        raise_descriptor_limit();
        let site = tempfile::tempdir()?;
        readable_by_all(site.path())?;
        for (path, bytes) in [(SMALL, SMALL_BYTES), (LARGE, LARGE_BYTES)] {
            let path = site.path().join(path.trim_start_matches('/'));
            std::fs::write(path, vec![b'x'; bytes])?;
        }
        let processors = Processors::detect();
        let upstream = processors.on(processors.clients, Upstream::start)?;
        Ok(Self {
            processors,
            identity: Identity::new()?,
            site,
            upstream,
        })
    }

    /// A server on its processor.
    ///
    /// # Errors
    /// It does not start.
    pub fn start(&self, subject: &Subject, ground: Ground) -> io::Result<(Server, Front)> {
        let role = match ground {
            Ground::Files | Ground::Metrics => Role::Files(self.site.path()),
            Ground::Proxy(requests) => Role::Proxy {
                upstream: self.upstream.address(),
                requests,
            },
        };
        let start = || subject.start(role, &self.identity);
        self.processors.on(self.processors.server, start)
    }

    /// A pair of phases, with a server of its own.
    ///
    /// # Errors
    /// The server does not start or ends; the victim cannot run.
    pub fn sample(&self, case: &Case, subject: &Subject, plan: &Plan) -> io::Result<Sample> {
        let (server, front) = self.start(subject, case.ground)?;
        let clients = self.processors.clients;
        let victim = victim(case.ground, &front, plan);
        let without = victim.watch(plan.phase, clients, || {})?;
        let tally = Tally::default();
        let against = Against {
            front: &front,
            config: Arc::clone(&self.identity.clients),
            tally: &tally,
        };
        let (cpu, begun) = (server.cpu_time()?, Instant::now());
        let mut attack = Duration::ZERO;
        let under = thread::scope(|scope| {
            let seen = victim.watch(plan.phase, clients, || {
                // The kept connections are there before the attack.
                thread::sleep(LEAD.min(plan.phase / 4));
                attack = begun.elapsed();
                for _ in 0..case.threads {
                    scope.spawn(|| {
                        attacker(clients);
                        (case.attack)(&against);
                    });
                }
            });
            attack = begun.elapsed() - attack;
            tally.end();
            seen
        })?;
        let busy = server.cpu_time()?.saturating_sub(cpu).as_secs_f64();
        let busy = busy / begun.elapsed().as_secs_f64();
        let (recovery, open_upstream) = self.recover(&victim, &without, plan)?;
        Ok(Sample {
            failed: under.failed(&victim),
            without,
            under,
            recovery,
            busy,
            attack,
            bytes: tally.bytes.get(),
            units: tally.units.get(),
            ended: tally.ended.get(),
            open_upstream,
        })
    }

    /// Looks on until a step is normal.
    fn recover(
        &self,
        victim: &Victim,
        without: &Seen,
        plan: &Plan,
    ) -> io::Result<(Duration, usize)> {
        let begun = Instant::now();
        let mut open_upstream = None;
        loop {
            let seen = victim.watch(plan.step, self.processors.clients, || {})?;
            let recovery = begun.elapsed();
            let open = *open_upstream.get_or_insert_with(|| {
                thread::sleep((2 * plan.step).saturating_sub(recovery));
                self.upstream.open_requests()
            });
            if seen.is_normal(without) || recovery >= plan.after {
                return Ok((recovery, open));
            }
        }
    }
}

fn victim(ground: Ground, front: &Front, plan: &Plan) -> Victim {
    let (address, path) = match ground {
        Ground::Files => (front.plain, SMALL),
        Ground::Metrics => (front.metrics, "/metrics"),
        Ground::Proxy(_) => (front.plain, "/"),
    };
    // Scrapes are seldom.
    let share = if ground == Ground::Metrics { 0.1 } else { 1.0 };
    Victim {
        address,
        path,
        kept: 300.0 * share,
        new: 100.0 * share,
        patience: plan.patience,
    }
}

/// Attackers leave the victim its share of the processor: what it sees is to be the server's doing.
fn attacker(processor: Option<usize>) {
    pin(processor);
    // For this thread alone, as Linux takes it. It matters little where it is forbidden.
    if let Ok(own) = getpriority_process(None) {
        let _ = setpriority_process(None, own + LESS_PRIORITY);
    }
}

/// Runs all cases: the servers take turns, and each has its pairs.
///
/// # Errors
/// Those of the first sample that fails.
pub fn run(
    context: &Context,
    stage: &Stage,
    cases: &[Case],
) -> Result<Vec<Vec<Vec<Sample>>>, Box<dyn Error>> {
    let plan = Plan::of(context);
    let empty = |case: &Case| vec![Vec::new(); case.subjects.len()];
    let mut samples: Vec<Vec<Vec<Sample>>> = cases.iter().map(empty).collect();
    let all: usize = cases.iter().map(|case| case.subjects.len()).sum();
    let mut done = 0;
    for round in 0..plan.rounds {
        for (case, samples) in cases.iter().zip(&mut samples) {
            for turn in 0..case.subjects.len() {
                // Another one is first each time.
                let index = (round + turn) % case.subjects.len();
                let subject = &case.subjects[index];
                let what = format!("{}: {}", case.name, subject.name);
                let sample = context.round(done, all * plan.rounds, &what, || {
                    stage.sample(case, subject, &plan)
                });
                samples[index].push(sample.map_err(|error| format!("{what}: {error}"))?);
                done += 1;
            }
        }
    }
    context.progress(1, 1, "");
    Ok(samples)
}

/// What victims ask for.
const SMALL: &str = "/small.html";

/// What attackers ask for.
pub const LARGE: &str = "/large.bin";

const SMALL_BYTES: usize = 1 << 10;

/// More than socket buffers hold.
const LARGE_BYTES: usize = 16 << 20;

/// The victim's, before the attack.
const LEAD: Duration = Duration::from_millis(50);

/// Steps of `nice(1)`.
const LESS_PRIORITY: i32 = 15;
