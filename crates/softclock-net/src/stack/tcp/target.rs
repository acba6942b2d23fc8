//! Properties of two stacks that hold for any network between them. Called by the property tests and by the fuzzer
//! (`fuzz/`).

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use core::net::SocketAddr;
use core::time::Duration;

use bytes::Bytes;
use softclock_core::Instant;

use super::fuzz_input::settings_and_steps;
use super::{
    Architecture, Flags, HashKey, Header, LinkAddress, Options, Routes, Settings, Stack, State,
    TcpError, TcpId, TcpListenSettings, TcpListenerId, Timestamps, Verify, ip, segment,
};

/// Lets two stacks exchange streams, while the input decides what becomes of each segment on its way, what their owners
/// do, and which forged segments arrive. The input is four bytes of settings, and steps of three bytes each. Then the
/// network gets good, and the owners end their connections.
///
/// Checks that each stream arrives once and in order; that a connection fails only if an owner resets it; that forged
/// segments of an off-path attacker have no effect (RFC 5961); that no timer is late; and that at the end both stacks
/// have no connections, memory or timers left.
pub(crate) fn check(input: &[u8]) {
    let Some((settings, steps)) = settings_and_steps(input) else {
        return;
    };
    let mut world = World::new(settings);
    for &step in steps {
        world.step(step);
        world.settle();
    }
    world.finish();
}

/// Two hosts, the segments on their way, and the owners of the connections.
struct World {
    now: Instant,
    /// The time until which the network may be bad. Handshakes are given up later.
    bad_until: Instant,
    hosts: [Stack<Vec<u8>>; 2],
    /// The segments on their way to each host.
    queues: [VecDeque<Vec<u8>>; 2],
    listener: TcpListenerId,
    pairs: Vec<Pair>,
}

/// A connection: the owners at both ends.
struct Pair {
    owners: [Option<Owner>; 2],
    /// Whether an owner has left before the end.
    may_fail: bool,
}

/// The owner of one end.
struct Owner {
    id: TcpId,
    written: usize,
    read: usize,
    has_shut: bool,
    has_end: bool,
    is_done: bool,
}

impl World {
    fn new([first, second, hosts @ ..]: [u8; 4]) -> Self {
        let hosts = [0, 1].map(|number| {
            let chosen = hosts[number];
            let has = |bit: u8| chosen & 1 << bit != 0;
            let mut settings = Settings::new(link_address(number), 1500);
            settings.architecture = Architecture::ALL[usize::from([first, second][number]) & 3];
            let connection = &mut settings.tcp.connection;
            connection.has_sack = has(0);
            connection.has_timestamps = has(1);
            connection.has_window_scale = has(2);
            connection.send.has_nagle = has(3);
            connection.send.retries = 30;
            // A peer that is reset while all is acknowledged would never learn of it otherwise.
            connection.keep_alive.is_on = true;
            connection.keep_alive.idle = Duration::from_secs(50);
            connection.keep_alive.interval = Duration::from_secs(10);
            connection.keep_alive.probes = 20;
            connection.orphan_timeout = Duration::from_secs(3600);
            connection.fin_wait_2 = Duration::from_secs(3600);
            if has(4) {
                connection.receive.buffer_bytes = 4000;
                connection.receive.most_buffer_bytes = 4000;
            }
            if has(5) {
                connection.send.buffer = 3000;
                connection.send.most_buffer = 3000;
            }
            if has(6) {
                connection.most_mss = Some(300);
            }
            if has(7) {
                connection.receive.out_of_order_ranges = 2;
                connection.receive.packet_memory_bytes = 2000;
            }
            let prefix = alloc::format!("10.0.0.{}/24", number + 1);
            let routes = Routes::new(vec![prefix.parse().unwrap()], Vec::new()).unwrap();
            Stack::new(settings, routes, HashKey([number as u64, 7]))
        });
        let now = Instant::from_ns(1_000_000_000);
        let mut hosts: [Stack<Vec<u8>>; 2] = hosts;
        let settings = TcpListenSettings::with_backlog(1 + usize::from(first >> 6));
        let listener = hosts[1].tcp_listen(socket(1, SERVER_PORT), settings);
        let mut world = Self {
            now,
            bad_until: now + Duration::from_secs(40),
            hosts,
            queues: [VecDeque::new(), VecDeque::new()],
            listener: listener.unwrap(),
            pairs: Vec::new(),
        };
        world.connect();
        world.settle();
        world
    }

    fn step(&mut self, [step, first, second]: [u8; 3]) {
        let (number, host) = (usize::from(second), usize::from(first & 1));
        let pair = usize::from(first >> 1) % self.pairs.len();
        match step % 20 {
            0..=4 => self.deliver(host),
            5 => {
                self.deliver(0);
                self.deliver(1);
            }
            6 => drop(self.queues[host].pop_front()),
            7 => {
                if let Some(frame) = self.queues[host].get(number).cloned() {
                    self.fly(host, frame);
                }
            }
            8 => {
                if let Some(frame) = self.queues[host].pop_front() {
                    let place = number.min(self.queues[host].len());
                    self.queues[host].insert(place, frame);
                }
            }
            9 => self.pass(Duration::from_millis(number as u64 * 4)),
            10 => {
                let due = self.hosts.iter().filter_map(Stack::next_timeout).min();
                let due = due.unwrap_or(self.now);
                self.pass(due.since(self.now));
            }
            11..=13 => self.write(pair, host, 1 + number * 24),
            14 | 15 => self.read(pair, host, 1 + number * 16),
            16 => self.accept(),
            17 if number < 100 => self.connect(),
            17 if number < 180 => self.shut(pair, host),
            17 if number > 250 => self.leave(pair, host, number & 1 == 0),
            17 => {}
            _ => self.forge(host, number),
        }
    }

    /// Opens a connection, if there are not too many.
    fn connect(&mut self) {
        let number = self.pairs.len();
        if number >= MOST_PAIRS {
            return;
        }
        let local = socket(0, CLIENT_PORT + number as u16);
        let remote = socket(1, SERVER_PORT);
        let id = self.hosts[0].tcp_connect(self.now, Some(local), remote, None);
        self.pairs.push(Pair {
            owners: [Some(Owner::new(id.unwrap())), None],
            may_fail: false,
        });
    }

    fn accept(&mut self) {
        while let Some((id, remote)) = self.hosts[1].tcp_accept(self.now, self.listener) {
            let pair = &mut self.pairs[usize::from(remote.port() - CLIENT_PORT)];
            assert!(pair.owners[1].is_none(), "accepted twice");
            pair.owners[1] = Some(Owner::new(id));
        }
        let _ = self.hosts[1].tcp_wait_accept(self.listener);
    }

    fn write(&mut self, pair: usize, host: usize, bytes: usize) {
        let Some(owner) = self.pairs[pair].owners[host].as_mut() else {
            return;
        };
        if owner.has_shut || owner.is_done {
            return;
        }
        let places = owner.written..owner.written + bytes;
        let bytes: Bytes = places.map(|place| byte_at(pair, host, place)).collect();
        match self.hosts[host].tcp_write(self.now, owner.id, bytes) {
            Ok(written) => owner.written += written,
            Err(TcpError::WouldBlock) => {}
            Err(error) => self.fail(pair, host, error),
        }
    }

    fn read(&mut self, pair: usize, host: usize, most: usize) {
        let Pair { owners, may_fail } = &mut self.pairs[pair];
        let [Some(owner), peer] = pick(owners, host) else {
            return;
        };
        if owner.is_done || owner.has_end {
            return;
        }
        let mut bytes = vec![0; most];
        match self.hosts[host].tcp_read(self.now, owner.id, &mut bytes) {
            Ok(0) => {
                owner.has_end = true;
                let is_whole = peer
                    .as_ref()
                    .is_some_and(|peer| peer.has_shut && peer.written == owner.read);
                assert!(is_whole || *may_fail, "an early end");
            }
            Ok(read) => {
                for (place, &byte) in (owner.read..).zip(&bytes[..read]) {
                    assert_eq!(byte, byte_at(pair, 1 - host, place), "the byte at {place}");
                }
                owner.read += read;
            }
            Err(TcpError::WouldBlock) => {}
            Err(error) => self.fail(pair, host, error),
        }
    }

    fn shut(&mut self, pair: usize, host: usize) {
        let Some(owner) = self.pairs[pair].owners[host].as_mut() else {
            return;
        };
        if owner.has_shut || owner.is_done {
            return;
        }
        match self.hosts[host].tcp_shutdown_write(self.now, owner.id) {
            Ok(()) => owner.has_shut = true,
            Err(error) => self.fail(pair, host, error),
        }
    }

    /// The owner leaves early, or resets its connection.
    fn leave(&mut self, pair: usize, host: usize, aborts: bool) {
        let pair = &mut self.pairs[pair];
        let Some(owner) = pair.owners[host].as_mut().filter(|owner| !owner.is_done) else {
            return;
        };
        owner.is_done = true;
        pair.may_fail = true;
        match aborts {
            true => self.hosts[host].tcp_abort(self.now, owner.id),
            false => self.hosts[host].tcp_close(self.now, owner.id),
        }
    }

    fn fail(&mut self, pair: usize, host: usize, error: TcpError) {
        let pair = &mut self.pairs[pair];
        assert!(pair.may_fail, "{host} fails: {error:?}");
        if let Some(owner) = &mut pair.owners[host] {
            self.hosts[host].tcp_close(self.now, owner.id);
            owner.is_done = true;
        }
    }

    /// Sends a host a forged segment of an off-path attacker: the addresses and ports are those of a connection, and
    /// the sequence number or the acknowledgment is outside the window. The time stamps are those of the other end, or
    /// later ones.
    fn forge(&mut self, to: usize, number: usize) {
        let Some(template) = self.queues[to].front().cloned() else {
            return;
        };
        let packet = ip::parse(&template[LINK_BYTES..]).expect("a packet of a stack");
        let parsed = segment::parse(packet.addresses, packet.payload, Verify::Yes);
        let parsed = parsed.expect("a segment of a stack");
        let header = parsed.header;
        let port = [header.destination_port, header.source_port][to];
        let pair = &self.pairs[usize::from(port - CLIENT_PORT)];
        let Some(id) = pair.owners[to].as_ref().map(|owner| owner.id) else {
            return;
        };
        // What was received must not be judged by older numbers.
        self.hosts[to].tcp_process(self.now, id);
        let Some(connection) = self.hosts[to].tcp_connection(id) else {
            return;
        };
        let state = connection.state();
        if !state.is_synchronized() || state == State::TimeWait {
            return;
        }
        let (own, next) = connection.numbers();
        let distance = 1 + number as u32 * 100;
        let later = number as u32 & 7;
        let (flags, sequence, acknowledgment, length) = match number % 5 {
            0 => (Flags::RST, next + distance, own, 0),
            1 => (Flags::SYN, next + distance - 3000, own, 0),
            2 => (Flags::ACK, next, own + distance, 100),
            3 => (Flags::ACK, next, own - (1 << 30) - distance, 100),
            _ => (Flags::ACK, next + (1 << 30) + distance, own, 100),
        };
        let timestamps = parsed.options.timestamps.map(|times| Timestamps {
            value: times.value.wrapping_add(later << 27),
            ..times
        });
        let options = Options {
            timestamps,
            ..Options::default()
        };
        let header = Header {
            sequence,
            acknowledgment,
            flags,
            ..header
        };
        let mut body = Vec::new();
        let write = |out: &mut Vec<u8>| out.resize(out.len() + length, 0xee);
        segment::emit(packet.addresses, &header, &options, write, &mut body);
        let output = ip::Output {
            addresses: packet.addresses,
            protocol: TCP,
            hop_limit: 64,
            traffic_class: 0,
            identification: 1,
            may_fragment: false,
        };
        let mut frame = template[..LINK_BYTES].to_vec();
        ip::write_header(&output, body.len(), &mut frame);
        frame.extend_from_slice(&body);
        self.hosts[to].on_frame(self.now, self.now, frame, Verify::Yes);
        self.hosts[to].tcp_process(self.now, id);
    }

    fn deliver(&mut self, host: usize) {
        if let Some(frame) = self.queues[host].pop_front() {
            self.hosts[host].on_frame(self.now, self.now, frame, Verify::Yes);
        }
    }

    fn fly(&mut self, to: usize, frame: Vec<u8>) {
        if self.queues[to].len() < MOST_FLYING {
            self.queues[to].push_back(frame);
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now = (self.now + time).min(self.bad_until).max(self.now);
    }

    /// Does all that is due at the present time.
    fn settle(&mut self) {
        for _ in 0..MOST_ROUNDS {
            let mut is_silent = true;
            for number in 0..2 {
                let host = &mut self.hosts[number];
                while host.process(self.now, 4) > 0 {
                    is_silent = false;
                }
                if host.next_timeout().is_some_and(|due| due <= self.now) {
                    host.on_timer(self.now);
                    is_silent = false;
                }
                while host.tcp_next_woken().is_some() {}
                while let Some(frame) = self.hosts[number].next_frame() {
                    is_silent = false;
                    match is_tcp(&frame) {
                        true => self.fly(1 - number, frame),
                        // Address resolution is not the subject.
                        false => {
                            self.hosts[1 - number].on_frame(self.now, self.now, frame, Verify::Yes);
                        }
                    }
                }
            }
            if is_silent {
                return;
            }
        }
        panic!("it does not come to rest");
    }

    /// Lets all segments arrive, and the owners read to the end and leave.
    fn finish(&mut self) {
        let end = self.now + Duration::from_secs(4 * 3600);
        for _ in 0..MOST_STEPS {
            self.settle();
            self.accept();
            for pair in 0..self.pairs.len() {
                for host in 0..2 {
                    self.end(pair, host);
                }
            }
            self.settle();
            if self.queues.iter().any(|queue| !queue.is_empty()) {
                // A path has room for a window only, so the segments arrive in turn.
                self.deliver(0);
                self.deliver(1);
                continue;
            }
            let Some(due) = self.hosts.iter().filter_map(Stack::next_timeout).min() else {
                return self.judge();
            };
            assert!(due <= end, "it does not end in time");
            self.now = self.now.max(due);
        }
        panic!("it does not end");
    }

    /// What an owner does to end its connection.
    fn end(&mut self, pair: usize, host: usize) {
        let is_done = |world: &Self| {
            let owner = world.pairs[pair].owners[host].as_ref();
            owner.is_none_or(|owner| owner.is_done)
        };
        if is_done(self) {
            return;
        }
        self.shut(pair, host);
        // To the end: no event tells of bytes that are left.
        for _ in 0..MOST_READS {
            if is_done(self) {
                return;
            }
            self.read(pair, host, 4000);
        }
        if is_done(self) {
            return;
        }
        if let Some(owner) = &mut self.pairs[pair].owners[host]
            && owner.has_shut
            && owner.has_end
        {
            owner.is_done = true;
            self.hosts[host].tcp_close(self.now, owner.id);
        }
    }

    fn judge(&self) {
        for (number, pair) in self.pairs.iter().enumerate() {
            for host in 0..2 {
                match &pair.owners[host] {
                    Some(owner) => assert!(owner.is_done, "{number}.{host} waits for ever"),
                    None => assert!(pair.may_fail, "{number}.{host} was never accepted"),
                }
            }
        }
        for host in &self.hosts {
            let left: usize = host.tcp_states().map(|(_, count)| count).sum();
            assert_eq!((left, host.tcp_memory()), (0, 0), "something is left");
        }
    }
}

impl Owner {
    const fn new(id: TcpId) -> Self {
        Self {
            id,
            written: 0,
            read: 0,
            has_shut: false,
            has_end: false,
            is_done: false,
        }
    }
}

/// The owner at an end, and that at the other.
fn pick(owners: &mut [Option<Owner>; 2], host: usize) -> [&mut Option<Owner>; 2] {
    let [client, server] = owners;
    match host {
        0 => [client, server],
        _ => [server, client],
    }
}

/// The byte of a stream at a place.
fn byte_at(pair: usize, host: usize, place: usize) -> u8 {
    let stream = pair * 2 + host + 1;
    (place ^ ((place >> 8) * stream) ^ (place >> 14)) as u8 ^ (stream * 31) as u8
}

fn is_tcp(frame: &[u8]) -> bool {
    frame[12..14] == [0x08, 0x00] && frame[23] == TCP
}

fn link_address(host: usize) -> LinkAddress {
    LinkAddress([2, 0, 0, 0, 0, host as u8 + 1])
}

fn socket(host: usize, port: u16) -> SocketAddr {
    ([10, 0, 0, host as u8 + 1], port).into()
}

const CLIENT_PORT: u16 = 40_000;
const SERVER_PORT: u16 = 80;
const TCP: u8 = 6;
const LINK_BYTES: usize = 14;

const MOST_PAIRS: usize = 3;
const MOST_FLYING: usize = 300;
const MOST_ROUNDS: usize = 10_000;
const MOST_STEPS: usize = 50_000;

/// More than a receive buffer holds.
const MOST_READS: usize = 40;
