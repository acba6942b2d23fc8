//! Programs with timers in a loop, most of them in C: the lateness of their timers, alone and beside sockets, and the
//! cost of their operations.
//!
//! A program is a process of its own. It sleeps as an [`Order`] says and prints a [`Finding`], as the
//! [sleepers](super::sleepers) do, but its load is inside: pairs of sockets, one of each pair always readable, whose
//! messages take 5 to 20 us of work each. So its loop is never idle. The programs in C are in `peers/timers*`, and
//! those on tokio are a hidden subcommand of this program.
//!
//! - `tokio`: the programs on tokio.

mod tokio;

use std::io;
use std::process::Command;

use super::sleepers::{Finding, Order, load};
use crate::command::c_library;
use crate::peers::program::{Library, Source, Workshop};
pub use tokio::TokioTimers;

/// A program with timers.
pub struct Program {
    /// The name in tables.
    pub name: &'static str,
    /// Whether it can measure the cost of operations.
    pub has_costs: bool,
    start: Box<dyn Fn() -> Command>,
}

/// Processor time of operations, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// Scheduling a timer and cancelling it.
    pub schedule_and_cancel: f64,
    /// Moving a pending timer.
    pub move_pending: f64,
    /// Scheduling a timer and firing it.
    pub fire: f64,
}

/// softclock-c in a loop of epoll.
pub const IN_EPOLL: &str = "softclock-c, epoll";
/// softclock-c in a loop of libuv.
pub const IN_LIBUV: &str = "softclock-c, libuv";
/// libuv's own timers.
pub const LIBUV: &str = "libuv";
/// tokio's own timers.
pub const TOKIO: &str = "tokio";
/// softclock-tokio.
pub const IN_TOKIO: &str = "tokio, softclock-tokio";

impl Program {
    /// Returns the programs that this machine can compile; adds a note with the version of each library, and one for
    /// each program that is left out.
    ///
    /// # Errors
    /// The path of this program is unknown.
    pub fn all(workshop: &Workshop, notes: &mut Vec<String>) -> io::Result<Vec<Self>> {
        let mut programs = Vec::new();
        for (name, library, main) in IN_C {
            match compiled(workshop, name, library, main) {
                Ok((program, version)) => {
                    notes.extend(version.map(|version| format!("{name}: version {version}")));
                    programs.push(Self {
                        name,
                        has_costs: true,
                        start: Box::new(move || Command::new(&program)),
                    });
                }
                Err(missing) => notes.push(missing),
            }
        }
        let this = std::env::current_exe()?;
        for (name, kind) in [(TOKIO, "tokio"), (IN_TOKIO, "softclock-tokio")] {
            let this = this.clone();
            let start = move || {
                let mut command = Command::new(&this);
                command.args(["tokio-timers", kind]);
                command
            };
            programs.push(Self {
                name,
                has_costs: false,
                start: Box::new(start),
            });
        }
        Ok(programs)
    }

    /// Runs it once, beside this number of pairs of sockets.
    ///
    /// # Errors
    /// The program fails, or prints no finding.
    pub fn late(&self, order: &Order, pairs: u32) -> io::Result<Finding> {
        let mut command = (self.start)();
        command.args(["late", &pairs.to_string()]);
        load::run(command, order, 0)
    }

    /// Measures operations while this number of timers is pending, in this number of turns of its loop.
    ///
    /// # Errors
    /// The program fails, or prints no costs.
    pub fn costs(&self, pending: usize, turns: u128) -> io::Result<Costs> {
        let mut command = (self.start)();
        command.args(["cost", &pending.to_string(), &turns.to_string()]);
        let output = command.output()?;
        if !output.status.success() {
            return Err(io::Error::other(format!("it ended by {}", output.status)));
        }
        let printed = String::from_utf8_lossy(&output.stdout);
        Costs::parse(&printed).ok_or_else(|| io::Error::other(format!("unexpected: {printed}")))
    }
}

impl Costs {
    fn parse(text: &str) -> Option<Self> {
        let value = |name: &str| {
            let mut lines = text.lines();
            let value = lines.find_map(|line| line.strip_prefix(name))?;
            value.trim().parse().ok()
        };
        Some(Self {
            schedule_and_cancel: value("schedule_and_cancel ")?,
            move_pending: value("move ")?,
            fire: value("fire ")?,
        })
    }
}

/// Returns the path of a compiled program, and the version of its library.
fn compiled(
    workshop: &Workshop,
    name: &str,
    library: Option<Library>,
    main: Source,
) -> Result<(std::path::PathBuf, Option<String>), String> {
    let sources = [&[main], HEADERS].concat();
    let left_out = |why: String| format!("{name} is left out: {why}");
    if !main.0.starts_with("timers_softclock") {
        return match library {
            Some(library) => {
                let compiled = workshop.c_program(&sources, library)?;
                Ok((compiled.program, Some(compiled.version)))
            }
            None => {
                let program = workshop.c_program_by(&sources, [""; 0]);
                Ok((program.map_err(left_out)?, None))
            }
        };
    }
    let own = c_library().map_err(|error| left_out(error.to_string()))?;
    let own = own.to_string_lossy();
    let mut arguments = vec![&*own];
    arguments.extend(library.iter().flat_map(|library| library.link));
    arguments.extend(["-lgcc_s", "-lpthread", "-lm", "-ldl"]);
    let program = workshop.c_program_by(&sources, arguments);
    Ok((program.map_err(left_out)?, None))
}

macro_rules! source {
    ($name:literal) => {
        ($name, include_str!(concat!("../../../peers/", $name)))
    };
}

const IN_C: [(&str, Option<Library>, Source); 5] = [
    (LIBUV, Some(Library::UV), source!("timers_libuv.c")),
    (
        "libevent",
        Some(Library::EVENT),
        source!("timers_libevent.c"),
    ),
    ("epoll, timerfd", None, source!("timers_timerfd.c")),
    (IN_EPOLL, None, source!("timers_softclock.c")),
    (
        IN_LIBUV,
        Some(Library::UV),
        source!("timers_softclock_libuv.c"),
    ),
];

const HEADERS: &[Source] = &[
    source!("sleep.h"),
    source!("timers.h"),
    source!("timers_epoll.h"),
    source!("timers_softclock.h"),
    (
        "softclock.h",
        include_str!("../../../../softclock-c/include/softclock.h"),
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_read_by_their_names() {
        let costs = Costs::parse("schedule_and_cancel 22.5\nmove 17\nfire 1e2\n");
        let expected = Costs {
            schedule_and_cancel: 22.5,
            move_pending: 17.0,
            fire: 100.0,
        };
        assert_eq!(costs, Some(expected));
        assert_eq!(Costs::parse("move 17\nfire 1\n"), None);
    }
}
