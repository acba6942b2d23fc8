//! The kernel's queueing disciplines at the bridge's ports, as commands for tc.

use std::fmt::Write;
use std::time::Duration;

use softclock_core::Rate;

use super::FRAME_BYTES;
use super::flows::FIRST_PORT;
use super::shaper::{QUEUE, limit, share};

/// HTB and its settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Htb {
    /// The rate of all classes together.
    pub rate: Rate,
    /// The number of classes.
    pub classes: u16,
    /// The burst of each class.
    pub burst: Burst,
}

/// A class's `burst` and `cburst`, see tc-htb(8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Burst {
    /// tc's default, 1600 bytes.
    Default,
    /// This number of bytes.
    Bytes(u64),
    /// The bytes of one millisecond at the class's rate.
    Millisecond,
    /// The bytes of one millisecond at the class's rate, sent at no more than this rate: `ceil`, with a `cburst` of one
    /// packet, which the manual has "for perfect evening out".
    AtCeil(Rate),
}

impl Htb {
    /// Returns one class of this rate, with tc's defaults.
    pub const fn of_rate(rate: Rate) -> Self {
        Self {
            rate,
            classes: 1,
            burst: Burst::Default,
        }
    }

    /// Returns the commands for classes of equal rates. A hash table of filters finds them by the destination port, the
    /// fastest way that tc has.
    pub(super) fn commands(self) -> String {
        let Self {
            rate,
            classes,
            burst,
        } = self;
        let mut commands = "qdisc add dev out0 root handle 1: htb default 1\n".to_owned();
        let each = share(rate, classes);
        let (bps, burst) = (each.bps(), burst.words(each));
        let limit = limit(classes);
        for class in 1..=classes {
            let _ = write!(
                commands,
                "class add dev out0 parent 1: classid 1:{class:x} htb rate {bps}bit quantum {FRAME_BYTES}{burst}\n\
                 qdisc add dev out0 parent 1:{class:x} pfifo limit {limit}\n"
            );
        }
        // The hash table is indexed by the low byte of the destination port.
        if classes > 1 {
            commands.push_str(
                "filter add dev out0 parent 1: prio 1 handle 2: protocol ip u32 divisor 256\n\
                 filter add dev out0 parent 1: prio 1 protocol ip u32 ht 800:: match u8 0 0 at 0 \
                 hashkey mask 0x000000ff at 20 link 2:\n",
            );
        }
        for class in (1..=classes).filter(|_| classes > 1) {
            let port = FIRST_PORT + class - 1;
            let _ = writeln!(
                commands,
                "filter add dev out0 parent 1: prio 1 protocol ip u32 ht 2:{:x} \
                 match u16 {port} 0xffff at 22 classid 1:{class:x}",
                port & 0xff
            );
        }
        commands
    }
}

impl Burst {
    /// Returns the arguments for a class of this rate.
    fn words(self, rate: Rate) -> String {
        match self {
            Self::Default => String::new(),
            Self::Bytes(bytes) => format!(" burst {bytes} cburst {bytes}"),
            Self::Millisecond => Self::Bytes(millisecond_bytes(rate)).words(rate),
            Self::AtCeil(ceil) => {
                let (ceil, burst) = (ceil.bps(), millisecond_bytes(rate));
                format!(" ceil {ceil}bit burst {burst} cburst {FRAME_BYTES}")
            }
        }
    }
}

/// Returns the command for TBF with a bucket of one millisecond. A peak rate, with a `minburst` of the link's MTU
/// (tc-tbf(8)), keeps bursts from leaving at the link's speed.
pub(super) fn tbf(rate: Rate, peak: Option<Rate>) -> String {
    let (bps, burst) = (rate.bps(), millisecond_bytes(rate));
    let limit = u64::from(FRAME_BYTES) * QUEUE;
    let mut command =
        format!("tc qdisc add dev out0 root tbf rate {bps}bit burst {burst} limit {limit}");
    if let Some(peak) = peak {
        let _ = write!(
            command,
            " peakrate {}bit minburst {FRAME_BYTES}",
            peak.bps()
        );
    }
    command
}

/// Returns the commands for netem in both directions. `limit` must also hold the delayed frames, see tc-netem(8).
pub(super) fn netem(delay: Duration) -> String {
    let us = delay.as_micros();
    ["in0", "out0"]
        .map(|link| format!("qdisc add dev {link} root netem delay {us}us limit {NETEM_QUEUE}\n"))
        .concat()
}

/// Returns the bytes of one millisecond, but no less than two frames.
fn millisecond_bytes(rate: Rate) -> u64 {
    (rate.bps() / 8_000).max(2 * u64::from(FRAME_BYTES))
}

/// netem's `limit` in frames: more than 50 ms at 1 Gbit/s.
const NETEM_QUEUE: u64 = 10_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::bridge::mbit;

    #[test]
    fn classes_are_found_by_port() {
        let htb = Htb::of_rate(mbit(100));
        let commands = Htb { classes: 2, ..htb }.commands();
        assert!(commands.contains("classid 1:2 htb rate 50000000bit"));
        assert!(commands.contains("ht 2:21 match u16 20001 0xffff"));
        assert_eq!(htb.commands().lines().count(), 3);
    }

    #[test]
    fn buckets_are_those_of_the_manuals() {
        let words = |burst: Burst| burst.words(mbit(100));
        assert_eq!(words(Burst::Default), "");
        assert_eq!(words(Burst::Bytes(3000)), " burst 3000 cburst 3000");
        assert_eq!(words(Burst::Millisecond), " burst 12500 cburst 12500");
        let at_ceil = " ceil 115000000bit burst 12500 cburst 1500";
        assert_eq!(words(Burst::AtCeil(mbit(115))), at_ceil);
        let tbf = tbf(mbit(100), Some(mbit(115)));
        assert!(
            tbf.ends_with(" peakrate 115000000bit minburst 1500"),
            "{tbf}"
        );
        let delay = "qdisc add dev out0 root netem delay 10000us limit 10000\n";
        assert!(netem(Duration::from_millis(10)).ends_with(delay));
    }
}
