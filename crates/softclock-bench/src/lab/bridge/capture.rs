//! Frames that arrive at a link, with the kernel's time stamps: tcpdump captures them, [`Burstiness`] analyses them.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::process::{ChildStderr, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use softclock_core::{Histogram, Instant, Rate};
use softclock_testing::KilledOnDrop;
use softclock_wire::Burstiness;
use softclock_wire::burstiness::Options;
use softclock_wire::capture::{Decoded, Decoder, Packet};
use tempfile::NamedTempFile;

use super::{Datagrams, FRAME_BYTES, Host, TCP_DATA_BYTES, TCP_HEADER_BYTES};

/// A running capture. It ends when it is dropped.
#[derive(Debug)]
pub struct Capture {
    tcpdump: KilledOnDrop,
    errors: BufReader<ChildStderr>,
    file: NamedTempFile,
}

impl Capture {
    /// Starts to capture the frames that a link receives; returns when tcpdump listens.
    ///
    /// # Errors
    /// tcpdump does not start.
    pub fn start(host: &Host, link: &str) -> io::Result<Self> {
        let file = NamedTempFile::new()?;
        let mut command = host.command("tcpdump");
        command.args(["-i", link]).args(ARGUMENTS.split(' '));
        command.stdout(File::create(file.path())?);
        let mut tcpdump = command.stderr(Stdio::piped()).spawn()?;
        let errors = tcpdump.stderr.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let mut capture = Self {
            tcpdump: KilledOnDrop::new(tcpdump),
            errors: BufReader::new(errors),
            file,
        };
        let mut line = String::new();
        // tcpdump prints this line when it captures; earlier frames would be missing.
        while !line.contains("listening on") {
            line.clear();
            if capture.errors.read_line(&mut line)? == 0 {
                return Err(io::Error::other("tcpdump ended before it listened"));
            }
        }
        Ok(capture)
    }

    /// Returns whether tcpdump has written some dozens of frames.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn has_enough(&self) -> io::Result<bool> {
        Ok(self.file.as_file().metadata()?.len() >= ENOUGH_BYTES)
    }

    /// Ends the capture; returns its frames.
    ///
    /// # Errors
    /// The capture cannot be read.
    pub fn end(self) -> io::Result<Frames> {
        let (capture, lost) = self.finish()?;
        let mut frames = Frames::decode(&capture)?;
        frames.lost = lost;
        Ok(frames)
    }

    /// Ends the capture; returns the datagrams of iperf3 in it.
    ///
    /// # Errors
    /// The capture cannot be read.
    pub fn end_with_datagrams(self) -> io::Result<Datagrams> {
        let (capture, lost) = self.finish()?;
        let mut datagrams = Datagrams::decode(&capture)?;
        datagrams.uncaptured = lost;
        Ok(datagrams)
    }

    /// Ends tcpdump; returns the capture file and the number of frames that tcpdump lost.
    fn finish(mut self) -> io::Result<(Vec<u8>, u64)> {
        // SIGINT makes tcpdump write its buffer and its counts.
        kill_process(Pid::from_child(&self.tcpdump), Signal::INT)?;
        let mut said = String::new();
        self.errors.read_to_string(&mut said)?;
        self.tcpdump.wait()?;
        Ok((fs::read(self.file.path())?, lost(&said)))
    }
}

/// Full frames or segments in the order of their arrival, each with its time.
#[derive(Debug, Default)]
pub struct Frames {
    frames: Vec<(Instant, u32)>,
    /// Frames that tcpdump did not take from the kernel in time.
    pub lost: u64,
}

impl Frames {
    fn decode(capture: &[u8]) -> io::Result<Self> {
        let mut frames = Self::default();
        each_packet(capture, |at, packet| {
            frames.add(at, packet.original_bytes);
        })?;
        Ok(frames)
    }

    /// Adds a frame. A joined segment counts as the frames that a line would carry, all with the same time.
    fn add(&mut self, at: Instant, bytes: u32) {
        let mut left = bytes;
        while left > FRAME_BYTES {
            self.frames.push((at, FRAME_BYTES));
            left -= TCP_DATA_BYTES;
        }
        if left > TCP_HEADER_BYTES {
            self.frames.push((at, left));
        }
    }

    /// Returns the number of frames.
    pub fn count(&self) -> usize {
        self.frames.len()
    }

    /// Returns the bits per second from the first frame to the last, or `None` for fewer than two frames.
    pub fn bps(&self) -> Option<f64> {
        let (first, last) = (self.frames.first()?, self.frames.last()?);
        let bytes: u64 = self.frames[1..]
            .iter()
            .map(|(_, bytes)| u64::from(*bytes))
            .sum();
        let seconds = last.0.since(first.0).as_secs_f64();
        (seconds > 0.0).then(|| bytes as f64 * 8.0 / seconds)
    }

    /// Returns the target, or the mean rate if that is higher. Otherwise a rate above the target would count as one
    /// long burst, and so would the frames after a pause of the load.
    fn rate(&self, target: Rate) -> Rate {
        let mean = self.bps().and_then(|bps| Rate::from_bps(bps.ceil() as u64));
        mean.map_or(target, |mean| mean.max(target))
    }

    /// Analyses the bursts, with a virtual bottleneck of the target rate, or of the mean rate if that is higher.
    pub fn burstiness(&self, target: Rate) -> Burstiness {
        let options = Options {
            rate: Some(self.rate(target)),
            line: None,
            train_gap: TRAIN_GAP,
            windows: vec![WINDOW],
        };
        let mut burstiness = Burstiness::new(&options);
        for &(at, bytes) in &self.frames {
            burstiness.on_packet(at, bytes);
        }
        burstiness
    }

    /// Returns the lateness of each frame against a byte clock of the same rate, which the earliest frame in each 10 ms
    /// sets anew.
    pub fn lateness(&self, target: Rate) -> Histogram {
        let mut lateness = Histogram::new();
        let Some(&(begin, _)) = self.frames.first() else {
            return lateness;
        };
        let bps = self.rate(target).bps() as f64;
        let windows = self
            .frames
            .chunk_by(|a, b| a.0.ns_since(begin) / CLOCK_NS == b.0.ns_since(begin) / CLOCK_NS);
        for window in windows {
            let mut bytes = 0;
            let against_clock: Vec<f64> = window
                .iter()
                .map(|&(at, frame)| {
                    bytes += u64::from(frame);
                    at.ns_since(begin) as f64 - bytes as f64 * 8e9 / bps
                })
                .collect();
            // The earliest frame of a window is on time by definition.
            let earliest = against_clock.iter().copied().fold(f64::INFINITY, f64::min);
            for time in against_clock {
                lateness.record((time - earliest) as u64);
            }
        }
        lateness
    }
}

/// Calls `on_packet` for each packet of a capture that has a time stamp.
pub(super) fn each_packet(
    capture: &[u8],
    mut on_packet: impl FnMut(Instant, &Packet<'_>),
) -> io::Result<()> {
    let mut decoder = Decoder::new();
    let mut at = 0;
    loop {
        let decoded = decoder.decode(&capture[at..]).map_err(io::Error::other)?;
        at += match decoded {
            Decoded::Packet(packet, used) => {
                if let Some(time) = packet.at {
                    on_packet(time, &packet);
                }
                used
            }
            Decoded::Other(used) => used,
            Decoded::More(_) => return Ok(()),
        };
    }
}

/// Parses tcpdump's closing lines, for example "0 packets dropped by kernel".
fn lost(said: &str) -> u64 {
    let line = said.lines().find(|line| line.contains("dropped by kernel"));
    let count = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    count.unwrap_or(0)
}

/// tcpdump's arguments: only frames with much data, since acknowledgements and control messages are small.
const ARGUMENTS: &str = "-Q in -s 96 -B 65536 --time-stamp-precision=nano -Z root -w - greater 600";

/// The size of a capture with enough frames: more than tcpdump buffers before it writes.
const ENOUGH_BYTES: u64 = 8 << 10;
/// The gap below which frames belong to one train.
const TRAIN_GAP: Duration = Duration::from_micros(10);
/// The length of the windows in which peaks are found.
const WINDOW: Duration = Duration::from_millis(1);
/// The time after which a byte clock is set anew.
const CLOCK_NS: u64 = 10_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::bridge::mbit;

    fn frames(each_us: &[u64]) -> Frames {
        let mut frames = Frames::default();
        for at in each_us {
            frames.add(Instant::from_ns(at * 1_000), FRAME_BYTES);
        }
        frames
    }

    #[test]
    fn joined_segments_come_at_once() {
        let mut joined = Frames::default();
        joined.add(Instant::ORIGIN, 14 + 52 + 2 * 1434 + 10);
        let lengths: Vec<u32> = joined.frames.iter().map(|(_, bytes)| *bytes).collect();
        assert_eq!(lengths, [1500, 1500, 76]);
    }

    #[test]
    fn late_frames_are_measured_by_the_earliest() {
        // One of a thousand is 30 us late.
        let times: Vec<u64> = (0..1000)
            .map(|n| n * 120 + if n == 500 { 30 } else { 0 })
            .collect();
        let frames = frames(&times);
        assert!((frames.bps().unwrap() - 1e8).abs() < 1.0);
        let lateness = frames.lateness(mbit(100));
        assert!((29_000..=30_100).contains(&lateness.max_ns()));
        assert!(lateness.quantile_ns(0.99) < 100);
        assert_eq!(frames.burstiness(mbit(100)).trains().longest(), 1);
    }

    #[test]
    fn losses_are_in_the_last_words() {
        let said =
            "10 packets captured\n12 packets received by filter\n2 packets dropped by kernel";
        assert_eq!(lost(said), 2);
        assert_eq!(lost(""), 0);
    }
}
