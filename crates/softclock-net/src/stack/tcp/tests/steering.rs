//! Several stacks with the same addresses.

mod absent;

use core::net::SocketAddr;

use super::*;
use crate::stack::Steering;

/// Some stacks at 10.0.0.1, of which the first has the link, and a client at 10.0.0.2.
struct Group {
    stacks: Vec<Host>,
    client: Host,
    now: Instant,
    /// Whether each frame of the client comes to another stack in turn, as from the queues of a link, and the stacks
    /// send by such queues.
    has_queues: bool,
    /// The number of a stack that has ended: nothing moves to it or from it.
    ended: Option<usize>,
}

impl Group {
    fn new(number: u32) -> Self {
        let steering = Steering::new(HashKey([5, 6]), number, 0);
        let part = |own| {
            keyed_host(1, u64::from(own), |settings| {
                all_may_wait(settings);
                settings.steering = Some(steering.of_stack(own));
                settings.tcp = settings.tcp.clone().divided(number as usize);
            })
        };
        Self {
            stacks: (0..number).map(part).collect(),
            client: host(2, all_may_wait),
            now: START,
            has_queues: false,
            ended: None,
        }
    }

    fn with_queues(number: u32) -> Self {
        let mut group = Self::new(number);
        group.has_queues = true;
        for stack in &mut group.stacks {
            stack.set_sends(true);
        }
        group
    }

    /// Ends a stack, and lets the others know.
    fn end(&mut self, number: usize) {
        self.ended = Some(number);
        self.set_absent(number, true);
    }

    /// Begins the stack that has ended again, without connections and listeners.
    fn begin_again(&mut self) {
        let number = self.ended.take().unwrap();
        self.stacks[number] = Self::new(self.stacks.len() as u32).stacks.remove(number);
        self.set_absent(number, false);
    }

    fn set_absent(&mut self, number: usize, is_absent: bool) {
        for (other, stack) in self.stacks.iter_mut().enumerate() {
            if other != number || !is_absent {
                stack.set_absent(number as u32, true);
                stack.set_absent(number as u32, is_absent);
            }
        }
    }

    /// A connection of the client that the second stack has accepted. There are others.
    fn connection_of_second(&mut self) -> TcpId {
        let listeners = self.listen(80);
        let server = SocketAddr::from(([10, 0, 0, 1], 80));
        let now = self.now;
        for _ in 0..20 {
            self.client.tcp_connect(now, None, server, None).unwrap();
        }
        self.settle();
        let accepted = self.stacks[1].tcp_accept(self.now, listeners[1]);
        accepted.unwrap().0
    }

    /// Exchanges frames until none are left.
    fn settle(&mut self) {
        for _ in 0..100 {
            self.now += ms(1);
            let now = self.now;
            let mut moved = 0;
            for host in self.stacks.iter_mut().chain([&mut self.client]) {
                host.on_timer(now);
                while host.process(now, 32) == 32 {}
            }
            while let Some(frame) = self.client.next_frame() {
                let queue = match self.has_queues {
                    true => moved % self.stacks.len(),
                    false => 0,
                };
                let receiver = (self.ended != Some(queue)).then_some(queue);
                self.stacks[receiver.unwrap_or(0)].on_frame(now, now, frame, Verify::Yes);
                moved += 1;
            }
            for other in (1..self.stacks.len()).filter(|&other| self.ended != Some(other)) {
                while let Some(frame) = self.stacks[other].next_link_frame() {
                    if frame.is_complete() {
                        self.client.on_frame(now, now, frame.bytes, Verify::Yes);
                    } else {
                        self.stacks[0].forward(now, frame).unwrap();
                    }
                    moved += 1;
                }
                while let Some(neighbor) = self.stacks[other].next_question() {
                    if let Some(link) = self.stacks[0].link_address_of(now, neighbor) {
                        self.stacks[other].on_neighbor(now, neighbor, link);
                    }
                }
            }
            for from in 0..self.stacks.len() {
                while let Some((to, frame)) = self.stacks[from].next_handed() {
                    let to = to as usize;
                    assert!(to != from && self.ended != Some(to), "{from} to {to}");
                    let frame = frame.copied();
                    self.stacks[to].on_handed(now, frame);
                    moved += 1;
                }
            }
            while let Some(frame) = self.stacks[0].next_frame() {
                self.client.on_frame(now, now, frame, Verify::Yes);
                moved += 1;
            }
            if moved == 0 && self.stacks.iter().all(|stack| !stack.has_work()) {
                self.assert_one_verdict_a_frame();
                return;
            }
        }
    }

    /// Each frame of the link has one verdict, on whichever stack.
    fn assert_one_verdict_a_frame(&self) {
        let of_stack = |stack: &Host| stack.counts().verdicts().map(|(_, frames)| frames);
        let verdicts: u64 = self.stacks.iter().flat_map(of_stack).sum();
        let received = self
            .stacks
            .iter()
            .map(|stack| stack.counts().frames_received);
        assert_eq!(verdicts, received.sum::<u64>());
    }

    fn listen(&mut self, port: u16) -> Vec<TcpListenerId> {
        let address = SocketAddr::from(([10, 0, 0, 1], port));
        let listen = |stack: &mut Host| stack.tcp_listen(address, TcpListenSettings::default());
        self.stacks
            .iter_mut()
            .map(|stack| listen(stack).unwrap())
            .collect()
    }
}

/// Lets the first segments of all connections wait for a link address.
fn all_may_wait(settings: &mut StackSettings) {
    settings.neighbors.waiting_of_one = 1000;
    settings.neighbors.waiting = 1000;
}

#[test]
fn each_connection_is_on_the_stack_that_the_hash_names() {
    for has_queues in [false, true] {
        connections_are_where_the_hash_says(has_queues);
    }
}

fn connections_are_where_the_hash_says(has_queues: bool) {
    let mut group = match has_queues {
        true => Group::with_queues(3),
        false => Group::new(3),
    };
    let listeners = group.listen(80);
    let server = SocketAddr::from(([10, 0, 0, 1], 80));
    let now = group.now;
    let clients: Vec<_> = (0..60)
        .map(|_| group.client.tcp_connect(now, None, server, None).unwrap())
        .collect();
    group.settle();
    let mut accepted = [0; 3];
    for (number, &listener) in listeners.iter().enumerate() {
        let now = group.now;
        let stack = &mut group.stacks[number];
        while let Some((id, peer)) = stack.tcp_accept(now, listener) {
            accepted[number] += 1;
            // Each says to its peer where it is, and which peer it has.
            let text = alloc::format!("{number} {peer}");
            stack.tcp_write(now, id, text.into_bytes().into()).unwrap();
        }
        assert!(accepted[number] > 5, "{accepted:?}");
    }
    assert_eq!(accepted.iter().sum::<usize>(), 60);
    group.settle();
    for id in clients {
        let mut bytes = [0; 100];
        let now = group.now;
        let count = group.client.tcp_read(now, id, &mut bytes).unwrap();
        let text = core::str::from_utf8(&bytes[..count]).unwrap();
        let local = group.client.tcp_local(id).unwrap();
        assert!(text.ends_with(&alloc::format!(" {local}")), "{text}");
    }
    let drops = group.stacks.iter().map(|stack| stack.drops().total());
    assert_eq!(drops.sum::<u64>(), 0);
}

#[test]
fn a_stack_without_the_link_opens_connections_that_are_its_own() {
    let mut group = Group::new(2);
    let server = SocketAddr::from(([10, 0, 0, 2], 80));
    let listener = group
        .client
        .tcp_listen(server, TcpListenSettings::default())
        .unwrap();
    let now = group.now;
    let opened: Vec<_> = (0..2)
        .flat_map(|number| [number; 10])
        .map(|number| {
            (
                number,
                group.stacks[number]
                    .tcp_connect(now, None, server, None)
                    .unwrap(),
            )
        })
        .collect();
    group.settle();
    let now = group.now;
    let mut accepted = 0;
    while group.client.tcp_accept(now, listener).is_some() {
        accepted += 1;
    }
    assert_eq!(accepted, 20);
    for (number, id) in opened {
        let stack = &mut group.stacks[number];
        stack
            .tcp_write(now, id, b"hello".as_slice().into())
            .unwrap();
        assert_eq!(stack.tcp_state(id), Some(State::Established));
    }
}

#[test]
fn a_port_without_a_listener_is_refused_by_each_stack() {
    let mut group = Group::new(2);
    let server = SocketAddr::from(([10, 0, 0, 1], 81));
    let now = group.now;
    let ids: Vec<_> = (0..20)
        .map(|_| group.client.tcp_connect(now, None, server, None).unwrap())
        .collect();
    group.settle();
    let now = group.now;
    for id in ids {
        let error = group.client.tcp_read(now, id, &mut [0; 1]).unwrap_err();
        assert_eq!(error, TcpError::Failed(Error::Refused));
    }
    for stack in &group.stacks {
        assert!(stack.tcp_counts().resets_sent > 0);
        assert!(stack.counts().to_control > 0);
    }
}

/// Any stack may receive what is for the stack with the link.
#[test]
fn what_is_not_tcp_goes_to_the_stack_with_the_link() {
    let mut group = Group::with_queues(3);
    let echo = group.stacks[0].bind("0.0.0.0:7".parse().unwrap()).unwrap();
    let client = group.client.bind("0.0.0.0:0".parse().unwrap()).unwrap();
    let server = SocketAddr::from(([10, 0, 0, 1], 7));
    for _ in 0..30 {
        let now = group.now;
        group
            .client
            .send_to(now, client, server, &[7; 2000])
            .unwrap();
        group.client.send_to(now, client, server, b"short").unwrap();
        group.settle();
    }
    let mut received = 0;
    while let Some(datagram) = group.stacks[0].receive(echo) {
        assert!([5, 2000].contains(&datagram.payload().len()));
        received += 1;
    }
    assert_eq!(received, 60);
    for stack in &group.stacks {
        assert!(stack.counts().frames_received > 20);
        assert_eq!(stack.drops().total(), 0);
    }
    let answers = group.stacks.iter().map(|stack| stack.counts().frames_sent);
    assert!(
        answers.clone().next() > Some(0),
        "the request for the link address"
    );
    assert_eq!(answers.skip(1).sum::<u64>(), 0);
}

/// A stack with a queue sends by it once it knows the neighbor, and asks again while it sends.
#[test]
fn a_stack_with_a_queue_sends_by_itself() {
    let mut group = Group::with_queues(2);
    let id = group.connection_of_second();
    let mut asked = 0;
    // Whether a segment leaves by the queue.
    let mut send = |group: &mut Group| {
        // Until the client has read the segment before, and has acknowledged it.
        for _ in 0..3 {
            group.now += ms(50);
            group.settle();
        }
        let now = group.now;
        let [first, second] = &mut group.stacks[..] else {
            unreachable!("two stacks");
        };
        let piece = b"piece".as_slice().into();
        second.tcp_write(now, id, piece).unwrap();
        let frame = second.next_link_frame().unwrap();
        let is_complete = frame.is_complete();
        match is_complete {
            true => group.client.on_frame(now, now, frame.bytes, Verify::Yes),
            false => first.forward(now, frame).unwrap(),
        }
        while let Some(neighbor) = second.next_question() {
            asked += 1;
            let link = first.link_address_of(now, neighbor).unwrap();
            second.on_neighbor(now, neighbor, link);
        }
        is_complete
    };
    assert!(send(&mut group));
    let sent = |group: &Group| {
        group
            .stacks
            .iter()
            .map(|stack| stack.counts().frames_sent)
            .collect()
    };
    let before: Vec<_> = sent(&group);
    for _ in 0..60 {
        assert!(send(&mut group));
    }
    let after: Vec<_> = sent(&group);
    // The first stack looks whether the neighbor is still there.
    assert!(
        after[1] >= before[1] + 60 && after[0] <= before[0] + 5,
        "{before:?} {after:?}"
    );

    // Without a queue, and without an answer, packets go by the stack with the link.
    group.stacks[1].set_sends(false);
    assert!(!send(&mut group));
    group.stacks[1].set_sends(true);
    assert!(send(&mut group));
    group.now += ms(2000);
    assert!(!send(&mut group));
    assert!(send(&mut group));
    assert!((5..40).contains(&asked), "{asked}");
}

/// The report of a router goes to the stack with the connection.
#[test]
fn a_path_that_is_narrower_is_found_by_each_stack() {
    let mut group = Group::new(2);
    let id = group.connection_of_second();
    let router = link::Answering::new(9, 1);
    let now = group.now;
    group.stacks[1]
        .tcp_write(now, id, vec![7; 1400].into())
        .unwrap();
    let long = group.stacks[1].next_frame().unwrap();
    assert!(long.len() > 1400);
    group.stacks[0].on_frame(now, now, router.too_big(&long, 1000), Verify::Yes);
    group.stacks[0].process(now, 10);
    let (stack, frame) = group.stacks[0].next_handed().unwrap();
    assert_eq!(stack, 1);
    group.stacks[1].on_handed(now, frame.copied());
    group.stacks[1].process(now, 10);
    let short = group.stacks[1].next_frame().unwrap();
    assert!(short.len() <= 1014, "{}", short.len());
    assert!(group.stacks[0].next_handed().is_none());
    group.assert_one_verdict_a_frame();
}

/// A segment that a stack has no room for counts like one for a full channel.
#[test]
fn a_segment_that_cannot_be_handed_over_has_a_verdict() {
    let mut group = Group::new(2);
    group.listen(80);
    let server = SocketAddr::from(([10, 0, 0, 1], 80));
    let now = group.now;
    for _ in 0..20 {
        group.client.tcp_connect(now, None, server, None).unwrap();
    }
    let [link, other] = &mut group.stacks[..] else {
        unreachable!("two stacks");
    };
    // The client asks for the link address first.
    for _ in 0..2 {
        group.client.on_timer(now);
        while let Some(frame) = group.client.next_frame() {
            link.on_frame(now, now, frame, Verify::Yes);
        }
        link.process(now, 32);
        while let Some(frame) = link.next_frame() {
            group.client.on_frame(now, now, frame, Verify::Yes);
        }
        group.client.process(now, 32);
    }
    let mut refused = 0;
    while let Some((_, frame)) = link.next_handed() {
        link.on_not_handed(&frame);
        refused += 1;
    }
    assert!(refused > 0);
    assert_eq!(link.drops().of(DropReason::HandoverFull), refused);
    assert_eq!(other.counts().to_channels, 0);
    group.assert_one_verdict_a_frame();
}

/// Frames that another stack has no room for have a reason of their own: the channel of no connection is full.
#[test]
fn frames_that_are_not_handed_over_are_counted() {
    let mut group = Group::new(2);
    let server = SocketAddr::from(([10, 0, 0, 1], 80));
    let connect = |group: &mut Group| {
        let now = group.now;
        group.client.tcp_connect(now, None, server, None).unwrap();
    };
    // The client learns the link address.
    connect(&mut group);
    group.settle();
    (0..20).for_each(|_| connect(&mut group));
    let now = group.now;
    let mut frames = Vec::new();
    while let Some(frame) = group.client.next_frame() {
        frames.push(frame);
    }
    let link = &mut group.stacks[0];
    for frame in frames {
        link.on_frame(now, now, frame, Verify::Yes);
    }
    let mut refused = 0;
    while let Some((_, frame)) = link.next_handed() {
        link.on_not_handed(&frame);
        refused += 1;
    }
    assert!(refused > 0);
    assert_eq!(link.drops().of(DropReason::HandoverFull), refused);
    assert_eq!(link.drops().of(DropReason::ChannelFull), 0);
}
