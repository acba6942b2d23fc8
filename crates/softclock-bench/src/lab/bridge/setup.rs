//! One shaper under one load, and the measurement of many in turn.

use std::error::Error;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use super::load::Running;
use super::usage::Busy;
use super::{
    Capture, Frames, Lab, Load, Passage, Received, Shaped, Shaper, Summary, TCP_HEADER_BYTES, Usage,
};
use crate::output::report::Context;

/// A variant of an experiment: a shaper under a load.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The name in tables.
    pub name: String,
    /// The shaper under test.
    pub shaper: Shaper,
    /// The load.
    pub load: Load,
    /// The part of the stack that segments.
    pub offload: Offload,
    /// The kind of links.
    pub line: Line,
}

/// The amount of segmentation that the sender leaves to the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offload {
    /// None: TCP makes each segment.
    None,
    /// Segments are made below TCP and above the link (GSO).
    Stack,
    /// Joined segments leave on the link (TSO), and reach the bridge over virtual links.
    Link,
    /// Likewise with at most seven segments: as in the paper, where 64 KB hold seven of 9 KB.
    LinkSeven,
}

/// The links on both sides of the shaper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    /// veth on both sides.
    Veth,
    /// The bridge's host itself sends, on a TAP device.
    Tap,
    /// Frames leave on a bond over veth.
    Bond,
}

impl Line {
    /// Returns the shaper's ports, in the notation of `softclock pace`.
    pub(super) const fn ports(self) -> (&'static str, &'static str) {
        match self {
            Self::Veth => ("in0", "out0"),
            Self::Tap => ("tap:tap0", "out0"),
            Self::Bond => ("in0", "bond0"),
        }
    }
}

/// A load that runs through a shaper until this is dropped.
#[derive(Debug)]
pub struct Traffic {
    load: Running,
    shaped: Shaped,
    lab: Lab,
}

impl Setup {
    /// Creates a setup over veth whose sender makes each segment itself.
    pub fn new(name: impl Into<String>, shaper: Shaper, load: Load) -> Self {
        Self {
            name: name.into(),
            shaper,
            load,
            offload: Offload::None,
            line: Line::Veth,
        }
    }

    /// Returns the same setup with another amount of segmentation offload.
    pub fn offload(self, offload: Offload) -> Self {
        Self { offload, ..self }
    }

    /// Returns the same setup over other links.
    pub fn over(self, line: Line) -> Self {
        Self { line, ..self }
    }

    /// Builds a lab, and waits until the load arrives at its receiver.
    ///
    /// # Errors
    /// A requirement is missing, or nothing arrives.
    pub fn start(&self) -> io::Result<Traffic> {
        let lab = Lab::new().map_err(io::Error::other)?;
        lab.offload(self.offload)?;
        lab.prepare(self.line)?;
        // The shaper first: it creates the TAP device on which the load may send.
        let shaped = self.shaper.start(&lab, self.line)?;
        let load = self.load.start(lab.host(self.line)?, &lab)?;
        let mut traffic = Traffic { load, shaped, lab };
        traffic.wait()?;
        Ok(traffic)
    }
}

impl Traffic {
    fn wait(&mut self) -> io::Result<()> {
        let begun = Instant::now();
        while self.lab.received()?.frames < BEGIN_FRAMES {
            if let Some(said) = self.load.complaint() {
                return Err(io::Error::other(format!("the load ended: {said}")));
            }
            if begun.elapsed() > PATIENCE {
                return Err(io::Error::other("no frames arrive at the receiver"));
            }
            thread::sleep(LOOK_UP);
        }
        thread::sleep(SETTLE);
        Ok(())
    }

    /// Measures the frames that arrive in `during`, and the processors that are busy meanwhile.
    ///
    /// # Errors
    /// The shaper has ended, or hardly any frames arrive.
    pub fn measure(&self, during: Duration) -> io::Result<Flow> {
        let look = || -> io::Result<(Received, Usage)> {
            Ok((self.lab.received()?, Usage::now(self.shaped.process())?))
        };
        let (before, begun) = look()?;
        self.pass(during, before.frames)?;
        let (after, ended) = look()?;
        let seconds = ended.seconds_since(&begun);
        Ok(Flow {
            bps: (after.bytes - before.bytes) as f64 * 8.0 / seconds,
            frames: (after.frames - before.frames) as f64 / seconds,
            busy: ended.since(&begun),
        })
    }

    /// Captures the frames that arrive in `during`, or longer until there are enough. The last moments are missing,
    /// because tcpdump takes many frames at a time.
    ///
    /// # Errors
    /// tcpdump fails, or hardly any frames arrive.
    pub fn capture(&self, during: Duration) -> io::Result<Frames> {
        let capture = Capture::start(&self.lab.receiver, "eth0")?;
        let begun = Instant::now();
        thread::sleep(during);
        until_enough(&capture, begun)?;
        capture.end()
    }

    /// Measures the times that iperf3's datagrams take from the bridge to the receiver, for `during` or longer until
    /// there are enough. The last moments are missing.
    ///
    /// # Errors
    /// tcpdump fails, or no datagrams arrive.
    pub fn passage(&self, during: Duration) -> io::Result<Passage> {
        // The receiver's capture starts first and ends last, so that a datagram in the bridge's capture is not missing
        // by chance.
        let receiver = Capture::start(&self.lab.receiver, "eth0")?;
        let bridge = Capture::start(&self.lab.bridge, "in0")?;
        let begun = Instant::now();
        thread::sleep(during);
        until_enough(&bridge, begun)?;
        until_enough(&receiver, begun)?;
        let before = bridge.end_with_datagrams()?;
        let passage = Passage::between(&before, &receiver.end_with_datagrams()?);
        match passage.is_empty() {
            true => Err(io::Error::other(
                "no datagram is in the captures of both ends",
            )),
            false => Ok(passage),
        }
    }

    /// Waits for `during`, and longer on a busy machine, until enough frames have arrived.
    fn pass(&self, during: Duration, frames_before: u64) -> io::Result<()> {
        let begun = Instant::now();
        thread::sleep(during);
        while self.lab.received()?.frames < frames_before + LEAST_FRAMES {
            if begun.elapsed() > PATIENCE {
                return Err(io::Error::other("too few frames arrive at the receiver"));
            }
            thread::sleep(LOOK_UP);
        }
        Ok(())
    }

    /// Ends the load; returns the shaper's own summary, or `None` if the kernel shapes.
    ///
    /// # Errors
    /// The shaper had ended before.
    pub fn end(self) -> io::Result<Option<Summary>> {
        drop(self.load);
        self.shaped.end()
    }

    /// Ends the load; returns the busy processors of other work, measured over the time `during` after it.
    ///
    /// # Errors
    /// The shaper had ended before.
    pub fn end_and_others(self, during: Duration) -> io::Result<f64> {
        self.end()?;
        let before = Usage::now(None)?;
        thread::sleep(during);
        Ok(Usage::now(None)?.since(&before).machine)
    }
}

/// Waits until a capture that began at `begun` has some dozens of frames.
fn until_enough(capture: &Capture, begun: Instant) -> io::Result<()> {
    while !capture.has_enough()? {
        if begun.elapsed() > PATIENCE {
            return Err(io::Error::other("too few frames arrive at the receiver"));
        }
        thread::sleep(LOOK_UP);
    }
    Ok(())
}

/// Rates of arrival, per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Flow {
    /// Bits of whole frames.
    pub bps: f64,
    /// Frames; a joined segment counts once.
    pub frames: f64,
    /// The processors that were busy meanwhile.
    pub busy: Busy,
}

impl Flow {
    /// Returns the bits of TCP data per second.
    pub fn data_bps(&self) -> f64 {
        self.bps - self.frames * f64::from(TCP_HEADER_BYTES) * 8.0
    }
}

/// The results of each setup, one per round.
pub type Results<R> = Vec<(Setup, Vec<R>)>;

/// Measures each setup in each round, in turn, each time in a new lab; returns the results of all rounds. A setup that
/// does not start in the first round is left out, and `notes` has the reason.
///
/// # Errors
/// A later failure, or no setup started.
pub fn rounds<R>(
    context: &Context,
    setups: &[Setup],
    rounds: usize,
    notes: &mut Vec<String>,
    mut measure: impl FnMut(&Setup, Traffic) -> io::Result<R>,
) -> Result<Results<R>, Box<dyn Error>> {
    let mut results: Results<R> = setups
        .iter()
        .map(|setup| (setup.clone(), Vec::new()))
        .collect();
    let total = rounds * results.len();
    let mut done = 0;
    for round in 0..rounds {
        let mut missing = Vec::new();
        for turn in 0..results.len() {
            // Rotate the order, so that no setup always runs first.
            let index = (round + turn) % results.len();
            let (setup, found) = &mut results[index];
            let measured = context.round(done, total, &setup.name, || {
                setup.start().map(|traffic| measure(setup, traffic))
            });
            done += 1;
            match measured {
                Ok(measured) => {
                    found.push(measured.map_err(|error| format!("{}: {error}", setup.name))?);
                }
                // In the first round a failure means that this machine lacks a requirement.
                Err(error) if round == 0 => {
                    notes.push(format!("{} is not measured: {error}", setup.name));
                    missing.push(setup.name.clone());
                }
                Err(error) => return Err(format!("{}: {error}", setup.name).into()),
            }
        }
        results.retain(|(setup, _)| !missing.contains(&setup.name));
    }
    context.progress(total, total, "");
    match results.is_empty() {
        true => Err(notes.join("; ").into()),
        false => Ok(results),
    }
}

/// Frames that show that the load has started.
const BEGIN_FRAMES: u64 = 50;
/// The time for slow start to end and buckets to empty.
const SETTLE: Duration = Duration::from_millis(300);
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK_UP: Duration = Duration::from_millis(5);
/// The least number of frames in a measurement; a joined segment counts once.
const LEAST_FRAMES: u64 = 50;
