//! What decides when frames leave: `softclock pace`, `softclock wan`, or a bridge of the kernel's with a queueing
//! discipline.

use std::fmt::Write;
use std::io::{self, BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use softclock_core::Rate;

use super::flows::FIRST_PORT;
use super::{FRAME_BYTES, Lab, Line};
use crate::command;

/// A way to shape. Rates are of whole frames, all classes together; with more than one, classes are told apart by port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shaper {
    /// A bridge of the kernel's that forwards.
    Forward,
    /// `softclock pace`.
    Pace(Pace),
    /// `softclock wan` with this delay each way.
    Wan(Duration),
    /// A bridge of the kernel's with HTB at its exit, and so many classes.
    Htb(Rate, u16),
    /// A bridge of the kernel's with TBF at its exit.
    Tbf(Rate),
}

/// `softclock pace`, as it is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// All classes together.
    pub rate: Rate,
    /// How many.
    pub classes: u16,
    /// More words for each class, such as `burst 64kb`.
    pub class: &'static str,
    /// More options, such as `--tolerance 1ms`.
    pub options: &'static str,
}

impl Pace {
    /// One class of this rate, with the defaults.
    pub const fn of_rate(rate: Rate) -> Self {
        Self {
            rate,
            classes: 1,
            class: "",
            options: "",
        }
    }
}

/// A shaper that carries frames until this is dropped.
#[derive(Debug)]
pub struct Shaped {
    program: Option<Program>,
}

/// `softclock pace` or `wan`.
#[derive(Debug)]
struct Program {
    child: Child,
    errors: BufReader<ChildStderr>,
}

impl Shaper {
    /// Starts it between the ports of a line; the kernel's only between those of veth.
    ///
    /// # Errors
    /// What is missing.
    pub fn start(self, lab: &Lab, line: Line) -> io::Result<Shaped> {
        match self {
            Self::Pace(pace) => Program::start(lab, line, "pace", pace.arguments()),
            Self::Wan(delay) => {
                let delay = format!("{}us", delay.as_micros());
                Program::start(lab, line, "wan", ["--delay".to_owned(), delay])
            }
            Self::Forward => forward(lab),
            Self::Htb(rate, classes) => {
                lab.bridge.batch("tc", &htb(rate, classes))?;
                forward(lab)
            }
            Self::Tbf(rate) => {
                let burst = tbf_burst_bytes(rate);
                let limit = u64::from(FRAME_BYTES) * QUEUE;
                let bps = rate.bps();
                lab.bridge.run(&format!(
                    "tc qdisc add dev out0 root tbf rate {bps}bit burst {burst} limit {limit}"
                ))?;
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
    /// A bridge of the command's between the ports of a line.
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
            child,
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
            if said[before..].contains("between ") {
                return Ok(());
            }
        }
    }
}

impl Shaped {
    /// The process that shapes, unless the kernel does.
    pub fn process(&self) -> Option<u32> {
        Some(self.program.as_ref()?.child.id())
    }

    /// Ends it; what it says of itself, unless the kernel shapes.
    ///
    /// # Errors
    /// It ended before, or says nothing.
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

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What `softclock pace` and `wan` say when they end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// How late the soft events of the load's direction were, in microseconds: p50, p99 and p99.9; `None` if there
    /// was none.
    pub lateness_us: Option<[f64; 3]>,
}

impl Summary {
    fn parse(text: &str) -> io::Result<Self> {
        let summary: Value = serde_json::from_str(text)?;
        let lateness = &summary["directions"][0]["lateness_ns"];
        let us = |name: &str| Some(lateness[name].as_f64()? / 1e3);
        let quantiles = || Some([us("p50")?, us("p99")?, us("p99.9")?]);
        Ok(Self {
            lateness_us: quantiles(),
        })
    }
}

/// A bridge of the kernel's between `in0` and `out0`.
fn forward(lab: &Lab) -> io::Result<Shaped> {
    lab.bridge.batch(
        "ip",
        "link add name br0 type bridge forward_delay 0 mcast_snooping 0\n\
         link set in0 master br0\nlink set out0 master br0\nlink set br0 up\n",
    )?;
    Ok(Shaped { program: None })
}

/// HTB with so many classes of equal rates, found through a table by the destination's port as fast as tc can.
fn htb(rate: Rate, classes: u16) -> String {
    let mut commands = "qdisc add dev out0 root handle 1: htb default 1\n".to_owned();
    let each = share(rate, classes).bps();
    let limit = limit(classes);
    for class in 1..=classes {
        let _ = write!(
            commands,
            "class add dev out0 parent 1: classid 1:{class:x} htb rate {each}bit quantum {FRAME_BYTES}\n\
             qdisc add dev out0 parent 1:{class:x} pfifo limit {limit}\n"
        );
    }
    if classes > 1 {
        commands.push_str(
            "filter add dev out0 parent 1: prio 1 handle 2: protocol ip u32 divisor 256\n\
             filter add dev out0 parent 1: prio 1 protocol ip u32 ht 800:: match u8 0 0 at 0 \
             hashkey mask 0x000000ff at 20 link 2:\n",
        );
    }
    for class in (1..=classes).filter(|_| classes > 1) {
        let port = FIRST_PORT + class - 1;
        let _ = writeln!(
            commands,
            "filter add dev out0 parent 1: prio 1 protocol ip u32 ht 2:{:x} \
             match u16 {port} 0xffff at 22 classid 1:{class:x}",
            port & 0xff
        );
    }
    commands
}

/// What TBF may send at once: a millisecond's worth, at least two frames.
fn tbf_burst_bytes(rate: Rate) -> u64 {
    (rate.bps() / 8_000).max(2 * u64::from(FRAME_BYTES))
}

fn share(rate: Rate, classes: u16) -> Rate {
    Rate::from_bps(rate.bps() / u64::from(classes)).expect("above the number of classes")
}

/// Packets that may wait in a class.
fn limit(classes: u16) -> u64 {
    (QUEUE / u64::from(classes)).max(LEAST_QUEUE)
}

/// Packets that wait in all classes together.
const QUEUE: u64 = 1000;
const LEAST_QUEUE: u64 = 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::mbit;

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
        let commands = htb(mbit(100), 2);
        assert!(commands.contains("classid 1:2 htb rate 50000000bit"));
        assert!(commands.contains("ht 2:21 match u16 20001 0xffff"));
        assert_eq!(htb(mbit(100), 1).lines().count(), 3);
    }

    #[test]
    fn a_summary_is_of_the_first_direction() {
        let text =
            r#"{"directions": [{"lateness_ns": {"p50": 500, "p99": 2000, "p99.9": 3000}}, {}]}"#;
        let summary = Summary::parse(text).unwrap();
        assert_eq!(summary.lateness_us, Some([0.5, 2.0, 3.0]));
        let summary = Summary::parse(r#"{"directions": []}"#).unwrap();
        assert_eq!(summary.lateness_us, None);
        assert!(Summary::parse("").is_err());
    }
}
