//! Where the experiments of *PSPacer/HT* take place: a sender, a bridge that shapes and a receiver, each in a network
//! namespace of its own.
//!
//! ```text
//! sender              bridge                  receiver
//! eth0 10.77.0.1 ---- in0, shaper, out0 ---- eth0 10.77.0.2
//! ```
//!
//! - [`Host`]: goes with us, however we end.
//! - [`Shaper`]: `softclock pace`, `softclock wan`, or a bridge of the kernel's with HTB, TBF, netem or nothing.
//! - [`Load`]: iperf3, or [`flows`] where it has too few streams.
//! - [`Traffic`]: one shaper under one load, ready to be measured.
//! - [`Study`]: several of them in turn.
//! - [`Frames`]: what tcpdump saw at the receiver.
//! - [`Passage`]: how long datagrams were on the way, by what it saw before and behind the shaper.
//! - [`Usage`]: processor time of the machine and of the shaper's process.
//! - [`Neighbours`]: other programs that compute.

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
pub use shaper::{Pace, Shaped, Shaper, Summary};
pub use study::Study;
pub use usage::{Busy, Usage};

/// The three namespaces.
#[derive(Debug)]
pub struct Lab {
    /// Where the load comes from.
    pub sender: Host,
    /// Where it is shaped, between `in0` and `out0`.
    pub bridge: Host,
    /// Where it arrives.
    pub receiver: Host,
}

impl Lab {
    /// Three hosts in a row; nothing carries frames between the outer two yet.
    ///
    /// # Errors
    /// Why there can be none here.
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
            // An address that nobody has: what is sent to it ends at the receiver, which does not answer.
            let more = format!(
                "link set lo up\nlink set eth0 up\naddr add {address}/24 dev eth0\n\
                 neigh add {NOBODY} lladdr 02:00:00:00:00:01 dev eth0\n"
            );
            host.batch("ip", &more)?;
        }
        Ok(())
    }

    /// Has the sender leave so much to its link.
    ///
    /// # Errors
    /// ethtool's.
    pub fn offload(&self, offload: Offload) -> io::Result<()> {
        let words = match offload {
            Offload::None => "tso off gso off",
            Offload::Stack => "tso off gso on",
            Offload::Link | Offload::LinkSeven => "tso on gso on",
        };
        self.sender.run(&format!("ethtool -K eth0 {words}"))?;
        // TCP joins segments even for links that cannot take them, which only this bounds.
        match offload {
            Offload::None => self.sender.run("ip link set eth0 gso_max_segs 1"),
            Offload::LinkSeven => self.sender.run("ip link set eth0 gso_max_segs 7"),
            Offload::Stack | Offload::Link => Ok(()),
        }
    }

    /// Makes what a line has more than veth, but for the TAP, which the shaper makes.
    ///
    /// # Errors
    /// There is none here.
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

    /// The host that sends on this line, which the shaper has begun to carry.
    ///
    /// # Errors
    /// The shaper has made no TAP.
    pub fn host(&self, line: Line) -> io::Result<&Host> {
        if line != Line::Tap {
            return Ok(&self.sender);
        }
        self.bridge.batch(
            "ip",
            &format!("link set tap0 mtu {MTU} up\naddr add {SENDER}/24 dev tap0\n"),
        )?;
        self.bridge.run("ip link set tap0 gso_max_segs 1")?;
        Ok(&self.bridge)
    }

    /// What the receiver has got so far.
    ///
    /// # Errors
    /// The link is gone.
    pub fn received(&self) -> io::Result<Received> {
        self.receiver.received("eth0")
    }
}

/// Reports what `measure` finds here, after the notes on the lab and those of the experiment, to which it may add; or why
/// nothing can be measured.
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

/// Whether labs can be had here.
///
/// # Errors
/// What is missing, as a sentence's end.
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

/// What holds for all that is measured in labs.
pub fn notes() -> Vec<String> {
    let versions = TOOLS
        .iter()
        .filter_map(|(program, argument, _)| version(program, argument));
    vec![NOTE.to_owned(), versions.collect::<Vec<_>>().join("; ")]
}

/// Programs, how they are asked for their version, and the packages that have them.
const TOOLS: [(&str, &str, &str); 4] = [
    ("iperf3", "--version", "iperf3"),
    ("tcpdump", "--version", "tcpdump"),
    ("tc", "-V", "iproute2"),
    ("ethtool", "--version", "ethtool"),
];

const NOTE: &str = "sender, bridge and receiver are network namespaces joined by veth, anew for each measurement; all full \
                    frames have 1500 bytes with Ethernet's header, and rates count whole frames, as with tc; the load's \
                    programs go before others (nice -10), so that it does not run dry; variants in turn, medians of rounds";

/// The receiver's address.
pub const RECEIVER: &str = "10.77.0.2";
/// What is sent there is dropped at the receiver.
pub const NOBODY: &str = "10.77.0.9";
const SENDER: &str = "10.77.0.1";

/// A full frame: what rates count, as with `tc`.
pub const FRAME_BYTES: u32 = 1500;
/// Of all links, so that full frames have [`FRAME_BYTES`].
const MTU: u32 = FRAME_BYTES - ETHERNET_BYTES;
const ETHERNET_BYTES: u32 = 14;
/// Of IPv4 and UDP.
const UDP_BYTES: u32 = 28;
/// Of IPv4 and TCP with time stamps.
const TCP_BYTES: u32 = 52;
/// Of Ethernet, IPv4 and TCP.
pub const TCP_HEADER_BYTES: u32 = ETHERNET_BYTES + TCP_BYTES;
/// Data in a full frame of UDP.
pub const UDP_DATA_BYTES: u32 = MTU - UDP_BYTES;
/// Data in a full frame of TCP.
pub const TCP_DATA_BYTES: u32 = MTU - TCP_BYTES;

/// So many megabits a second, of whole frames.
pub const fn mbit(rate: u64) -> Rate {
    Rate::from_bps(rate * 1_000_000).expect("more than zero")
}
