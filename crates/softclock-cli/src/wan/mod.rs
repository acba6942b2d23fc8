//! `softclock wan`: a bridge that behaves as a wide-area link.
//!
//! - [`each`]: settings for each direction.

mod each;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use softclock_core::Rate;
use softclock_core::wan::{Chance, Wan, WanOptions};
use softclock_link::Emulator;

use crate::bridge::{self, BridgeError, BridgeOptions, Treatment};
use crate::values::{format_time, whole};
use each::{Each, Packets, Percentage, Time};

/// The options of `softclock wan`.
#[derive(Args, Clone, Debug)]
#[command(after_help = NOTES)]
pub(crate) struct WanCommandOptions {
    #[command(flatten)]
    bridge: BridgeOptions,

    /// How long packets travel, such as 20ms
    #[arg(long, value_name = "TIME", default_value = "0")]
    delay: Each<Time>,

    /// By how much more or less, at most; uniform
    #[arg(long, value_name = "TIME", default_value = "0")]
    jitter: Each<Time>,

    /// Rate of the bottleneck, such as 20mbit [default: no bottleneck]
    #[arg(long, value_name = "RATE")]
    rate: Option<Each<Rate>>,

    /// Packets in the bottleneck at most
    #[arg(long, value_name = "PACKETS", default_value = "1000")]
    queue: Each<Packets>,

    /// Packets that are lost at random
    #[arg(long, value_name = "PERCENT", default_value = "0")]
    loss: Each<Percentage>,

    /// Packets that overtake others by travelling without the delay
    #[arg(long, value_name = "PERCENT", default_value = "0")]
    reorder: Each<Percentage>,

    /// Packets that arrive twice
    #[arg(long, value_name = "PERCENT", default_value = "0")]
    duplicate: Each<Percentage>,

    /// Packets in which a bit changes, behind Ethernet's header
    #[arg(long, value_name = "PERCENT", default_value = "0")]
    corrupt: Each<Percentage>,

    /// Where chance begins: the same seed and packets have the same fates [default: another each time]
    #[arg(long, value_name = "N", value_parser = whole(0..=u64::MAX))]
    seed: Option<u64>,

    /// Settings in a TOML file, named like these flags, which win over it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

const NOTES: &str = "\
One value holds for each direction; two, with a comma between, are for packets from A to B and from B to A. Delays \
count from the moment at which the kernel received the packet. Order is kept, but for --reorder.

Times are written 40ms, 500us, 1.5s, and rates 20mbit, 64kbit, 10mbyte (bytes). Refused, as readers understand it \
differently: a number alone, and mbps, which is megabytes for tc. The time of --duration may be a number of seconds.

The host handles no frames of A and B while this runs, so its addresses and routes by them do not work; it asks \
before it takes those, or wants --yes. An interface has one bridge at a time. All is as before when it ends, also \
if it is killed. Needs root or CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF, and Linux 6.6.

By AF_XDP, an interface has one queue (ethtool -L), frames have 3840 bytes at most, and tags of VLANs that the \
interface takes off are lost: turn that off by ethtool -K, rxvlan of the interface, and txvlan of the other end if it \
is a veth. It needs root, CAP_IPC_LOCK or 24 MiB of locked memory (ulimit -l).

The end says what was done: by which settings, at what rates between the first frame and the last, and how much \
waited at most.

Examples:
  softclock wan eth0 eth1 --delay 40ms --jitter 5ms --loss 0.1%
  softclock wan eth0 eth1 --rate 100mbit,20mbit --delay 15ms --queue 200
";

/// Emulates until it is ended.
pub(crate) fn run(options: &WanCommandOptions) -> Result<(), BridgeError> {
    // Numbers of JSON are exact below 2^53 in all languages.
    let random = || RandomState::new().build_hasher().finish() >> 11;
    let seed = options.seed.unwrap_or_else(random);
    let told = options.is_random().then_some(seed);
    bridge::run(&options.bridge, told, |_, _| {
        let overhead = options.bridge.overhead;
        [0, 1].map(|direction| {
            let own = seed.wrapping_add(direction as u64);
            let model = Wan::new(options.of_direction(direction), own);
            Treatment {
                discipline: Emulator::new(model, overhead),
                settings: options.settings(direction),
            }
        })
    })
}

impl WanCommandOptions {
    /// Whether anything depends on chance, so that the seed matters.
    fn is_random(&self) -> bool {
        let chances = [self.loss, self.reorder, self.duplicate, self.corrupt];
        let jitters = self.jitter.0.iter().any(|jitter| !jitter.0.is_zero());
        jitters
            || chances
                .iter()
                .flat_map(|each| each.0)
                .any(|chance| chance.0 > 0.0)
    }

    /// Finds options that contradict each other.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.rate.is_some() && self.queue.0.contains(&Packets(0)) {
            return Err(
                "a queue of 0 packets lets nothing pass; --queue 1 has room for the one that is being sent".into(),
            );
        }
        for (jitter, delay) in self.jitter.0.iter().zip(&self.delay.0) {
            if jitter.0 > delay.0 {
                let (jitter, delay) = (format_time(jitter.0), format_time(delay.0));
                return Err(format!(
                    "--jitter {jitter} is more than --delay {delay}, and no packet travels for less than no time; \
                     write a delay of {jitter} or more"
                ));
            }
        }
        Ok(())
    }

    /// What differs from a link that does nothing, in one direction.
    fn settings(&self, direction: usize) -> Vec<(String, String)> {
        let time = |name: &str, each: &Each<Time>| {
            let time = each.0[direction].0;
            (!time.is_zero()).then(|| (name.to_owned(), format_time(time)))
        };
        let chance = |name: &str, each: &Each<Percentage>| {
            let percent = each.0[direction].0 * 100.0;
            // Shares lose their last digits between decimal and binary.
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
        let bytes = self.bridge.overhead;
        let overhead = (bytes > 0).then(|| ("overhead".to_owned(), bytes.to_string()));
        let all = times.into_iter().chain(bottleneck).chain(chances);
        all.chain([overhead]).flatten().collect()
    }

    /// What holds for one direction.
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
