//! One shaper under one load, and many of them in turn.

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

/// What is compared: who shapes what.
#[derive(Clone, Debug)]
pub struct Setup {
    /// In tables.
    pub name: String,
    /// Who shapes.
    pub shaper: Shaper,
    /// What is shaped.
    pub load: Load,
    /// Who segments.
    pub offload: Offload,
    /// Over what.
    pub line: Line,
}

/// What the sender leaves to the link below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offload {
    /// Nothing: TCP makes each segment.
    None,
    /// Segments are made below TCP and before the link (GSO).
    Stack,
    /// Joined segments go out on the link (TSO), and over virtual links to the bridge.
    Link,
    /// The same, but never more than seven segments: 64 KB of 9 KB each, as in the paper.
    LinkSeven,
}

/// The links on both sides of the shaper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    /// veth.
    Veth,
    /// The sender is the bridge's host, and sends on a TAP.
    Tap,
    /// Frames leave on a bond, over veth.
    Bond,
}

impl Line {
    /// The shaper's ports, as `softclock pace` calls them.
    pub(super) const fn ports(self) -> (&'static str, &'static str) {
        match self {
            Self::Veth => ("in0", "out0"),
            Self::Tap => ("tap:tap0", "out0"),
            Self::Bond => ("in0", "bond0"),
        }
    }
}

/// A load that goes through a shaper until this is dropped.
#[derive(Debug)]
pub struct Traffic {
    load: Running,
    shaped: Shaped,
    lab: Lab,
}

impl Setup {
    /// A load whose sender makes each segment itself.
    pub fn new(name: impl Into<String>, shaper: Shaper, load: Load) -> Self {
        Self {
            name: name.into(),
            shaper,
            load,
            offload: Offload::None,
            line: Line::Veth,
        }
    }

    /// The same with a sender that leaves more to the link.
    pub fn offload(self, offload: Offload) -> Self {
        Self { offload, ..self }
    }

    /// The same over other links.
    pub fn over(self, line: Line) -> Self {
        Self { line, ..self }
    }

    /// Builds a lab, and waits until the load arrives at its receiver.
    ///
    /// # Errors
    /// What is missing, or nothing arrives.
    pub fn start(&self) -> io::Result<Traffic> {
        let lab = Lab::new().map_err(io::Error::other)?;
        lab.offload(self.offload)?;
        lab.prepare(self.line)?;
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
                return Err(io::Error::other("nothing arrives"));
            }
            thread::sleep(LOOK_UP);
        }
        thread::sleep(SETTLE);
        Ok(())
    }

    /// What arrives in so long, and the processors that are busy meanwhile.
    ///
    /// # Errors
    /// The shaper has ended.
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

    /// The frames that arrive in so long, or in as much more as it takes to have some; those of the last moments are
    /// missing, as tcpdump takes many at a time.
    ///
    /// # Errors
    /// tcpdump's, and if hardly any arrive.
    pub fn capture(&self, during: Duration) -> io::Result<Frames> {
        let capture = Capture::start(&self.lab.receiver, "eth0")?;
        let begun = Instant::now();
        thread::sleep(during);
        until_enough(&capture, begun)?;
        capture.end()
    }

    /// How long datagrams of iperf3 that came to the bridge in so long, or as much more, were on the way from there to the
    /// receiver; those of the last moments are missing.
    ///
    /// # Errors
    /// tcpdump's, and if none arrive.
    pub fn passage(&self, during: Duration) -> io::Result<Passage> {
        let receiver = Capture::start(&self.lab.receiver, "eth0")?;
        let bridge = Capture::start(&self.lab.bridge, "in0")?;
        let begun = Instant::now();
        thread::sleep(during);
        until_enough(&bridge, begun)?;
        until_enough(&receiver, begun)?;
        let before = bridge.end_with_datagrams()?;
        let passage = Passage::between(&before, &receiver.end_with_datagrams()?);
        match passage.is_empty() {
            true => Err(io::Error::other("no datagram was seen at both ends")),
            false => Ok(passage),
        }
    }

    /// Lets so much time pass, and more on a crowded machine, until there is something to measure.
    fn pass(&self, during: Duration, frames_before: u64) -> io::Result<()> {
        let begun = Instant::now();
        thread::sleep(during);
        while self.lab.received()?.frames < frames_before + LEAST_FRAMES {
            if begun.elapsed() > PATIENCE {
                return Err(io::Error::other("hardly any frames arrive"));
            }
            thread::sleep(LOOK_UP);
        }
        Ok(())
    }

    /// Ends it; what the shaper says of itself, unless it is the kernel.
    ///
    /// # Errors
    /// It ended before.
    pub fn end(self) -> io::Result<Option<Summary>> {
        drop(self.load);
        self.shaped.end()
    }

    /// Ends it; the processors that others keep busy in so long after it.
    ///
    /// # Errors
    /// It ended before.
    pub fn end_and_others(self, during: Duration) -> io::Result<f64> {
        self.end()?;
        let before = Usage::now(None)?;
        thread::sleep(during);
        Ok(Usage::now(None)?.since(&before).machine)
    }
}

/// Waits until a capture that began then has some dozens of frames.
fn until_enough(capture: &Capture, begun: Instant) -> io::Result<()> {
    while !capture.has_enough()? {
        if begun.elapsed() > PATIENCE {
            return Err(io::Error::other("hardly any frames arrive"));
        }
        thread::sleep(LOOK_UP);
    }
    Ok(())
}

/// What arrives a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Flow {
    /// Bits of whole frames.
    pub bps: f64,
    /// Frames, joined ones counted once.
    pub frames: f64,
    /// Processors that are busy meanwhile.
    pub busy: Busy,
}

impl Flow {
    /// Bits of data of TCP.
    pub fn data_bps(&self) -> f64 {
        self.bps - self.frames * f64::from(TCP_HEADER_BYTES) * 8.0
    }
}

/// What each round found of each setup.
pub type Results<R> = Vec<(Setup, Vec<R>)>;

/// Measures each setup in each round, in turn, each time in a lab of its own; gives what each round found. A setup that does
/// not start in the first round is left out, and `notes` says why.
///
/// # Errors
/// What went wrong after that, or none started.
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
            // Whoever is first is another one each time.
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

/// Frames that show that the load has begun.
const BEGIN_FRAMES: u64 = 50;
/// Until slow start is over and buckets are empty.
const SETTLE: Duration = Duration::from_millis(300);
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK_UP: Duration = Duration::from_millis(5);
/// That are measured, if joined ones count once.
const LEAST_FRAMES: u64 = 50;
