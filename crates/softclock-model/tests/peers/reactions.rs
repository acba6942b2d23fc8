//! A remote host that sends a connection any segments, valid or not, and sees the reactions.

use std::time::Duration;

use softclock_core::Instant;
use softclock_linux::link::Tap;
use softclock_model::host::Version;
use softclock_net::checksum::{Addresses, Verify};
use softclock_net::ip::{self, Output};
use softclock_net::link::{self, LinkAddress};
use softclock_net::tcp::segment::{self, Flags, Header, Options, Segment};
use softclock_net::tcp::seq::Seq;

use crate::kernel::Kernel;
use crate::neighbors::{self, Heard};
use crate::ours::{Ours, OursPlan};
use crate::random::Random;
use crate::world::{End, Read, START, client_port, server_port};

/// The random steps of one seed.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Whether the stack under test opens the connection.
    opens: bool,
    steps: Vec<Step>,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// The remote host sends a segment.
    Send(Template),
    /// The owner writes so many bytes.
    Write(usize),
    /// The owner closes its half.
    Shut,
    /// The owner closes all.
    Leave,
}

/// A segment. Its numbers are relative to those that the stack under test expects next, and sends next.
#[derive(Clone, Copy, Debug)]
struct Template {
    flags: Flags,
    sequence: u32,
    acknowledgment: u32,
    length: usize,
}

/// The visible effects of a step. Sequence numbers are relative to the initial ones.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Reaction {
    resets: Vec<Reset>,
    has_syn: bool,
    /// The numbers in the answer to a segment that no connection takes: what is sent next, and expected next.
    numbers: Option<(u32, u32)>,
    owner: OwnerView,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Reset {
    sequence: u32,
    acknowledgment: Option<u32>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct OwnerView {
    is_open: bool,
    has_left: bool,
    written: usize,
    read: usize,
    /// A hash of the bytes that were read.
    hash: u64,
    has_end: bool,
    was_reset: bool,
}

impl Plan {
    pub(crate) fn random(random: &mut Random) -> Self {
        let opens = random.chance(300);
        let mut steps = Vec::new();
        if random.chance(800) {
            let flags = if opens {
                Flags::SYN | Flags::ACK
            } else {
                Flags::SYN
            };
            steps.push(Step::Send(Template::exact(flags)));
            if random.chance(900) {
                steps.push(Step::Send(Template::exact(Flags::ACK)));
            }
        }
        for _ in 0..random.within(1..=25) {
            steps.push(match random.within(0..=99) {
                0..=79 => Step::Send(Template::random(random, opens)),
                80..=92 => Step::Write(random.magnitude(1..=500) as usize),
                93..=97 => Step::Shut,
                _ => Step::Leave,
            });
        }
        Self { opens, steps }
    }

    /// Panics if the reactions differ, but for deliberate differences (docs/decisions/tcp.md): where the kernel gives
    /// up a connection that softclock keeps, the comparison ends.
    pub(crate) fn compare(&self, ours: &[Reaction], kernel: &[Reaction]) {
        assert_eq!(ours.len(), kernel.len());
        let (mut had_end, mut has_gap) = (false, false);
        for (number, (ours, kernel)) in ours.iter().zip(kernel).enumerate() {
            let mut kernel = kernel.clone();
            let step = &self.steps[number];
            let keeps_more = ours.numbers.is_some() && kernel.numbers.is_none();
            let has_more = step.has_data() && (had_end || ours.owner.has_left);
            if keeps_more && (step.has(Flags::SYN) || has_more) {
                return;
            }
            // No peer sends its FIN before bytes that it has sent: the kernel drops those.
            if has_gap && step.has(Flags::FIN) {
                return;
            }
            has_gap |= step.leaves_gap();
            // The kernel judges the acknowledgment of a segment to a half-open connection before the sequence number.
            if !ours.owner.is_open && ours.numbers.is_some() {
                kernel.resets.clone_from(&ours.resets);
            }
            // It sends its SYN again at once after a wrong acknowledgment.
            if self.opens {
                kernel.has_syn = ours.has_syn;
            }
            assert_eq!(*ours, kernel, "step {number} of {self:#?}");
            had_end = ours.owner.has_end;
        }
    }

    /// The reactions of softclock's stack, in virtual time.
    pub(crate) fn ours(&self, version: Version, prints: bool) -> Vec<Reaction> {
        let plan = OursPlan::answering_all();
        let ours = Ours::new(&plan, version, 7, START, 1, self.opens, true);
        let host = HostUnderTest {
            number: 1,
            version,
            opens: self.opens,
            is_live: false,
        };
        Remote::new(Box::new(ours), host, prints).run(&self.steps)
    }

    /// The reactions of the kernel's, behind a TAP device.
    pub(crate) fn kernel(&self, version: Version, tap: Tap, prints: bool) -> Vec<Reaction> {
        let kernel = Kernel::new(tap, version, 1, self.opens);
        let host = HostUnderTest {
            number: 2,
            version,
            opens: self.opens,
            is_live: true,
        };
        Remote::new(Box::new(kernel), host, prints).run(&self.steps)
    }
}

impl Step {
    const fn has_data(&self) -> bool {
        matches!(self, Self::Send(template) if template.length > 0)
    }

    const fn has(&self, flag: Flags) -> bool {
        matches!(self, Self::Send(template) if template.flags.contains(flag))
    }

    /// Whether it has bytes behind some that are missing.
    const fn leaves_gap(&self) -> bool {
        matches!(self, Self::Send(template) if template.length > 0 && template.sequence.wrapping_sub(1) < 1 << 19)
    }
}

impl Template {
    const fn exact(flags: Flags) -> Self {
        Self {
            flags,
            sequence: 0,
            acknowledgment: 0,
            length: 0,
        }
    }

    fn random(random: &mut Random, opens: bool) -> Self {
        let mut flags = Flags::empty();
        for (flag, chance) in [
            (Flags::ACK, 900),
            (Flags::PSH, 300),
            (Flags::FIN, 120),
            (Flags::SYN, 60),
            (Flags::RST, 60),
        ] {
            if random.chance(chance) {
                flags |= flag;
            }
        }
        let mut length = match random.chance(500) {
            true => random.magnitude(1..=600) as usize,
            false => 0,
        };
        if flags.contains(Flags::SYN) {
            // The kernel ignores what comes with the answer to its SYN.
            flags = Flags(flags.0 & !Flags::FIN.0);
            length = 0;
        }
        let mut acknowledgment = offset(random, 1);
        if acknowledgment > 1 << 31 && (opens || length > 0) {
            // In its fast path the kernel takes data whose acknowledgment is too old. To its own SYN, an acknowledgment
            // of nothing is valid.
            acknowledgment = 0;
        }
        // The last byte before those expected next has two deliberate differences: the kernel believes a reset there
        // behind a FIN, and softclock an acknowledgment (docs/decisions/tcp.md).
        let mut sequence = offset(random, 2);
        if flags.contains(Flags::FIN) && sequence < 1 << 19 {
            // No peer sends more behind its FIN.
            sequence = 0;
        }
        let end = length as u32 + u32::from(flags.contains(Flags::FIN));
        if end > 0 && sequence.wrapping_add(end) == 0 {
            // The kernel takes the acknowledgment of a segment that ends exactly before the next number, too.
            length += 1;
        }
        Self {
            flags,
            sequence,
            acknowledgment,
            length,
        }
    }
}

/// A difference of sequence numbers: mostly none, or small but at least `least`, or so large that no window has room
/// for it.
fn offset(random: &mut Random, least: u64) -> u32 {
    let difference = match random.within(0..=99) {
        0..=59 => 0,
        60..=89 => random.magnitude(least..=2000) as u32,
        _ => (1 << 20) + random.within(0..=1 << 28) as u32,
    };
    match random.chance(500) {
        true => difference,
        false => difference.wrapping_neg(),
    }
}

/// The host to which the remote host sends.
#[derive(Clone, Copy)]
struct HostUnderTest {
    number: u8,
    version: Version,
    /// Whether it opens the connection.
    opens: bool,
    /// Whether it works in real time.
    is_live: bool,
}

/// The remote host.
struct Remote {
    end: Box<dyn End>,
    host: HostUnderTest,
    /// The number of this host.
    own: u8,
    prints: bool,
    now: Instant,
    link: LinkAddress,
    /// The initial number of the host under test, once it is seen.
    initial: Option<Seq>,
    /// The numbers that it sends next, and expects next.
    sends_next: Seq,
    expects_next: Seq,
    /// Whether it has acknowledged a segment.
    is_open: bool,
    owner: OwnerView,
}

impl Remote {
    fn new(end: Box<dyn End>, host: HostUnderTest, prints: bool) -> Self {
        let mut remote = Self {
            end,
            host,
            own: 3 - host.number,
            prints,
            now: START,
            link: LinkAddress::BROADCAST,
            initial: None,
            sends_next: UNKNOWN,
            expects_next: INITIAL,
            is_open: false,
            owner: OwnerView::default(),
        };
        remote.resolve();
        // The SYN of a stack that opens the connection comes behind its request for our link address.
        for _ in 0..MOST_ROUNDS {
            if !host.opens || remote.initial.is_some() {
                break;
            }
            remote.settle(&mut Reaction::default());
        }
        remote
    }

    /// Learns the link address of the host under test, which learns ours.
    fn resolve(&mut self) {
        let question = neighbors::question(self.host.version, self.own, self.host.number);
        for number in 0..MOST_ROUNDS_TO_RESOLVE {
            // Repeated, since the kernel joins the multicast group of a new address, to which neighbor discovery sends,
            // later: on a busy machine, by tens of milliseconds.
            if number % 20 == 0 {
                self.end.on_frame(self.now, question.clone());
            }
            let frames = self.round();
            for frame in &frames {
                self.on_frame(frame, &mut Reaction::default());
            }
            if self.link != LinkAddress::BROADCAST {
                return;
            }
        }
        panic!("no link address");
    }

    fn run(mut self, steps: &[Step]) -> Vec<Reaction> {
        let mut reactions = Vec::new();
        for step in steps {
            let mut reaction = Reaction::default();
            match *step {
                Step::Send(template) => self.send(template),
                Step::Write(bytes) => self.write(bytes),
                // The kernel ends a connection that is shut in SYN-SENT.
                Step::Shut if self.owner.may_act() && self.is_open => {
                    self.end.shut(self.now, 0);
                }
                Step::Leave if self.owner.may_act() && self.is_open => {
                    self.end.leave(self.now, 0);
                    self.owner.has_left = true;
                }
                Step::Shut | Step::Leave => {}
            }
            self.observe(&mut reaction);
            if self.prints {
                println!("{step:?}\n    {reaction:?}");
            }
            reactions.push(reaction);
        }
        reactions
    }

    /// Sends a probe behind the step, and collects all answers up to the probe's.
    ///
    /// A probe has a byte far before the window, which RFC 9293 (3.10.7.4) answers by an acknowledgment with the
    /// numbers, and which has a reset where there is no connection.
    fn observe(&mut self, reaction: &mut Reaction) {
        self.settle(reaction);
        self.send(Template {
            flags: Flags::ACK,
            sequence: FAR_BEFORE,
            acknowledgment: 0,
            length: 1,
        });
        let resets = reaction.resets.len();
        for _ in 0..MOST_ROUNDS {
            self.settle(reaction);
            if reaction.numbers.is_some() || reaction.resets.len() > resets {
                break;
            }
        }
        reaction.owner = self.owner.clone();
    }

    /// Takes the frames that the stack has sent, and lets the owner read.
    fn settle(&mut self, reaction: &mut Reaction) {
        loop {
            let frames = self.round();
            for frame in &frames {
                self.on_frame(frame, reaction);
            }
            self.read();
            if frames.is_empty() {
                return;
            }
        }
    }

    fn round(&mut self) -> Vec<Vec<u8>> {
        if self.host.is_live {
            std::thread::sleep(Duration::from_micros(100));
        }
        self.now += Duration::from_micros(100);
        self.end.work(self.now)
    }

    fn read(&mut self) {
        if !self.owner.is_open {
            self.end.accept(self.now);
            self.owner.is_open = self.end.is_open(0);
        }
        let mut bytes = [0; 4096];
        while self.owner.may_act() && !self.owner.has_end {
            match self.end.read(self.now, 0, &mut bytes) {
                Read::Bytes(read) => self.owner.take(&bytes[..read]),
                Read::End => self.owner.has_end = true,
                Read::Reset => self.owner.was_reset = true,
                Read::Nothing => return,
            }
        }
    }

    fn write(&mut self, bytes: usize) {
        if self.owner.may_act() {
            match self.end.write(self.now, 0, &vec![b'w'; bytes]) {
                Some(written) => self.owner.written += written,
                None => self.owner.was_reset = true,
            }
        }
    }

    fn send(&mut self, template: Template) {
        let (ours, theirs) = match self.host.opens {
            true => (server_port(0), client_port(0)),
            false => (client_port(0), server_port(0)),
        };
        let is_syn = template.flags.contains(Flags::SYN);
        let header = Header {
            source_port: ours,
            destination_port: theirs,
            sequence: self.expects_next + template.sequence,
            acknowledgment: match template.flags.contains(Flags::ACK) {
                true => self.sends_next + template.acknowledgment,
                false => Seq(0),
            },
            flags: template.flags,
            window: 60_000,
            urgent: 0,
        };
        let options = Options {
            mss: is_syn.then_some(1460),
            ..Options::default()
        };
        // Each byte tells its place in the stream.
        let before = INITIAL.0.wrapping_sub(u32::from(is_syn));
        let first = header.sequence.0.wrapping_sub(before);
        let payload: Vec<u8> = (0..template.length as u32)
            .map(|place| (first.wrapping_add(place) % 251) as u8)
            .collect();
        let addresses = Addresses {
            source: self.host.version.address(self.own),
            destination: self.host.version.address(self.host.number),
        };
        let mut bytes = Vec::new();
        segment::emit(
            addresses,
            &header,
            &options,
            |out| out.extend(&payload),
            &mut bytes,
        );
        let output = Output {
            addresses,
            protocol: 6,
            hop_limit: 64,
            traffic_class: 0,
            identification: 1,
            may_fragment: false,
        };
        let mut packet = Vec::new();
        ip::write_header(&output, bytes.len(), &mut packet);
        packet.extend(bytes);
        let ether_type = neighbors::ether_type(self.host.version);
        let frame = neighbors::frame(self.own, self.link, ether_type, &packet);
        self.end.on_frame(self.now, frame);
    }

    fn on_frame(&mut self, frame: &[u8], reaction: &mut Reaction) {
        let (header, payload) = link::Header::parse(frame).expect("a frame");
        match neighbors::hear(self.own, &header, payload) {
            Some(Heard::Answer(link)) => self.link = link,
            Some(Heard::Question(answer)) => self.end.on_frame(self.now, answer),
            None if header.ether_type == neighbors::ether_type(self.host.version) => {
                let packet = ip::parse(payload).expect("a packet");
                if packet.protocol == 6 {
                    let segment = segment::parse(packet.addresses, packet.payload, Verify::Yes);
                    self.on_segment(&segment.expect("a segment"), reaction);
                }
            }
            None => {}
        }
    }

    fn on_segment(&mut self, segment: &Segment<'_>, reaction: &mut Reaction) {
        let Header {
            flags,
            sequence,
            acknowledgment,
            ..
        } = segment.header;
        if flags.contains(Flags::RST) {
            let from = if sequence == Seq(0) {
                Seq(0)
            } else {
                self.initial.unwrap_or(UNKNOWN)
            };
            // Without an acknowledgment to take the number from, that of the reset is 0, and its own acknowledgment
            // counts.
            let counts = sequence == Seq(0) && flags.contains(Flags::ACK);
            reaction.resets.push(Reset {
                sequence: sequence.0.wrapping_sub(from.0),
                acknowledgment: counts.then(|| acknowledgment.0.wrapping_sub(INITIAL.0)),
            });
            return;
        }
        if flags.contains(Flags::SYN) {
            reaction.has_syn = true;
            self.initial = Some(sequence);
            self.sends_next = sequence + 1;
            if self.host.opens && flags.contains(Flags::ACK) {
                // Both have opened: softclock answers a probe by its SYN again, the kernel without.
                reaction.numbers = Some((1, acknowledgment.0.wrapping_sub(INITIAL.0)));
            }
        }
        let Some(initial) = self.initial.filter(|_| flags.contains(Flags::ACK)) else {
            return;
        };
        self.expects_next = acknowledgment;
        let is_pure = segment.sequence_length() == 0;
        if is_pure {
            self.sends_next = sequence;
            self.is_open = true;
            let relative = [
                sequence.0.wrapping_sub(initial.0),
                acknowledgment.0.wrapping_sub(INITIAL.0),
            ];
            reaction.numbers = Some(relative.into());
        }
    }
}

impl OwnerView {
    fn take(&mut self, bytes: &[u8]) {
        self.read += bytes.len();
        for byte in bytes {
            self.hash = self.hash.wrapping_mul(31).wrapping_add(u64::from(*byte));
        }
    }

    const fn may_act(&self) -> bool {
        self.is_open && !self.has_left && !self.was_reset
    }
}

/// The initial sequence number of the remote host.
const INITIAL: Seq = Seq(1_000_000);
/// Stands for the number that the host under test sends next while that is unknown.
const UNKNOWN: Seq = Seq(77);
/// The distance of a probe before the window.
const FAR_BEFORE: u32 = 500_000_u32.wrapping_neg();
/// The most looks for an answer, each after 100 us.
const MOST_ROUNDS: usize = 300;
/// The most looks for a link address.
const MOST_ROUNDS_TO_RESOLVE: usize = 30_000;
