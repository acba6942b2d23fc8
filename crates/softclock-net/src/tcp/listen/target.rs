//! Properties of a listener that hold for any segments. Called by the property tests and by the fuzzer (`fuzz/`).

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use softclock_core::Instant;

use super::fuzz_input::settings_and_steps;
use super::{
    CookieUse, Flags, Flow, HashKey, Header, ListenSettings, Listener, Options, Outcome, Reply,
    Segment, Seq, Shared, SharedSettings, Timestamps, Transport,
};

/// Passes segments of a few flows to two listeners that share their limits. The input is a byte of
/// [settings](Settings), and steps of four bytes each.
///
/// Checks that:
/// - a handshake completes only if it acknowledges a SYN-ACK that was sent to this flow, by a cookie only while it is
///   valid;
/// - half-open connections and those that wait stay within the limits, and the shared count is that of both listeners;
/// - a SYN-ACK is sent again as often as the settings say, and challenge ACKs are limited;
/// - a reset is never answered by a reset, and no timer is late.
pub(crate) fn check(input: &[u8]) {
    let Some(([settings], steps)) = settings_and_steps(input) else {
        return;
    };
    let mut world = World::new(settings);
    for &step in steps {
        world.step(step);
        world.check();
    }
    world.end();
}

/// The listeners, and what was sent to each flow.
struct World {
    shared: Shared,
    listeners: [Listener<u32>; LISTENERS],
    settings: ListenSettings,
    shared_limit: usize,
    now: Instant,
    /// The SYN-ACKs that were sent, with the time of the last one: by flow, own number and the peer's.
    sent: BTreeMap<(u16, u32, u32), Instant>,
    /// The last SYN-ACK to each flow.
    last: BTreeMap<u16, Reply>,
    /// The number of the next connection.
    connections: u32,
    /// The half-open connections so far.
    opened: u64,
    /// The SYN-ACKs that timers have sent.
    retransmitted: u64,
    /// The second in which the last challenge ACK was sent, and how many were sent in it.
    challenges: (u64, u32),
}

impl World {
    fn new(chosen: u8) -> Self {
        let has = |bit: u8| chosen & 1 << bit != 0;
        let mut limits = SharedSettings::default();
        limits.challenges.per_second = CHALLENGES;
        limits.half_open = if has(0) { 3 } else { 100 };
        let mut settings = ListenSettings::default();
        settings.offer.has_timestamps = !has(6);
        settings.backlog = if has(1) { 1 } else { 3 };
        settings.half_open = if has(2) { 2 } else { 4 };
        settings.cookies = match chosen >> 3 & 3 {
            0 => CookieUse::Never,
            1 => CookieUse::Always,
            _ => CookieUse::WhenFull,
        };
        settings.retries = chosen >> 5 & 3;
        settings.drops_syn_fin = has(7);
        settings.requires_timestamps = has(5);
        let shared = Shared::new(limits, HashKey([1, 2]));
        let listeners = [(); LISTENERS].map(|()| Listener::new(settings, &shared));
        Self {
            shared,
            listeners,
            settings,
            shared_limit: limits.half_open,
            now: Instant::from_ns(1_000_000_000_000),
            sent: BTreeMap::new(),
            last: BTreeMap::new(),
            connections: 0,
            opened: 0,
            retransmitted: 0,
            challenges: (0, 0),
        }
    }

    fn step(&mut self, [step, port, first, second]: [u8; 4]) {
        let port = 1000 + u16::from(port % PORTS);
        let (last, initial) = (self.last.get(&port).copied(), initial(port));
        let next = last.map_or(Seq(7), |reply| reply.header.sequence + 1);
        let near = u32::from(first);
        let far = u32::from(first) << 24 | u32::from(second) << 8;
        match step % 14 {
            0 | 1 => {
                let flags = Flags::SYN | Flags(u16::from(second) & EXTRA_SYN_FLAGS);
                self.receive(port, flags, [initial, Seq(0)], syn_options(first), 0);
            }
            // A SYN that is not that of the half-open connection.
            2 => self.receive(
                port,
                Flags::SYN,
                [initial + far, Seq(0)],
                syn_options(second),
                0,
            ),
            // The third segment of a handshake, perhaps with data and FIN.
            3 | 4 => {
                let fin = u16::from(second) & Flags::FIN.0;
                let flags = Flags::ACK | Flags(fin);
                let options = last.map_or_else(Options::default, |reply| answer(&reply, second));
                self.receive(port, flags, [initial + 1, next], options, first.into());
            }
            // Guesses.
            5 => self.receive(
                port,
                Flags::ACK,
                [initial + 1, next + near + 1],
                answer_or_none(last, second),
                0,
            ),
            6 => self.receive(
                port,
                Flags::ACK,
                [initial + 1 + far, next],
                answer_or_none(last, first),
                2,
            ),
            7 => {
                let flags = Flags(u16::from(first) | (u16::from(second) & 1) << 8);
                let options = syn_options(second);
                self.receive(port, flags, [initial + near, next + far], options, 1);
            }
            8 => self.receive(port, Flags::RST, [initial + 1, next], Options::default(), 0),
            9 => {
                let number = initial + 1 + far;
                self.receive(port, Flags::RST, [number, next], Options::default(), 0);
            }
            10 => {
                self.now += Duration::from_millis(u64::from(first) * u64::from(second) * 2);
                self.timers();
            }
            11 => {
                let listener = &mut self.listeners[of(port)];
                if first & 1 == 0 {
                    let had = listener.waiting() > 0;
                    assert_eq!(listener.accept().is_some(), had);
                } else {
                    let waiting = listener.waiting();
                    let was_there = listener.forget(&u32::from(second));
                    assert_eq!(listener.waiting(), waiting - usize::from(was_there));
                }
            }
            12 => self.unreachable(port, next - 1 + u32::from(first & 3)),
            _ => self.renew(of(port)),
        }
    }

    /// Passes a segment to the listener of its flow.
    fn receive(
        &mut self,
        port: u16,
        flags: Flags,
        [sequence, acknowledgment]: [Seq; 2],
        options: Options,
        payload_bytes: usize,
    ) {
        let header = Header {
            source_port: port,
            destination_port: 80,
            sequence,
            acknowledgment,
            flags,
            window: 1000,
            urgent: 0,
        };
        let payload = [0; u8::MAX as usize];
        let segment = Segment {
            header,
            options,
            payload: &payload[..payload_bytes],
        };
        // Lazily, a segment is processed after it has arrived.
        let arrived = self.now - Duration::from_millis(u64::from(sequence.0 & 1) * 300);
        let listener = &mut self.listeners[of(port)];
        let half_open = listener.half_open();
        let by_cookie = listener.stats().cookies_accepted;
        let displaced = listener.stats().displaced;
        let outcome =
            listener.on_segment(&mut self.shared, self.now, arrived, flow(port), &segment);
        let by_cookie = listener.stats().cookies_accepted - by_cookie;
        let displaced = listener.stats().displaced - displaced;
        let added = (listener.half_open() + displaced as usize).saturating_sub(half_open);
        self.opened += added as u64;
        let answer = self.judge(port, &segment, outcome, (half_open, by_cookie));
        if let Some(reply) = answer {
            assert_eq!(reply.flow, flow(port));
            let is_reset = reply.header.flags.contains(Flags::RST);
            assert!(
                !(is_reset && flags.contains(Flags::RST)),
                "a reset is answered"
            );
        }
    }

    /// Checks the outcome of a segment. Returns the answer. `before` are the half-open connections before it, and the
    /// handshakes that it has completed by a cookie.
    fn judge(
        &mut self,
        port: u16,
        segment: &Segment<'_>,
        outcome: Outcome,
        before: (usize, u64),
    ) -> Option<Reply> {
        let header = &segment.header;
        let is_syn_fin = header.flags.contains(Flags::SYN | Flags::FIN);
        let is_syn_only =
            header.flags.contains(Flags::SYN) && !header.flags.intersects(Flags::ACK | Flags::RST);
        match outcome {
            Outcome::Reply(reply) => {
                assert!(is_syn_only, "only a SYN is answered by a SYN-ACK");
                assert!(!(is_syn_fin && self.settings.drops_syn_fin));
                assert!(reply.header.flags.contains(Flags::SYN | Flags::ACK));
                assert_eq!(reply.header.acknowledgment, header.sequence + 1);
                self.note(port, &reply);
                Some(reply)
            }
            Outcome::Refused(reply, _) => {
                match reply.header.flags.contains(Flags::RST) {
                    true => assert_eq!(reply.header.sequence, header.acknowledgment),
                    false => self.on_challenge(),
                }
                Some(reply)
            }
            Outcome::Completed(handshake) => {
                let (own, peer) = (handshake.local_initial, handshake.remote_initial);
                assert_eq!(own + 1, header.acknowledgment);
                let sent = self.sent.get(&(port, own.0, peer.0));
                let sent = *sent.expect("it acknowledges a SYN-ACK");
                let (half_open, by_cookie) = before;
                let listener = &mut self.listeners[of(port)];
                let of_record = half_open - listener.half_open();
                assert_eq!(of_record as u64 + by_cookie, 1, "it had one beginning");
                if by_cookie == 1 {
                    assert_eq!(header.sequence, peer + 1);
                    assert!(self.now.since(sent) < COOKIE_LIFE, "an old cookie");
                }
                self.connections += 1;
                listener.push(self.connections).expect("there is room");
                None
            }
            Outcome::Reset => {
                assert!(header.flags.contains(Flags::RST));
                assert_eq!(self.listeners[of(port)].half_open() + 1, before.0);
                None
            }
            Outcome::Dropped(_) => None,
        }
    }

    /// Notes a SYN-ACK.
    fn note(&mut self, port: u16, reply: &Reply) {
        let header = &reply.header;
        let key = (port, header.sequence.0, (header.acknowledgment - 1).0);
        self.sent.insert(key, self.now);
        self.last.insert(port, *reply);
    }

    fn on_challenge(&mut self) {
        let second = self.now.as_ns() / 1_000_000_000;
        if self.challenges.0 != second {
            self.challenges = (second, 0);
        }
        self.challenges.1 += 1;
        assert!(self.challenges.1 <= 2 * CHALLENGES, "too many challenges");
    }

    fn unreachable(&mut self, port: u16, sequence: Seq) {
        let listener = &mut self.listeners[of(port)];
        let half_open = listener.half_open();
        let ends = listener.on_unreachable(&mut self.shared, &flow(port), sequence);
        assert_eq!(listener.half_open() + usize::from(ends), half_open);
        let is_sent = self
            .sent
            .keys()
            .any(|&(to, own, _)| (to, Seq(own)) == (port, sequence));
        assert!(is_sent || !ends, "no SYN-ACK has this number");
    }

    /// Closes a listener and opens another.
    fn renew(&mut self, number: usize) {
        let new = Listener::new(self.settings, &self.shared);
        let old = core::mem::replace(&mut self.listeners[number], new);
        let waiting = old.waiting();
        let left: Vec<_> = old.close(&mut self.shared).collect();
        assert_eq!(left.len(), waiting);
    }

    fn timers(&mut self) {
        for number in 0..LISTENERS {
            while let Some(reply) = self.listeners[number].on_timer(&mut self.shared, self.now) {
                assert!(reply.header.flags.contains(Flags::SYN | Flags::ACK));
                self.retransmitted += 1;
                self.note(reply.flow.remote.1, &reply);
            }
            let due = self.listeners[number].next_timeout();
            assert!(due.is_none_or(|due| due > self.now), "a timer is late");
        }
        let most = self.opened * u64::from(self.settings.retries);
        assert!(self.retransmitted <= most, "sent too often");
    }

    fn check(&self) {
        let half_open = self.listeners.iter().map(Listener::half_open);
        let sum = half_open.sum::<usize>();
        assert_eq!(sum, self.shared.half_open());
        assert!(sum <= self.shared_limit);
        for listener in &self.listeners {
            assert!(listener.half_open() <= self.settings.half_open);
            assert!(listener.waiting() <= self.settings.backlog);
            let is_full = listener.waiting() == self.settings.backlog;
            assert_eq!(listener.is_full(), is_full);
            assert_eq!(listener.next_timeout().is_some(), listener.half_open() > 0);
        }
    }

    fn end(mut self) {
        for _ in 0..20 {
            self.now += Duration::from_secs(600);
            self.timers();
        }
        self.check();
        assert_eq!(self.shared.half_open(), 0, "a record stays for ever");
    }
}

/// The listener of a flow.
fn of(port: u16) -> usize {
    usize::from(port) % LISTENERS
}

fn flow(port: u16) -> Flow {
    let address = |number| [192, 0, 2, number].into();
    Flow {
        transport: Transport::Tcp,
        remote: (address(7), port),
        local: (address(1), 80),
    }
}

/// The initial sequence number of a peer: some wrap soon.
fn initial(port: u16) -> Seq {
    Seq(u32::MAX - 2) + u32::from(port % 4)
}

fn syn_options(bits: u8) -> Options {
    let has = |bit: u8| bits & 1 << bit != 0;
    Options {
        mss: has(0).then_some(u16::from(bits) * 40),
        window_scale: has(1).then_some(bits >> 4),
        is_sack_permitted: has(2),
        timestamps: has(3).then_some(Timestamps {
            value: u32::from(bits) << 24,
            echo: 0,
        }),
        ..Options::default()
    }
}

/// The options of an acknowledgment: the time stamps that the SYN-ACK asks for, at times another echo, or none.
fn answer(syn_ack: &Reply, bits: u8) -> Options {
    let times = syn_ack.options.timestamps;
    Options {
        timestamps: times
            .filter(|_| bits & 0xc0 != 0xc0)
            .map(|times| Timestamps {
                value: times.echo.wrapping_add(bits.into()),
                echo: times.value.wrapping_add(u32::from(bits & 0x30) << 8),
            }),
        ..Options::default()
    }
}

fn answer_or_none(syn_ack: Option<Reply>, bits: u8) -> Options {
    syn_ack.map_or_else(Options::default, |reply| answer(&reply, bits))
}

const LISTENERS: usize = 2;
const PORTS: u8 = 7;

/// FIN and the flags of ECN, which may come with a SYN.
const EXTRA_SYN_FLAGS: u16 = 0b1100_0001;

/// The mean number of challenge ACKs in a second.
const CHALLENGES: u32 = 2;

/// A cookie is valid in the 64 seconds in which it was sent, and in the next; lazily, a segment that has arrived then
/// may be processed later.
const COOKIE_LIFE: Duration = Duration::from_secs(129);
