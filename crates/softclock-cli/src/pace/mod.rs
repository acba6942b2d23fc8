//! `softclock pace`: a bridge that paces classes of packets.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use softclock_core::Rate;
use softclock_link::{Class, Pacer, PacerOptions};
use softclock_linux::link::Link;

use crate::bridge::{self, BridgeError, BridgeOptions, Treatment};
use crate::values::{format_time, time};

/// The options of `softclock pace`.
#[derive(Args, Clone, Debug)]
#[command(after_help = NOTES)]
pub(crate) struct PaceOptions {
    #[command(flatten)]
    bridge: BridgeOptions,

    /// A class of packets in each direction, such as 'rate 10mbit dport 80'; the first that matches has a packet; repeatable
    #[arg(long, value_name = "CLASS")]
    class: Vec<Class>,

    /// The same for packets from A to B only, before those of --class
    #[arg(long, value_name = "CLASS")]
    class_ab: Vec<Class>,

    /// The same for packets from B to A only, before those of --class
    #[arg(long, value_name = "CLASS")]
    class_ba: Vec<Class>,

    /// Rate of the link, which classes share in proportion while those that send were promised more [default: what the
    /// interface says, else 10gbit]
    #[arg(long, value_name = "RATE")]
    link: Option<Rate>,

    /// Send packets late by up to this, so that those of many classes go together
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = time)]
    tolerance: Duration,

    /// Settings in a TOML file, named like these flags, which win over it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

const NOTES: &str = "\
A class is written as pairs of a name and a value:

rate 10mbit: what it may send on average, of bytes on the wire; needed

behind 100ms: how long its frames may have been kept from leaving, because the processor was taken away or the \
link was full, and still be made up for. The switch behind it then holds what the class sends in this time (1.2 MB \
at 100mbit), and seconds have more than the rate [default: at most 8 frames wait at the switch, those of 1 ms or \
3; the rest of the rate is lost and counted]

peak 20mbit: the rate at which it makes up for more than that, by behind or burst [default: 15 % above its rate; \
with a burst, the link's]

burst 15kb: how much it may send at once when it was idle. Packets that offloads have joined and that are no \
longer pass whole [default: as much as lateness is made up for; all are segmented]

limit 1000: packets that may wait

name web: how it is called in statistics

default: it takes what no other class wants; without one, that passes unpaced

src, dst, host 10.0.0.0/8: the source's address, the destination's, either; also 2001:db8::1

sport, dport, port 80: the same of ports; also 8000-8080

proto tcp: tcp, udp, icmp, icmpv6, sctp, a number

dscp ef, vlan 5: ef, af11, 0 to 63; 0 to 4095

Times are written 40ms, 500us, 1.5s, and rates 20mbit, 64kbit, 10mbyte (bytes). Refused, as readers understand it \
differently: a number alone, and mbps, which is megabytes for tc. The time of --duration may be a number of seconds.

The host handles no frames of A and B while this runs, so its addresses and routes by them do not work; it asks \
before it takes those, or wants --yes. An interface has one bridge at a time. All is as before when it ends, also \
if it is killed. Needs root or CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF, and Linux 6.6.

Other load on its processor delays frames only while it is in a long system call, which a kernel booted with \
preempt=full interrupts, or if it has a real-time priority, too. taskset gives the bridge a processor of its own.

tap:NAME as A or B makes a TAP device of that name, which is up and goes when this ends. What the host sends on it \
leaves at the other side, and what arrives there the host receives on it. It may be moved to a container's namespace, \
or be a port of a bridge.

By AF_XDP, an interface has one queue (ethtool -L), frames have 3840 bytes at most, and tags of VLANs that the \
interface takes off are lost: turn that off by ethtool -K, rxvlan of the interface, and txvlan of the other end if it \
is a veth. It needs root, CAP_IPC_LOCK or 24 MiB of locked memory (ulimit -l).

The end says what was done: by which settings, at what rates between the first frame and the last, and how much \
waited at most.

Examples:
  softclock pace eth0 eth1 --class 'rate 100mbit'
  softclock pace eth0 eth1 --class 'name voice rate 1mbit dscp ef' --class 'default rate 20mbit'
  softclock pace eth0 eth1 --class-ab 'rate 10mbit dst 192.0.2.0/24 proto tcp'
  softclock pace tap:paced0 eth0 --class-ab 'rate 50mbit'
";

/// Paces until it is ended.
pub(crate) fn run(options: &PaceOptions) -> Result<(), BridgeError> {
    let own = [&options.class_ab, &options.class_ba];
    let classes = own.map(|own| [own.as_slice(), &options.class].concat());
    if classes.iter().all(Vec::is_empty) {
        return Err(BridgeError(
            "no class to pace; --class 'rate 10mbit' paces all packets".into(),
        ));
    }
    for classes in &classes {
        if classes.iter().filter(|class| class.is_default).count() > 1 {
            return Err(BridgeError("a direction has one default class".into()));
        }
    }
    bridge::run(&options.bridge, None, |leaving, now| {
        let treatment = |index: usize| {
            let told = || leaving[index].and_then(Link::speed_mbit);
            let link = options.link.unwrap_or_else(|| of_mbit(told()));
            let setup = PacerOptions {
                link,
                tolerance: options.tolerance,
                overhead_bytes: options.bridge.overhead,
            };
            let pacer = Pacer::new(&classes[index], setup, now);
            if let Some(share) = pacer.least_share()
                && !options.bridge.is_quiet()
            {
                let direction = ["A to B", "B to A"][index];
                eprintln!("{}", over_promise(direction, &classes[index], link, share));
            }
            Treatment {
                discipline: pacer,
                settings: settings(&classes[index], setup),
            }
        };
        [treatment(0), treatment(1)]
    })
}

/// What to say about classes that were promised more than the link has.
fn over_promise(direction: &str, classes: &[Class], link: Rate, share: f64) -> String {
    let sum = |sum: u64, class: &Class| sum.saturating_add(class.options.rate.bps());
    let sum = classes.iter().fold(0, sum);
    let sum = Rate::from_bps(sum).map_or_else(String::new, |sum| sum.to_string());
    let percent = share * 100.0;
    format!(
        "softclock: the classes from {direction} are promised {sum}, the link has {link}: when all send, they share it in \
         proportion, and a class gets as little as {percent:.3} % of its rate"
    )
}

/// What is done to frames, as options write it: names and values.
fn settings(classes: &[Class], options: PacerOptions) -> Vec<(String, String)> {
    let PacerOptions {
        link,
        tolerance,
        overhead_bytes,
    } = options;
    let setting = |name: &str, value: String| (name.to_owned(), value);
    let classes = (classes.iter()).map(|class| setting("class", class.effective()));
    let overhead = (overhead_bytes > 0).then(|| setting("overhead", overhead_bytes.to_string()));
    let tolerance = (!tolerance.is_zero()).then(|| setting("tolerance", format_time(tolerance)));
    let others = [setting("link", link.to_string())]
        .into_iter()
        .chain(tolerance)
        .chain(overhead);
    classes.chain(others).collect()
}

fn of_mbit(told: Option<u64>) -> Rate {
    let bps = told.unwrap_or(10_000).saturating_mul(1_000_000);
    Rate::from_bps(bps).expect("a speed that is told is above zero")
}
