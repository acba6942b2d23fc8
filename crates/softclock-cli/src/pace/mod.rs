//! `softclock pace`: a bridge that paces classes of packets.

use std::path::PathBuf;

use clap::Args;
use softclock_core::Rate;
use softclock_link::{Class, Pacer, PacerOptions};
use softclock_linux::link::Link;
use softclock_wire::packet::Filter;

use crate::bridge::{self, BridgeError, BridgeOptions, Treatment};
use crate::logging;

/// The options of `softclock pace`.
#[derive(Args, Clone, Debug)]
#[command(after_help = NOTES)]
pub(crate) struct PaceOptions {
    #[command(flatten)]
    bridge: BridgeOptions,

    /// A class for packets in both directions, such as 'rate 10mbit dport 80'; a packet belongs to the first class that
    /// matches; repeatable
    #[arg(long, value_name = "CLASS")]
    class: Vec<Class>,

    /// A class for packets from A to B only; matched before those of --class; repeatable
    #[arg(long, value_name = "CLASS")]
    class_ab: Vec<Class>,

    /// A class for packets from B to A only; matched before those of --class; repeatable
    #[arg(long, value_name = "CLASS")]
    class_ba: Vec<Class>,

    /// Rate of the link. If the rates of the classes that send add up to more, they share it in proportion [default:
    /// the speed that the interface reports, else 10gbit]
    #[arg(long, value_name = "RATE")]
    link: Option<Rate>,

    /// Read settings from a TOML file, named like these flags; flags win over the file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Spinning would make departures punctual, and their distances hardly more even, for twice the processor time.
const SPIN_CAP: f64 = 0.0;

const NOTES: &str = "\
A class is written as pairs of a name and a value:

rate 10mbit: its average rate, in bytes on the wire; required

behind 100ms: the longest delay that the class makes up for after its frames could not leave, because the bridge had \
no processor or the link was full. The switch behind the bridge must then hold as much as the class sends in this time \
(1.2 MB at 100mbit), and some seconds exceed the rate [default: at most 8 frames wait at the switch, and a second \
exceeds the rate by at most 1 ms of it or 3 frames; the rest of the rate is lost and counted]

peak 20mbit: the rate at which the class makes up for a longer delay that behind or burst allows [default: 15 % above \
its rate; with a burst, the link's rate]

burst 15kb: bytes that the class may send at once after it was idle. Packets joined by offloads pass whole if they are \
no longer than this [default: as much as lateness is made up for; all joined packets are segmented]

limit 1000: packets that may wait, 1 to 1000000; their bytes on the wire may be 2 KiB times this number, or 256 KiB if \
that is more

name web: its name in statistics

default: the class of all packets that match no other class; without one, such packets pass unpaced

src, dst, host 10.0.0.0/8: the source address, the destination address, or either; also 2001:db8::1

sport, dport, port 80: the source port, the destination port, or either; also 8000-8080

proto tcp: tcp, udp, icmp, icmpv6, sctp, or a number

dscp ef, vlan 5: ef, af11, or 0 to 63; 0 to 4095

Times are written 40ms, 500us, 1.5s, and rates 20mbit, 64kbit, 10mbyte (bytes). A number without a unit is refused as \
ambiguous, and so is mbps, which means megabytes for tc. The time of --duration may be a number of seconds.

While the bridge runs, the host does not handle the frames of A and B, so its addresses and routes on them do not \
work; if there are any, the command asks before it starts, or needs --yes. An interface can have one bridge at a time. \
All is restored when the bridge ends, even if it is killed. Needs root or CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF, and \
Linux 6.6.

Other load on the bridge's processor delays frames only while it is in a long system call, unless the kernel was \
booted with preempt=full, or if it has a real-time priority itself. taskset can reserve a processor for the bridge.

tap:NAME as A or B creates a TAP device of that name, sets it up, and removes it at the end. Frames that the host \
sends on it leave at the other side, and frames that arrive there are received by the host on it. It may be moved to a \
container's namespace, or be a port of a bridge.

With AF_XDP, an interface must have one queue (ethtool -L), frames have at most 3840 bytes, and VLAN tags that the \
interface strips are lost: turn this off with ethtool -K, rxvlan of the interface, and txvlan of the other end if it \
is a veth. It needs root, CAP_IPC_LOCK or 24 MiB of locked memory (ulimit -l).

At the end the command prints the settings, the rates between the first frame and the last, and the longest queues.

Examples:
  softclock pace eth0 eth1 --class 'rate 100mbit'
  softclock pace eth0 eth1 --class 'name voice rate 1mbit dscp ef' --class 'default rate 20mbit'
  softclock pace eth0 eth1 --class-ab 'rate 10mbit dst 192.0.2.0/24 proto tcp'
  softclock pace tap:paced0 eth0 --class-ab 'rate 50mbit'
";

/// Paces until a signal or `--duration` ends the bridge.
pub(crate) fn run(options: &PaceOptions) -> Result<(), BridgeError> {
    let classes = options.classes();
    bridge::run(&options.bridge, SPIN_CAP, None, |leaving, now| {
        let treatment = |index: usize| {
            let told = || leaving[index].and_then(Link::speed_mbit);
            let link = options.link.unwrap_or_else(|| of_mbit(told()));
            let setup = PacerOptions {
                link,
                tolerance: options.bridge.tolerance,
                overhead_bytes: options.bridge.overhead,
            };
            let pacer = Pacer::new(&classes[index], setup, now);
            if let Some(share) = pacer.least_share()
                && !options.bridge.is_quiet()
            {
                let direction = ["A to B", "B to A"][index];
                logging::note(&over_promise(direction, &classes[index], link, share));
            }
            Treatment {
                discipline: pacer,
                settings: settings(&classes[index], link, &options.bridge),
            }
        };
        [treatment(0), treatment(1)]
    })
}

impl PaceOptions {
    /// The classes of each direction, in the order in which they match, but for the default class.
    fn classes(&self) -> [Vec<Class>; 2] {
        let own = [&self.class_ab, &self.class_ba];
        own.map(|own| [own.as_slice(), &self.class].concat())
    }

    /// Reports options that contradict each other.
    pub(crate) fn check(&self) -> Result<(), String> {
        let directions = self.classes();
        if directions.iter().all(Vec::is_empty) {
            return Err("no class to pace; --class 'rate 10mbit' paces all packets".into());
        }
        for classes in &directions {
            if classes.iter().filter(|class| class.is_default).count() > 1 {
                return Err("a direction may have only one default class".into());
            }
        }
        // Each list alone: classes of both directions may be meant for the other direction only.
        let lists = [&self.class_ab, &self.class_ba, &self.class];
        match lists.into_iter().find_map(|list| hiding(list)) {
            Some(class) => Err(format!(
                "the class '{}' takes all packets, so that other classes get none; make it the default class, or give \
                 it conditions",
                class.text
            )),
            None => Ok(()),
        }
    }
}

/// Returns the class without conditions that keeps all packets from a later class or from the default class.
fn hiding(classes: &[Class]) -> Option<&Class> {
    let takes_all = |class: &Class| !class.is_default && class.filter == Filter::default();
    let index = classes.iter().position(takes_all)?;
    let has_default = classes.iter().any(|class| class.is_default);
    (has_default || index + 1 < classes.len()).then(|| &classes[index])
}

/// Formats a warning that the classes of a direction were promised more than the link's rate.
fn over_promise(direction: &str, classes: &[Class], link: Rate, share: f64) -> String {
    let sum = |sum: u64, class: &Class| sum.saturating_add(class.options.rate.bps());
    let sum = classes.iter().fold(0, sum);
    let sum = Rate::from_bps(sum).map_or_else(String::new, |sum| sum.to_string());
    let percent = share * 100.0;
    format!(
        "the classes from {direction} are promised {sum}, the link has {link}: when all send, they share it in \
         proportion, and a class gets as little as {percent:.3} % of its rate"
    )
}

/// Lists the settings of a direction as options write them: names and values.
fn settings(classes: &[Class], link: Rate, bridge: &BridgeOptions) -> Vec<(String, String)> {
    let setting = |name: &str, value: String| (name.to_owned(), value);
    let classes = (classes.iter()).map(|class| setting("class", class.effective()));
    let link = setting("link", link.to_string());
    classes.chain([link]).chain(bridge.settings()).collect()
}

fn of_mbit(told: Option<u64>) -> Rate {
    let bps = told.unwrap_or(10_000).saturating_mul(1_000_000);
    Rate::from_bps(bps).expect("a speed that is told is above zero")
}
