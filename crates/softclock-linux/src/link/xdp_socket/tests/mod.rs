mod common_memory;
mod filter;

use std::collections::BTreeSet;
use std::fs::File;
use std::mem;
use std::process::Command;

use softclock_wire::packet::ones_complement_sum;

use super::receiving::received;
use super::*;
use crate::link::cable::{Cable, SENDER, cable, frame, joined};
use crate::link::{BATCH, PacketSocket, Pool};

/// Opens the link by AF_XDP, or skips the test if that is not possible.
macro_rules! xdp {
    ($link:expr) => {
        match XdpSocket::open($link, whole(Copies::Allowed)) {
            Ok(xdp) => xdp,
            Err(error) => softclock_testing::skip!("AF_XDP cannot be used here: {error:?}"),
        }
    };
}

/// The settings for a link of one queue.
fn whole(copies: Copies) -> XdpSettings {
    XdpSettings {
        copies,
        queue: None,
        filter: XdpFilter::All,
    }
}

fn pause() {
    std::thread::sleep(Duration::from_millis(10));
}

/// Calls `ask` until it returns a value, for up to 10 s.
fn wait<T>(mut ask: impl FnMut() -> Option<T>) -> T {
    for _ in 0..1000 {
        match ask() {
            Some(answer) => return answer,
            None => pause(),
        }
    }
    panic!("no answer")
}

/// The next frame of this test, with its age.
fn next(socket: &XdpSocket) -> Option<(Vec<u8>, Offload, Duration)> {
    let mut found = None;
    let _ = socket.receive(|received| {
        let received = received.unwrap();
        if received.bytes[6..12] == SENDER {
            found = Some((received.bytes.to_vec(), received.offload, received.age));
        }
    });
    found
}

#[test]
fn frames_arrive_and_leave() {
    let cable = cable!();
    let [a, b] = cable.links();
    let before = cable.state();
    let packets = PacketSocket::open(&a, 1 << 20).unwrap();
    let xdp = xdp!(&b);
    let sent = frame(&[], 1000);
    let (bytes, offload, age) = wait(|| {
        assert_eq!(packets.send([(&sent[..], &Offload::NONE)]).unwrap(), 1);
        pause();
        next(&xdp)
    });
    assert_eq!((&bytes, offload), (&sent, Offload::NONE));
    assert!(
        age > Duration::from_millis(1) && age < Duration::from_secs(5),
        "{age:?}"
    );

    // More frames than chunks: they are used again and again.
    for round in 0..300 {
        let lengths: Vec<_> = (0..BATCH).map(|index| 100 + round + index).collect();
        let frames: Vec<_> = lengths.iter().map(|&bytes| frame(&[], bytes)).collect();
        let parts = || frames.iter().map(|frame| (&frame[..], &Offload::NONE));
        assert_eq!(xdp.send(parts()).unwrap(), BATCH);
        let mut arrived = Vec::new();
        wait(|| {
            let _ = packets.receive(|received| {
                let bytes = received.unwrap().bytes;
                if bytes[6..12] == SENDER {
                    arrived.push(bytes.len());
                }
            });
            (arrived.len() >= BATCH).then_some(())
        });
        assert_eq!(arrived, lengths);
        assert_eq!(packets.send(parts()).unwrap(), BATCH);
        let mut arrived = Vec::new();
        wait(|| {
            let _ = xdp.receive(|received| {
                let bytes = received.unwrap().bytes;
                if bytes[6..12] == SENDER {
                    arrived.push(bytes.len());
                }
            });
            (arrived.len() >= BATCH).then_some(())
        });
        assert_eq!(arrived, lengths);
    }
    assert_eq!(xdp.take_lost().unwrap(), 0);
    let long = vec![0; XdpSocket::MOST_BYTES + 1];
    let error = xdp.send([(&long[..], &Offload::NONE)]).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EMSGSIZE));

    drop((packets, xdp));
    wait(|| (cable.state() == before).then_some(()));
}

/// The Internet checksum's sum over a TCP frame's pseudo-header and the bytes `of`.
fn sum_with(frame: &[u8], of: &[u8]) -> u16 {
    let length = (frame.len() - 34) as u16;
    ones_complement_sum(&[&frame[26..34], &[0, 6], &length.to_be_bytes(), of].concat())
}

/// Received partial checksums are recognized, and pending offloads are performed before a frame is sent.
#[test]
fn offloads_are_done() {
    let cable = cable!();
    let [a, b] = cable.links();
    let packets = PacketSocket::open(&a, 1 << 20).unwrap();
    let xdp = xdp!(&b);
    let partial = |bytes| {
        let mut frame = frame(&[], bytes);
        let sum = sum_with(&frame, &[]);
        frame[50..52].copy_from_slice(&sum.to_be_bytes());
        frame
    };
    let left = Offload {
        segmentation: None,
        ..joined(1400)
    };
    let short = partial(1000);
    let (bytes, offload, _) = wait(|| {
        assert_eq!(packets.send([(&short[..], &left)]).unwrap(), 1);
        pause();
        next(&xdp)
    });
    assert_eq!((bytes, offload), (short, left));

    let long = partial(54 + 2 * 1400 + 600);
    assert_eq!(xdp.send([(&long[..], &joined(1400))]).unwrap(), 1);
    let mut arrived = Vec::new();
    wait(|| {
        let _ = packets.receive(|received| {
            let received = received.unwrap();
            if received.bytes[6..12] == SENDER {
                assert_eq!(received.offload, Offload::NONE);
                arrived.push(received.bytes.to_vec());
            }
        });
        (arrived.len() >= 3).then_some(())
    });
    let lengths: Vec<_> = arrived.iter().map(Vec::len).collect();
    assert_eq!(lengths, [1454, 1454, 654]);
    for frame in arrived {
        assert_eq!(
            sum_with(&frame, &frame[34..]),
            0xffff,
            "a finished checksum"
        );
    }
}

/// Either all segments of a frame are sent, or none.
#[test]
fn segments_leave_together() {
    let cable = cable!();
    let [a, b] = cable.links();
    let packets = PacketSocket::open(&a, 8 << 20).unwrap();
    let xdp = xdp!(&b);
    let left = joined(100);
    let never = frame(&[], 54 + 100 * umem::SEND + 1);
    let error = xdp.send([(&never[..], &left)]).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::E2BIG));

    // No frame leaves while the link is down, so the chunks run out in the middle of a frame.
    cable.set(1, "down");
    let (segments, count) = (umem::SEND / BATCH + 1, BATCH);
    let long = frame(&[], 54 + 100 * segments);
    let mut frames = vec![(&long[..], &left); count];
    let sent = xdp.send(frames.iter().copied()).unwrap();
    assert_eq!(sent, umem::SEND / segments);
    let error = xdp.send(frames.iter().copied()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NetworkDown);

    cable.set(1, "up");
    frames.drain(..sent);
    let mut arrived = Vec::new();
    wait(|| {
        let sent = xdp.send(frames.iter().copied()).unwrap();
        frames.drain(..sent);
        let _ = packets.receive(|received| {
            let bytes = received.unwrap().bytes;
            if bytes[6..12] == SENDER {
                arrived.push(u32::from_be_bytes(bytes[38..42].try_into().unwrap()));
            }
        });
        (arrived.len() >= count * segments).then_some(())
    });
    pause();
    let expected: Vec<_> = (0..count * segments)
        .map(|index| (index % segments * 100) as u32)
        .collect();
    assert_eq!(arrived, expected);
}

/// One system call sends only a part of a long burst, so the socket must repeat it.
#[test]
fn a_long_burst_leaves_at_once() {
    let cable = cable!();
    let [a, b] = cable.links();
    let packets = PacketSocket::open(&a, 8 << 20).unwrap();
    let xdp = xdp!(&b);
    let long = frame(&[], 54 + 100 * 600);
    assert_eq!(xdp.send([(&long[..], &joined(100))]).unwrap(), 1);
    assert!(!xdp.is_behind());
    let mut arrived = 0;
    wait(|| {
        let _ = packets.receive(|received| {
            arrived += usize::from(received.unwrap().bytes[6..12] == SENDER);
        });
        (arrived == 600).then_some(())
    });
}

/// Frames that find no room wait in the ring, and `flush` sends them without another frame.
#[test]
fn what_finds_no_room_leaves_later() {
    softclock_testing::require!("ip", "tc");
    let cables = [cable!(), cable!()];
    let switch = Switch::new("scx");
    cables.iter().for_each(|cable| switch.join(cable));
    let [[_, near], [slow, far]] = [cables[0].links(), cables[1].links()];
    let shape = |action, rate| {
        let words = format!(
            "qdisc {action} dev {} root tbf rate {rate} burst 2kb limit 1mb",
            slow.name()
        );
        run("tc", &words);
    };
    // A frame takes about a second, and counts against the send buffer until it has left.
    shape("add", "8kbit");
    let packets = PacketSocket::open(&far, 8 << 20).unwrap();
    let mut xdp = xdp!(&near);
    sockopt::set_socket_send_buffer_size(&xdp, 1).unwrap();
    let mut sent = frame(&[], 1000);
    // Unicast, since the switch copies broadcasts, and not IP, since the switch may inspect it.
    sent[0] = 2;
    sent[12..14].copy_from_slice(&EXPERIMENTAL);
    let frames = [(&sent[..], &Offload::NONE); BATCH];
    let mut waiting = xdp.send(frames).unwrap();
    assert!(xdp.is_behind());
    let full = loop {
        match xdp.send(frames) {
            Ok(sent) => waiting += sent,
            Err(error) => break error,
        }
    };
    assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
    // No system call is made for each further frame: with another descriptor in place of the socket, `send` still fails
    // with `WouldBlock`.
    let no_socket = File::open("/dev/null").unwrap().into();
    let socket = mem::replace(&mut xdp.fd, no_socket);
    let full = xdp.send(frames).unwrap_err();
    assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
    xdp.fd = socket;
    xdp.flush();
    assert!(xdp.is_behind());

    shape("change", "1gbit");
    sockopt::set_socket_send_buffer_size(&xdp, 1 << 20).unwrap();
    wait(|| {
        xdp.flush();
        (!xdp.is_behind()).then_some(())
    });
    let mut arrived = 0;
    wait(|| {
        let _ = packets.receive(|received| {
            arrived += usize::from(received.unwrap().bytes[6..12] == SENDER);
        });
        (arrived == waiting).then_some(())
    });
    assert_eq!(xdp.take_refused(), 0);
}

/// A bridge of the kernel.
struct Switch(String);

impl Switch {
    fn new(name: &str) -> Self {
        let switch = Self(format!("{name}{}", std::process::id()));
        run("ip", &format!("link add name {} type bridge", switch.0));
        run("ip", &format!("link set dev {} up", switch.0));
        switch
    }

    /// Adds the first end of a cable, and waits until the bridge forwards its frames.
    fn join(&self, cable: &Cable) {
        cable.set(0, &format!("master {}", self.0));
        let [end, _] = cable.links();
        let state = format!("/sys/class/net/{}/brport/state", end.name());
        wait(|| {
            let state = std::fs::read_to_string(&state).unwrap();
            (state.trim() == FORWARDING).then_some(())
        });
    }
}

/// An EtherType for experiments (IEEE 802).
const EXPERIMENTAL: [u8; 2] = [0x88, 0xb5];

/// include/uapi/linux/if_bridge.h.
const FORWARDING: &str = "3";

impl Drop for Switch {
    fn drop(&mut self) {
        // No assertion, since a panic here would hide the failure of the test.
        let delete = ["link", "delete", "dev", &self.0];
        let _ = Command::new("ip").args(delete).status();
    }
}

fn run(program: &str, words: &str) {
    let status = Command::new(program).args(words.split(' ')).status();
    assert!(status.unwrap().success(), "{program} {words}");
}

/// Frames sent on a link without a carrier are dropped and counted.
#[test]
fn frames_that_the_link_refuses_are_counted() {
    let cable = cable!();
    let [a, b] = cable.links();
    let packets = PacketSocket::open(&a, 8 << 20).unwrap();
    let xdp = xdp!(&b);
    cable.set(0, "down");
    let refused = frame(&[], 100);
    for _ in 0..100 {
        let frames = [(&refused[..], &Offload::NONE); BATCH];
        assert_eq!(xdp.send(frames).unwrap(), BATCH);
    }
    assert_eq!(xdp.take_refused(), 100 * BATCH as u64);
    assert_eq!(xdp.take_refused(), 0);

    cable.set(0, "up");
    let sent = frame(&[], 200);
    let mut arrived = Vec::new();
    wait(|| {
        assert_eq!(xdp.send([(&sent[..], &Offload::NONE)]).unwrap(), 1);
        pause();
        let _ = packets.receive(|received| {
            let bytes = received.unwrap().bytes;
            if bytes[6..12] == SENDER {
                arrived.push(bytes.len());
            }
        });
        (!arrived.is_empty()).then_some(())
    });
    assert!(arrived.iter().all(|&bytes| bytes == 200), "{arrived:?}");
}

/// In zero-copy mode, a complete checksum that looks like a partial one is not changed.
#[test]
fn checksums_of_a_device_are_finished() {
    let mut frame = frame(&[], 1000);
    let sum = sum_with(&frame, &[]);
    frame[50..52].copy_from_slice(&sum.to_be_bytes());
    let told = |is_copied| received(&frame[..], 0, 0, is_copied).offload.checksum;
    assert_eq!(told(true).map(|checksum| checksum.offset), Some(16));
    assert_eq!(told(false), None);
}

#[test]
fn a_link_that_cannot_is_left_alone() {
    let cable = cable!();
    let [_, link] = cable.links();
    assert!(link.strips_vlan_tags());
    let before = cable.state();
    let copied = XdpSocket::open(&link, whole(Copies::Never));
    let Err(XdpError::Failed(XdpStep::Queue, error)) = copied else {
        panic!("nothing is copied on a virtual link: {copied:?}");
    };
    assert_eq!(error.raw_os_error(), Some(libc::EOPNOTSUPP));
    // veth cannot run XDP programs if the peer's MTU allows frames longer than a page.
    cable.set(0, "mtu 9000");
    let refused = XdpSocket::open(&link, whole(Copies::Allowed));
    assert!(
        matches!(refused, Err(XdpError::Failed(XdpStep::Driver, _))),
        "{refused:?}"
    );
    cable.set(0, "mtu 1500");
    wait(|| (cable.state() == before).then_some(()));
}

/// Held frames do not change. While all chunks are held, frames that arrive are lost and counted; reception continues
/// once a chunk is given back.
#[test]
fn chunks_are_held_and_given_back() {
    let cable = cable!();
    let [a, b] = cable.links();
    let packets = PacketSocket::open(&a, 8 << 20).unwrap();
    let xdp = xdp!(&b);
    let numbered = |number: usize| {
        let mut sent = frame(&[], 100 + number % 1000);
        sent[60..64].copy_from_slice(&(number as u32).to_be_bytes());
        sent
    };
    let ours = |bytes: &[u8]| bytes[6..12] == SENDER;
    let mut held = Vec::new();
    let take = |held: &mut Vec<Chunk>| {
        let _ = xdp.receive_chunks(|received| held.push(received.unwrap().bytes));
    };
    let mut sent = 0;
    wait(|| {
        for _ in 0..BATCH {
            packets
                .send([(&numbered(sent)[..], &Offload::NONE)])
                .unwrap();
            sent += 1;
        }
        while xdp.held() < XdpSocket::CHUNKS && xdp.receive_chunks(|_| {}).is_ok() {}
        (sent > 2 * XdpSocket::CHUNKS).then_some(())
    });
    assert_eq!(xdp.held(), 0, "what is not kept is given back");

    let lost = xdp.take_lost().unwrap();
    assert_eq!(lost, 0);
    let first = sent;
    while held.len() < XdpSocket::CHUNKS {
        packets
            .send([(&numbered(sent)[..], &Offload::NONE)])
            .unwrap();
        sent += 1;
        take(&mut held);
    }
    assert_eq!(xdp.held(), XdpSocket::CHUNKS);
    for _ in 0..100 {
        packets
            .send([(&numbered(sent)[..], &Offload::NONE)])
            .unwrap();
        sent += 1;
    }
    let mut lost = 0;
    wait(|| {
        lost += xdp.take_lost().unwrap();
        (lost >= 100).then_some(())
    });
    take(&mut held);
    assert_eq!(held.len(), XdpSocket::CHUNKS);
    let numbers = held.iter().filter(|chunk| ours(chunk)).map(|chunk| {
        let number = u32::from_be_bytes(chunk[60..64].try_into().unwrap()) as usize;
        assert_eq!(&chunk[..], numbered(number), "as it was sent");
        number
    });
    assert!(numbers.is_sorted());
    assert!(
        held.iter()
            .any(|chunk| ours(chunk) && chunk.len() == 100 + first % 1000)
    );

    // One free chunk is enough to continue.
    held.truncate(XdpSocket::CHUNKS - 1);
    let again = frame(&[], 1400);
    wait(|| {
        packets.send([(&again[..], &Offload::NONE)]).unwrap();
        pause();
        let mut fresh = Vec::new();
        take(&mut fresh);
        fresh.iter().any(|chunk| chunk[..] == again).then_some(())
    });
    held.clear();
    assert_eq!(xdp.held(), 0);
}

/// Held chunks do not keep a closed socket's queue busy.
#[test]
fn a_link_is_free_while_its_chunks_are_held() {
    let cable = cable!();
    let [a, b] = cable.links();
    let packets = PacketSocket::open(&a, 1 << 20).unwrap();
    let xdp = xdp!(&b);
    let sent = frame(&[], 500);
    let mut chunk = wait(|| {
        packets.send([(&sent[..], &Offload::NONE)]).unwrap();
        pause();
        let mut found = None;
        let _ = xdp.receive_chunks(|received| {
            found = Some(received.unwrap().bytes).filter(|chunk| chunk[..] == sent);
        });
        found
    });
    drop(xdp);
    let again = xdp!(&b);
    chunk[20] = !sent[20];
    assert_eq!(chunk[21..], sent[21..]);
    drop(chunk);
    assert_eq!(again.held(), 0);
}

/// Each frame arrives once, at the socket of its queue.
#[test]
fn all_queues_can_be_opened() {
    softclock_testing::require!("ip");
    let cable = match Cable::with_queues(2) {
        Ok(cable) => cable,
        Err(reason) => softclock_testing::skip!("{reason}"),
    };
    let [a, b] = cable.links();
    let mut sockets = match XdpSocket::open_queues(&b, Copies::Allowed, &XdpFilter::All) {
        Ok(sockets) => sockets,
        Err(error) => softclock_testing::skip!("AF_XDP cannot be used here: {error:?}"),
    };
    assert_eq!(sockets.len(), 2);
    let packets = PacketSocket::open(&a, 1 << 20).unwrap();
    let mut seen = [const { BTreeSet::new() }; 2];
    let mut flow = 0u16;
    wait(|| {
        // Each frame has another port, since the sending link chooses the queue by the flow.
        let mut sent = frame(&[], 200);
        sent[34..36].copy_from_slice(&flow.to_be_bytes());
        packets.send([(&sent[..], &Offload::NONE)]).unwrap();
        flow += 1;
        for (socket, seen) in sockets.iter().zip(&mut seen) {
            let mut note = |bytes: &[u8]| {
                let is_own = bytes[6..12] == SENDER;
                let port = u16::from_be_bytes([bytes[34], bytes[35]]);
                assert!(!is_own || seen.insert(port), "{port} has arrived twice");
            };
            while socket.receive(|frame| note(frame.unwrap().bytes)).is_ok() {}
        }
        let all = seen.iter().map(BTreeSet::len).sum::<usize>();
        let is_complete = all == usize::from(flow);
        (is_complete && seen.iter().all(|seen| seen.len() > 20)).then_some(())
    });
    assert!(seen[0].is_disjoint(&seen[1]));
    // Both queues send.
    let host = PacketSocket::open(&a, 1 << 20).unwrap();
    for socket in &sockets {
        socket
            .send([(&frame(&[], 100)[..], &Offload::NONE)])
            .unwrap();
    }
    let mut arrived = 0;
    wait(|| {
        let _ = host.receive(|frame| arrived += usize::from(frame.unwrap().bytes[6..12] == SENDER));
        (arrived == 2).then_some(())
    });
    // The queue of the socket that is left goes on to work.
    sockets.remove(0);
    let last = &sockets[0];
    wait(|| {
        let mut sent = frame(&[], 200);
        sent[34..36].copy_from_slice(&flow.to_be_bytes());
        packets.send([(&sent[..], &Offload::NONE)]).unwrap();
        flow = flow.wrapping_add(1);
        last.receive(|_| {}).ok()
    });
    drop(sockets);
    // The link is free again.
    XdpSocket::open_queues(&b, Copies::Allowed, &XdpFilter::All).unwrap();
}

/// A link may receive by more queues than it sends by: a socket of the others says so instead of losing frames.
#[test]
fn a_queue_that_cannot_send_says_so() {
    softclock_testing::require!("ip");
    let cable = match Cable::with_queues_each(2, 1) {
        Ok(cable) => cable,
        Err(reason) => softclock_testing::skip!("{reason}"),
    };
    let [a, b] = cable.links();
    let packets = PacketSocket::open(&b, 1 << 20).unwrap();
    let sockets = match XdpSocket::open_queues(&a, Copies::Allowed, &XdpFilter::All) {
        Ok(sockets) => sockets,
        Err(error) => softclock_testing::skip!("AF_XDP cannot be used here: {error:?}"),
    };
    let sent = frame(&[], 200);
    let send = |socket: &XdpSocket| socket.send([(&sent[..], &Offload::NONE)]);
    assert_eq!(send(&sockets[0]).unwrap(), 1);
    wait(|| {
        let mut arrived = false;
        let _ = packets.receive(|received| arrived |= received.unwrap().bytes[6..12] == SENDER);
        arrived.then_some(())
    });
    assert!(sockets[0].can_send() && !sockets[1].can_send());
    assert_eq!(
        send(&sockets[1]).unwrap_err().raw_os_error(),
        Some(libc::ENXIO)
    );
}

/// An empty frame is refused, and those beside it leave.
#[test]
fn an_empty_frame_is_refused() {
    let cable = cable!();
    let [a, b] = cable.links();
    let packets = PacketSocket::open(&a, 1 << 20).unwrap();
    let xdp = xdp!(&b);
    let sent = frame(&[], 200);
    let empty = xdp.send([(&[][..], &Offload::NONE)]).unwrap_err();
    assert_eq!(empty.kind(), std::io::ErrorKind::InvalidInput);
    let both = [(&sent[..], &Offload::NONE), (&[][..], &Offload::NONE)];
    assert_eq!(xdp.send(both).unwrap(), 1);
    wait(|| {
        let mut arrived = false;
        let _ = packets.receive(|received| arrived |= received.unwrap().bytes[6..12] == SENDER);
        arrived.then_some(())
    });
}

/// The socket receives the frames of its queue, and the host those of the other queues.
#[test]
fn a_queue_can_be_chosen() {
    softclock_testing::require!("ip");
    let cable = match Cable::with_queues(2) {
        Ok(cable) => cable,
        Err(reason) => softclock_testing::skip!("{reason}"),
    };
    let [a, b] = cable.links();
    assert_eq!(b.receive_queues().unwrap(), 2);
    let refused = XdpSocket::open(&b, whole(Copies::Allowed));
    assert!(matches!(refused, Err(XdpError::Queues(2))), "{refused:?}");
    let of = |queue| XdpSettings {
        copies: Copies::Allowed,
        queue: Some(queue),
        filter: XdpFilter::All,
    };
    let none = XdpSocket::open(&b, of(2));
    assert!(
        matches!(none, Err(XdpError::Failed(XdpStep::Queue, _))),
        "{none:?}"
    );
    let xdp = match XdpSocket::open(&b, of(1)) {
        Ok(xdp) => xdp,
        Err(error) => softclock_testing::skip!("AF_XDP cannot be used here: {error:?}"),
    };
    let host = PacketSocket::open(&b, 1 << 20).unwrap();
    let packets = PacketSocket::open(&a, 1 << 20).unwrap();
    let (mut chosen, mut others, mut flow) = (0, 0, 0u16);
    wait(|| {
        // Each frame has another port, since the sending link chooses the queue by the flow.
        for _ in 0..BATCH {
            flow += 1;
            let mut sent = frame(&[], 200);
            sent[34..36].copy_from_slice(&flow.to_be_bytes());
            packets.send([(&sent[..], &Offload::NONE)]).unwrap();
        }
        pause();
        let count = |bytes: &[u8]| usize::from(bytes[6..12] == SENDER);
        while xdp
            .receive(|frame| chosen += count(frame.unwrap().bytes))
            .is_ok()
        {}
        while host
            .receive(|frame| others += count(&frame.unwrap().bytes))
            .is_ok()
        {}
        (chosen > 0 && others > 0).then_some(())
    });
    assert!(
        chosen + others <= usize::from(flow),
        "{chosen} and {others}"
    );
}

/// The resources of a closed socket are busy for a while.
#[test]
fn busy_resources_are_awaited() {
    use io::ErrorKind::{NotFound, ResourceBusy};

    let calls = Cell::new(0);
    let answer = |busy_calls: u32, last: Option<io::ErrorKind>| {
        calls.set(0);
        let result = retry_while_busy(|| {
            calls.set(calls.get() + 1);
            match last {
                _ if calls.get() <= busy_calls => Err(io::Error::from_raw_os_error(libc::EBUSY)),
                Some(kind) => Err(kind.into()),
                None => Ok(()),
            }
        });
        (result.err().map(|error| error.kind()), calls.get())
    };
    assert_eq!(answer(3, None), (None, 4));
    assert_eq!(answer(0, Some(NotFound)), (Some(NotFound), 1), "at once");
    let refused = answer(u32::MAX, None);
    assert_eq!(refused, (Some(ResourceBusy), BUSY_TRIES), "not forever");
}
