//! Properties of a connection that hold for any segments, calls and times. Called by the property tests and by the
//! fuzzer (`fuzz/`).

use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use bytes::Bytes;
use softclock_core::Instant;

use super::fuzz_input::settings_and_steps;
use super::{
    Arrival, ChallengeLimiter, ChallengeSettings, Connection, EcnMode, Error, ErrorKind, Events,
    Flags, Flow, HashKey, Header, IcmpError, Options, Outgoing, Payload, SackBlock, Seq, Settings,
    State, Timestamps, Transport,
};

/// Plays the peer and the owner of a connection. The input is two bytes of settings, and steps of four bytes each.
///
/// The peer sends the bytes of one stream only, but any parts of it in any order, with any acknowledgments, flags,
/// windows and options. Checks that:
/// - the owner reads the peer's stream, and no byte before all bytes in front of it have arrived;
/// - the connection acknowledges and reports only what has arrived, and its window never shrinks;
/// - each segment that it sends has the bytes of its place, within the window that the peer has offered;
/// - states follow each other as in RFC 9293, figure 5; only the exact reset ends a connection (RFC 5961, 3.2), and an
///   acknowledgment of the future lets no data in (RFC 5961, 5.2);
/// - no timer is late, and each call causes a bounded number of segments.
pub(crate) fn check(input: &[u8]) {
    let Some((settings, steps)) = settings_and_steps(input) else {
        return;
    };
    let mut world = World::new(settings);
    for &step in steps {
        world.step(step);
        world.check();
    }
    world.end();
}

/// A connection, its owner, and its peer.
struct World {
    connection: Connection<Vec<u8>>,
    limiter: ChallengeLimiter,
    now: Instant,
    /// The bytes that the owner has read and written.
    read: usize,
    written: usize,
    is_closed_by_owner: bool,
    state: State,
    peer: Peer,
    /// The rightmost edge of the windows that the connection has offered. The latest may be less by less than the unit
    /// of the scale.
    edge: Option<Seq>,
    /// The shift of the windows that the connection states.
    own_shift: u8,
    /// The last time stamp that the connection has sent.
    timestamp: Option<u32>,
}

/// What the peer has sent.
struct Peer {
    /// The options of its SYN.
    options: Options,
    flags: Flags,
    /// Which bytes of its stream have arrived, and behind which bytes a FIN.
    arrived: Vec<bool>,
    fins: BTreeSet<usize>,
    /// The segments that began before its stream. They are reported as duplicates (RFC 2883, 4).
    old: Vec<(Seq, Seq)>,
    /// The bytes in front of the first that has not arrived.
    in_order: usize,
    /// The byte that an orderly peer sends next.
    next: usize,
    /// The rightmost edge of the windows that it has offered.
    edge: Seq,
    shift: u8,
}

impl Peer {
    /// Whether all of a range has arrived: bytes, and one FIN, which takes a place, too; or an old segment.
    fn has_all(&self, start: Seq, end: Seq) -> bool {
        let mut old = self.old.iter();
        if old.any(|(first, last)| first.is_at_or_before(start) && end.is_at_or_before(*last)) {
            return true;
        }
        let (start, end) = (place_of(start), place_of(end));
        let mut others = (start..end).filter(|&place| self.arrived.get(place) != Some(&true));
        let has_fin_only = match (others.next(), others.next()) {
            (None, _) => true,
            (Some(fin), None) => self.fins.contains(&fin),
            _ => false,
        };
        start < end && has_fin_only
    }
}

impl World {
    fn new([chosen, offered]: [u8; 2]) -> Self {
        let has = |bit: u8| chosen & 1 << bit != 0;
        let mut settings = Settings::default();
        settings.send.has_nagle = has(4);
        settings.has_sack = has(0);
        settings.has_timestamps = has(1);
        settings.has_window_scale = has(2);
        settings.ecn = if has(3) { EcnMode::On } else { EcnMode::Off };
        settings.keep_alive.is_on = has(5);
        if has(6) {
            settings.receive.buffer_bytes = 3000;
            settings.receive.most_buffer_bytes = 3000;
            settings.receive.packet_memory_bytes = 4000;
            settings.receive.out_of_order_ranges = 3;
        }
        if has(7) {
            settings.send.buffer = 2000;
            settings.send.most_buffer = 2000;
        }
        let own_scale = settings.offer(1500, true).window_scale;
        let now = Instant::from_ns(1_000_000_000);
        let options = syn_options(offered);
        let (own_shift, shift) = match (own_scale, options.window_scale) {
            (Some(own), Some(peer)) => (own, peer),
            _ => (0, 0),
        };
        let connection = Connection::connect(now, flow(), settings.into(), (ISS, 77), 1500);
        let flags = if offered & 0x40 != 0 {
            Flags::SYN | Flags::ECE
        } else {
            Flags::SYN
        };
        let mut world = Self {
            state: connection.state(),
            connection,
            limiter: ChallengeLimiter::new(ChallengeSettings::default(), HashKey([1, 2])),
            now,
            read: 0,
            written: 0,
            is_closed_by_owner: false,
            peer: Peer {
                options,
                flags,
                arrived: vec![false; MOST_BYTES],
                fins: BTreeSet::new(),
                old: Vec::new(),
                in_order: 0,
                next: 0,
                edge: ISS,
                shift,
            },
            edge: None,
            own_shift,
            timestamp: None,
        };
        world.poll();
        if offered & 0x80 == 0 {
            world.syn(Flags::ACK, ISS + 1, 0);
        }
        world
    }

    fn step(&mut self, [step, first, second, third]: [u8; 4]) {
        let (near, far) = (usize::from(first), usize::from(second));
        let (own_next, _) = self.connection.numbers();
        let acknowledged = match own_next {
            Seq(0) => ISS + 1,
            next => next,
        };
        let window = u16::from(third) << 3;
        match step % 20 {
            // The next bytes of the stream, and those after a gap.
            0 | 1 => {
                let start = self.peer.next;
                self.peer.next = (start + 4 * near).min(MOST_BYTES);
                let place = start..self.peer.next;
                self.segment(place, Flags::ACK, acknowledged, window, self.options(third));
            }
            2 => {
                let start = self.peer.next + far * 16;
                let place = start..start + 2 * near;
                self.segment(place, Flags::ACK, acknowledged, window, self.options(0));
            }
            // Bytes that were sent before, and others.
            3 => {
                let start = self.peer.in_order.saturating_sub(8 * far);
                let place = start..start + 4 * near;
                self.segment(place, Flags::ACK, acknowledged, window, self.options(third));
            }
            // Acknowledgments of a part, with reports of others.
            4 | 5 => {
                let mut options = self.options(0);
                let start = acknowledged - u32::from(second) * 16;
                let block = |distance: u32, bytes: u32| SackBlock {
                    start: start + distance,
                    end: start + distance + bytes,
                };
                if first & 1 != 0 {
                    options
                        .sack
                        .push(block(u32::from(third) * 8, u32::from(first) * 8));
                    options
                        .sack
                        .push(block(u32::from(first) * 16, u32::from(third)));
                }
                let at = self.peer.next..self.peer.next;
                self.segment(at, Flags::ACK, start, u16::from(first) << 6, options);
            }
            // Anything, near what is expected.
            6 | 7 => self.forge([first, second, third], acknowledged),
            8 => {
                let at = self.peer.next..self.peer.next;
                let flags = Flags::ACK | Flags::FIN;
                self.segment(at, flags, acknowledged, window, self.options(0));
            }
            9 => self.reset(first, second),
            10 => self.syn(Flags(u16::from(first) & 0xf0), acknowledged, near & 7),
            11 => {
                self.now += Duration::from_millis((near * far / 4) as u64);
                self.timers();
            }
            12 => {
                if let Some(due) = self.connection.next_timeout() {
                    self.now = self
                        .now
                        .max(due.min(self.now + Duration::from_secs(20_000)));
                    self.timers();
                }
            }
            13 | 14 => self.read(4 * near + 1, second),
            15 | 16 => self.write(8 * near + far),
            17 => self.icmp(first, second),
            18 if third >= 0xf0 => {
                self.is_closed_by_owner = true;
                let events = match first & 1 {
                    0 => self.connection.close(self.now),
                    _ => self.connection.abort(),
                };
                self.connection.set_orphan();
                self.on_events(events);
            }
            18 => self
                .connection
                .set_pace((first != 0).then_some((far as u64 + 1) * 1000)),
            _ => {
                if third & 7 == 0 {
                    self.connection.shutdown_write();
                }
            }
        }
        self.poll();
    }

    /// A segment of the peer with a part of its stream.
    fn segment(
        &mut self,
        place: core::ops::Range<usize>,
        flags: Flags,
        acknowledgment: Seq,
        window: u16,
        options: Options,
    ) {
        let place = place.start.min(MOST_BYTES)..place.end.min(MOST_BYTES);
        let header = Header {
            source_port: 80,
            destination_port: 40_000,
            sequence: IRS + 1 + place.start as u32,
            acknowledgment,
            flags,
            window,
            urgent: 0,
        };
        self.receive(&header, &options, place.len());
    }

    /// A segment with any numbers. SYN has the number of the peer's while the connection is being opened.
    fn forge(&mut self, [first, second, third]: [u8; 3], acknowledged: Seq) {
        let (_, next) = self.connection.numbers();
        let spread = |byte: u8| match byte & 3 {
            0 => (u32::from(byte) >> 2).wrapping_sub(32),
            1 => (u32::from(byte) << 8).wrapping_sub(1 << 14),
            2 => u32::from(byte) << 24,
            _ => 0,
        };
        let flags = Flags(u16::from(first));
        let is_opening = matches!(self.state, State::SynSent | State::SynReceived);
        let sequence = match is_opening {
            true if flags.contains(Flags::SYN) => IRS,
            true => IRS + 1 + spread(second),
            false => next + spread(second),
        };
        // Bytes behind the end of the stream would arrive unnoticed.
        if (MOST_BYTES - 100..2 * MOST_BYTES).contains(&place_of(sequence)) {
            return;
        }
        let header = Header {
            source_port: 80,
            destination_port: 40_000,
            sequence,
            acknowledgment: acknowledged + spread(third),
            flags,
            window: u16::from(second) << 8 | u16::from(third),
            urgent: third.into(),
        };
        let options = match third & 0x40 {
            _ if is_opening && flags.contains(Flags::SYN) => self.syn_options(),
            0 => self.options(second),
            _ => syn_options(second),
        };
        self.receive(&header, &options, usize::from(third & 0x1f));
    }

    fn reset(&mut self, first: u8, second: u8) {
        let (own, next) = self.connection.numbers();
        let distance = match first & 3 {
            0 => u32::from(second) << 2,
            1 => (u32::from(second) + 1).wrapping_neg(),
            _ => u32::from(second) << 24,
        };
        let header = Header {
            source_port: 80,
            destination_port: 40_000,
            sequence: next + distance,
            acknowledgment: own,
            flags: Flags::RST | Flags(u16::from(first) & Flags::ACK.0),
            ..Header::default()
        };
        self.receive(&header, &Options::default(), 0);
    }

    /// The SYN of the peer, or its SYN-ACK, perhaps with data.
    fn syn(&mut self, flags: Flags, acknowledgment: Seq, bytes: usize) {
        let flags = self.peer.flags | flags;
        let options = self.syn_options();
        let header = Header {
            source_port: 80,
            destination_port: 40_000,
            sequence: IRS,
            acknowledgment,
            flags,
            window: 2000,
            urgent: 0,
        };
        self.receive(&header, &options, bytes);
    }

    fn receive(&mut self, header: &Header, options: &Options, length: usize) {
        let is_syn = header.flags.contains(Flags::SYN);
        let start = header.sequence + u32::from(is_syn);
        // Places before the stream are negative.
        let place = i64::from(start.0.wrapping_sub(IRS.0 + 1) as i32);
        let bytes: Vec<u8> = (place..place + length as i64).map(peer_byte).collect();
        let (own, next) = self.connection.numbers();
        let (state, arrival) = (
            self.state,
            Arrival {
                now: self.now,
                arrived: self.now - Duration::from_micros(u64::from(header.window)),
                is_marked: header.window & 8 != 0,
            },
        );
        let payload = Payload::new(bytes, 0..length);
        let events =
            self.connection
                .on_segment(arrival, (header, options), payload, &mut self.limiter);
        for at in (place..place + length as i64).filter_map(|at| usize::try_from(at).ok()) {
            if let Some(has_arrived) = self.peer.arrived.get_mut(at) {
                *has_arrived = true;
            }
        }
        if place < 0 {
            let fin = u32::from(header.flags.contains(Flags::FIN));
            let last = start + length as u32 + fin;
            self.peer.old.push((header.sequence, last));
        }
        if header.flags.contains(Flags::FIN)
            && let Ok(end) = usize::try_from(place + length as i64)
        {
            self.peer.fins.insert(end);
        }
        while self.peer.arrived.get(self.peer.in_order) == Some(&true) {
            self.peer.in_order += 1;
        }
        // In the worst case, the connection has believed each window but those of acknowledgments of the future.
        let acknowledges = match state.is_synchronized() {
            true => !own.is_before(header.acknowledgment),
            false => header.acknowledgment == ISS + 1,
        };
        if header.flags.contains(Flags::ACK) && acknowledges {
            let shift = if is_syn { 0 } else { self.peer.shift };
            let edge = header.acknowledgment + (u32::from(header.window) << shift);
            self.peer.edge = self.peer.edge.max(edge);
        }
        if let Some(reply) = &events.reply {
            let is_reset = reply.header.flags.contains(Flags::RST);
            let was_reset = header.flags.contains(Flags::RST);
            assert!(!(is_reset && was_reset), "a reset is answered by a reset");
        }
        let is_open = state.is_synchronized() && state != State::TimeWait;
        let ends = self.connection.state() == State::Closed;
        if is_open && ends && header.flags.contains(Flags::RST) {
            assert_eq!(header.sequence, next, "a blind reset is believed");
        }
        if is_open && ends && !self.is_closed_by_owner && state != State::LastAck {
            assert!(header.flags.contains(Flags::RST), "closed by {header:?}");
        }
        let is_future = header.flags.contains(Flags::ACK) && own.is_before(header.acknowledgment);
        if is_open && is_future {
            assert_eq!(self.connection.receive_next(), next, "blind data is taken");
        }
        self.on_events(events);
    }

    fn icmp(&mut self, kind: u8, place: u8) {
        let (next, _) = self.connection.numbers();
        let kinds = [
            ErrorKind::PacketTooBig,
            ErrorKind::PortUnreachable,
            ErrorKind::HostUnreachable,
            ErrorKind::NetUnreachable,
            ErrorKind::HopLimitExceeded,
            ErrorKind::Other,
        ];
        let is_open = self.state.is_synchronized();
        let error = IcmpError {
            kind: kinds[usize::from(kind) % kinds.len()],
            next_hop_mtu: (kind & 0x80 == 0).then_some(u32::from(place) * 8),
            sequence: match is_open {
                true => next - u32::from(place),
                false => ISS + u32::from(place & 1),
            },
        };
        let events = self.connection.on_icmp(&error);
        if is_open {
            let ends = events.is_over || self.connection.state() != self.state;
            assert!(!ends, "a report ends a connection");
        }
        self.on_events(events);
    }

    fn timers(&mut self) {
        for _ in 0..10 {
            if self
                .connection
                .next_timeout()
                .is_none_or(|due| due > self.now)
            {
                return;
            }
            let events = self.connection.on_timer(self.now);
            self.on_events(events);
            self.poll();
        }
        let due = self.connection.next_timeout();
        assert!(due.is_none_or(|due| due > self.now), "a timer is late");
    }

    /// Sends what is to be sent.
    fn poll(&mut self) {
        for _ in 0..MOST_SEGMENTS {
            let Some(segment) = self.connection.poll_transmit(self.now) else {
                return;
            };
            self.on_sent(&segment);
        }
        panic!("it never stops to send");
    }

    fn on_sent(&mut self, segment: &Outgoing) {
        let (header, options) = (&segment.header, &segment.options);
        if let Some(times) = options.timestamps {
            self.timestamp = Some(times.value);
        }
        if header.flags.contains(Flags::SYN) {
            assert_eq!((header.sequence, segment.length), (ISS, 0));
            return;
        }
        let mut bytes = Vec::new();
        self.connection.copy_payload(segment, &mut bytes);
        assert_eq!(bytes.len(), segment.length as usize);
        assert!(!header.flags.contains(Flags::RST));
        let has_fin = header.flags.contains(Flags::FIN);
        let end = header.sequence + segment.length;
        if segment.length > 0 || has_fin {
            let place = header.sequence.0.wrapping_sub(ISS.0 + 1) as usize;
            assert!(place + bytes.len() <= self.written, "more than was written");
            for (place, &byte) in (place..).zip(&bytes) {
                assert_eq!(byte, own_byte(place), "the byte at {place}");
            }
            assert!(!has_fin || place + bytes.len() == self.written, "FIN moves");
            // A closed window is probed by the first byte beyond it, or by FIN.
            let beyond = end.since(self.peer.edge);
            assert!(beyond <= 1, "{beyond} bytes beyond the window");
        }
        self.check_acknowledgment(header, options);
    }

    fn check_acknowledgment(&mut self, header: &Header, options: &Options) {
        assert!(header.flags.contains(Flags::ACK));
        assert!(
            self.has_arrived(header.acknowledgment),
            "acknowledges the future"
        );
        let edge = header.acknowledgment + (u32::from(header.window) << self.own_shift);
        if let Some(before) = self.edge {
            let is_kept = before.is_before(edge + (1 << self.own_shift));
            assert!(is_kept, "the window shrinks");
        }
        self.edge = Some(self.edge.map_or(edge, |before| before.max(edge)));
        for block in options.sack.as_slice() {
            assert!(block.start.is_before(block.end), "an empty range");
            let has_arrived = self.peer.has_all(block.start, block.end);
            assert!(has_arrived, "reports what has not arrived: {block:?}");
        }
    }

    /// Whether all bytes in front of a position have arrived.
    fn has_arrived(&self, seq: Seq) -> bool {
        let place = place_of(seq);
        let is_behind_fin = || {
            let fin = place.checked_sub(1);
            fin.is_some_and(|fin| fin <= self.peer.in_order && self.peer.fins.contains(&fin))
        };
        place <= self.peer.in_order || is_behind_fin()
    }

    fn read(&mut self, most: usize, how: u8) {
        let mut bytes = vec![0; most];
        let readable = self.connection.readable();
        let read = match how & 3 {
            0 => {
                let taken = self.connection.take();
                assert_eq!(taken.is_some(), readable > 0);
                bytes = taken.map_or_else(Vec::new, |payload| payload.to_vec());
                bytes.len()
            }
            1 => {
                let peeked = self.connection.peek(&mut bytes);
                self.check_read(&bytes[..peeked]);
                self.connection.read(&mut bytes)
            }
            _ => self.connection.read(&mut bytes),
        };
        assert!(how & 3 == 0 || read == most.min(readable));
        self.check_read(&bytes[..read]);
        self.read += read;
        assert_eq!(self.connection.readable(), readable - read);
    }

    fn check_read(&self, bytes: &[u8]) {
        assert!(self.read + bytes.len() <= self.peer.in_order);
        for (place, &byte) in (self.read as i64..).zip(bytes) {
            assert_eq!(byte, peer_byte(place), "the byte at {place}");
        }
    }

    fn write(&mut self, bytes: usize) {
        let bytes = bytes.min(self.connection.room());
        let places = self.written..self.written + bytes;
        let bytes: Bytes = places.map(own_byte).collect();
        let length = bytes.len();
        match self.connection.write(bytes) {
            Ok(()) => self.written += length,
            Err(_) => assert!(length == 0 || !self.connection.state().may_write()),
        }
        self.connection.await_room();
    }

    fn on_events(&mut self, events: Events) {
        let state = self.connection.state();
        let is_over = matches!(state, State::Closed | State::TimeWait);
        assert!(is_over || !events.is_over);
        assert!(follows(self.state, state), "{:?} to {state:?}", self.state);
        self.state = state;
    }

    fn check(&mut self) {
        let state = self.connection.state();
        assert!(follows(self.state, state), "{:?} to {state:?}", self.state);
        self.state = state;
        let readable = self.connection.readable();
        assert!(
            self.read + readable <= self.peer.in_order,
            "a byte from nowhere"
        );
        assert!(self.connection.unacknowledged() <= self.written);
        let (own, next) = self.connection.numbers();
        if state.is_synchronized() {
            assert!(own.since(ISS + 1) as usize <= self.written + 1);
            assert!(self.has_arrived(next));
        }
        let is_early_end = self.connection.is_at_end() && state != State::Closed;
        assert!(
            !is_early_end || !self.peer.fins.is_empty(),
            "an end from nowhere"
        );
        if self.is_closed_by_owner {
            assert!(!self.connection.has_error(), "nobody reads the error");
        }
        let due = self.connection.next_timeout();
        assert!(state != State::Closed || due.is_none());
        if due.is_some_and(|due| due <= self.now) {
            self.timers();
        }
    }

    /// Nothing arrives any more: the connection ends by itself when its owner leaves.
    fn end(mut self) {
        self.is_closed_by_owner = true;
        let events = self.connection.close(self.now);
        self.on_events(events);
        self.poll();
        for _ in 0..MOST_TIMERS {
            let Some(due) = self.connection.next_timeout() else {
                break;
            };
            self.now = self.now.max(due);
            self.timers();
        }
        let state = self.connection.state();
        assert!(
            matches!(state, State::Closed | State::TimeWait),
            "it does not end: {state:?}"
        );
        assert_eq!(self.connection.take_error(), None::<Error>);
    }

    fn syn_options(&self) -> Options {
        let mut options = self.peer.options;
        options.timestamps = options.timestamps.and(self.times(0));
        options
    }

    /// The options of a segment of the peer. Some bits change its time stamp, or leave it out.
    fn options(&self, bits: u8) -> Options {
        Options {
            timestamps: self.peer.options.timestamps.and(self.times(bits)),
            ..Options::default()
        }
    }

    fn times(&self, bits: u8) -> Option<Timestamps> {
        let value = (self.now.as_ns() / 1_000_000) as u32;
        let (value, echo) = match bits >> 5 {
            7 => return None,
            6 => (value.wrapping_sub(u32::from(bits) << 8), 1),
            5 => (value, u32::from(bits) << 24),
            _ => (value, 0),
        };
        Some(Timestamps {
            value,
            echo: self.timestamp.unwrap_or(0).wrapping_add(echo),
        })
    }
}

/// Whether a state may follow another, within one call.
fn follows(before: State, state: State) -> bool {
    use State::*;
    if before == state || state == Closed {
        return true;
    }
    match before {
        // Data, FIN and an early close may be part of the step that opens the connection.
        SynSent => true,
        SynReceived => state != SynSent,
        Established => !matches!(state, SynSent | SynReceived),
        FinWait1 => matches!(state, FinWait2 | Closing | TimeWait),
        CloseWait => state == LastAck,
        FinWait2 | Closing => state == TimeWait,
        LastAck | TimeWait | Closed => false,
    }
}

fn flow() -> Flow {
    Flow {
        transport: Transport::Tcp,
        remote: ([192, 0, 2, 7].into(), 80),
        local: ([192, 0, 2, 1].into(), 40_000),
    }
}

fn syn_options(bits: u8) -> Options {
    let has = |bit: u8| bits & 1 << bit != 0;
    Options {
        mss: has(0).then_some(500 + u16::from(bits) * 4),
        window_scale: has(1).then_some(bits >> 4 & 3),
        is_sack_permitted: has(2),
        timestamps: has(3).then_some(Timestamps::default()),
        ..Options::default()
    }
}

/// The place of a position in the peer's stream. Those before its begin are beyond its end.
fn place_of(seq: Seq) -> usize {
    seq.0.wrapping_sub(IRS.0 + 1) as usize
}

/// The byte of the peer's stream at a place. Those before its begin are none of it.
fn peer_byte(place: i64) -> u8 {
    (place ^ place >> 8 ^ place >> 16) as u8
}

fn own_byte(place: usize) -> u8 {
    !(place ^ place >> 7 ^ place >> 15) as u8
}

/// Both wrap soon.
const ISS: Seq = Seq(u32::MAX - 3000);
const IRS: Seq = Seq(u32::MAX - 500);

/// The longest stream of the peer.
const MOST_BYTES: usize = 1 << 18;

/// More than a full window of the shortest segments.
const MOST_SEGMENTS: usize = 2000;

const MOST_TIMERS: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    /// A place in front of the stream.
    const BEFORE: u32 = u32::MAX - 100;

    #[test]
    fn a_report_is_of_bytes_that_have_arrived_and_of_one_fin() {
        let mut world = World::new([0, 0]);
        world.peer.arrived[10..20].fill(true);
        world.peer.arrived[21..30].fill(true);
        let has_all = |world: &World, start: u32, end: u32| {
            let of = |place: u32| IRS + 1 + place;
            world.peer.has_all(of(start), of(end))
        };
        assert!(has_all(&world, 10, 20));
        for (start, end) in [
            (10, 21),
            (9, 12),
            (15, 25),
            (MOST_BYTES as u32, MOST_BYTES as u32 + 1),
            (BEFORE, BEFORE + 50),
            (BEFORE, 15),
        ] {
            assert!(!has_all(&world, start, end), "{start} to {end}");
        }
        let old = IRS + 1 + BEFORE;
        world.peer.old.push((old, old + 40));
        assert!(has_all(&world, BEFORE + 1, BEFORE + 40));
        assert!(!has_all(&world, BEFORE, BEFORE + 50));
        world.peer.fins.insert(20);
        assert!(has_all(&world, 10, 21));
        assert!(!has_all(&world, 9, 21));
    }
}
