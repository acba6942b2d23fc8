//! A receiver beside a model: a byte vector with the arrivals of each byte.

use super::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]
    #[test]
    fn a_receiver_does_as_the_model(
        initial in prop_oneof![any::<u32>(), (u32::MAX - 6000)..=u32::MAX],
        scale in 0..4u8,
        packet_memory_bytes in 0..4000u32,
        length in 0..6000usize,
        steps in prop::collection::vec(step(), 1..200),
    ) {
        let mut pair = Pair::new(initial, scale, packet_memory_bytes, length);
        for step in steps {
            pair.run(step)?;
        }
        pair.complete()?;
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// Bytes arrive: the distance of the first from those that are expected, their number, and the unused bytes of
    /// their packet.
    Segment(i64, usize, usize),
    Read(usize),
    Take,
    Acknowledge,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (-300i64..2600, 0..LONGEST, 0..200usize).prop_map(|(at, bytes, rest)| Step::Segment(at, bytes, rest)),
        2 => (0..300usize).prop_map(|bytes| Step::Segment(0, bytes, 0)),
        1 => (0..3000usize).prop_map(Step::Read),
        1 => Just(Step::Take),
        2 => Just(Step::Acknowledge),
    ]
}

/// A byte that has arrived: its value, and the last insertion that touched its range.
type Arrived = (u8, usize);

/// Positions are counted from the first byte.
struct Pair {
    receiver: Receiver<Vec<u8>>,
    first: Seq,
    scale: u8,
    packet_memory: usize,
    stream: Vec<Option<Arrived>>,
    next: usize,
    read: usize,
    edge: usize,
    has_fin: bool,
    arrivals: usize,
    duplicate: Option<(usize, usize)>,
}

const BUFFER: usize = 2000;
const RANGES: usize = 6;
/// The longest segment.
const LONGEST: usize = 400;

impl Pair {
    fn new(initial: u32, scale: u8, packet_memory_bytes: u32, length: usize) -> Self {
        let settings = ReceiveSettings {
            packet_memory_bytes,
            out_of_order_ranges: RANGES as u16,
            ..fixed(BUFFER as u32)
        };
        Self {
            receiver: Receiver::new(Seq(initial), &settings, scale, 200),
            first: Seq(initial) + 1,
            scale,
            packet_memory: packet_memory_bytes as usize,
            stream: vec![None; length],
            next: 0,
            read: 0,
            edge: BUFFER,
            has_fin: false,
            arrivals: 0,
            duplicate: None,
        }
    }

    fn run(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Segment(at, bytes, rest) => {
                let start = (self.next as i64 + at).clamp(0, self.stream.len() as i64) as usize;
                let end = (start + bytes).min(self.stream.len());
                self.arrive(start, end, rest)?;
            }
            Step::Read(bytes) => {
                let mut into = vec![0; bytes];
                let bytes = self.receiver.read(&mut into);
                prop_assert_eq!(bytes, into.len().min(self.next - self.read));
                self.on_read(&into[..bytes])?;
            }
            Step::Take => match self.receiver.take() {
                Some(payload) => self.on_read(&payload)?,
                None => prop_assert_eq!(self.read, self.next),
            },
            Step::Acknowledge => self.acknowledge()?,
        }
        self.compare()
    }

    fn on_read(&mut self, bytes: &[u8]) -> Result<(), TestCaseError> {
        for &byte in bytes {
            prop_assert_eq!(Some(byte), self.stream[self.read].map(|(byte, _)| byte));
            self.read += 1;
        }
        Ok(())
    }

    fn arrive(&mut self, start: usize, end: usize, rest: usize) -> Result<(), TestCaseError> {
        self.arrivals += 1;
        let value = |at: usize| (at + 37 * self.arrivals) as u8;
        let mut memory = vec![0; rest];
        memory.extend((start..end).map(value));
        let has_fin = end == self.stream.len();
        let payload = Payload::new(memory, rest..rest + end - start);
        let (next, was_behind_a_gap) = (self.next, self.held_beyond());
        let expected = self.expect(start, end, has_fin);
        let now = Instant::ORIGIN;
        let received = self
            .receiver
            .on_data(now, now, self.first + start as u32, payload, has_fin);
        prop_assert_eq!(received.dropped.is_some(), expected == Expected::Dropped);
        let is_finished = self.has_fin && self.next == self.stream.len();
        prop_assert_eq!(
            received.fin_reached,
            self.receiver.is_fin_reached() && expected != Expected::Dropped
        );
        prop_assert_eq!(self.receiver.is_fin_reached(), is_finished);
        prop_assert_eq!(received.readable, self.next > next || received.fin_reached);
        let is_in_order = start == next && !was_behind_a_gap && !has_fin;
        if expected != Expected::Nothing && !is_in_order {
            prop_assert_eq!(received.ack, AckNeed::Now);
        }
        Ok(())
    }

    /// Applies a segment to the model.
    fn expect(&mut self, start: usize, end: usize, has_fin: bool) -> Expected {
        let window = self
            .edge
            .saturating_sub(self.next)
            .max(BUFFER.saturating_sub(self.unread()));
        let (is_finished, length) = (self.is_finished(), end - start + usize::from(has_fin));
        // FIN takes a position of its own.
        let next = self.next + usize::from(is_finished);
        let is_inside = |at: usize| (next..next + window).contains(&at);
        let is_acceptable = match (length, window) {
            (0, 0) => start == next,
            (0, _) => is_inside(start),
            _ => is_inside(start) || is_inside(start + length - 1),
        };
        if is_acceptable && length == 0 {
            return Expected::Nothing;
        }
        let known = end.min(self.next);
        if start < known {
            self.duplicate = Some((start, known));
        }
        if !is_acceptable || is_finished {
            return Expected::Dropped;
        }
        let (kept, cut) = (start.max(known), end.min(self.next + window));
        let has_fin = has_fin && cut == end;
        if kept == cut {
            self.has_fin |= has_fin;
            return Expected::Kept;
        }
        let is_first = |at: usize| self.stream[at].is_some();
        if start >= self.next
            && let Some(from) = (kept..cut).find(|&at| is_first(at))
        {
            let to = (from..cut).find(|&at| !is_first(at)).unwrap_or(cut);
            self.duplicate = Some((from, to));
        }
        let touches = (kept.saturating_sub(1)..=cut).any(|at| at > self.next && self.is_held(at));
        if !touches && kept != self.next && self.ranges().len() >= RANGES {
            return Expected::Dropped;
        }
        let is_new = self.insert(kept, cut);
        self.has_fin |= has_fin;
        match is_new {
            true => Expected::Kept,
            false => Expected::Dropped,
        }
    }

    /// Returns whether any byte is new.
    fn insert(&mut self, start: usize, end: usize) -> bool {
        let mut is_new = false;
        for at in start..end {
            is_new |= self.stream[at].is_none();
            let value = (at + 37 * self.arrivals) as u8;
            self.stream[at].get_or_insert((value, 0));
        }
        let from = (0..start)
            .rev()
            .find(|&at| !self.is_held(at))
            .map_or(0, |at| at + 1);
        let to = (end..self.stream.len())
            .find(|&at| !self.is_held(at))
            .unwrap_or(self.stream.len());
        for (_, touched) in self.stream[from..to].iter_mut().flatten() {
            *touched = self.arrivals;
        }
        while self.is_held(self.next) {
            self.next += 1;
        }
        is_new
    }

    fn acknowledge(&mut self) -> Result<(), TestCaseError> {
        let number = self.receiver.next();
        let window = usize::from(self.receiver.advertise()) << self.scale;
        let next = self.next + usize::from(self.is_finished());
        let (edge, unit) = (next + window, 1 << self.scale);
        prop_assert!(edge + unit > self.edge, "the right edge moves left");
        prop_assert!(window + self.unread() <= BUFFER + unit);
        self.edge = self.edge.max(edge);

        let mut ranges = self.ranges();
        ranges.sort_by_key(|&(start, _)| {
            core::cmp::Reverse(self.stream[start].map(|(_, touched)| touched))
        });
        let expected: Vec<_> = self
            .duplicate
            .take()
            .into_iter()
            .chain(ranges)
            .take(SackBlocks::MOST)
            .collect();
        let blocks = self.receiver.sack_blocks();
        let position = |seq: Seq| seq.0.wrapping_sub(self.first.0) as usize;
        let blocks: Vec<_> = blocks
            .as_slice()
            .iter()
            .map(|b| (position(b.start), position(b.end)))
            .collect();
        prop_assert_eq!(blocks, expected);
        self.receiver.on_ack_sent();
        prop_assert_eq!(
            (self.receiver.last_ack_sent(), self.receiver.ack_need()),
            (number, AckNeed::None)
        );
        Ok(())
    }

    fn compare(&self) -> Result<(), TestCaseError> {
        let next = self.next + usize::from(self.is_finished());
        prop_assert_eq!(self.receiver.next(), self.first + next as u32);
        prop_assert_eq!(self.receiver.readable(), self.unread());
        let held = self.unread()
            + self
                .ranges()
                .iter()
                .map(|(start, end)| end - start)
                .sum::<usize>();
        let most = self.packet_memory + 2 * held + (RANGES + 1) * 512 + LONGEST;
        prop_assert!(self.receiver.memory_bytes() <= most);
        Ok(())
    }

    /// Sends the missing bytes, and reads all.
    fn complete(&mut self) -> Result<(), TestCaseError> {
        while !self.receiver.is_finished() {
            let end = (self.next + 200).min(self.stream.len());
            self.run(Step::Segment(0, end - self.next, 0))?;
            self.run(Step::Read(BUFFER * 2))?;
            self.run(Step::Acknowledge)?;
        }
        prop_assert_eq!(self.read, self.stream.len());
        prop_assert_eq!(self.receiver.memory_bytes(), 0);
        Ok(())
    }

    fn unread(&self) -> usize {
        self.next - self.read
    }

    fn is_held(&self, at: usize) -> bool {
        self.stream.get(at).is_some_and(Option::is_some)
    }

    fn is_finished(&self) -> bool {
        self.has_fin && self.next == self.stream.len()
    }

    fn held_beyond(&self) -> bool {
        self.stream[self.next..].iter().any(Option::is_some)
    }

    /// The ranges beyond a gap.
    fn ranges(&self) -> Vec<(usize, usize)> {
        let mut ranges: Vec<(usize, usize)> = Vec::new();
        for at in (self.next..self.stream.len()).filter(|&at| self.is_held(at)) {
            match ranges.last_mut() {
                Some((_, end)) if *end == at => *end += 1,
                _ => ranges.push((at, at + 1)),
            }
        }
        ranges
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Expected {
    /// The segment has no effect.
    Nothing,
    /// Nothing of it is kept.
    Dropped,
    /// Bytes or FIN are new.
    Kept,
}
