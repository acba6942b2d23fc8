//! What a seed means: the settings of two hosts, the path between them, and the owners of their connections.

use alloc::vec::Vec;
use core::time::Duration;

use softclock_core::Instant;

use super::super::{StackSettings, TcpSettings};
use super::application::{ApplicationPlan, End};
use super::path::PathPlan;
use super::random::Random;
use crate::stack::Architecture;
use crate::tcp::congestion::{Algorithm, IdlePolicy};
use crate::tcp::listen::CookieUse;
use crate::tcp::peer::EcnMode;
use crate::tcp::settings::Settings;

/// A simulation.
#[derive(Clone, Debug)]
pub(super) struct Scenario {
    pub(super) is_v6: bool,
    pub(super) hosts: [HostPlan; 2],
    pub(super) paths: [PathPlan; 2],
    pub(super) connections: Vec<[ApplicationPlan; 2]>,
    pub(super) wraps: Wraps,
    /// The longest time until the listener's owner accepts.
    pub(super) accept_latency: Duration,
    pub(super) cookies: CookieUse,
}

/// A number that wraps early in the first connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wraps {
    /// The sequence numbers of this host, after as many bytes.
    Sequence(usize, u32),
    /// The clock of time stamps of this host, after as many milliseconds.
    Timestamps(usize, u32),
    Nothing,
}

/// A host.
#[derive(Clone, Debug)]
pub(super) struct HostPlan {
    pub(super) architecture: Architecture,
    pub(super) mtu: usize,
    pub(super) tcp: TcpSettings,
    /// The chance of 1000 in each step that the whole thread rests, and the longest such time.
    pub(super) stalls: (u64, Duration),
}

impl Scenario {
    pub(super) fn random(random: &mut Random) -> Self {
        let is_v6 = random.chance(300);
        let hosts = [(); 2].map(|()| HostPlan::random(random, is_v6));
        let mtu = hosts[0].mtu.min(hosts[1].mtu);
        let paths = [(); 2].map(|()| PathPlan::random(random, mtu, is_v6));
        let most = most_bytes(&hosts, &paths);
        let number = random.pick(&[1, 1, 1, 2, 3]);
        let connections = (0..number)
            .map(|_| applications(random, most / number))
            .collect();
        Self {
            is_v6,
            hosts,
            paths,
            connections,
            wraps: match random.within(0..=3) {
                0 | 1 => {
                    let bytes = random.magnitude(0..=50_000) as u32;
                    Wraps::Sequence(random.within(0..=1) as usize, bytes)
                }
                2 => {
                    let ms = random.magnitude(0..=5000) as u32;
                    Wraps::Timestamps(random.within(0..=1) as usize, ms)
                }
                _ => Wraps::Nothing,
            },
            accept_latency: Duration::from_micros(random.magnitude(1..=300_000)),
            cookies: random.pick(&[CookieUse::WhenFull, CookieUse::WhenFull, CookieUse::Always]),
        }
    }

    pub(super) fn architecture(&self, host: usize, settings: &mut StackSettings) {
        let plan = &self.hosts[host];
        settings.architecture = plan.architecture;
        settings.mtu = plan.mtu;
        settings.tcp = plan.tcp.clone();
    }

    /// Whether an owner resets its connection.
    pub(super) fn aborts(&self, connection: usize) -> bool {
        let ends = self.connections[connection].iter().map(|plan| plan.end);
        ends.into_iter().any(|end| matches!(end, End::Aborts(_)))
    }

    /// Whether a connection may fail although both ends do all they can.
    pub(super) fn is_hopeless(&self) -> bool {
        let is_bad = |path: &PathPlan| {
            path.loss > 60
                || path.bursts.is_some()
                || path.corruption > 40
                || path.policer.is_some()
        };
        self.paths.iter().any(is_bad)
    }
}

/// The bytes that a simulation may carry in a bearable number of segments.
fn most_bytes(hosts: &[HostPlan; 2], paths: &[PathPlan; 2]) -> u64 {
    let window = hosts
        .iter()
        .map(|host| u64::from(host.tcp.connection.receive.buffer_bytes));
    let window = window.min().unwrap_or(0);
    let rates = paths
        .iter()
        .flat_map(|path| [path.bottleneck, path.policer]);
    let rate = rates
        .flatten()
        .map(|(rate, _)| rate)
        .min()
        .unwrap_or(u64::MAX);
    (window * 100)
        .min(rate.saturating_mul(60))
        .clamp(2000, 1_000_000)
}

fn applications(random: &mut Random, most: u64) -> [ApplicationPlan; 2] {
    let mut plans = [(); 2].map(|()| {
        let length = match random.chance(200) {
            true => 0,
            false => random.magnitude(1..=most),
        };
        let mut plan = ApplicationPlan::random(random, length);
        // With Nagle's rule a writer of a few bytes sends one segment for each delayed acknowledgment.
        plan.length = plan.length.min(plan.most_written * MOST_PIECES);
        plan
    });
    for number in 0..2 {
        let peer = &plans[1 - number];
        let (peer_length, peer_end) = (peer.length, peer.end);
        let own = plans[number].length;
        plans[number].end = match random.within(0..=9) {
            0..=2 => End::Leaves,
            // Data that arrives after the owner has left resets the connection.
            3 if peer_length == 0 => End::LeavesAtOnce,
            4 if peer_end != End::Second => End::Second,
            5 if random.chance(300) => End::Aborts(random.within(0..=own + peer_length)),
            _ => End::Patient,
        };
    }
    plans
}

impl HostPlan {
    fn random(random: &mut Random, is_v6: bool) -> Self {
        let least = if is_v6 { 1280 } else { 576 };
        let mut tcp = TcpSettings::default();
        if random.chance(150) {
            tcp.memory = random.magnitude(20_000..=500_000) as usize;
            tcp.least_memory = random.within(4000..=16_000) as usize;
        }
        tcp.connection = settings(random);
        Self {
            architecture: random.pick(&Architecture::ALL),
            mtu: random.pick(&[1500, 1500, 1500, least, 1280, 9000]),
            tcp,
            stalls: match random.chance(250) {
                true => (
                    random.within(1..=30),
                    Duration::from_micros(random.magnitude(100..=700_000)),
                ),
                false => (0, Duration::ZERO),
            },
        }
    }
}

fn settings(random: &mut Random) -> Settings {
    let mut settings = Settings {
        has_sack: random.chance(750),
        has_timestamps: random.chance(700),
        has_window_scale: random.chance(800),
        ecn: random.pick(&[EcnMode::Off, EcnMode::Accept, EcnMode::On]),
        ..Settings::default()
    };
    // No keep-alive, no end: a peer that is reset while all is acknowledged would never learn of it.
    settings.keep_alive.is_on = true;
    settings.keep_alive.idle = random.duration(Duration::from_secs(5)..=Duration::from_secs(100));
    settings.keep_alive.interval = Duration::from_secs(10);
    settings.keep_alive.probes = 20;
    // Owners that leave have all the time that they need.
    settings.orphan_timeout = Duration::from_secs(3600);
    settings.fin_wait_2 = Duration::from_secs(3600);
    if random.chance(100) {
        settings.most_mss = Some(random.within(200..=1400) as u16);
    }
    let receive = &mut settings.receive;
    if random.chance(300) {
        receive.buffer_bytes = random.magnitude(1000..=300_000) as u32;
        receive.most_buffer_bytes = match random.chance(500) {
            true => receive.buffer_bytes,
            false => random.magnitude(100_000..=10_000_000) as u32,
        };
    }
    if random.chance(150) {
        receive.out_of_order_ranges = random.within(1..=10) as u16;
    }
    if random.chance(150) {
        receive.packet_memory_bytes = random.magnitude(1..=50_000) as u32;
    }
    if random.chance(200) {
        receive.ack_delay = random.duration(Duration::from_millis(1)..=Duration::from_millis(400));
    }
    receive.quick_acks = random.pick(&[0, 0, 4, 200]);
    let send = &mut settings.send;
    if random.chance(250) {
        send.buffer = random.magnitude(500..=200_000) as u32;
        send.most_buffer = send.buffer * random.pick(&[1, 1, 10]);
    }
    send.has_nagle = random.chance(700);
    send.congestion.algorithm = random.pick(&[Algorithm::Cubic, Algorithm::NewReno]);
    send.congestion.idle = random.pick(&[IdlePolicy::Validate, IdlePolicy::Restart]);
    send.congestion.hystart = random.chance(700);
    send.congestion.initial_segments = random.pick(&[10, 10, 1, 4, 30]);
    send.retries = 30;
    if random.chance(100) {
        send.minimum_timeout = Duration::from_millis(random.within(5..=1000));
    }
    settings
}

/// The most pieces of a stream. More of them may take longer than a simulation, in a buffer that holds four.
const MOST_PIECES: u64 = 5000;

/// The time at which a simulation begins, unless a wrap needs another.
pub(super) const START: Instant = Instant::from_ns(1_000_000_000);
