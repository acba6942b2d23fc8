//! `softclock burst`: how bursty captured traffic is (*PSPacer/HT*, section III).
//!
//! - [`reader`]: reads packets from files in large pieces; [`progress`] shows a progress bar.
//! - [`analysis`]: computes figures of streams of packets, by `softclock_wire::burstiness`.
//! - [`figures`]: the figures as rows of text, shared by [`table`] (terminal) and [`page`] (HTML); [`json`]; [`units`].
//! - [`chart`]: the gap histogram and the occupancy over time, as SVG.

mod analysis;
mod chart;
mod figures;
mod json;
mod page;
mod progress;
mod reader;
mod table;
mod units;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use softclock_core::Rate;
use softclock_core::units::parse_size;
use softclock_wire::packet::Filter;

use crate::logging;
use crate::stdout;
use crate::values::time;
use analysis::Stream;

/// The options of `softclock burst`.
#[derive(Args, Clone, Debug)]
#[command(after_help = NOTES)]
pub(crate) struct BurstOptions {
    /// Captures in pcap or pcapng format; - reads standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,

    /// Rate of the virtual bottleneck, as tc writes it: 5gbit, 100mbit [default: the traffic's mean rate; files are
    /// then read twice]
    #[arg(long, value_name = "RATE")]
    rate: Option<Rate>,

    /// Rate of the line that the packets arrived on: the bottleneck then begins to send a packet when its first bit has
    /// arrived [default: when the whole packet has arrived]
    #[arg(long, value_name = "RATE")]
    line_rate: Option<Rate>,

    /// Analyse only packets that match: pairs of src, dst, host, sport, dport, port, proto, dscp or vlan, and a value
    #[arg(long, value_name = "CONDITIONS")]
    filter: Option<Filter>,

    /// Whether to separate the directions of the captured link, by Ethernet addresses, else IP addresses, else ports
    #[arg(long, value_name = "CHOICE", value_enum, default_value_t = DirectionChoice::Each)]
    direction: DirectionChoice,

    /// Bytes to add to each packet's captured length; 24 for Ethernet's preamble, check sequence and gap
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = overhead)]
    overhead: u32,

    /// Longest gap within a train, exclusive: packets closer than this belong to one train
    #[arg(long, value_name = "TIME", default_value = "10us", value_parser = time)]
    train_gap: Duration,

    /// Length of the windows in which peak rates are measured; repeatable
    #[arg(long, value_name = "TIME", default_values = ["1ms", "10ms", "100ms"], value_parser = window)]
    window: Vec<Duration>,

    /// Analyse all files as one stream in the given order, for example the parts of one capture
    #[arg(long)]
    together: bool,

    /// Print JSON: an object, or a list of them for several files or directions
    #[arg(long)]
    json: bool,

    /// Also draw the gap histogram and the queue over time to this SVG file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// Also write an HTML page with the figures and the drawing
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// The values of `--direction`.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum DirectionChoice {
    /// Analyse each direction as a separate stream
    Each,
    /// Analyse both directions together as one stream
    Both,
}

const NOTES: &str = "\
The packets go through a virtual bottleneck of the given rate. Its queue is counted in packets just after each \
arrival, including the arriving packet; the longest queue is the burstiness, and 1 is the best value. Lengths are \
those on the wire, even if the capture truncated the packets. Quantiles of gaps are at most 6 % too high. A capture \
taken at a sender with segmentation offload, or at a receiver with receive offload (ethtool -K, gro), contains joined \
packets that never appear on the line.

If packets go both ways, each direction is a stream, since a link carries each direction separately: together they \
look bursty even if each is well paced. A direction is identified by its senders; --filter 'src ADDRESS' selects one.

A file that is damaged or cut off is analysed up to there, and the exit status is 1.

Examples:
  softclock burst capture.pcap --rate 5gbit
  softclock burst before.pcap after.pcap --html report.html
  softclock burst part0.pcap part1.pcap --together --json
  softclock burst capture.pcap --filter 'src 10.0.0.0/8 proto tcp dport 80-90'
  tcpdump -i eth0 -Q out -s 96 -c 100000 -w - | softclock burst - --rate 100mbit
";

/// Analyses the captures and prints the figures. The exit code is a failure if a file could not be read or written.
pub(crate) fn run(options: &BurstOptions) -> ExitCode {
    let streams = match analysis::analyse(options) {
        Ok(streams) => streams,
        Err(mistake) => {
            logging::complain(&mistake);
            return ExitCode::from(2);
        }
    };
    let mut failed = false;
    for error in streams.iter().flat_map(|stream| &stream.errors) {
        logging::complain(&error.to_string());
        failed = true;
    }
    let is_list = streams.len() > 1;
    let streams: Vec<_> = streams.into_iter().filter(Stream::is_of_use).collect();
    if streams.is_empty() {
        return ExitCode::FAILURE;
    }
    let text = match options.json {
        true => json::text(&streams, is_list),
        false => table::text(&streams),
    };
    if let Err(error) = stdout::print(&text) {
        logging::complain(&stdout::not_written(&error));
        failed = true;
    }
    let drawn = options
        .svg
        .as_deref()
        .map(|file| (file, chart::svg(&streams)));
    let paged = options
        .html
        .as_deref()
        .map(|file| (file, page::html(&streams)));
    for (file, text) in [drawn, paged].into_iter().flatten() {
        failed |= !written(file, &text);
    }
    match failed {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    }
}

fn written(file: &Path, text: &str) -> bool {
    let result = fs::write(file, text);
    if let Err(error) = &result {
        logging::complain(&format!("cannot write {}: {error}", file.display()));
    }
    result.is_ok()
}

fn overhead(text: &str) -> Result<u32, String> {
    let bytes = parse_size(text).map_err(|error| error.to_string())?;
    match u32::try_from(bytes) {
        Ok(bytes @ ..=MOST_OVERHEAD) => Ok(bytes),
        _ => Err(format!("at most {MOST_OVERHEAD}")),
    }
}

fn window(text: &str) -> Result<Duration, String> {
    match time(text)? {
        Duration::ZERO => Err("a window must be longer than 0".into()),
        length => Ok(length),
    }
}

/// Upper limit of `--overhead`; larger than the overhead of any link.
const MOST_OVERHEAD: u32 = 65_535;
