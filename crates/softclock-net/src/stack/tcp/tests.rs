//! Two stacks in virtual time.

mod close;
mod counts;
mod limits;
mod link;
mod offload;
mod open;
mod pair;
mod path_mtu;
mod simulation;
mod slack;
mod steering;
mod transfer;

use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use bytes::Bytes;
use softclock_core::Instant;

use super::*;
use crate::checksum::Verify;
use crate::demux::HashKey;
use crate::drops::DropReason;
use crate::link::LinkAddress;
use crate::routes::Routes;
use crate::stack::{Architecture, Settings as StackSettings, Stack};
use crate::tcp::connection::Error;
use crate::tcp::state::State;

type Host = Stack<Vec<u8>>;

const START: Instant = Instant::from_ns(1_000_000_000);

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn host(number: u8, change: impl FnOnce(&mut StackSettings)) -> Host {
    keyed_host(number, 7, change)
}

fn keyed_host(number: u8, key: u64, change: impl FnOnce(&mut StackSettings)) -> Host {
    let prefixes = vec![
        alloc::format!("10.0.0.{number}/24").parse().unwrap(),
        alloc::format!("2001:db8::{number}/64").parse().unwrap(),
    ];
    let mut settings = StackSettings::new(LinkAddress([2, 0, 0, 0, 0, number]), 1500);
    change(&mut settings);
    let routes = Routes::new(prefixes, vec![]).unwrap();
    Stack::new(settings, routes, HashKey([number.into(), key]))
}

/// Two hosts and the path between them, in virtual time.
struct Pair {
    now: Instant,
    hosts: [Host; 2],
    /// Frames on their way: the time of their arrival, and the number of the receiver.
    flying: Vec<(Instant, usize, Vec<u8>)>,
    delay: Duration,
    /// Decides the fate of a frame: none, or several copies, each with a delay of its own. May change it.
    fate: Fate,
    sent: [usize; 2],
    /// Whether frames that a device is to cut arrive whole, as between two ends of a virtual link.
    arrives_whole: bool,
}

type Fate = alloc::boxed::Box<dyn FnMut(usize, &mut Vec<u8>) -> Vec<Duration>>;

impl Pair {
    fn new(architecture: Architecture) -> Self {
        Self::with(|_, settings| settings.architecture = architecture)
    }

    fn with(mut change: impl FnMut(usize, &mut StackSettings)) -> Self {
        let hosts =
            [0, 1].map(|number| host(number as u8 + 1, |settings| change(number, settings)));
        Self {
            now: START,
            hosts,
            flying: Vec::new(),
            delay: ms(5),
            fate: alloc::boxed::Box::new(|_, _| vec![Duration::ZERO]),
            sent: [0, 0],
            arrives_whole: false,
        }
    }

    /// Does all that is due at the present time.
    fn settle(&mut self) {
        for _ in 0..10_000 {
            let mut is_silent = true;
            for number in 0..2 {
                let host = &mut self.hosts[number];
                while host.process(self.now, 8) > 0 {
                    is_silent = false;
                }
                for _ in 0..100 {
                    if host.next_timeout().is_none_or(|due| due > self.now) {
                        break;
                    }
                    host.on_timer(self.now);
                    is_silent = false;
                }
                while let Some(frame) = host.next_link_frame() {
                    is_silent = false;
                    for mut frame in offload::on_the_wire(&frame, self.arrives_whole) {
                        self.sent[number] += 1;
                        for extra in (self.fate)(number, &mut frame) {
                            let at = self.now + self.delay + extra;
                            self.flying.push((at, 1 - number, frame.clone()));
                        }
                    }
                }
                // Segments to the host itself are no frames, but cause work.
                let due = host.next_timeout();
                is_silent &= !host.has_work() && due.is_none_or(|due| due > self.now);
            }
            if is_silent {
                self.hosts.iter().for_each(check_states);
                return;
            }
        }
        panic!("the hosts never stop");
    }

    /// Moves to the next time at which something happens, at most to `end`. Returns whether something does.
    fn step(&mut self, end: Instant) -> bool {
        self.settle();
        let arrivals = self.flying.iter().map(|frame| frame.0);
        let timeouts = self.hosts.iter().filter_map(Host::next_timeout);
        let next = arrivals.chain(timeouts).min().filter(|&next| next <= end);
        let Some(next) = next else {
            self.now = end;
            return false;
        };
        self.now = self.now.max(next);
        self.flying.sort_by_key(|frame| frame.0);
        let split = self.flying.partition_point(|frame| frame.0 <= self.now);
        for (at, number, frame) in self.flying.drain(..split) {
            self.hosts[number].on_frame(self.now, at, frame, Verify::Yes);
        }
        self.settle();
        true
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.step(end) {}
    }

    fn run_until(&mut self, most: Duration, mut is_done: impl FnMut(&mut Self) -> bool) -> bool {
        let end = self.now + most;
        loop {
            if is_done(self) {
                return true;
            }
            if !self.step(end) {
                return is_done(self);
            }
        }
    }

    fn listen(&mut self, backlog: usize) -> TcpListenerId {
        let settings = TcpListenSettings::with_backlog(backlog);
        let local = "10.0.0.2:80".parse().unwrap();
        self.hosts[1].tcp_listen(local, settings).unwrap()
    }

    fn connect(&mut self) -> TcpId {
        let remote = "10.0.0.2:80".parse().unwrap();
        let now = self.now;
        self.hosts[0].tcp_connect(now, None, remote, None).unwrap()
    }

    /// A connection between the hosts.
    fn connected(&mut self) -> [TcpId; 2] {
        let listener = self.listen(10);
        let client = self.connect();
        self.run(ms(100));
        let (server, _) = self.hosts[1].tcp_accept(self.now, listener).unwrap();
        [client, server]
    }

    fn write(&mut self, host: usize, id: TcpId, bytes: &[u8]) -> usize {
        let bytes = Bytes::copy_from_slice(bytes);
        self.hosts[host].tcp_write(self.now, id, bytes).unwrap()
    }

    fn read(&mut self, host: usize, id: TcpId) -> Result<Vec<u8>, TcpError> {
        let mut bytes = vec![0; 10_000];
        let read = self.hosts[host].tcp_read(self.now, id, &mut bytes)?;
        bytes.truncate(read);
        Ok(bytes)
    }

    /// Writes as much of the rest of a stream as the connection takes, and counts it as written.
    fn write_rest(&mut self, host: usize, id: TcpId, bytes: &[u8], written: &mut usize) {
        let rest = Bytes::copy_from_slice(&bytes[*written..]);
        *written += self.hosts[host].tcp_write(self.now, id, rest).unwrap_or(0);
    }

    /// Appends all that has arrived.
    fn read_all(&mut self, host: usize, id: TcpId, received: &mut Vec<u8>) {
        while let Ok(bytes) = self.read(host, id) {
            received.extend(bytes);
        }
    }

    /// Sends what is not yet written of a stream from the first host to the second, and checks that all of it arrives
    /// there.
    fn transfer(&mut self, [client, server]: [TcpId; 2], bytes: &[u8], mut written: usize) {
        let mut received = Vec::new();
        self.run_until(Duration::from_secs(100), |pair| {
            pair.write_rest(0, client, bytes, &mut written);
            pair.read_all(1, server, &mut received);
            received.len() == bytes.len()
        });
        assert!(received == bytes, "{} bytes", received.len());
    }

    fn state(&self, host: usize, id: TcpId) -> Option<State> {
        self.hosts[host].tcp_state(id)
    }
}

/// Compares the count of connections by state with the connections themselves.
fn check_states(host: &Host) {
    let tcp = &host.tcp;
    let mut states = State::ALL.map(|state| (state, 0));
    for (_, endpoint) in tcp.connections.iter() {
        states[endpoint.connection.state() as usize].1 += 1;
    }
    states[State::TimeWait as usize].1 = tcp.time_wait.len();
    states[State::SynReceived as usize].1 += tcp.shared.half_open();
    assert!(host.tcp_states().eq(states), "{states:?}");
}

/// The bytes of a stream, which tell each place from others.
fn stream(length: usize) -> Vec<u8> {
    (0..length as u32)
        .map(|i| (i ^ (i >> 8) ^ (i >> 15)) as u8)
        .collect()
}
