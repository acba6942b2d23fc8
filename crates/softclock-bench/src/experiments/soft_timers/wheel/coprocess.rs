//! Timer structures of C libraries. A program in `peers/` plays the same steps in turn with the others. It reads them
//! from a pipe and times itself, so the pipe does not add to the result.

use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use super::Kind;
use super::player::{Inexactness, Operation, Play, choices};
use super::trace::Step;
use crate::peers::program::{Compiled, Library, Source, Workshop};

/// A compiled program.
pub(super) struct Program {
    name: &'static str,
    path: PathBuf,
}

impl Program {
    /// Returns the programs that can be compiled and work on this machine; adds a note for each that does not.
    pub(super) fn all(workshop: &Workshop, notes: &mut Vec<String>) -> Vec<Self> {
        let mut programs = Vec::new();
        for (name, source, library) in LIBRARIES {
            match workshop.c_program(&[source, HEADER], library) {
                Ok(Compiled { program, version }) => {
                    notes.push(format!("{name}: version {version}"));
                    programs.push(Self {
                        name,
                        path: program,
                    });
                }
                Err(missing) => notes.push(missing),
            }
        }
        programs.retain(|program| match program.trial() {
            Ok(_) => true,
            Err(error) => {
                notes.push(format!("{} is left out: {error}", program.name));
                false
            }
        });
        programs
    }

    fn trial(&self) -> io::Result<f64> {
        let mut player = Coprocess::start(self, Kind::Network, &[50_000; 10])?;
        player.play(&[Step::default(); 10])
    }
}

/// A timer structure in a separate process, with its timers' owners.
pub(super) struct Coprocess {
    name: &'static str,
    child: Child,
    /// The program's input; `None` once it is closed, which ends the program.
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    timers: usize,
    now_ns: u64,
    found: Inexactness,
}

impl Coprocess {
    pub(super) fn start(program: &Program, kind: Kind, initial_ns: &[u64]) -> io::Result<Self> {
        let mut child = command(&program.path, kind).spawn()?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (orders, answers) = pipes.ok_or(io::ErrorKind::BrokenPipe)?;
        let mut process = Self {
            name: program.name,
            child,
            orders: Some(orders),
            answers: BufReader::new(answers),
            timers: initial_ns.len(),
            now_ns: 0,
            found: Inexactness::default(),
        };
        // The program keeps the population until its first order to play.
        let initial = initial_ns.iter().map(|&due_ns| Step {
            due_ns,
            ..Step::default()
        });
        process.order(POPULATE, &initial.collect::<Vec<_>>())?;
        Ok(process)
    }

    fn order(&mut self, what: u32, steps: &[Step]) -> io::Result<()> {
        let orders = self.orders.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        orders.write_all(&encode(what, steps))
    }

    /// Reads an answer; returns the nanoseconds per step or call.
    fn answer(&mut self) -> io::Result<f64> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        let (ns, late, early) = parse(&line).ok_or_else(|| {
            let message = format!(
                "unexpected answer from {}: '{}'",
                self.name,
                line.trim_end()
            );
            io::Error::other(message)
        })?;
        // The program reports totals, not differences.
        self.found.late = late;
        self.found.early = early;
        Ok(ns)
    }
}

impl Play for Coprocess {
    fn name(&self) -> &'static str {
        self.name
    }

    fn play(&mut self, steps: &[Step]) -> io::Result<f64> {
        self.order(PLAY, steps)?;
        self.found.steps += steps.len() as u64;
        if let Some(last) = steps.last() {
            self.now_ns = last.at_ns;
        }
        self.answer()
    }

    fn operation(&mut self, operation: Operation, calls: usize, seed: u64) -> io::Result<f64> {
        let choices = choices(self.now_ns, self.timers, calls, seed);
        let steps = choices.map(|(id, due_ns)| Step {
            at_ns: self.now_ns,
            due_ns,
            id,
            expired: false,
        });
        let steps: Vec<Step> = steps.collect();
        self.order(code(operation), &steps)?;
        self.answer()
    }

    fn inexactness(&self) -> &Inexactness {
        &self.found
    }
}

impl Drop for Coprocess {
    fn drop(&mut self) {
        // The program ends when its input is closed. Its exit status does not matter.
        self.orders = None;
        let _ = self.child.wait();
    }
}

fn command(program: &Path, kind: Kind) -> Command {
    let mut command = Command::new(program);
    if let Kind::Firing = kind {
        command.arg("fire");
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    // DPDK logs its start-up on standard error.
    command.stderr(Stdio::null());
    command
}

/// Encodes `struct order` and `struct step` of `peers/wheel.h`.
fn encode(what: u32, steps: &[Step]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(8 + 24 * steps.len());
    bytes.extend(what.to_ne_bytes());
    bytes.extend((steps.len() as u32).to_ne_bytes());
    for step in steps {
        bytes.extend(step.at_ns.to_ne_bytes());
        bytes.extend(step.due_ns.to_ne_bytes());
        bytes.extend(step.id.to_ne_bytes());
        bytes.extend(u32::from(step.expired).to_ne_bytes());
    }
    bytes
}

/// Parses an answer: nanoseconds per step, and the numbers of timers that have fired late and early so far.
fn parse(line: &str) -> Option<(f64, u64, u64)> {
    let mut words = line.split_whitespace();
    let ns = words
        .next()?
        .parse()
        .ok()
        .filter(|ns: &f64| ns.is_finite())?;
    let late = words.next()?.parse().ok()?;
    let early = words.next()?.parse().ok()?;
    words.next().is_none().then_some((ns, late, early))
}

const POPULATE: u32 = 0;
const PLAY: u32 = 1;

const fn code(operation: Operation) -> u32 {
    match operation {
        Operation::Schedule => 2,
        Operation::Cancel => 3,
        Operation::ScheduleAndCancel => 4,
        Operation::Reschedule => 5,
        Operation::IdleCheck => 6,
    }
}

const HEADER: Source = ("wheel.h", include_str!("../../../../peers/wheel.h"));

const LIBRARIES: [(&str, Source, Library); 2] = [
    (
        "libevent",
        (
            "wheel_libevent.c",
            include_str!("../../../../peers/wheel_libevent.c"),
        ),
        Library::EVENT,
    ),
    (
        "rte_timer (DPDK)",
        (
            "wheel_dpdk.c",
            include_str!("../../../../peers/wheel_dpdk.c"),
        ),
        Library {
            name: "libdpdk",
            debian: "libdpdk-dev",
            link: &["-lrte_timer", "-lrte_eal"],
        },
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_three_numbers() {
        assert_eq!(parse("12.5 3 4\n"), Some((12.5, 3, 4)));
        for bad in ["", "12.5 3\n", "nan 1 2\n", "1 2 3 4\n", "EAL: no\n"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn steps_take_24_bytes() {
        let bytes = encode(PLAY, &[Step::default(); 3]);
        assert_eq!(bytes.len(), 8 + 3 * 24);
        assert_eq!(bytes[..4], PLAY.to_ne_bytes());
    }
}
