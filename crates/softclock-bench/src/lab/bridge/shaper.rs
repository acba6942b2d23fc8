//! The mechanisms that decide when frames leave: `softclock pace`, `softclock wan`, or the kernel's bridge with a
//! queueing discipline.

use std::fmt::Write;
use std::io::{self, BufRead, BufReader, Read};
use std::process::{ChildStderr, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use softclock_core::Rate;
use softclock_testing::KilledOnDrop;

use super::disciplines::{self, Htb};
use super::flows::FIRST_PORT;
use super::{Lab, Line};
use crate::command;

/// A shaper and its settings. Rates count whole frames of all classes together. Ports distinguish the classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shaper {
    /// The kernel's bridge without shaping.
    Forward,
    /// `softclock pace`.
    Pace(Pace),
    /// `softclock wan` with this delay in each direction.
    Wan(Duration),
    /// `softclock wan` as a long path with losses.
    Path(Path),
    /// The kernel's bridge with HTB at its exit.
    Htb(Htb),
    /// The kernel's bridge with TBF at its exit: the rate, and optionally the peak rate, with which TBF cuts joined
    /// segments into frames.
    Tbf(Rate, Option<Rate>),
    /// The kernel's bridge with netem of this delay at both exits.
    Netem(Duration),
}

/// The settings of `softclock pace`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// The rate of all classes together.
    pub rate: Rate,
    /// The number of classes.
    pub classes: u16,
    /// Further settings of each class, such as `burst 64kb`.
    pub class: &'static str,
    /// Further options, such as `--tolerance 1ms`.
    pub options: &'static str,
}

impl Pace {
    /// Returns one class of this rate, with the defaults.
    pub const fn of_rate(rate: Rate) -> Self {
        Self {
            rate,
            classes: 1,
            class: "",
            options: "",
        }
    }
}

/// The settings of `softclock wan` for a path from the sender to the receiver. Losses and reordering are those of this
/// direction only.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Path {
    /// The rate of the bottleneck, in each direction.
    pub rate: Rate,
    /// The delay of each direction.
    pub delay: Duration,
    /// The packets for which the bottleneck has room, from the sender to the receiver and back.
    pub queues: [u64; 2],
    /// The share of packets that are lost, such as `0.1%`.
    pub loss: &'static str,
    /// The share of packets that skip the delay.
    pub reorder: &'static str,
    /// The seed of the random decisions.
    pub seed: u64,
}

impl Path {
    fn arguments(&self) -> Vec<String> {
        let Self {
            rate,
            queues: [there, back],
            seed,
            ..
        } = self;
        let words = format!(
            "--rate {rate} --delay {}us --queue {there},{back} --loss {},0% --reorder {},0% --seed {seed}",
            self.delay.as_micros(),
            self.loss,
            self.reorder
        );
        words.split(' ').map(str::to_owned).collect()
    }
}

/// A running shaper. It ends when it is dropped.
#[derive(Debug)]
pub struct Shaped {
    program: Option<Program>,
}

/// A process of `softclock pace` or `wan`.
#[derive(Debug)]
struct Program {
    child: KilledOnDrop,
    errors: BufReader<ChildStderr>,
}

impl Shaper {
    /// Starts the shaper between the ports of a line. The kernel's shapers support veth only.
    ///
    /// # Errors
    /// A requirement is missing.
    pub fn start(self, lab: &Lab, line: Line) -> io::Result<Shaped> {
        match self {
            Self::Pace(pace) => Program::start(lab, line, "pace", pace.arguments()),
            Self::Wan(delay) => {
                let delay = format!("{}us", delay.as_micros());
                Program::start(lab, line, "wan", ["--delay".to_owned(), delay])
            }
            Self::Path(path) => Program::start(lab, line, "wan", path.arguments()),
            Self::Forward => forward(lab),
            Self::Htb(htb) => {
                lab.bridge.batch("tc", &htb.commands())?;
                forward(lab)
            }
            Self::Tbf(rate, peak) => {
                lab.bridge.run(&disciplines::tbf(rate, peak))?;
                forward(lab)
            }
            Self::Netem(delay) => {
                lab.bridge.batch("tc", &disciplines::netem(delay))?;
                forward(lab)
            }
        }
    }
}

impl Pace {
    fn arguments(&self) -> impl Iterator<Item = String> + '_ {
        let options = self.options.split_whitespace().map(str::to_owned);
        let classes = self.classes();
        options.chain(classes.flat_map(|class| ["--class-ab".to_owned(), class]))
    }

    fn classes(&self) -> impl Iterator<Item = String> + '_ {
        let rate = share(self.rate, self.classes);
        let limit = limit(self.classes);
        (0..self.classes).map(move |class| {
            let mut words = format!("rate {rate} limit {limit}");
            if self.classes > 1 {
                let _ = write!(words, " dport {}", FIRST_PORT + class);
            }
            format!("{words} {}", self.class).trim_end().to_owned()
        })
    }
}

impl Program {
    /// Starts a bridging command of softclock between the ports of a line.
    fn start(
        lab: &Lab,
        line: Line,
        name: &str,
        arguments: impl IntoIterator<Item = String>,
    ) -> io::Result<Shaped> {
        let program = command::softclock()?;
        let (from, to) = line.ports();
        let mut command = lab.bridge.command(&program.to_string_lossy());
        command.args([name, from, to, "--json"]).args(arguments);
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let errors = child.stderr.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let mut program = Self {
            child: KilledOnDrop::new(child),
            errors: BufReader::new(errors),
        };
        program.wait_for_begin()?;
        Ok(Shaped {
            program: Some(program),
        })
    }

    fn wait_for_begin(&mut self) -> io::Result<()> {
        let mut said = String::new();
        loop {
            let before = said.len();
            if self.errors.read_line(&mut said)? == 0 {
                let line = said.lines().last().unwrap_or("it ended").to_owned();
                return Err(io::Error::other(line));
            }
            // The command prints its ports when it forwards.
            if said[before..].contains("between ") {
                return Ok(());
            }
        }
    }
}

impl Shaped {
    /// Returns the id of the process that shapes, or `None` if the kernel does.
    pub fn process(&self) -> Option<u32> {
        Some(self.program.as_ref()?.child.id())
    }

    /// Ends the shaper; returns its summary, or `None` if the kernel shapes.
    ///
    /// # Errors
    /// The shaper had ended before, or prints no summary.
    pub fn end(mut self) -> io::Result<Option<Summary>> {
        let Some(program) = &mut self.program else {
            return Ok(None);
        };
        kill_process(Pid::from_child(&program.child), Signal::TERM)?;
        let mut text = String::new();
        if let Some(output) = &mut program.child.stdout {
            output.read_to_string(&mut text)?;
        }
        Summary::parse(&text).map(Some)
    }
}

/// The summary that `softclock pace` and `wan` print at their end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Lateness of the soft events in the load's direction, in microseconds: p50, p99 and p99.9; `None` if there were
    /// no events.
    pub lateness_us: Option<[f64; 3]>,
    /// Packets in the load's direction that left.
    pub sent: u64,
    /// Packets in the load's direction that a full queue of the bottleneck dropped.
    pub queue_full: u64,
    /// Packets in both directions that were lost otherwise, as where the bridge did not take them in time.
    pub lost_otherwise: u64,
}

impl Summary {
    fn parse(text: &str) -> io::Result<Self> {
        let summary: Value = serde_json::from_str(text)?;
        let lateness = &summary["directions"][0]["lateness_ns"];
        let us = |name: &str| Some(lateness[name].as_f64()? / 1e3);
        let quantiles = || Some([us("p50")?, us("p99")?, us("p99.9")?]);
        let class = &summary["directions"][0]["classes"][0];
        let number = |value: &Value| value.as_u64().unwrap_or(0);
        Ok(Self {
            lateness_us: quantiles(),
            sent: number(&class["packets"]),
            queue_full: number(&class["events"]["dropped by a full queue"]),
            lost_otherwise: [0, 1]
                .map(|index| lost(&summary["directions"][index]))
                .iter()
                .sum(),
        })
    }
}

/// Returns the packets of a direction that were lost at its port, or for lack of memory.
fn lost(direction: &Value) -> u64 {
    let at_port = direction["port_drops"].as_object().into_iter();
    let at_port = at_port.flat_map(|counts| counts.values());
    let memory = &direction["classes"][0]["events"]["dropped for too many bytes on the way"];
    at_port.chain([memory]).filter_map(Value::as_u64).sum()
}

/// Starts the kernel's bridge between `in0` and `out0`.
fn forward(lab: &Lab) -> io::Result<Shaped> {
    lab.bridge.batch(
        "ip",
        "link add name br0 type bridge forward_delay 0 mcast_snooping 0\n\
         link set in0 master br0\nlink set out0 master br0\nlink set br0 up\n",
    )?;
    Ok(Shaped { program: None })
}

pub(super) fn share(rate: Rate, classes: u16) -> Rate {
    Rate::from_bps(rate.bps() / u64::from(classes)).expect("above the number of classes")
}

/// Returns the number of packets that may wait in a class.
pub(super) fn limit(classes: u16) -> u64 {
    (QUEUE / u64::from(classes)).max(LEAST_QUEUE)
}

/// The number of packets that may wait in all classes together.
pub(super) const QUEUE: u64 = 1000;
const LEAST_QUEUE: u64 = 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::bridge::mbit;

    #[test]
    fn classes_share_the_rate() {
        let one: Vec<String> = Pace::of_rate(mbit(100)).classes().collect();
        assert_eq!(one, ["rate 100mbit limit 1000"]);
        let two = Pace {
            classes: 2,
            class: "burst 64kb",
            ..Pace::of_rate(mbit(100))
        };
        let two: Vec<String> = two.classes().collect();
        assert_eq!(two[1], "rate 50mbit limit 500 dport 20001 burst 64kb");
    }

    #[test]
    fn a_path_loses_in_one_direction() {
        let path = Path {
            rate: mbit(100),
            delay: Duration::from_millis(5),
            queues: [84, 1000],
            loss: "0.1%",
            reorder: "0%",
            seed: 7,
        };
        let expected =
            "--rate 100mbit --delay 5000us --queue 84,1000 --loss 0.1%,0% --reorder 0%,0% --seed 7";
        assert_eq!(path.arguments().join(" "), expected);
    }

    #[test]
    fn a_summary_is_of_the_first_direction() {
        let text = r#"{"directions": [{
            "lateness_ns": {"p50": 500, "p99": 2000, "p99.9": 3000},
            "classes": [{"packets": 7, "events": {"dropped by a full queue": 2}}],
            "port_drops": {"not taken in time": 3}
        }, {"port_drops": {"link down": 1}}]}"#;
        let summary = Summary::parse(text).unwrap();
        assert_eq!(summary.lateness_us, Some([0.5, 2.0, 3.0]));
        assert_eq!(summary.sent, 7);
        assert_eq!((summary.queue_full, summary.lost_otherwise), (2, 4));
        let summary = Summary::parse(r#"{"directions": []}"#).unwrap();
        assert_eq!(summary.lateness_us, None);
        assert!(Summary::parse("").is_err());
    }
}
