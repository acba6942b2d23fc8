//! One attack on one server: the service to a victim without it, under it and after it.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use softclock::fs::raise_descriptor_limit;
use softclock_linux::priority::set_idle_priority;

use super::link::Against;
use super::subject::{Front, Identity, Role, Subject};
use super::tally::Tally;
use super::upstream::Upstream;
use super::victim::{Seen, Victim};
use crate::measure::processors::{Processors, pin};
use crate::output::report::Context;
use crate::servers::{Server, readable_by_all};

/// An attack, the servers that it meets, and their task.
pub struct Case {
    /// Its name in tables.
    pub name: String,
    /// The function that each of its threads runs until the tally ends the attack.
    pub attack: Box<dyn Fn(&Against<'_>) + Sync>,
    /// The number of threads; each has one connection or more.
    pub threads: usize,
    /// The unit that the tally counts, such as frames or requests.
    pub units: &'static str,
    /// The servers, softclock first.
    pub subjects: Vec<Subject>,
    /// The servers' task.
    pub ground: Ground,
}

/// The task of the servers, and the victim's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ground {
    /// The servers serve files; the victim requests one of 1 KB.
    Files,
    /// The servers serve files; the victim requests metrics.
    Metrics,
    /// The servers pass up to this many requests at a time to the upstream, which answers the victim's at once.
    Proxy(usize),
}

/// The durations of a trial.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Pairs of phases, without and under the attack, of each server.
    pub rounds: usize,
    /// The length of a phase.
    pub phase: Duration,
    /// The length of a step in which the victim is measured after the attack.
    pub step: Duration,
    /// The longest time of these steps.
    pub after: Duration,
    /// The time after which a victim's request has failed.
    pub patience: Duration,
}

impl Plan {
    /// Returns the full plan, or the smallest one in a smoke run.
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

/// The results of one pair of phases.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// The victim's results before the attack.
    pub without: Seen,
    /// Its results under the attack.
    pub under: Seen,
    /// Share of the victim's requests that failed under the attack.
    pub failed: f64,
    /// The time from the end of the attack to the end of the first normal step.
    pub recovery: Duration,
    /// Share of a processor that the server used under the attack.
    pub busy: f64,
    /// The duration of the attack.
    pub attack: Duration,
    /// Bytes that the attack sent.
    pub bytes: u64,
    /// See [`Case::units`].
    pub units: u64,
    /// Connections that the server ended or did not accept.
    pub ended: u64,
    /// Requests open at the upstream, a second after the attack's end or after the first step.
    pub open_upstream: usize,
}

/// The parts that all trials of an experiment share.
#[derive(Debug)]
pub struct Stage {
    /// One processor for the server, and one for everything else.
    pub processors: Processors,
    identity: Identity,
    site: tempfile::TempDir,
    /// The upstream of proxies.
    pub upstream: Upstream,
}

impl Stage {
    /// Writes the files and starts the upstream.
    ///
    /// # Errors
    /// The files cannot be written, or the upstream does not start.
    pub fn build() -> io::Result<Self> {
        // For the attackers; servers get their own limit.
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

    /// Starts a server on its processor.
    ///
    /// # Errors
    /// The server does not start.
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

    /// Runs a pair of phases with a new server.
    ///
    /// # Errors
    /// The server does not start or ends early, or the victim cannot run.
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
        // Server time counts from before the victim's phase, because the attack starts inside it.
        let (cpu, begun) = (server.cpu_time()?, Instant::now());
        let mut attack = Duration::ZERO;
        let under = thread::scope(|scope| {
            let seen = victim.watch(plan.phase, clients, || {
                // Lets the victim open its kept connections before the attack.
                thread::sleep(LEAD.min(plan.phase / 4));
                attack = begun.elapsed();
                for _ in 0..case.threads {
                    scope.spawn(|| {
                        attacker(clients);
                        (case.attack)(&against);
                    });
                }
            });
            // The victim has finished its phase: end the attack at the same moment.
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

    /// Measures the victim in steps until one is normal; returns the time until then, and the requests open at the
    /// upstream.
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
    // Scrapes are rare.
    let share = if ground == Ground::Metrics { 0.1 } else { 1.0 };
    Victim {
        address,
        path,
        kept: 300.0 * share,
        new: 100.0 * share,
        patience: plan.patience,
    }
}

/// Pins an attacker's thread and lowers its priority. A victim that wakes then takes the processor from it at once, so
/// that delays are the server's: a thread that is only nicer keeps the processor for up to its slice, 3 ms.
fn attacker(processor: Option<usize>) {
    pin(processor);
    // If it is forbidden, the attack runs at ordinary priority.
    let _ = set_idle_priority();
}

/// Runs all cases: in each round the servers take turns.
///
/// # Errors
/// That of the first sample that fails.
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
                // Rotate the order, so that no server always runs first.
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

/// The file that victims request.
const SMALL: &str = "/small.html";

/// The file that attackers request.
pub const LARGE: &str = "/large.bin";

const SMALL_BYTES: usize = 1 << 10;

/// Larger than socket buffers.
const LARGE_BYTES: usize = 16 << 20;

/// The time that the victim runs before the attack.
const LEAD: Duration = Duration::from_millis(50);
