//! `softclock wan`: a bridge that emulates a wide-area link.
//!
//! - [`each`]: settings of each direction.

mod each;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use softclock_core::Rate;
use softclock_core::wan::{Chance, Wan, WanOptions};
use softclock_link::{Emulator, EmulatorOptions};

use crate::bridge::{self, BridgeError, BridgeOptions, Treatment};
use crate::values::{format_time, whole};
use each::{Each, Packets, Percentage, Time};

/// The options of `softclock wan`.
#[derive(Args, Clone, Debug)]
#[command(after_help = NOTES)]
pub(crate) struct WanCommandOptions {
    #[command(flatten)]
    bridge: BridgeOptions,

    /// Delay of each packet, such as 20ms
    #[arg(long, value_name = "TIME", default_value = "0")]
    delay: Each<Time>,

    /// Largest deviation from the delay: uniformly distributed and, for packets closer than twice this time, changing
    /// gradually
    #[arg(long, value_name = "TIME", default_value = "0")]
    jitter: Each<Time>,

    /// Rate of the bottleneck, such as 20mbit [default: no bottleneck]
    #[arg(long, value_name = "RATE")]
    rate: Option<Each<Rate>>,

    /// Most packets in the bottleneck, including the one being sent
    #[arg(
        long,
        value_name = "PACKETS",
        default_value = "1000",
        requires = "rate"
    )]
    queue: Each<Packets>,

    /// Share of packets that are lost at random
    #[arg(long, value_name = "PERCENT", default_value = "0")]
    loss: Each<Percentage>,

    /// Share of packets that skip the delay and so overtake others
    #[arg(long, value_name = "PERCENT", default_value = "0")]
    reorder: Each<Percentage>,

    /// Share of packets that arrive twice
    #[arg(long, value_name = "PERCENT", default_value = "0")]
    duplicate: Each<Percentage>,

    /// Share of packets in which a random bit changes, behind the Ethernet header
    #[arg(long, value_name = "PERCENT", default_value = "0")]
    corrupt: Each<Percentage>,

    /// Seed of the random decisions: the same seed treats the same packets alike [default: random]
    #[arg(long, value_name = "N", value_parser = whole(0..=u64::MAX))]
    seed: Option<u64>,

    /// Read settings from a TOML file, named like these flags; flags win over the file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Enough for a median lateness of about a microsecond, since a delay counts by its absolute length.
const SPIN_CAP: f64 = 0.05;

const NOTES: &str = "\
One value applies to both directions; two values, separated by a comma, apply to packets from A to B and from B to A. \
Delays count from the moment at which the kernel received the packet. Packets stay in order, except with --reorder. \
With --tolerance, a delay is up to that much longer, and never shorter.

Times are written 40ms, 500us, 1.5s, and rates 20mbit, 64kbit, 10mbyte (bytes). A number without a unit is refused as \
ambiguous, and so is mbps, which means megabytes for tc. The time of --duration may be a number of seconds.

While the bridge runs, the host does not handle the frames of A and B, so its addresses and routes on them do not \
work; if there are any, the command asks before it starts, or needs --yes. An interface can have one bridge at a time. \
All is restored when the bridge ends, even if it is killed. Needs root or CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF, and \
Linux 6.6.

With AF_XDP, an interface must have one queue (ethtool -L), frames have at most 3840 bytes, and VLAN tags that the \
interface strips are lost: turn this off with ethtool -K, rxvlan of the interface, and txvlan of the other end if it \
is a veth. It needs root, CAP_IPC_LOCK or 24 MiB of locked memory (ulimit -l).

At the end the command prints the settings, the rates between the first frame and the last, and the longest queues.

Examples:
  softclock wan eth0 eth1 --delay 40ms --jitter 5ms --loss 0.1%
  softclock wan eth0 eth1 --rate 100mbit,20mbit --delay 15ms --queue 200
";

/// Emulates the link until a signal or `--duration` ends the bridge.
pub(crate) fn run(options: &WanCommandOptions) -> Result<(), BridgeError> {
    // Keep 53 bits: JSON numbers below 2^53 are exact in all languages.
    let random = || RandomState::new().build_hasher().finish() >> 11;
    let seed = options.seed.unwrap_or_else(random);
    let told = options.is_random().then_some(seed);
    bridge::run(&options.bridge, SPIN_CAP, told, |_, _| {
        let shared = EmulatorOptions {
            tolerance: options.bridge.tolerance,
            overhead_bytes: options.bridge.overhead,
        };
        [0, 1].map(|direction| {
            // Different seeds, so that the two directions do not lose the same packets.
            let own = seed.wrapping_add(direction as u64);
            let model = Wan::new(options.of_direction(direction), own);
            Treatment {
                discipline: Emulator::new(model, shared),
                settings: options.settings(direction),
            }
        })
    })
}

impl WanCommandOptions {
    /// Whether any setting is random, so that the seed matters.
    fn is_random(&self) -> bool {
        let chances = [self.loss, self.reorder, self.duplicate, self.corrupt];
        let jitters = self.jitter.0.iter().any(|jitter| !jitter.0.is_zero());
        jitters
            || chances
                .iter()
                .flat_map(|each| each.0)
                .any(|chance| chance.0 > 0.0)
    }

    /// Reports options that contradict each other.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.rate.is_some() && self.queue.0.contains(&Packets(0)) {
            return Err(
                "a queue of 0 packets lets nothing pass; --queue 1 has room for the packet being sent".into(),
            );
        }
        for (reorder, delay) in self.reorder.0.iter().zip(&self.delay.0) {
            if reorder.0 > 0.0 && delay.0.is_zero() {
                return Err(
                    "--reorder has no effect without a delay that packets can skip; give --delay in the same direction"
                        .into(),
                );
            }
        }
        for (jitter, delay) in self.jitter.0.iter().zip(&self.delay.0) {
            if jitter.0 > delay.0 {
                let (jitter, delay) = (format_time(jitter.0), format_time(delay.0));
                return Err(format!(
                    "--jitter {jitter} is more than --delay {delay}, so that some delays would be negative; \
                     write a delay of {jitter} or more"
                ));
            }
        }
        Ok(())
    }

    /// Lists the settings of one direction that differ from a plain bridge.
    fn settings(&self, direction: usize) -> Vec<(String, String)> {
        let time = |name: &str, each: &Each<Time>| {
            let time = each.0[direction].0;
            (!time.is_zero()).then(|| (name.to_owned(), format_time(time)))
        };
        let chance = |name: &str, each: &Each<Percentage>| {
            let percent = each.0[direction].0 * 100.0;
            // Rounds off the error of the conversion between decimal and binary.
            let percent = (percent * 1e9).round() / 1e9;
            (percent > 0.0).then(|| (name.to_owned(), format!("{percent}%")))
        };
        let rate = self
            .rate
            .map(|each| ("rate".to_owned(), each.0[direction].to_string()));
        let queue = || ("queue".to_owned(), self.queue.0[direction].0.to_string());
        let times = [time("delay", &self.delay), time("jitter", &self.jitter)];
        let bottleneck = [rate, self.rate.map(|_| queue())];
        let chances = [
            chance("loss", &self.loss),
            chance("reorder", &self.reorder),
            chance("duplicate", &self.duplicate),
            chance("corrupt", &self.corrupt),
        ];
        let all = times.into_iter().chain(bottleneck).chain(chances);
        all.flatten().chain(self.bridge.settings()).collect()
    }

    /// Returns the options of one direction.
    fn of_direction(&self, direction: usize) -> WanOptions {
        let time = |each: &Each<Time>| -> Duration { each.0[direction].0 };
        let chance = |each: &Each<Percentage>| -> Chance { Chance::of_share(each.0[direction].0) };
        WanOptions {
            delay: time(&self.delay),
            jitter: time(&self.jitter),
            rate: self.rate.map(|each| each.0[direction]),
            queue_packets: self.queue.0[direction].0,
            loss: chance(&self.loss),
            reorder: chance(&self.reorder),
            duplicate: chance(&self.duplicate),
            corrupt: chance(&self.corrupt),
        }
    }
}
