//! Bulk transfers by QUIC over a bottleneck: a sender and a receiver in namespaces, and `softclock wan` between them.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Lines};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{ChildStdout, Stdio};
use std::thread;
use std::time::Duration;

use softclock_core::Rate;
use softclock_testing::KilledOnDrop;

use crate::lab::bridge::{Host, Lab, Line, Offload, Path, SENDER, Shaper, Summary};
use crate::measure::processors::Processors;
use crate::peers::quic::{Identity, Paced, Program, Request, Sender, receiver};
use crate::servers::{Certificate, run_time};

/// A bottleneck on the way from the sender to the receiver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bottleneck {
    /// Its rate, of whole frames.
    pub rate: Rate,
    /// The round trip when its queue is empty.
    pub round_trip: Duration,
    /// The packets for which it has room, with the one that it sends.
    pub queue: u64,
}

/// The parts of transfers that stay the same.
#[derive(Debug)]
pub struct Setup {
    certificate: Certificate,
    processors: Processors,
    /// The senders in programs of their own.
    pub programs: Vec<(Sender, Program)>,
}

/// The result of a transfer.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    /// The bytes that the receiver's program got.
    pub bytes: u64,
    /// The time of the transfer.
    pub elapsed: Duration,
    /// The counts of the bottleneck.
    pub path: Summary,
    /// The packets that the sender itself counted as lost, if it prints them.
    pub own_lost: Option<u64>,
    /// The processor time of the sender.
    pub ran: Duration,
}

impl Setup {
    /// Makes a certificate.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            certificate: Certificate::new()?,
            processors: Processors::detect(),
            programs: Vec::new(),
        })
    }

    /// Transfers once in a new lab, from the receiver's request on.
    ///
    /// # Errors
    /// The lab cannot be created, or one of the processes fails.
    pub fn transfer(
        &self,
        sender: Sender,
        bottleneck: Bottleneck,
        paced: Paced,
        request: Request,
    ) -> io::Result<Transfer> {
        let lab = Lab::new().map_err(io::Error::other)?;
        lab.offload(Offload::None)?;
        let path = Path {
            rate: bottleneck.rate,
            delay: bottleneck.round_trip / 2,
            queues: [bottleneck.queue, MOST_QUEUE],
            loss: "0%",
            reorder: "0%",
            seed: 1,
        };
        let start = || Shaper::Path(path).start(&lab, Line::Veth);
        let shaped = self.processors.on(self.processors.clients, start)?;
        let identity = Identity {
            address: SocketAddr::new(SENDER.parse().map_err(io::Error::other)?, PORT),
            certificate: &self.certificate,
        };
        let words = sender.words(identity, paced, &self.programs)?;
        let start = || Process::start(&lab.sender, words);
        let mut process = self.processors.on(self.processors.server, start)?;
        process.line()?;
        let before = process.run_time()?;
        let words = receiver(identity, request)?;
        let start = || Process::start(&lab.receiver, words);
        let mut received = self.processors.on(self.processors.clients, start)?;
        let line = received.line()?;
        // The end of the connection is on its way.
        thread::sleep(bottleneck.round_trip + SCHEDULING);
        let after = process.run_time()?;
        let summary = shaped.end()?;
        Ok(Transfer {
            bytes: line.trim().parse().map_err(io::Error::other)?,
            elapsed: request.during,
            path: summary.ok_or(io::ErrorKind::NotFound)?,
            own_lost: process.end()?,
            ran: after.saturating_sub(before),
        })
    }
}

/// A process that prints lines.
#[derive(Debug)]
struct Process {
    child: KilledOnDrop,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Process {
    fn start(host: &Host, (program, arguments): (PathBuf, Vec<OsString>)) -> io::Result<Self> {
        let mut command = host.command(&program.to_string_lossy());
        command.args(arguments).stdout(Stdio::piped());
        let mut child = KilledOnDrop::new(command.spawn()?);
        let output = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let lines = BufReader::new(output).lines();
        Ok(Self { child, lines })
    }

    /// Returns the next line.
    fn line(&mut self) -> io::Result<String> {
        let ended = || io::Error::other("the process has ended; its complaint is above");
        self.lines.next().unwrap_or_else(|| Err(ended()))
    }

    fn run_time(&self) -> io::Result<Duration> {
        run_time(self.child.id())
    }

    /// Ends the process; returns the number that it printed since the last line.
    fn end(mut self) -> io::Result<Option<u64>> {
        self.child.kill()?;
        let line = self.lines.next().transpose()?;
        Ok(line.and_then(|line| line.trim().parse().ok()))
    }
}

const PORT: u16 = 4433;

/// The room for acknowledgments on the way back.
const MOST_QUEUE: u64 = 10_000;

/// More than a process of a busy machine waits for its processor.
const SCHEDULING: Duration = Duration::from_millis(100);
