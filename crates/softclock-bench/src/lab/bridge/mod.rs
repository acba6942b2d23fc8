//! The setup of the experiments of *PSPacer/HT*: a sender, a bridge that shapes and a receiver, each in its own network
//! namespace.
//!
//! ```text
//! sender              bridge                  receiver
//! eth0 10.77.0.1 ---- in0, shaper, out0 ---- eth0 10.77.0.2
//! ```
//!
//! - [`Host`]: a network namespace, which ends with this process even if it is killed.
//! - [`Shaper`]: `softclock pace`, `softclock wan`, or the kernel's bridge with HTB, TBF, netem or nothing.
//! - [`Load`]: iperf3, or [`flows`] where iperf3 has too few streams.
//! - [`Traffic`]: one shaper under one load, ready to be measured.
//! - [`Study`]: several of them in turn.
//! - [`Frames`]: the frames that tcpdump captured at the receiver.
//! - [`Passage`]: the times that datagrams took between captures in front of and behind the shaper.
//! - [`Usage`]: processor time of the machine and of the shaper's process.
//! - [`Neighbours`]: computing threads beside the experiment.

mod capture;
mod disciplines;
pub mod flows;
mod host;
mod load;
mod neighbours;
mod passage;
mod setup;
mod shaper;
mod study;
mod usage;

use std::error::Error;
use std::io;

use softclock_core::Rate;

use crate::output::chart::Chart;
use crate::output::report::{Report, Row};
use crate::servers::version;

pub use capture::{Capture, Frames};
pub use disciplines::{Burst, Htb};
pub use host::{Host, Received};
pub use load::Load;
pub use neighbours::Neighbours;
pub use passage::{Datagrams, Passage};
pub use setup::{Flow, Line, Offload, Results, Setup, Traffic, rounds};
pub use shaper::{Pace, Path, Shaped, Shaper, Summary};
pub use study::Study;
pub use usage::{Busy, Usage};

/// The three namespaces.
#[derive(Debug)]
pub struct Lab {
    /// The host that sends the load.
    pub sender: Host,
    /// The host that shapes it, between `in0` and `out0`.
    pub bridge: Host,
    /// The host that receives it.
    pub receiver: Host,
}

impl Lab {
    /// Creates three hosts in a row. Nothing carries frames between `in0` and `out0` yet.
    ///
    /// # Errors
    /// Why the system refuses.
    pub fn new() -> Result<Self, String> {
        let lab = Self {
            sender: Host::new()?,
            bridge: Host::new()?,
            receiver: Host::new()?,
        };
        lab.link().map_err(|error| error.to_string())?;
        Ok(lab)
    }

    fn link(&self) -> io::Result<()> {
        let (sender, receiver) = (self.sender.id(), self.receiver.id());
        let pair = |name: &str, peer: &str, peers: u32| {
            format!(
                "link add name {name} mtu {MTU} type veth peer name {peer} mtu {MTU} netns {peers}\n\
                 link set {name} up\n"
            )
        };
        let links = pair("in0", "eth0", sender) + &pair("out0", "eth0", receiver);
        self.bridge.batch("ip", &links)?;
        for (host, address) in [(&self.sender, SENDER), (&self.receiver, RECEIVER)] {
            // A neighbour entry for an unused address: the receiver drops datagrams to it and does not answer.
            let more = format!(
                "link set lo up\nlink set eth0 up\naddr add {address}/24 dev eth0\n\
                 neigh add {NOBODY} lladdr 02:00:00:00:00:01 dev eth0\n"
            );
            host.batch("ip", &more)?;
        }
        Ok(())
    }

    /// Sets the amount of segmentation that the sender leaves to its link.
    ///
    /// # Errors
    /// ethtool or ip fails.
    pub fn offload(&self, offload: Offload) -> io::Result<()> {
        let words = match offload {
            Offload::None => "tso off gso off",
            Offload::Stack => "tso off gso on",
            Offload::Link | Offload::LinkSeven => "tso on gso on",
        };
        self.sender.run(&format!("ethtool -K eth0 {words}"))?;
        // TCP joins segments even for links that cannot segment; only this setting bounds them.
        match offload {
            Offload::None => self.sender.run("ip link set eth0 gso_max_segs 1"),
            Offload::LinkSeven => self.sender.run("ip link set eth0 gso_max_segs 7"),
            Offload::Stack | Offload::Link => Ok(()),
        }
    }

    /// Creates the links that a line has beside veth, except the TAP device, which the shaper creates.
    ///
    /// # Errors
    /// The bond cannot be created.
    pub fn prepare(&self, line: Line) -> io::Result<()> {
        match line {
            Line::Veth | Line::Tap => Ok(()),
            Line::Bond => self.bridge.batch(
                "ip",
                &format!(
                    "link add name bond0 mtu {MTU} type bond\nlink set out0 down\n\
                     link set out0 master bond0\nlink set bond0 up\n"
                ),
            ),
        }
    }

    /// Returns the host that sends on this line. Call it after the shaper has started.
    ///
    /// # Errors
    /// The shaper has created no TAP device.
    pub fn host(&self, line: Line) -> io::Result<&Host> {
        if line != Line::Tap {
            return Ok(&self.sender);
        }
        self.bridge.batch(
            "ip",
            &format!("link set tap0 mtu {MTU} up\naddr add {SENDER}/24 dev tap0\n"),
        )?;
        // Without joined segments, which is the default on the sender's link, too.
        self.bridge.run("ip link set tap0 gso_max_segs 1")?;
        Ok(&self.bridge)
    }

    /// Returns the counts of frames that the receiver has received so far.
    ///
    /// # Errors
    /// The link is gone.
    pub fn received(&self) -> io::Result<Received> {
        self.receiver.received("eth0")
    }
}

/// Returns the report of a measurement in labs: the results of `measure`, which may add notes to those on the lab and
/// those of the experiment; or, where labs cannot be created, the reason.
///
/// # Errors
/// Those of `measure`.
pub fn report(
    title: &'static str,
    notes: &[&str],
    measure: impl FnOnce(&mut Vec<String>) -> Result<(Vec<Row>, Vec<Chart>), Box<dyn Error>>,
) -> Result<Report, Box<dyn Error>> {
    if let Err(reason) = check() {
        return Ok(Report::not_measured(title, &reason));
    }
    let mut all = self::notes();
    all.extend(notes.iter().map(ToString::to_string));
    let (rows, charts) = measure(&mut all)?;
    Ok(Report {
        title,
        notes: all,
        rows,
        charts,
    })
}

/// Checks that labs can be created on this machine.
///
/// # Errors
/// The missing requirement, as the end of a sentence.
pub fn check() -> Result<(), String> {
    for (program, argument, package) in TOOLS {
        if version(program, argument).is_none() {
            return Err(format!(
                "{program} is not installed (Debian's package {package})"
            ));
        }
    }
    Lab::new().map(drop)
}

/// Returns the notes that hold for all measurements in labs.
pub fn notes() -> Vec<String> {
    let versions = TOOLS
        .iter()
        .filter_map(|(program, argument, _)| version(program, argument));
    vec![NOTE.to_owned(), versions.collect::<Vec<_>>().join("; ")]
}

/// The required programs, the arguments that print their versions, and their Debian packages.
const TOOLS: [(&str, &str, &str); 4] = [
    ("iperf3", "--version", "iperf3"),
    ("tcpdump", "--version", "tcpdump"),
    ("tc", "-V", "iproute2"),
    ("ethtool", "--version", "ethtool"),
];

const NOTE: &str = "sender, bridge and receiver are network namespaces joined by veth, anew for each measurement; all full \
                    frames have 1500 bytes with Ethernet's header, and rates count whole frames, as with tc; the load's \
                    programs go before others (nice -10), so that it does not run dry; variants in turn, medians of rounds";

/// The sender's address.
pub const SENDER: &str = "10.77.0.1";
/// The receiver's address.
pub const RECEIVER: &str = "10.77.0.2";
/// An address without a host: the receiver drops datagrams to it.
pub const NOBODY: &str = "10.77.0.9";

/// The bytes of a full frame with its Ethernet header, which rates count, as with `tc`.
pub const FRAME_BYTES: u32 = 1500;
/// The MTU of all links, so that full frames have [`FRAME_BYTES`].
const MTU: u32 = FRAME_BYTES - ETHERNET_BYTES;
const ETHERNET_BYTES: u32 = 14;
/// The headers of IPv4 and UDP.
const UDP_BYTES: u32 = 28;
/// The headers of IPv4 and TCP with time stamps.
const TCP_BYTES: u32 = 52;
/// The headers of Ethernet, IPv4 and TCP.
pub const TCP_HEADER_BYTES: u32 = ETHERNET_BYTES + TCP_BYTES;
/// Data in a full frame of UDP.
pub const UDP_DATA_BYTES: u32 = MTU - UDP_BYTES;
/// Data in a full frame of TCP.
pub const TCP_DATA_BYTES: u32 = MTU - TCP_BYTES;

/// Returns a rate in megabits per second of whole frames.
pub const fn mbit(rate: u64) -> Rate {
    Rate::from_bps(rate * 1_000_000).expect("more than zero")
}
