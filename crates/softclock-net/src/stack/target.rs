//! Properties of a stack that hold for any frames. Called by the property tests and by the fuzzer (`fuzz/`).

use alloc::vec::Vec;
use core::net::SocketAddr;
use core::time::Duration;

use softclock_core::Instant;
use softclock_wire::packet::ones_complement_sum;

use super::{
    Architecture, Datagram, EndpointId, HashKey, LinkAddress, Prefix, ReceiverCounts, RingEndpoint,
    RingFrame, RingReceived, Routes, Settings, Stack, Taken, Verify,
};

/// Passes frames to a stack of each architecture, and to one whose receivers take frames from rings in another thread.
/// The input is a sequence of steps, each a byte of [flags](step), a length of two bytes, and a frame. All work is done
/// after each frame, and the datagrams are echoed.
///
/// Checks that the architectures, which differ in when the protocols run, deliver the same datagrams, send the same
/// frames and drop the same packets; that each frame is accounted for; and that queues are bounded.
pub(crate) fn check(mut input: &[u8]) {
    let [bsd, early_demux, soft_lrp, ni_lrp] = Architecture::ALL.map(Host::new);
    let mut apart = Host::new(Architecture::NiLrp);
    apart.is_apart = true;
    let mut hosts = [bsd, early_demux, soft_lrp, ni_lrp, apart];
    let mut now = Instant::from_ns(1_000_000_000);
    while let Some((&[flags, high, low], rest)) = input.split_first_chunk() {
        let bytes = usize::from(u16::from_be_bytes([high, low])).min(rest.len());
        let (frame, rest) = rest.split_at(bytes);
        input = rest;
        if flags & step::LATER != 0 {
            now += Duration::from_millis(700);
        }
        let frame = step::repaired(flags, frame);
        let verify = match flags & step::TRUSTED {
            0 => Verify::Yes,
            _ => Verify::Trusted,
        };
        let [first, others @ ..] = hosts
            .each_mut()
            .map(|host| host.on_frame(now, &frame, verify));
        for other in others {
            assert_eq!(first, other);
        }
    }
    let [first, others @ ..] = &hosts;
    for other in others {
        assert_eq!(first.stack.drops(), other.stack.drops());
        assert_eq!(first.stack.counts(), other.stack.counts());
    }
}

/// A stack with two endpoints that echo. With [`Architecture::NiLrp`] it has a network interface that demultiplexes.
struct Host {
    stack: Stack<Vec<u8>>,
    endpoints: [EndpointId; 2],
    frames: u64,
    received: u64,
    /// Whether the receivers have no access to the stack.
    is_apart: bool,
}

/// All that a stack did after a frame: the datagrams that it delivered, and the frames that it sent.
type Effects = (Vec<(SocketAddr, Vec<u8>)>, Vec<Vec<u8>>);

impl Host {
    fn new(architecture: Architecture) -> Self {
        let prefixes = ["10.0.0.1/24", "2001:db8::1/64"];
        let prefixes = prefixes.map(|text| text.parse::<Prefix>().unwrap());
        let routes = Routes::new(prefixes.to_vec(), Vec::new()).unwrap();
        let mut settings = Settings::new(LinkAddress([2, 0, 0, 0, 0, 1]), 1500);
        settings.architecture = architecture;
        settings.neighbors.entries = 8;
        settings.neighbors.waiting = 8;
        settings.reassembly.packets = 8;
        settings.send_queue = 16;
        let mut stack = Stack::new(settings, routes, HashKey([1, 7]));
        let endpoints = ["0.0.0.0:7", "[2001:db8::1]:7"];
        let endpoints = endpoints.map(|local| stack.bind(local.parse().unwrap()).unwrap());
        Self {
            stack,
            endpoints,
            frames: 0,
            received: 0,
            is_apart: false,
        }
    }

    fn on_frame(&mut self, now: Instant, frame: &[u8], verify: Verify) -> Effects {
        let stack = &mut self.stack;
        let waits = self.endpoints.map(|id| stack.wait(id));
        assert_eq!(waits, [true; 2], "all datagrams were taken");
        stack.on_timer(now);
        assert!(stack.next_timeout().is_none_or(|due| due > now));
        let ring = match stack.settings().architecture {
            Architecture::NiLrp => ring_of(frame),
            _ => None,
        };
        let mut ring = ring.map(|index| (self.endpoints[index], frame.to_vec()));
        let mut apart = None;
        if self.is_apart
            && let Some((id, bytes)) = ring.take()
        {
            let arrived = now;
            let frame = RingFrame {
                bytes,
                arrived,
                verify,
            };
            apart = receive_apart(stack, id, frame).map(|datagram| (id, datagram));
        } else if ring.is_none() {
            stack.on_frame(now, now, frame.to_vec(), verify);
        }
        self.frames += 1;
        while stack.process(now, 3) == 3 {}
        assert!(!stack.has_work());

        let mut woken = Vec::new();
        while let Some(id) = stack.next_woken() {
            woken.push(id);
        }
        let mut datagrams = Vec::new();
        for id in self.endpoints {
            let is_rung = ring.as_ref().is_some_and(|(of, _)| *of == id);
            loop {
                let next = || {
                    let (_, bytes) = ring.take_if(|(of, _)| *of == id)?;
                    let arrived = now;
                    Some(RingFrame {
                        bytes,
                        arrived,
                        verify,
                    })
                };
                let of_other_thread = apart.take_if(|(of, _)| *of == id);
                let datagram = match of_other_thread {
                    Some((_, datagram)) => datagram,
                    None => match stack.receive_next(now, id, next) {
                        Taken::Datagram(datagram) => {
                            assert!(is_rung || woken.contains(&id), "its receiver waits");
                            datagram
                        }
                        Taken::Other => continue,
                        Taken::Nothing => break,
                    },
                };
                datagrams.push((datagram.source, datagram.payload().to_vec()));
                self.received += 1;
                // Refused if the answer has no route, or no room.
                let _ = stack.send_to(now, id, datagram.source, datagram.payload());
            }
        }
        stack.on_timer(now);
        let mut sent = Vec::new();
        while let Some(frame) = stack.next_frame() {
            assert!((14..=1514).contains(&frame.len()));
            sent.push(frame);
        }
        assert_eq!(stack.counts().frames_received, self.frames);
        let verdicts = stack.counts().verdicts();
        assert_eq!(
            verdicts.map(|(_, frames)| frames).iter().sum::<u64>(),
            self.frames
        );
        assert_eq!(stack.counts().datagrams_received, self.received);
        (datagrams, sent)
    }
}

/// Does what the receiver of an endpoint does in a thread of its own, with a frame from its ring.
fn receive_apart(
    stack: &mut Stack<Vec<u8>>,
    id: EndpointId,
    frame: RingFrame<Vec<u8>>,
) -> Option<Datagram<Vec<u8>>> {
    let routes = stack.routes().clone();
    let endpoint = RingEndpoint {
        routes: &routes,
        link_address: stack.settings().link_address,
        local: stack.bound(id).unwrap(),
        remote: stack.remote(id),
    };
    let mut counts = ReceiverCounts::default();
    let received = endpoint.receive(frame, &mut counts);
    stack.add_counts(&counts);
    match received {
        RingReceived::Datagram(datagram) => Some(datagram),
        RingReceived::Dropped => None,
        RingReceived::Elsewhere(RingFrame {
            bytes,
            arrived,
            verify,
        }) => {
            stack.on_frame(arrived, arrived, bytes, verify);
            None
        }
    }
}

/// The index of the endpoint whose ring a network interface puts this frame into: by protocol, destination address and
/// destination port, and without a look at anything else.
fn ring_of(frame: &[u8]) -> Option<usize> {
    let field = |at: usize, bytes: usize| frame.get(at..at + bytes);
    let is_v6 = match field(12, 2)? {
        [0x08, 0x00] => false,
        [0x86, 0xdd] => true,
        _ => return None,
    };
    let (protocol, address, transport) = match is_v6 {
        false => (
            field(23, 1)?,
            field(30, 4)?,
            14 + usize::from(frame[14] & 15) * 4,
        ),
        true => (field(20, 1)?, field(38, 16)?, 54),
    };
    let is_fragment = !is_v6 && (frame[20] & 0x3f, frame[21]) != (0, 0);
    let own = match is_v6 {
        false => &[10, 0, 0, 1][..],
        true => &[0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
    };
    let is_key = protocol == [17] && address == own && field(transport + 2, 2)? == [0, 7];
    (is_key && !is_fragment).then_some(is_v6.into())
}

/// The flags of a step.
mod step {
    use super::{Vec, ones_complement_sum};

    /// The frame is addressed to the stack, and has the type of its version of IP.
    const LINK: u8 = 1;
    /// The packet is addressed to the stack, and comes from its link.
    const ADDRESSES: u8 = 2;
    /// The length and the checksum in the header of IP are right.
    const HEADER: u8 = 4;
    /// Time has passed.
    pub(super) const LATER: u8 = 8;
    /// The checksum of the transport layer is not verified.
    pub(super) const TRUSTED: u8 = 16;

    /// The frame with those fields set right that the flags name, so that random bytes reach all protocols.
    pub(super) fn repaired(flags: u8, frame: &[u8]) -> Vec<u8> {
        let mut frame = frame.to_vec();
        let version = frame.get(14).map(|byte| byte >> 4);
        let set = |frame: &mut Vec<u8>, place: usize, bytes: &[u8]| {
            if let Some(field) = frame.get_mut(place..place + bytes.len()) {
                field.copy_from_slice(bytes);
            }
        };
        if flags & LINK != 0 {
            set(&mut frame, 0, &[2, 0, 0, 0, 0, 1]);
            match version {
                Some(4) => set(&mut frame, 12, &[0x08, 0x00]),
                Some(6) => set(&mut frame, 12, &[0x86, 0xdd]),
                _ => set(&mut frame, 12, &[0x08, 0x06]),
            }
        }
        if flags & ADDRESSES != 0 {
            match version {
                Some(4) => {
                    set(&mut frame, 26, &[10, 0, 0]);
                    set(&mut frame, 30, &[10, 0, 0, 1]);
                }
                Some(6) => {
                    let prefix = [0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
                    set(&mut frame, 22, &prefix);
                    set(&mut frame, 38, &prefix);
                    set(&mut frame, 53, &[1]);
                }
                _ => {}
            }
        }
        if flags & HEADER != 0 {
            let bytes = frame.len().saturating_sub(14);
            match version {
                Some(4) => {
                    set(&mut frame, 16, &(bytes as u16).to_be_bytes());
                    set(&mut frame, 24, &[0, 0]);
                    let header_bytes = usize::from(frame[14] & 15) * 4;
                    let header = frame.get(14..14 + header_bytes).unwrap_or_default();
                    let checksum = !ones_complement_sum(header);
                    set(&mut frame, 24, &checksum.to_be_bytes());
                }
                Some(6) => {
                    let content = bytes.saturating_sub(40) as u16;
                    set(&mut frame, 18, &content.to_be_bytes());
                }
                _ => {}
            }
        }
        frame
    }
}
