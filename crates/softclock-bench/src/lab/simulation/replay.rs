//! Replay of a sequence of memory accesses on several simulated processors, each of which calls the paper's synthetic
//! handler at different places.

use super::cache::{Caches, LINE, Misses, PAGE};

/// The place at which a due handler is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Never.
    Never,
    /// At the next trigger state, as a soft event.
    TriggerState,
    /// At the next instruction, as the handler of an interrupt.
    Anywhere,
}

/// A line of valgrind's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Instruction { address: u64, bytes: u64 },
    Data { address: u64, bytes: u64 },
    TriggerState,
}

impl Access {
    /// Parses a line. `I  0045fa27,3` is an instruction; loads, stores and both (`L`, `S`, `M`) are indented. Returns
    /// `None` for other output.
    pub(super) fn parse(line: &[u8], mark: u64) -> Option<Self> {
        let line = std::str::from_utf8(line).ok()?.trim_end();
        let (kind, place) = line.split_at_checked(3)?;
        let (address, bytes) = place.split_once(',')?;
        let address = u64::from_str_radix(address, 16).ok()?;
        let bytes = bytes.parse().ok()?;
        match kind {
            " S " if address == mark => Some(Self::TriggerState),
            "I  " => Some(Self::Instruction { address, bytes }),
            " L " | " S " | " M " => Some(Self::Data { address, bytes }),
            _ => None,
        }
    }
}

/// Processors that replay the same sequence and differ in the place of the handler.
pub(super) struct Replay {
    processors: Vec<Processor>,
    instructions: u64,
    every: u64,
    part: u64,
    most_parts: usize,
}

/// The results of one place.
#[derive(Debug)]
pub struct Simulated {
    /// The place of the handler's calls.
    pub place: Place,
    /// The misses and the handler's calls in each part of the sequence.
    pub parts: Vec<(Misses, u64)>,
}

struct Processor {
    place: Place,
    caches: Caches,
    handler: Handler,
    /// The instruction count at which the handler is due next.
    due: u64,
    fired: u64,
    parts: Vec<(Misses, u64)>,
}

impl Replay {
    pub(super) fn new(places: &[Place], every: u64, part: u64, most_parts: usize) -> Self {
        let processor = |&place: &Place| Processor {
            place,
            caches: Caches::new(),
            handler: Handler::default(),
            due: every,
            fired: 0,
            parts: Vec::new(),
        };
        Self {
            processors: places.iter().map(processor).collect(),
            instructions: 0,
            every,
            part,
            most_parts,
        }
    }

    pub(super) fn access(&mut self, access: Access) {
        match access {
            Access::Instruction { address, bytes } => {
                self.instructions += 1;
                let ends_part = self.instructions.is_multiple_of(self.part);
                for processor in &mut self.processors {
                    processor.caches.fetch(address, bytes);
                    // After the fetch, as an interrupt is taken between instructions.
                    processor.may_fire(Place::Anywhere, self.instructions, self.every);
                    if ends_part {
                        processor.end_part();
                    }
                }
            }
            Access::Data { address, bytes } => {
                for processor in &mut self.processors {
                    processor.caches.data(address, bytes);
                }
            }
            Access::TriggerState => {
                for processor in &mut self.processors {
                    processor.may_fire(Place::TriggerState, self.instructions, self.every);
                }
            }
        }
    }

    /// Returns the number of instructions replayed.
    pub(super) fn instructions(&self) -> u64 {
        self.instructions
    }

    /// Returns the number of complete parts, without the first, which only warms the caches.
    pub(super) fn parts(&self) -> usize {
        let over = self.instructions / self.part;
        over.saturating_sub(1) as usize
    }

    pub(super) fn is_complete(&self) -> bool {
        self.parts() >= self.most_parts
    }

    pub(super) fn finish(self) -> Vec<Simulated> {
        let simulated = |mut processor: Processor| Simulated {
            place: processor.place,
            // Without the first part, which warmed the caches.
            parts: processor.parts.split_off(1),
        };
        self.processors.into_iter().map(simulated).collect()
    }
}

impl Processor {
    fn may_fire(&mut self, place: Place, now: u64, every: u64) {
        if self.place == place && now >= self.due {
            self.handler.touch(&mut self.caches);
            self.fired += 1;
            self.due = now + every;
        }
    }

    fn end_part(&mut self) {
        let part = (
            std::mem::take(&mut self.caches.misses),
            std::mem::take(&mut self.fired),
        );
        self.parts.push(part);
    }
}

/// The synthetic handler: it touches 50 data lines, different ones each time, cycling through 4 pages, and 2
/// instruction lines on 2 further pages.
#[derive(Default)]
struct Handler {
    next: u64,
}

impl Handler {
    fn touch(&mut self, caches: &mut Caches) {
        for _ in 0..50 {
            caches.data(HANDLERS_PAGES + self.next * LINE, 8);
            self.next = (self.next + 1) % (4 * PAGE / LINE);
        }
        for page in 4..6 {
            caches.fetch(HANDLERS_PAGES + page * PAGE, 1);
        }
    }
}

/// An address range that the program does not use.
const HANDLERS_PAGES: u64 = 1 << 46;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_understood() {
        let parse = |line: &str| Access::parse(line.as_bytes(), 0x20);
        let (address, bytes) = (0x45fa27, 3);
        let instruction = Access::Instruction { address, bytes };
        assert_eq!(parse("I  0045fa27,3\n"), Some(instruction));
        let data = Access::Data { address, bytes };
        assert_eq!(parse(" L 0045fa27,3\n"), Some(data));
        assert_eq!(parse(" M 0045fa27,3\n"), Some(data));
        assert_eq!(parse(" S 00000020,8\n"), Some(Access::TriggerState));
        assert_eq!(parse("==7== Lackey, an example Valgrind tool\n"), None);
        assert_eq!(parse("softclock: a word, 3\n"), None);
    }

    #[test]
    fn handlers_are_called_where_they_should_be() {
        let places = [Place::Never, Place::TriggerState, Place::Anywhere];
        let mut replay = Replay::new(&places, 10, 100, 1);
        let (address, bytes) = (0, 4);
        for instruction in 1..=200 {
            replay.access(Access::Instruction { address, bytes });
            if instruction % 25 == 0 {
                replay.access(Access::TriggerState);
            }
        }
        assert!(replay.is_complete());
        let simulated = replay.finish();
        let fired = simulated.iter().map(|simulated| simulated.parts[0].1);
        // A trigger state at the end of a part falls into the next part.
        assert_eq!(fired.collect::<Vec<_>>(), [0, 4, 10]);
        let d1 = simulated.iter().map(|simulated| simulated.parts[0].0.d1);
        assert_eq!(d1.collect::<Vec<_>>(), [0, 106, 0]);
    }
}
