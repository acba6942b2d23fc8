//! libevent under the workloads of the event-delivery experiments.

use std::fmt::Display;
use std::path::PathBuf;
use std::process::Command;
use std::rc::Rc;

use crate::peers::program::{Library, Workshop};

/// The costs of libevent's calls, in nanoseconds per call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Costs {
    /// Cost of a callback, in a turn of the loop in which each hot socket has one.
    pub event_ns: Vec<f64>,
    /// Cost of `event_add`.
    pub add_ns: Vec<f64>,
    /// Cost of `event_del`.
    pub delete_ns: Vec<f64>,
    /// Cost of `event_add`, with a turn of the loop after all of them.
    pub armed_ns: Vec<f64>,
    /// Cost of `event_del` and close(2) of events that were armed by such a turn.
    pub close_ns: Vec<f64>,
}

/// The compiled workload, with one of its settings.
#[derive(Debug)]
pub struct Libevent {
    program: PathBuf,
    setting: Setting,
    /// Keeps the directory of the program.
    _workshop: Rc<Workshop>,
}

/// A configuration of libevent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Setting {
    /// `event_base_new` and level-triggered events.
    Defaults,
    /// The settings that its documentation recommends for speed: `EVENT_BASE_FLAG_EPOLL_USE_CHANGELIST`,
    /// `EVENT_BASE_FLAG_NOLOCK`, `EV_ET`.
    Fast,
}

impl Setting {
    const ALL: [Self; 2] = [Self::Defaults, Self::Fast];

    const fn name(self) -> &'static str {
        match self {
            Self::Defaults => "libevent",
            Self::Fast => "libevent, changelist and EV_ET",
        }
    }

    /// Returns the program's first argument.
    const fn argument(self) -> &'static str {
        match self {
            Self::Defaults => "defaults",
            Self::Fast => "fast",
        }
    }
}

impl Libevent {
    /// The names of all settings in tables.
    pub const NAMES: [&'static str; 2] = [Setting::Defaults.name(), Setting::Fast.name()];

    /// Compiles the program; returns one value for each setting. If it cannot be compiled, adds a note with the reason
    /// and the missing package, and returns none.
    pub fn all(notes: &mut Vec<String>) -> Vec<Self> {
        match Self::compile() {
            Ok(all) => all,
            Err(note) => {
                notes.push(note);
                Vec::new()
            }
        }
    }

    fn compile() -> Result<Vec<Self>, String> {
        let workshop = Rc::new(Workshop::new().map_err(left_out)?);
        let peer = workshop.c_program(&[SOURCE], LIBEVENT)?;
        let with = |setting| Self {
            program: peer.program.clone(),
            setting,
            _workshop: Rc::clone(&workshop),
        };
        Ok(Setting::ALL.map(with).into())
    }

    /// Returns the name in tables.
    pub fn name(&self) -> &'static str {
        self.setting.name()
    }

    /// Measures the costs in `rounds` samples each, with these numbers of hot and cold sockets.
    ///
    /// # Errors
    /// The reason, as a sentence for a report's notes.
    pub fn costs(&self, hot: usize, cold: usize, rounds: usize) -> Result<Costs, String> {
        parse_costs(&self.run("costs", &[hot, cold, rounds])?)
    }

    /// Returns the microseconds of each run of `bench.c`'s workload.
    ///
    /// # Errors
    /// The reason, as a sentence for a report's notes.
    pub fn bench(
        &self,
        pairs: usize,
        active: usize,
        writes: usize,
        runs: usize,
    ) -> Result<Vec<f64>, String> {
        numbers(&self.run("bench", &[pairs, active, writes, runs])?)
    }

    fn run(&self, what: &str, arguments: &[usize]) -> Result<String, String> {
        let mut command = Command::new(&self.program);
        command
            .args([self.setting.argument(), what])
            .args(arguments.iter().map(usize::to_string));
        let output = command.output().map_err(left_out)?;
        if !output.status.success() {
            return Err(left_out(String::from_utf8_lossy(&output.stderr).trim()));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

fn left_out(why: impl Display) -> String {
    format!("libevent is left out: {why}")
}

/// Parses five lines: callbacks, additions, deletions, additions with a turn of the loop, closing.
fn parse_costs(text: &str) -> Result<Costs, String> {
    let lines: Vec<Vec<f64>> = text.lines().map(numbers).collect::<Result<_, _>>()?;
    match <[Vec<f64>; 5]>::try_from(lines) {
        Ok([event_ns, add_ns, delete_ns, armed_ns, close_ns]) => Ok(Costs {
            event_ns,
            add_ns,
            delete_ns,
            armed_ns,
            close_ns,
        }),
        Err(_) => Err(left_out(format_args!("it printed {text:?}"))),
    }
}

fn numbers(text: &str) -> Result<Vec<f64>, String> {
    let parsed = text.split_whitespace().map(str::parse).collect();
    match parsed {
        Ok(numbers) if !Vec::is_empty(&numbers) => Ok(numbers),
        _ => Err(left_out(format_args!("it printed {text:?}"))),
    }
}

const LIBEVENT: Library = Library {
    name: "libevent",
    debian: "libevent-dev",
    link: &["-levent"],
};

/// The note on the settings behind its rows.
pub const LIBEVENT_NOTE: &str = "libevent: event_base_new and level-triggered events; changelist and EV_ET: with \
    EVENT_BASE_FLAG_EPOLL_USE_CHANGELIST and EVENT_BASE_FLAG_NOLOCK, and edge-triggered events, which its documentation has \
    for speed";

const SOURCE: (&str, &str) = (
    "events_libevent.c",
    include_str!("../../peers/events_libevent.c"),
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_peer_prints() {
        let costs = parse_costs("1 2\n3.5\n4 5\n6\n7 8\n").unwrap();
        assert_eq!(costs.event_ns, [1.0, 2.0]);
        assert_eq!(costs.delete_ns, [4.0, 5.0]);
        assert_eq!(
            (costs.armed_ns, costs.close_ns),
            (vec![6.0], vec![7.0, 8.0])
        );
        assert!(parse_costs("1 2\n").is_err());
        assert!(parse_costs("1\n\n2\n3\n4\n").is_err());
        assert!(numbers("x").is_err());
    }
}
