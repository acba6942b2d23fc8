//! One direction of the path between two hosts, as `softclock wan` forms it: a bottleneck with a queue, a delay, and
//! faults; and a router in its middle, whose next link may get narrower.

use alloc::vec;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::time::Duration;

use softclock_core::Instant;

use super::random::Random;
use crate::checksum::{Addresses, transport_checksum};
use crate::ip;
use crate::link::{Header as LinkHeader, LinkAddress};

/// What one direction of a path does to packets. Chances are out of 1000.
#[derive(Clone, Debug)]
pub(super) struct PathPlan {
    /// The delay of each packet.
    pub(super) delay: Duration,
    /// The most that is added to it at random. Packets keep their order.
    pub(super) jitter: Duration,
    /// The rate of the bottleneck in bytes a second, and the length of its queue in bytes.
    pub(super) bottleneck: Option<(u64, u64)>,
    /// A rate in bytes a second and a burst in bytes; packets beyond them are dropped.
    pub(super) policer: Option<(u64, u64)>,
    pub(super) loss: u64,
    /// The chances that a run of losses begins, and that it ends, with each packet.
    pub(super) bursts: Option<(u64, u64)>,
    pub(super) duplication: u64,
    /// The chance that a packet is overtaken, and the longest time by which it is late.
    pub(super) reordering: (u64, Duration),
    pub(super) corruption: u64,
    /// The chance that a packet is marked instead of dropped if its sender understands it (RFC 3168).
    pub(super) marks: u64,
    /// Times at which the link behind the router gets another MTU, and whether the router reports packets that are too
    /// long.
    pub(super) widths: Vec<(Duration, usize, bool)>,
    /// Times in which the path loses everything: begin and length.
    pub(super) outages: Vec<(Duration, Duration)>,
}

impl PathPlan {
    pub(super) fn random(random: &mut Random, mtu: usize, is_v6: bool) -> Self {
        let ms = Duration::from_millis;
        // About a third of the paths have each fault, so that all pairs of faults come together.
        let mut often = |most: u64| match random.chance(350) {
            true => random.magnitude(1..=most),
            false => 0,
        };
        let (loss, duplication, corruption) = (often(120), often(150), often(80));
        let (reordering, marks) = (often(300), often(100));
        let delay = Duration::from_micros(random.magnitude(500..=100_000));
        let rate = |random: &mut Random| random.magnitude(20_000..=50_000_000);
        let bottleneck = random.chance(400).then(|| {
            let rate = rate(random);
            // From a few packets to a "bufferbloat" of a second.
            (
                rate,
                random.magnitude(4 * mtu as u64..=rate.max(5 * mtu as u64)),
            )
        });
        let policer = random.chance(150).then(|| {
            (
                rate(random),
                random.magnitude(4 * mtu as u64..=200_000.max(5 * mtu as u64)),
            )
        });
        let bursts = random
            .chance(200)
            .then(|| (random.within(1..=15), random.within(80..=700)));
        let widths = match random.chance(250) {
            true => (0..random.within(1..=3))
                .map(|_| {
                    let least = if is_v6 { 1280 } else { 560 };
                    let at = random.duration(Duration::ZERO..=Duration::from_secs(5));
                    let width = random.within(least..=mtu.max(1280) as u64) as usize;
                    (at, width, random.chance(600))
                })
                .collect(),
            false => vec![],
        };
        let outages = match random.chance(100) {
            true => vec![(
                random.duration(Duration::ZERO..=Duration::from_secs(3)),
                random.duration(ms(100)..=Duration::from_secs(6)),
            )],
            false => vec![],
        };
        Self {
            delay,
            jitter: match random.chance(300) {
                true => random.duration(Duration::ZERO..=delay),
                false => Duration::ZERO,
            },
            bottleneck,
            policer,
            loss,
            bursts,
            duplication,
            reordering: (reordering, random.duration(ms(1)..=ms(150))),
            corruption,
            marks,
            widths,
            outages,
        }
    }
}

/// One direction of a path.
pub(super) struct Path {
    pub(super) plan: PathPlan,
    random: Random,
    start: Instant,
    queue: Queue,
    policed: Queue,
    /// When the present run of losses ends at the latest.
    burst_ends: Option<Instant>,
    /// The latest arrival of a packet that was not overtaken.
    latest: Instant,
    pub(super) lost: u64,
}

/// The time at which all that was added to a queue has left it.
struct Queue(Instant);

impl Queue {
    /// The time at which a packet leaves a queue with this rate in bytes a second and this length in bytes. `None`: it
    /// is full.
    fn add(&mut self, now: Instant, bytes: usize, (rate, limit): (u64, u64)) -> Option<Instant> {
        let time = |bytes: u64| Duration::from_nanos(bytes * 1_000_000_000 / rate);
        let begin = self.0.max(now);
        if begin.since(now) > time(limit) {
            return None;
        }
        self.0 = begin + time(bytes as u64);
        Some(self.0)
    }
}

/// The fate of a packet.
pub(super) enum Fate {
    /// It arrives at these times, once for each copy.
    Arrives(Vec<(Instant, Vec<u8>)>),
    /// A router returns this report to the sender.
    TooBig(Instant, Vec<u8>),
}

impl Path {
    pub(super) fn new(plan: PathPlan, random: Random, start: Instant) -> Self {
        Self {
            plan,
            random,
            start,
            queue: Queue(start),
            policed: Queue(start),
            burst_ends: None,
            latest: start,
            lost: 0,
        }
    }

    /// Sends a frame over the path.
    pub(super) fn carry(&mut self, now: Instant, mut frame: Vec<u8>) -> Fate {
        let is_tcp = is_tcp(&frame);
        if !is_tcp {
            // Faults of the link itself are not the subject: address resolution and reports pass.
            return Fate::Arrives(vec![(now + self.plan.delay, frame)]);
        }
        if let Some(report) = self.too_big(now, &frame) {
            return report;
        }
        if self.is_lost(now, &mut frame) {
            self.lost += 1;
            return Fate::Arrives(vec![]);
        }
        let leaves = match self.plan.bottleneck {
            Some(rate) => self.queue.add(now, frame.len(), rate),
            None => Some(now),
        };
        let Some(leaves) = leaves else {
            self.lost += 1;
            return Fate::Arrives(vec![]);
        };
        let mut arrivals = Vec::new();
        let copies = 1 + u64::from(self.random.chance(self.plan.duplication));
        for _ in 0..copies {
            let at = self.arrival(leaves);
            let mut frame = frame.clone();
            if self.random.chance(self.plan.corruption) {
                // One bit, which each checksum finds.
                let bits = 8 * (frame.len() - LinkHeader::BYTES);
                let bit = 8 * LinkHeader::BYTES + (self.random.next() % bits as u64) as usize;
                frame[bit / 8] ^= 1 << (bit % 8);
            }
            arrivals.push((at, frame));
        }
        Fate::Arrives(arrivals)
    }

    /// The router's answer to a packet that is longer than its next link takes. Without an answer, the path is a "black
    /// hole".
    fn too_big(&mut self, now: Instant, frame: &[u8]) -> Option<Fate> {
        let since = now.since(self.start);
        let widths = self.plan.widths.iter().filter(|width| width.0 <= since);
        let &(_, width, reports) = widths.max_by_key(|width| width.0)?;
        if frame.len() - LinkHeader::BYTES <= width {
            return None;
        }
        self.lost += 1;
        Some(match reports {
            true => Fate::TooBig(now + self.plan.delay, report(frame, width)?),
            false => Fate::Arrives(vec![]),
        })
    }

    fn is_lost(&mut self, now: Instant, frame: &mut [u8]) -> bool {
        let since = now.since(self.start);
        let mut outages = self.plan.outages.iter();
        if outages.any(|&(begin, length)| begin <= since && since < begin + length) {
            return true;
        }
        if let Some((begin, end)) = self.plan.bursts {
            self.burst_ends = match self.burst_ends.filter(|&until| now < until) {
                Some(until) => (!self.random.chance(end)).then_some(until),
                None => self.random.chance(begin).then_some(now + MOST_BURST),
            };
            if self.burst_ends.is_some() {
                return true;
            }
        }
        if self.random.chance(self.plan.marks) {
            mark(frame);
        }
        let is_policed = self
            .plan
            .policer
            .is_some_and(|rate| self.policed.add(now, frame.len(), rate).is_none());
        is_policed || self.random.chance(self.plan.loss)
    }

    fn arrival(&mut self, leaves: Instant) -> Instant {
        let jitter = self.random.duration(Duration::ZERO..=self.plan.jitter);
        let at = (leaves + self.plan.delay + jitter).max(self.latest);
        let (chance, most) = self.plan.reordering;
        if self.random.chance(chance) {
            return at + self.random.duration(Duration::ZERO..=most);
        }
        self.latest = at;
        at
    }
}

/// The longest time of a run of losses. Probes of an idle connection come seconds apart, so a run that is counted in
/// packets alone would last for minutes, and an end would give up rightly (RFC 9293, 3.8.4).
const MOST_BURST: Duration = Duration::from_secs(30);

fn is_v4(frame: &[u8]) -> bool {
    frame[12..14] == [0x08, 0x00]
}

pub(super) fn is_tcp(frame: &[u8]) -> bool {
    match frame[12..14] {
        [0x08, 0x00] => frame[23] == softclock_wire::packet::TCP,
        [0x86, 0xdd] => frame[20] == softclock_wire::packet::TCP,
        _ => false,
    }
}

/// Marks a packet whose sender understands it: congestion experienced.
fn mark(frame: &mut [u8]) {
    let is_capable = match is_v4(frame) {
        true => frame[15] & 3 == 2,
        false => frame[15] & 0x30 == 0x20,
    };
    match (is_capable, is_v4(frame)) {
        (false, _) => {}
        (true, false) => frame[15] |= 0x30,
        (true, true) => {
            frame[15] |= 3;
            frame[24..26].fill(0);
            let checksum = !softclock_wire::packet::ones_complement_sum(&frame[14..34]);
            frame[24..26].copy_from_slice(&checksum.to_be_bytes());
        }
    }
}

/// "Fragmentation needed" or "packet too big" about a frame, from the address of its receiver.
fn report(frame: &[u8], mtu: usize) -> Option<Vec<u8>> {
    let packet = ip::parse(&frame[LinkHeader::BYTES..]).ok()?;
    let addresses = packet.addresses.swapped();
    let quoted = &frame[LinkHeader::BYTES..][..packet.header_bytes + 20];
    let mtu = (mtu as u32).to_be_bytes();
    let is_v4 = addresses.source.is_ipv4();
    let mut body = match is_v4 {
        true => vec![3, 4, 0, 0],
        false => vec![2, 0, 0, 0],
    };
    body.extend(mtu);
    body.extend_from_slice(quoted);
    let checksum = match is_v4 {
        true => !softclock_wire::packet::ones_complement_sum(&body),
        false => transport_checksum(addresses, softclock_wire::packet::ICMPV6, &body),
    };
    body[2..4].copy_from_slice(&checksum.to_be_bytes());
    Some(packet_frame(addresses, &body, frame))
}

fn packet_frame(addresses: Addresses, body: &[u8], about: &[u8]) -> Vec<u8> {
    let address = |at: usize| LinkAddress(about[at..at + 6].try_into().expect("six bytes"));
    let (protocol, ether_type) = match addresses.source {
        IpAddr::V4(_) => (softclock_wire::packet::ICMP, 0x0800),
        IpAddr::V6(_) => (softclock_wire::packet::ICMPV6, 0x86dd),
    };
    let header = LinkHeader {
        destination: address(6),
        source: address(0),
        ether_type,
    };
    let output = ip::Output {
        addresses,
        protocol,
        hop_limit: 64,
        traffic_class: 0,
        identification: 1,
        may_fragment: true,
    };
    let mut frame = header.to_bytes().to_vec();
    ip::write_header(&output, body.len(), &mut frame);
    frame.extend_from_slice(body);
    frame
}
