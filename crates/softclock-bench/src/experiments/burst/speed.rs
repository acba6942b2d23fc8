//! `burst/speed`: the speed at which `softclock burst` reads captures, and the memory that it needs.
//!
//! The captures are generated while they are read and come through a pipe, as from tcpdump, so no disk takes part and
//! the reader cannot seek.

use std::error::Error;
use std::fs;
use std::io::{self, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use softclock_linux::child::end_with_parent;

use crate::command;
use crate::measure::turns::Turns;
use crate::output::metric::{self, Metric};
use crate::output::report::{Context, Experiment, Report, Takes};
use crate::servers::cpu_time;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "burst/speed",
    about: "packets a second of softclock burst, pcap and pcapng through a pipe, and its memory for 0.2 and 2 GB",
    takes: Takes::RoundsAndSubjects,
    run,
};

const TITLE: &str = "captures read from standard input";

fn run(context: &Context) -> Result<Report, Box<dyn Error>> {
    if let Err(reason) = command::softclock() {
        return Ok(Report::not_measured(TITLE, &reason.to_string()));
    }
    let plan = if context.smoke { &SMOKE } else { &FULL };
    let turns = Turns::new(context, plan.rounds, variants(plan), |of| of.name())?;
    let found = turns.measure(|variant| variant.sample())?;
    let variants = found.iter();
    let variants = variants.map(|(variant, samples)| (variant.name(), samples.iter().collect()));
    Ok(Report {
        title: TITLE,
        notes: NOTES.map(String::from).to_vec(),
        rows: metric::rows(&METRICS, "", variants),
        charts: Vec::new(),
    })
}

fn variants(plan: &Plan) -> Vec<Variant> {
    let of = |format| {
        let megabytes = plan.megabytes.into_iter();
        megabytes.map(move |megabytes| Variant { format, megabytes })
    };
    [Format::Pcap, Format::Pcapng]
        .into_iter()
        .flat_map(of)
        .collect()
}

/// A capture to read: its format and its size.
#[derive(Clone, Copy, Debug)]
struct Variant {
    format: Format,
    megabytes: u64,
}

/// The cost of reading one capture.
struct Sample {
    packets: f64,
    wall: Duration,
    processor: Duration,
    peak_kib: f64,
}

impl Variant {
    fn name(self) -> String {
        let name = match self.format {
            Format::Pcap => "pcap",
            Format::Pcapng => "pcapng",
        };
        format!("{name}, {} GB", self.megabytes as f64 / 1e3)
    }

    fn sample(self) -> io::Result<Sample> {
        let packets = self.megabytes * 1_000_000 / self.format.record_bytes() as u64;
        let begun = Instant::now();
        let mut command = Command::new(command::softclock()?);
        command.args(["burst", "-", "--rate", RATE, "--json"]);
        let mut child = end_with_parent(&mut command)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut stdin = child.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let written = self.format.write(&mut stdin, packets);
        // The reader has consumed everything but the contents of the pipe; its `/proc` entries disappear when it ends.
        let (processor, peak) = (cpu_time(child.id()), peak_kib(child.id()));
        drop(stdin);
        let output = child.wait_with_output()?;
        let wall = begun.elapsed();
        // Report a failed write only after the reader has been waited for.
        written?;
        let figures: Value = serde_json::from_slice(&output.stdout)?;
        // A reader that skips packets would seem fast.
        if figures["packets"] != packets {
            let read = &figures["packets"];
            return Err(io::Error::other(format!(
                "softclock burst read {read} of {packets} packets"
            )));
        }
        Ok(Sample {
            packets: packets as f64,
            wall,
            // The kernel counts in steps, so a short run can show no processor time at all: use one step then.
            processor: processor?.max(STEP),
            peak_kib: peak?,
        })
    }
}

/// The formats of captures, in little-endian order.
#[derive(Clone, Copy, Debug)]
enum Format {
    Pcap,
    Pcapng,
}

impl Format {
    fn header(self) -> Vec<u8> {
        match self {
            Self::Pcap => words(&[0xa1b2_3c4d, 0x0004_0002, 0, 0, KEPT_BYTES, ETHERNET]),
            Self::Pcapng => {
                // Section header: version 1.0, section length unknown.
                let section = [0x0a0d_0d0a, 28, 0x1a2b_3c4d, 1, u32::MAX, u32::MAX, 28];
                // Interface description with the one-byte option `if_tsresol` = 9: time stamps are in nanoseconds.
                let interface = [1, 28, ETHERNET, KEPT_BYTES, 0x0001_0009, 9, 28];
                words(&[section, interface].concat())
            }
        }
    }

    const fn record_bytes(self) -> usize {
        let around = match self {
            Self::Pcap => 16,
            Self::Pcapng => 32,
        };
        around + KEPT_BYTES as usize
    }

    /// Returns a packet record whose time stamp is 0; `stamp` sets it later.
    fn record(self, packet_bytes: u32) -> Vec<u8> {
        let length = self.record_bytes() as u32;
        let data = vec![0; KEPT_BYTES as usize];
        match self {
            Self::Pcap => [words(&[0, 0, KEPT_BYTES, packet_bytes]), data].concat(),
            Self::Pcapng => {
                let head = words(&[6, length, 0, 0, 0, KEPT_BYTES, packet_bytes]);
                [head, data, words(&[length])].concat()
            }
        }
    }

    fn stamp(self, record: &mut [u8], at_ns: u64) {
        let (place, first, second) = match self {
            Self::Pcap => (0, at_ns / 1_000_000_000, at_ns % 1_000_000_000),
            Self::Pcapng => (12, at_ns >> 32, at_ns & 0xffff_ffff),
        };
        record[place..place + 4].copy_from_slice(&(first as u32).to_le_bytes());
        record[place + 4..place + 8].copy_from_slice(&(second as u32).to_le_bytes());
    }

    fn write(self, to: &mut impl Write, packets: u64) -> io::Result<()> {
        to.write_all(&self.header())?;
        let bytes = self.record_bytes();
        let mut piece: Vec<u8> = (0..PIECE_PACKETS)
            .flat_map(|number| self.record(LENGTHS[number % LENGTHS.len()]))
            .collect();
        let mut number = 0;
        while number < packets {
            let count = PIECE_PACKETS.min((packets - number) as usize);
            let piece = &mut piece[..count * bytes];
            // Only the time stamps differ between pieces, so one buffer is reused.
            for record in piece.chunks_exact_mut(bytes) {
                self.stamp(record, BEGIN_NS + time_ns(number));
                number += 1;
            }
            to.write_all(piece)?;
        }
        Ok(())
    }
}

/// Returns the time of packet `number`: trains of 32 packets, as the segments of a TSO send leave a link.
const fn time_ns(number: u64) -> u64 {
    number / TRAIN * TRAIN * EACH_NS + number % TRAIN * IN_TRAIN_NS
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Returns the peak resident memory of a process (`VmHWM`).
fn peak_kib(id: u32) -> io::Result<f64> {
    let status = fs::read_to_string(format!("/proc/{id}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    kib.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

const METRICS: [Metric<Sample>; 3] = [
    ("packets a second of processor time", "million", |sample| {
        Some(sample.packets / sample.processor.as_secs_f64() / 1e6)
    }),
    (
        "packets a second of time, from another process",
        "million",
        |sample| Some(sample.packets / sample.wall.as_secs_f64() / 1e6),
    ),
    ("most memory that was resident", "MiB", |sample| {
        Some(sample.peak_kib / 1024.0)
    }),
];

struct Plan {
    megabytes: [u64; 2],
    rounds: usize,
}

const FULL: Plan = Plan {
    megabytes: [200, 2_000],
    rounds: 5,
};

const SMOKE: Plan = Plan {
    megabytes: [1, 10],
    rounds: 1,
};

/// The bytes kept of each packet, as with `tcpdump -s 96`.
const KEPT_BYTES: u32 = 96;
/// The link type of pcap, `LINKTYPE_ETHERNET`.
const ETHERNET: u32 = 1;
/// The lengths of the packets, which alternate: data and acknowledgements.
const LENGTHS: [u32; 2] = [1_500, 66];
const TRAIN: u64 = 32;
const IN_TRAIN_NS: u64 = 1_200;
const EACH_NS: u64 = 12_000;
/// The rate of the virtual bottleneck: above the mean rate and below the rate inside a train.
const RATE: &str = "600mbit";
/// The time of the first packet, in 2023.
const BEGIN_NS: u64 = 1_700_000_000_000_000_000;
const PIECE_PACKETS: usize = 2_048;
/// The step in which most kernels count processor time.
const STEP: Duration = Duration::from_millis(10);

const NOTES: [&str; 3] = [
    "packets of 1500 and 66 bytes in turn, 96 bytes kept of each, in trains of 32, at 522 Mbit/s before a bottleneck of 600; \
     made by this program and written to a pipe of 64 KB, which takes part of the other processor",
    "processor time is of the kernel's steps, mostly 10 ms: coarse for 0.2 GB; it holds what reading the pipe takes",
    "the target is 5 million packets a second, and as much memory for 2 GB as for 0.2 GB",
];

#[cfg(test)]
mod tests {
    use super::*;
    use softclock_wire::capture::{Decoded, Decoder};

    #[test]
    fn what_is_written_is_a_capture() {
        for format in [Format::Pcap, Format::Pcapng] {
            let mut capture = Vec::new();
            let packets = PIECE_PACKETS as u64 + 3;
            format.write(&mut capture, packets).unwrap();
            let (mut decoder, mut at, mut number) = (Decoder::new(), 0, 0);
            while at < capture.len() {
                at += match decoder.decode(&capture[at..]).unwrap() {
                    Decoded::Packet(packet, used) => {
                        let ns = packet.at.map(|at| at.as_ns());
                        assert_eq!(ns, Some(BEGIN_NS + time_ns(number)), "{format:?}");
                        assert_eq!(packet.original_bytes, LENGTHS[number as usize % 2]);
                        assert_eq!(packet.data.len(), KEPT_BYTES as usize);
                        assert_eq!(used, format.record_bytes());
                        number += 1;
                        used
                    }
                    Decoded::Other(used) => used,
                    Decoded::More(_) => panic!("cut off"),
                };
            }
            assert_eq!(number, packets, "{format:?}");
        }
    }
}
