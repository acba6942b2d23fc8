//! libevent, doing what the experiments of event delivery do with ours.

use std::process::Command;

use crate::peer_program::{Library, Workshop};

/// What libevent's calls cost with so many cold sockets, in nanoseconds a call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Costs {
    /// Sockets on which nothing happens.
    pub cold: usize,
    /// A callback, in a turn of the loop in which all hot sockets have one.
    pub event_ns: Vec<f64>,
    /// `event_add`.
    pub add_ns: Vec<f64>,
    /// `event_del`.
    pub delete_ns: Vec<f64>,
    /// `event_add`, with a turn of the loop after all of them.
    pub armed_ns: Vec<f64>,
    /// `event_del` and close(2), after that.
    pub close_ns: Vec<f64>,
}

/// The costs with each number of cold sockets, and notes on what is missing.
pub fn costs(hot: usize, cold: &[usize], rounds: usize) -> (Vec<Costs>, Vec<String>) {
    let run = |cold: usize| -> Result<Costs, String> {
        let lines = run(&[
            "costs",
            &hot.to_string(),
            &cold.to_string(),
            &rounds.to_string(),
        ])?;
        parse_costs(cold, &lines)
    };
    match cold.iter().map(|&cold| run(cold)).collect() {
        Ok(costs) => (costs, Vec::new()),
        Err(note) => (Vec::new(), vec![note]),
    }
}

/// Microseconds of each run of `bench.c`'s workload.
///
/// # Errors
/// A sentence for the notes: what is missing, and which package has it.
pub fn bench(pairs: usize, active: usize, writes: usize, runs: usize) -> Result<Vec<f64>, String> {
    let arguments = [pairs, active, writes, runs].map(|number| number.to_string());
    let [pairs, active, writes, runs] = arguments.each_ref().map(String::as_str);
    numbers(&run(&["bench", pairs, active, writes, runs])?)
}

fn run(arguments: &[&str]) -> Result<String, String> {
    let workshop = Workshop::new().map_err(|error| format!("libevent is left out: {error}"))?;
    let peer = workshop.c_program(&[SOURCE], LIBEVENT)?;
    let output = Command::new(&peer.program)
        .args(arguments)
        .output()
        .map_err(|error| format!("libevent is left out: {error}"))?;
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        return Err(format!("libevent is left out: {}", complaint.trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Five lines: events, additions, deletions, additions with a turn of the loop, closing.
fn parse_costs(cold: usize, text: &str) -> Result<Costs, String> {
    let lines: Vec<Vec<f64>> = text.lines().map(numbers).collect::<Result<_, _>>()?;
    match <[Vec<f64>; 5]>::try_from(lines) {
        Ok([event_ns, add_ns, delete_ns, armed_ns, close_ns]) => Ok(Costs {
            cold,
            event_ns,
            add_ns,
            delete_ns,
            armed_ns,
            close_ns,
        }),
        Err(_) => Err(format!("libevent is left out: it printed {text:?}")),
    }
}

fn numbers(text: &str) -> Result<Vec<f64>, String> {
    let parsed = text.split_whitespace().map(str::parse).collect();
    match parsed {
        Ok(numbers) if !Vec::is_empty(&numbers) => Ok(numbers),
        _ => Err(format!("libevent is left out: it printed {text:?}")),
    }
}

const LIBEVENT: Library = Library {
    name: "libevent",
    debian: "libevent-dev",
    link: &["-levent"],
};

const SOURCE: (&str, &str) = (
    "events_libevent.c",
    include_str!("../peers/events_libevent.c"),
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_peer_prints() {
        let costs = parse_costs(7, "1 2\n3.5\n4 5\n6\n7 8\n").unwrap();
        assert_eq!(costs.event_ns, [1.0, 2.0]);
        assert_eq!(costs.delete_ns, [4.0, 5.0]);
        assert_eq!(
            (costs.armed_ns, costs.close_ns),
            (vec![6.0], vec![7.0, 8.0])
        );
        assert!(parse_costs(7, "1 2\n").is_err());
        assert!(parse_costs(7, "1\n\n2\n3\n4\n").is_err());
        assert!(numbers("x").is_err());
    }
}
