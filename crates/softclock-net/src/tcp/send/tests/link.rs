//! The virtual link, and the receiver at its end.

use alloc::collections::BTreeMap;
use alloc::collections::VecDeque;

use super::*;

/// What came of a transfer.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) elapsed: Duration,
    pub(super) stats: SendStats,
    /// Segments that the link has dropped, and bytes that arrived more than once.
    pub(super) dropped: u32,
    pub(super) arrived_twice: u32,
    pub(super) log: Vec<(Instant, Transmit)>,
}

/// Sends `path.bytes` bytes and FIN; panics unless all arrive, each once and in order, within an hour.
pub(super) fn run(path: &Path) -> Outcome {
    let mut link = Link::new(path.clone());
    link.run();
    link.finish()
}

/// A segment on its way to the receiver.
struct Arrival {
    seq: Seq,
    payload: Vec<u8>,
    fin: bool,
    time: u32,
    is_probe: bool,
}

/// An acknowledgment on its way back.
#[derive(Clone)]
struct Reply {
    acknowledgment: Seq,
    window: u32,
    sack: SackBlocks,
    echo: u32,
}

pub(super) struct Link {
    pub(super) path: Path,
    pub(super) now: Instant,
    pub(super) sender: Sender,
    random: u64,
    /// Random numbers for the writer alone: its room does not change what the path loses.
    writes: u64,
    transmissions: usize,
    serial: u64,
    busy_until: Instant,
    tokens: (u64, Instant),
    data: BTreeMap<(Instant, u64), Arrival>,
    replies: BTreeMap<(Instant, u64), Reply>,
    channel: VecDeque<(Instant, Reply)>,
    receiver: Receiver,
    written: usize,
    closed: bool,
    pub(super) dropped: u32,
    pub(super) log: Vec<(Instant, Transmit)>,
}

/// The receiving half: reassembly, delayed acknowledgments, SACK and DSACK.
struct Receiver {
    next: Seq,
    stream: Vec<u8>,
    ranges: Vec<SackBlock>,
    ahead: Vec<(Seq, Vec<u8>)>,
    fin_at: Option<Seq>,
    recent: u32,
    last_sent: Seq,
    pending: u32,
    due: Option<Instant>,
    twice: u32,
}

impl Link {
    pub(super) fn new(path: Path) -> Self {
        let start = Seq(path.start);
        let options = PeerOptions {
            mss: if path.has_times { 1012 } else { 1000 },
            is_sack_permitted: path.has_sack,
            timestamps: path.has_times.then_some(0),
            ..peer()
        };
        let now = at(1000);
        let is_closed = now < path.closed_until;
        let window = if is_closed { 0 } else { path.window };
        Self {
            sender: Sender::new(start, &SendSettings::default(), &options, window, now),
            now,
            random: path.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            writes: path.seed.wrapping_mul(0xbf58_476d_1ce4_e5b9) | 1,
            transmissions: 0,
            serial: 0,
            busy_until: now,
            tokens: (path.policer.map_or(0, |policer| policer.1), now),
            data: BTreeMap::new(),
            replies: BTreeMap::new(),
            channel: VecDeque::new(),
            receiver: Receiver {
                next: start,
                stream: vec![],
                ranges: vec![],
                ahead: vec![],
                fin_at: None,
                recent: 0,
                last_sent: start,
                pending: 0,
                due: None,
                twice: 0,
            },
            written: 0,
            closed: false,
            dropped: 0,
            log: vec![],
            path,
        }
    }

    fn chance(&mut self, thousandths: u32) -> bool {
        self.random() % 1000 < u64::from(thousandths)
    }

    fn random(&mut self) -> u64 {
        next_random(&mut self.random)
    }

    pub(super) fn run(&mut self) {
        while !(self.closed && self.sender.is_fin_acked()) {
            self.step();
            assert!(self.now < at(3_600_000), "too slow: {:?}", self.sender);
        }
    }

    /// Goes to the next event and processes it.
    pub(super) fn step(&mut self) {
        self.write();
        self.transmit();
        let lazy = (!self.channel.is_empty()).then(|| match self.path.laziness.is_zero() {
            true => self.now,
            false => self
                .now
                .add_ns(1)
                .round_up(self.path.laziness.as_nanos() as u64),
        });
        let opens = (self.now < self.path.closed_until).then_some(self.path.closed_until);
        let next = [
            self.data.keys().next().map(|key| key.0),
            self.replies.keys().next().map(|key| key.0),
            self.sender.next_timeout(),
            self.receiver.due,
            lazy,
            opens,
        ];
        let next = next.into_iter().flatten().min();
        let next = next.unwrap_or_else(|| panic!("deadlock: {:?}", self.sender));
        let has_opened = self.now < self.path.closed_until && self.path.closed_until <= next;
        self.now = self.now.max(next);
        if has_opened {
            self.acknowledge(None);
        }
        while let Some(entry) = self
            .data
            .first_entry()
            .filter(|entry| entry.key().0 <= self.now)
        {
            let arrival = entry.remove();
            self.receive(arrival);
        }
        if self.receiver.due.is_some_and(|due| due <= self.now) {
            self.acknowledge(None);
        }
        while let Some(entry) = self
            .replies
            .first_entry()
            .filter(|entry| entry.key().0 <= self.now)
        {
            let (key, reply) = entry.remove_entry();
            self.channel.push_back((key.0, reply));
        }
        let is_timer_due = self
            .sender
            .next_timeout()
            .is_some_and(|time| time <= self.now);
        let is_owner_due = self.path.laziness.is_zero()
            || self
                .now
                .as_ns()
                .is_multiple_of(self.path.laziness.as_nanos() as u64);
        if is_timer_due || is_owner_due {
            self.drain();
        }
        if self
            .sender
            .next_timeout()
            .is_some_and(|time| time <= self.now)
        {
            let outcome = self.sender.on_timer(self.now);
            assert_ne!(outcome, TimerOutcome::GiveUp);
        }
        self.check();
    }

    pub(super) fn check(&self) {
        if let Some(flight) = &self.sender.flight {
            flight.board.check(self.sender.una, self.sender.next);
            assert!(!flight.board.is_empty());
        } else {
            assert_eq!(self.sender.una, self.sender.next);
        }
    }

    fn write(&mut self) {
        while self.written < self.path.bytes && self.sender.room() > 0 {
            let wanted = 1 + (next_random(&mut self.writes) % 5000) as usize;
            let size = wanted
                .min(self.path.bytes - self.written)
                .min(self.sender.room());
            let bytes: Vec<u8> = (0..size)
                .map(|index| pattern(self.written + index))
                .collect();
            self.sender.write(bytes.into()).unwrap();
            self.written += size;
        }
        if self.written == self.path.bytes && !self.closed {
            self.closed = true;
            self.sender.close();
        }
    }

    fn transmit(&mut self) {
        while let Some(segment) = self.sender.poll_transmit(self.now) {
            self.log.push((self.now, segment));
            assert!(segment.length > 0 || segment.fin, "{segment:?}");
            assert!(segment.length <= 1000);
            let mut payload = vec![];
            self.sender
                .copy_payload(segment.seq, segment.length, &mut payload);
            assert_eq!(payload.len(), segment.length as usize);
            self.carry(segment, payload);
        }
    }

    fn carry(&mut self, segment: Transmit, payload: Vec<u8>) {
        let number = self.transmissions;
        self.transmissions += 1;
        let size = 66 + u64::from(segment.length);
        let is_lost = self.path.drops.contains(&number) || self.chance(self.path.loss);
        let waiting = self.busy_until.ns_since(self.now) * self.path.rate / 1_000_000_000;
        if is_lost || waiting + size > self.path.queue || !self.police(size) {
            self.dropped += 1;
            return;
        }
        let begin = self.busy_until.max(self.now);
        self.busy_until = begin.add_ns(size * 1_000_000_000 / self.path.rate);
        let mut arrives = self.busy_until + self.path.delay;
        if self.chance(self.path.reordering) {
            arrives =
                arrives.add_ns(self.random() % (self.path.reordering_by.as_nanos() as u64 + 1));
        }
        let stall = self.path.stall;
        if let Some((_, end)) = stall.filter(|&(begin, end)| begin <= arrives && arrives < end) {
            arrives = end;
        }
        let copies = if self.chance(self.path.duplication) {
            2
        } else {
            1
        };
        for _ in 0..copies {
            let arrival = Arrival {
                seq: segment.seq,
                payload: payload.clone(),
                fin: segment.fin,
                time: ClockUnit::Milliseconds.reading(self.now),
                is_probe: segment.kind == TransmitKind::WindowProbe,
            };
            self.serial += 1;
            self.data.insert((arrives, self.serial), arrival);
        }
    }

    fn police(&mut self, size: u64) -> bool {
        let Some((rate, burst)) = self.path.policer else {
            return true;
        };
        let gained = self.now.ns_since(self.tokens.1) * rate / 1_000_000_000;
        self.tokens = ((self.tokens.0 + gained).min(burst), self.now);
        let is_allowed = self.tokens.0 >= size;
        if is_allowed {
            self.tokens.0 -= size;
        }
        is_allowed
    }

    fn receive(&mut self, arrival: Arrival) {
        let receiver = &mut self.receiver;
        let end = arrival.seq + arrival.payload.len() as u32 + u32::from(arrival.fin);
        if receiver.last_sent.max(arrival.seq) == receiver.last_sent {
            receiver.recent = receiver.recent.max(arrival.time);
        }
        if self.now < self.path.closed_until {
            assert!(arrival.is_probe, "sent into a closed window");
            self.acknowledge(None);
            return;
        }
        let is_known = |block: &SackBlock| {
            block.start.is_at_or_before(arrival.seq) && end.is_at_or_before(block.end)
        };
        if end.is_at_or_before(receiver.next) || receiver.ranges.iter().any(is_known) {
            receiver.twice += 1;
            self.acknowledge(Some(SackBlock {
                start: arrival.seq,
                end,
            }));
            return;
        }
        if arrival.fin {
            receiver.fin_at = Some(end - 1);
        }
        let in_order = arrival.seq.is_at_or_before(receiver.next);
        let had_gap = !receiver.ranges.is_empty();
        receiver.store(arrival.seq, arrival.payload, end);
        receiver.pending += 1;
        if !in_order || had_gap || arrival.fin || receiver.pending >= 2 {
            self.acknowledge(None);
        } else {
            let due = self.now + self.path.ack_delay;
            receiver.due = receiver.due.or(Some(due));
        }
    }

    fn acknowledge(&mut self, twice: Option<SackBlock>) {
        let is_closed = self.now < self.path.closed_until;
        let receiver = &mut self.receiver;
        receiver.due = None;
        receiver.pending = 0;
        receiver.last_sent = receiver.next;
        let mut sack = SackBlocks::default();
        if self.path.has_sack {
            if let Some(block) = twice.filter(|_| self.path.has_duplicate_sack) {
                sack.push(block);
            }
            for &block in receiver.ranges.iter().rev().take(3) {
                sack.push(block);
            }
            sack.truncate(if self.path.has_times { 3 } else { 4 });
        }
        let reply = Reply {
            acknowledgment: receiver.next,
            window: if is_closed { 0 } else { self.path.window },
            sack,
            echo: receiver.recent,
        };
        if self.chance(self.path.ack_loss) {
            return;
        }
        self.serial += 1;
        self.replies
            .insert((self.now + self.path.delay, self.serial), reply);
    }

    fn drain(&mut self) {
        while let Some((arrived, reply)) = self.channel.pop_front() {
            let acked = self.sender.on_ack(
                self.now,
                arrived,
                &Ack {
                    acknowledgment: reply.acknowledgment,
                    window: reply.window,
                    sack: &reply.sack,
                    echo: self.path.has_times.then_some(reply.echo),
                    ece: false,
                    carries_data: false,
                    seq: Seq(5),
                },
            );
            assert!(!matches!(
                acked.verdict,
                AckVerdict::Future | AckVerdict::TooOld
            ));
            self.check();
        }
    }

    pub(super) fn finish(mut self) -> Outcome {
        assert_eq!(self.sender.poll_transmit(self.now), None);
        let expected: Vec<u8> = (0..self.path.bytes).map(pattern).collect();
        assert!(self.receiver.stream == expected);
        assert!(self.sender.is_all_acked() && self.sender.flight.is_none());
        assert_eq!(self.sender.next_timeout(), None);
        Outcome {
            elapsed: self.now.since(at(1000)),
            stats: *self.sender.stats(),
            dropped: self.dropped,
            arrived_twice: self.receiver.twice,
            log: self.log,
        }
    }
}

impl Receiver {
    fn store(&mut self, seq: Seq, payload: Vec<u8>, end: Seq) {
        self.ahead.push((seq, payload));
        // The newest block comes last; blocks that touch it become part of it.
        let mut block = SackBlock {
            start: seq.max(self.next),
            end,
        };
        self.ranges.retain(|other| {
            let is_apart = block.end.is_before(other.start) || other.end.is_before(block.start);
            if !is_apart {
                block.start = block.start.min(other.start);
                block.end = block.end.max(other.end);
            }
            is_apart
        });
        self.ranges.push(block);
        while let Some(index) = self.ahead.iter().position(|(seq, payload)| {
            seq.is_at_or_before(self.next) && self.next.is_before(*seq + payload.len() as u32)
        }) {
            let (seq, payload) = self.ahead.swap_remove(index);
            self.stream
                .extend(&payload[self.next.since(seq) as usize..]);
            self.next = seq + payload.len() as u32;
        }
        if self.fin_at == Some(self.next) {
            self.next += 1;
        }
        let next = self.next;
        self.ahead
            .retain(|(seq, payload)| next.is_before(*seq + payload.len() as u32));
        self.ranges.retain(|block| next.is_before(block.end));
    }
}

fn pattern(index: usize) -> u8 {
    (index ^ (index >> 8) ^ (index >> 16)) as u8
}

/// Marsaglia's xorshift.
fn next_random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state >> 8
}
