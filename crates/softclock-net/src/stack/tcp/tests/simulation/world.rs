//! Two hosts, the path between them, and the owners of their connections, in virtual time.

use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::time::Duration;

use softclock_core::Instant;

extern crate std;

use super::super::*;
use super::application::{Application, End};
use super::path::{Fate, Path, is_tcp};
use super::random::Random;
use super::scenario::{START, Scenario, Wraps};
use super::wire::Wire;
use crate::demux::{Flow, Transport};
use crate::tcp::listen::CookieUse;
use crate::tcp::send::ClockUnit;

/// A frame on its way: the time of arrival, a running number, the receiver, the bytes.
type Flying = (Instant, u64, usize, Vec<u8>);

/// A simulation that runs.
pub(super) struct World {
    pub(super) scenario: Scenario,
    random: Random,
    pub(super) now: Instant,
    hosts: [Host; 2],
    paths: [Path; 2],
    flying: BinaryHeap<Reverse<Flying>>,
    frames: u64,
    /// When a host that rests goes on.
    stalled: [Option<Instant>; 2],
    listener: TcpListenerId,
    /// When the listener's owner accepts. `None`: it waits.
    accepts_at: Option<Instant>,
    owners: Vec<[Option<Application>; 2]>,
    pub(super) wire: Wire,
    pub(super) steps: u64,
    /// Whether segments are printed.
    pub(super) prints: bool,
}

impl World {
    pub(super) fn new(scenario: Scenario, random: &mut Random) -> Self {
        let key = random.next();
        let mut hosts = [0, 1].map(|number| {
            let change = |settings: &mut StackSettings| scenario.architecture(number, settings);
            keyed_host(number as u8 + 1, key, change)
        });
        let now = start(&scenario, &hosts);
        let mut settings = TcpListenSettings::with_backlog(10);
        settings.listen.get_or_insert_default().cookies = scenario.cookies;
        let server = socket(&scenario, 1, SERVER_PORT);
        let listener = hosts[1].tcp_listen(server, settings).unwrap();
        let paths = [0, 1].map(|number: usize| {
            let plan = scenario.paths[number].clone();
            Path::new(plan, random.fork(), now)
        });
        let mut world = Self {
            random: random.fork(),
            now,
            hosts,
            paths,
            flying: BinaryHeap::new(),
            frames: 0,
            stalled: [None, None],
            listener,
            accepts_at: Some(now),
            owners: Vec::new(),
            wire: Wire::default(),
            steps: 0,
            prints: false,
            scenario,
        };
        for number in 0..world.scenario.connections.len() {
            let local = socket(&world.scenario, 0, CLIENT_PORT + number as u16);
            let id = world.hosts[0].tcp_connect(now, Some(local), server, None);
            let client = world.owner(number, 0, id.unwrap());
            world.owners.push([Some(client), None]);
        }
        world
    }

    fn owner(&mut self, connection: usize, host: usize, id: TcpId) -> Application {
        let mut plan = self.scenario.connections[connection][host].clone();
        let is_short = self.scenario.hosts[host].tcp.memory < TcpSettings::default().memory;
        plan.competes = is_short && self.scenario.connections.len() > 1;
        let streams = [stream(connection, host), stream(connection, 1 - host)];
        Application::new(plan, id, streams, self.random.fork(), self.now)
    }

    /// Runs until all owners have left, and then until both stacks are silent.
    pub(super) fn run(&mut self) {
        let end = self.now + MOST_TIME;
        while !self.is_done() {
            assert!(self.step(end), "it does not end: {}", self.report());
        }
        self.judge();
        // TIME-WAIT, keep-alive, and orphans that send their rest.
        let end = self.now + MOST_TIME;
        while self.step(end) {}
        let states: Vec<_> = self.hosts.iter().flat_map(Host::tcp_states).collect();
        let left: usize = states.iter().map(|(_, count)| count).sum();
        assert_eq!(left, 0, "connections are left: {}", self.report());
        let memory = self.hosts.each_ref().map(Host::tcp_memory);
        assert_eq!(memory, [0, 0], "memory is left");
        let timers = self.hosts.each_ref().map(Host::next_timeout);
        assert_eq!(timers, [None, None], "timers are left");
    }

    fn is_done(&self) -> bool {
        self.owners
            .iter()
            .enumerate()
            .all(|(number, [client, server])| {
                let is_done = |owner: &Application| owner.is_done;
                let client = client.as_ref().expect("connects at once");
                // A client that has failed or aborted early may have no peer.
                let has_no_peer = client.error.is_some() || self.may_fail(number);
                is_done(client) && server.as_ref().map_or(has_no_peer, is_done)
            })
    }

    /// Whether a connection may fail although no path is without hope: an owner resets it, or the listener does. With
    /// cookies the listener knows nothing of a handshake, so a segment that overtakes the first is an acknowledgment in
    /// LISTEN, which a reset answers (RFC 9293, 3.10.7.2).
    fn may_fail(&self, number: usize) -> bool {
        let port = CLIENT_PORT + number as u16;
        let has_cookies = self.scenario.cookies == CookieUse::Always;
        self.scenario.aborts(number) || (has_cookies && self.wire.was_refused(port))
    }

    /// Whether what the owners have got is what they must get.
    fn judge(&self) {
        for (number, owners) in self.owners.iter().enumerate() {
            let plans = &self.scenario.connections[number];
            let may_fail = self.may_fail(number);
            for host in 0..2 {
                let Some(owner) = &owners[host] else {
                    let client = owners[0].as_ref().and_then(|client| client.error);
                    assert!(
                        may_fail || self.scenario.is_hopeless(),
                        "no peer: {client:?}"
                    );
                    continue;
                };
                let all = plans[1 - host].length;
                assert!(owner.read <= all, "too much read");
                if may_fail || (owners[1].is_none() && self.scenario.is_hopeless()) {
                    continue;
                }
                let has_left = owner.plan.end == End::LeavesAtOnce;
                assert!(
                    has_left || owner.read == all,
                    "lost bytes: {}",
                    self.report()
                );
                assert!(has_left || owner.has_end, "no end: {}", self.report());
                assert!(owner.error.is_some() || owner.written == plans[host].length);
                // The peer may have forgotten TIME-WAIT when the last FIN of this end arrives.
                assert_eq!(owner.error, None, "{}", self.report());
            }
        }
    }

    /// Moves to the next time at which something happens, and does it. Returns whether something does.
    fn step(&mut self, end: Instant) -> bool {
        self.steps += 1;
        self.settle();
        let arrival = self.flying.peek().map(|Reverse((at, ..))| *at);
        let accepts_at = self.accepts_at.filter(|_| self.stalled[1].is_none());
        let mut next = arrival.into_iter().chain(accepts_at).min();
        for number in 0..2 {
            let due = match self.stalled[number] {
                Some(until) => Some(until),
                None => {
                    let owners = self
                        .owners
                        .iter()
                        .filter_map(|owners| owners[number].as_ref());
                    let runs = owners.filter_map(|owner| owner.runs_at);
                    runs.chain(self.wakes_at(number)).min()
                }
            };
            next = next.into_iter().chain(due).min();
        }
        let Some(next) = next.filter(|&next| next <= end) else {
            return false;
        };
        self.now = self.now.max(next);
        self.bounds();
        for number in 0..2 {
            self.stall(number);
        }
        self.deliver();
        self.settle();
        self.run_owners();
        self.settle();
        true
    }

    /// Lets the thread of a host rest, by chance.
    fn stall(&mut self, number: usize) {
        if self.stalled[number].is_some_and(|until| until <= self.now) {
            self.stalled[number] = None;
        }
        let (chance, most) = self.scenario.hosts[number].stalls;
        if self.stalled[number].is_none() && self.random.chance(chance) {
            let time = self.random.duration(Duration::from_micros(1)..=most);
            self.stalled[number] = Some(self.now + time);
        }
    }

    /// Gives the frames that have arrived to the hosts. Those of a host that rests wait.
    fn deliver(&mut self) {
        let mut waiting = Vec::new();
        while let Some(Reverse((at, ..))) = self.flying.peek()
            && *at <= self.now
            && let Some(Reverse((at, frame, number, bytes))) = self.flying.pop()
        {
            match self.stalled[number] {
                Some(_) => waiting.push((at, frame, number, bytes)),
                None => self.hosts[number].on_frame(self.now, at, bytes, Verify::Yes),
            }
        }
        // They are looked at again when the host goes on.
        for (at, frame, number, bytes) in waiting {
            let until = self.stalled[number].unwrap_or(self.now);
            self.flying
                .push(Reverse((at.max(until), frame, number, bytes)));
        }
    }

    fn run_owners(&mut self) {
        if self.accepts_at.is_some_and(|at| at <= self.now) && self.stalled[1].is_none() {
            self.accept();
        }
        for connection in 0..self.owners.len() {
            for number in 0..2 {
                let (now, is_stalled) = (self.now, self.stalled[number].is_some());
                if let Some(owner) = &mut self.owners[connection][number]
                    && !is_stalled
                    && owner.runs_at.is_some_and(|at| at <= now)
                    && !owner.is_done
                {
                    owner.run(now, &mut self.hosts[number]);
                    if owner.is_done {
                        owner.runs_at = None;
                    }
                }
            }
        }
    }

    fn accept(&mut self) {
        self.accepts_at = None;
        while let Some((id, remote)) = self.hosts[1].tcp_accept(self.now, self.listener) {
            let connection = usize::from(remote.port() - CLIENT_PORT);
            if let Some(before) = &self.owners[connection][1] {
                // A cookie is valid until it expires: a late copy of the first segment opens the connection again.
                let is_over = matches!(
                    self.hosts[1].tcp_state(before.id),
                    None | Some(State::Closed)
                );
                let has_cookies = self.scenario.cookies == CookieUse::Always;
                assert!(
                    is_over && has_cookies,
                    "the same connection is accepted twice"
                );
                self.hosts[1].tcp_abort(self.now, id);
                continue;
            }
            self.owners[connection][1] = Some(self.owner(connection, 1, id));
        }
        if !self.hosts[1].tcp_wait_accept(self.listener) {
            self.accepts_at = Some(self.now + Duration::from_micros(1));
        }
    }

    /// Does all that is due at the present time, but for the owners.
    fn settle(&mut self) {
        let mut rounds = 0;
        while self.settle_once() {
            rounds += 1;
            assert!(rounds < 10_000, "it does not come to rest");
        }
        for number in 0..2 {
            if self.stalled[number].is_none() {
                self.check_timers(number);
            }
        }
    }

    fn settle_once(&mut self) -> bool {
        let mut is_busy = false;
        for number in 0..2 {
            if self.stalled[number].is_some() {
                continue;
            }
            let host = &mut self.hosts[number];
            while host.process(self.now, 8) > 0 {
                is_busy = true;
            }
            if host.next_timeout().is_some_and(|due| due <= self.now) {
                host.on_timer(self.now);
                is_busy = true;
            }
            while let Some(woken) = self.hosts[number].tcp_next_woken() {
                is_busy = true;
                self.on_woken(number, woken);
            }
            while let Some(frame) = self.hosts[number].next_frame() {
                is_busy = true;
                self.send(number, frame);
            }
            // A connection without a segment may have a timer that is due.
            let due = self.hosts[number].next_timeout();
            is_busy |= due.is_some_and(|due| due <= self.now);
        }
        is_busy
    }

    fn on_woken(&mut self, host: usize, woken: TcpWoken) {
        match woken {
            TcpWoken::Listener(_) => {
                let most = self.scenario.accept_latency;
                let latency = self.random.duration(Duration::ZERO..=most);
                self.accepts_at = Some(self.now + latency);
            }
            TcpWoken::Connection(id) => {
                let owners = self
                    .owners
                    .iter_mut()
                    .filter_map(|owners| owners[host].as_mut());
                let mut owners = owners.filter(|owner| owner.id == id && !owner.is_done);
                // The end of a connection is told to owners that did not ask, too.
                if let Some(owner) = owners.next() {
                    owner.on_woken(self.now);
                }
            }
        }
    }

    fn send(&mut self, from: usize, frame: Vec<u8>) {
        if is_tcp(&frame) {
            let connections = &self.scenario.connections;
            self.wire.on_sent(from, &frame, |port| {
                let number = usize::from(port.checked_sub(CLIENT_PORT)?);
                let plans = connections.get(number)?;
                let half = |host: usize| (stream(number, host), plans[host].length);
                Some([half(0), half(1)])
            });
        }
        let text = match self.prints {
            true => super::wire::describe(&frame),
            false => None,
        };
        match self.paths[from].carry(self.now, frame) {
            Fate::Arrives(copies) => {
                if let Some(text) = text {
                    let at = self.now.since(self.start());
                    let arrives: Vec<_> =
                        copies.iter().map(|copy| copy.0.since(self.now)).collect();
                    std::println!("{at:?} {from}: {text}, arrives after {arrives:?}");
                }
                for (at, bytes) in copies {
                    self.fly(at, 1 - from, bytes);
                }
            }
            Fate::TooBig(at, report) => self.fly(at, from, report),
        }
    }

    fn fly(&mut self, at: Instant, to: usize, bytes: Vec<u8>) {
        self.frames += 1;
        self.flying.push(Reverse((at, self.frames, to, bytes)));
    }

    /// When a host wakes up for its timers: the first at their times, the second as late as it may.
    fn wakes_at(&self, number: usize) -> Option<Instant> {
        let host = &self.hosts[number];
        match number {
            0 => host.next_timeout(),
            _ => host.next_wake(self.now).map(|wake| wake.earliest),
        }
    }

    /// No connection is silent while it has something to send, and no timer is late.
    fn check_timers(&self, number: usize) {
        let host = &self.hosts[number];
        let due = host.next_timeout();
        assert!(due.is_none_or(|due| due > self.now), "work is left undone");
        let owners = self
            .owners
            .iter()
            .filter_map(|owners| owners[number].as_ref());
        for id in owners.map(|owner| owner.id) {
            let Some(connection) = host.tcp_connection(id) else {
                continue;
            };
            let to_send = connection.memory_bytes() - connection.received_memory_bytes();
            let state = connection.state();
            let is_closing = matches!(state, State::FinWait1 | State::Closing | State::LastAck);
            let has_work = to_send > 0 || is_closing || state == State::SynSent;
            let timeout = connection.next_timeout();
            assert!(
                !has_work || timeout.is_some(),
                "silent in {state:?}: {}",
                self.report()
            );
            if let Some(timeout) = timeout {
                assert!(
                    due.is_some_and(|due| due <= timeout + TICK),
                    "the wheel is late: {}",
                    self.report()
                );
            }
        }
    }

    /// The bounds of memory, of segments and of steps.
    fn bounds(&self) {
        for number in 0..2 {
            let host = &self.hosts[number];
            check_states(host);
            let tcp = &self.scenario.hosts[number].tcp;
            let receive = &tcp.connection.receive;
            let owners = self
                .owners
                .iter()
                .filter_map(|owners| owners[number].as_ref());
            for connection in owners.filter_map(|owner| host.tcp_connection(owner.id)) {
                let received = connection.received_memory_bytes();
                let buffer = receive.buffer_bytes.max(receive.most_buffer_bytes);
                let most = 2 * buffer as usize + receive.packet_memory_bytes as usize + 20_000;
                assert!(received <= most, "{received} bytes received of {most}");
                let sent = connection.memory_bytes() - received;
                let most = 2 * tcp.connection.send.most_buffer as usize + 20_000;
                assert!(sent <= most, "{sent} bytes to send of {most}");
            }
        }
        let most = self.most_segments();
        assert!(
            self.wire.segments <= most,
            "{most} segments: {}",
            self.report()
        );
        assert!(self.steps <= 40 * most, "too many steps: {}", self.report());
    }

    /// The segments that this simulation may take so far. Each byte that is written or read alone may cost a segment;
    /// so may time, by probes and retransmissions.
    fn most_segments(&self) -> u64 {
        let owners = self.owners.iter().flatten().flatten();
        let work: u64 = owners
            .map(|owner| owner.calls + (owner.written + owner.read) / 100)
            .sum();
        let lost = self.paths.iter().map(|path| path.lost).sum::<u64>();
        // What a host without memory refuses is sent again. A sender without SACK repeats all behind it, too (RFC 5681,
        // 3.1), most of which is refused again.
        let hosts = self.hosts.iter();
        let refused: u64 = hosts
            .map(|host| host.drops().of(DropReason::TcpMemory))
            .sum();
        let seconds = self.now.since(self.start()).as_secs();
        1000 + 8 * work + 4 * lost + refused + 2 * seconds
    }

    fn start(&self) -> Instant {
        start(&self.scenario, &self.hosts)
    }

    pub(super) fn report(&self) -> alloc::string::String {
        use core::fmt::Write;
        let mut text = alloc::string::String::new();
        let elapsed = self.now.since(self.start());
        let _ = writeln!(text, "after {elapsed:?}, {} segments", self.wire.segments);
        for (connection, owners) in self.owners.iter().enumerate() {
            for (host, owner) in owners.iter().enumerate() {
                let Some(owner) = owner else {
                    let _ = writeln!(text, "  {connection}.{host}: no owner");
                    continue;
                };
                let _ = writeln!(
                    text,
                    "  {connection}.{host}: written {}, read {}, end {}, done {}, runs {:?}, error {:?}, {:?}, due {:?}",
                    owner.written,
                    owner.read,
                    owner.has_end,
                    owner.is_done,
                    owner.runs_at,
                    owner.error,
                    self.hosts[host].tcp_stats(owner.id),
                    self.hosts[host]
                        .tcp_connection(owner.id)
                        .and_then(|connection| connection.next_timeout()),
                );
            }
        }
        let _ = writeln!(
            text,
            "  now {:?}, hosts due {:?}",
            self.now,
            self.hosts.each_ref().map(Host::next_timeout)
        );
        for host in &self.hosts {
            let drops: Vec<_> = host.drops().iter().filter(|drop| drop.1 > 0).collect();
            let _ = writeln!(text, "  drops {drops:?}");
        }
        text
    }
}

/// The time at which the number wraps that the scenario names.
fn start(scenario: &Scenario, hosts: &[Host; 2]) -> Instant {
    let flow = |host: usize| {
        let sockets = [
            socket(scenario, 0, CLIENT_PORT),
            socket(scenario, 1, SERVER_PORT),
        ];
        let pair = |socket: SocketAddr| (socket.ip(), socket.port());
        Flow {
            transport: Transport::Tcp,
            local: pair(sockets[host]),
            remote: pair(sockets[1 - host]),
        }
    };
    match scenario.wraps {
        Wraps::Sequence(host, bytes) => {
            // The clock of initial sequence numbers ticks every 4 µs.
            let secrets = hosts[host].tcp.shared.secrets();
            let initial = secrets.initial_sequence(&flow(host), START).0;
            let ticks = bytes.wrapping_add(initial).wrapping_neg();
            START + Duration::from_micros(4) * ticks
        }
        Wraps::Timestamps(host, ms) => {
            let secrets = hosts[host].tcp.shared.secrets();
            let offset = secrets.timestamp_offset(&flow(host));
            let reading = ClockUnit::Milliseconds.reading(START).wrapping_add(offset);
            let ticks = ms.wrapping_add(reading).wrapping_neg();
            START + Duration::from_millis(ticks.into())
        }
        Wraps::Nothing => START,
    }
}

fn socket(scenario: &Scenario, host: usize, port: u16) -> SocketAddr {
    let number = host as u8 + 1;
    let address: IpAddr = match scenario.is_v6 {
        true => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, number.into()).into(),
        false => Ipv4Addr::new(10, 0, 0, number).into(),
    };
    (address, port).into()
}

/// The number of the stream that a host writes into a connection.
const fn stream(connection: usize, host: usize) -> u64 {
    0x9e37_79b9_7f4a_7c15_u64.wrapping_mul((2 * connection + host + 1) as u64)
}

/// More than the unit of the timer wheel.
const TICK: Duration = Duration::from_micros(2);

const CLIENT_PORT: u16 = 40_000;
const SERVER_PORT: u16 = 80;

/// The virtual time that a simulation may take. Paths with a rate of 20 KB/s and 10 % of losses take minutes.
const MOST_TIME: Duration = Duration::from_secs(4 * 3600);
