//! The rings of a network interface that demultiplexes.

use super::*;

/// A ring of a network interface with these frames.
fn ring(frames: impl IntoIterator<Item = Vec<u8>>) -> VecDeque<RingFrame<Vec<u8>>> {
    let of_frame = |bytes| RingFrame {
        bytes,
        arrived: NOW,
        verify: Verify::Yes,
    };
    frames.into_iter().map(of_frame).collect()
}

/// Receives until nothing is left; returns the payloads.
fn receive_all(
    host: &mut Host,
    id: EndpointId,
    mut ring: VecDeque<RingFrame<Vec<u8>>>,
) -> Vec<Vec<u8>> {
    let mut payloads = Vec::new();
    loop {
        match host.receive_next(NOW, id, || ring.pop_front()) {
            Taken::Datagram(datagram) => payloads.push(datagram.payload().to_vec()),
            Taken::Other => {}
            Taken::Nothing => return payloads,
        }
    }
}

#[test]
fn a_frame_of_a_ring_is_processed_when_its_receiver_takes_it() {
    let mut host = host(1, Architecture::NiLrp);
    let id = host.bind(at("10.0.0.1:7")).unwrap();
    let mut damaged = datagram(5, b"damaged");
    *damaged.last_mut().unwrap() ^= 1;
    let frames = ring([damaged, datagram(5, b"whole")]);
    assert_eq!(receive_all(&mut host, id, frames), [b"whole"]);
    let counts = host.endpoint_counts(id).unwrap();
    assert_eq!((counts.received, counts.received_bytes), (1, 5));
    assert_eq!(counts.drops.of(DropReason::UdpChecksum), 1);
    let counts = host.counts();
    assert_eq!((counts.frames_received, counts.to_channels), (2, 2));
}

/// When the protocols run does not decide which packets an endpoint counts as dropped.
#[test]
fn a_damaged_datagram_is_counted_by_its_endpoint() {
    for architecture in Architecture::ALL {
        let mut host = host(1, architecture);
        let id = host.bind(at("10.0.0.1:7")).unwrap();
        let mut damaged = datagram(5, b"damaged");
        *damaged.last_mut().unwrap() ^= 1;
        arrive(&mut host, damaged);
        host.process(NOW, 1);
        assert!(host.receive(id).is_none());
        let counts = host.endpoint_counts(id).unwrap();
        assert_eq!(
            counts.drops.of(DropReason::UdpChecksum),
            1,
            "{architecture:?}"
        );
    }
}

#[test]
fn a_datagram_without_room_in_the_shared_queue_is_counted_by_its_endpoint() {
    let mut host = with(1, |settings| {
        settings.architecture = Architecture::EarlyDemux;
        settings.ip_queue.packets = 1;
    });
    let id = host.bind(at("10.0.0.1:7")).unwrap();
    (0..3).for_each(|_| arrive(&mut host, datagram(5, b"flood")));
    let counts = host.endpoint_counts(id).unwrap();
    assert_eq!(counts.drops.of(DropReason::IpQueueFull), 2);
}

#[test]
fn a_frame_in_the_wrong_ring_reaches_its_endpoint() {
    let mut host = host(1, Architecture::NiLrp);
    let right = host.bind(at("10.0.0.1:7")).unwrap();
    let wrong = host.bind(at("10.0.0.1:8")).unwrap();
    assert!(host.wait(right));
    let frames = ring([datagram(5, b"stray")]);
    assert!(receive_all(&mut host, wrong, frames).is_empty());
    assert_eq!(host.next_woken(), Some(right));
    assert_eq!(receive_all(&mut host, right, ring([])), [b"stray"]);
}

#[test]
fn frames_from_strangers_and_to_other_hosts_do_not_leave_a_ring_as_datagrams() {
    let mut host = host(1, Architecture::NiLrp);
    let id = host.bind(at("0.0.0.0:7")).unwrap();
    host.connect(id, at("10.0.0.9:5")).unwrap();
    let mut to_other = datagram(5, b"other");
    to_other[5] = 2;
    let frames = ring([datagram(6, b"stranger"), to_other, datagram(5, b"peer")]);
    assert_eq!(receive_all(&mut host, id, frames), [b"peer"]);
    assert_eq!(host.drops().of(DropReason::OtherHost), 1);
    // The stranger gets an error about a closed port, as in the other architectures.
    host.process(NOW, 10);
    assert_eq!(host.drops().of(DropReason::PortUnreachable), 1);
    assert_eq!(host.counts().errors_sent, 1);
}

#[test]
fn a_ring_and_the_stacks_own_packets_take_turns() {
    let mut host = host(1, Architecture::NiLrp);
    let id = host.bind(at("10.0.0.1:7")).unwrap();
    for payload in [b"own 1", b"own 2"] {
        host.send_to(NOW, id, at("10.0.0.1:7"), payload).unwrap();
    }
    let frames = (1..=4u8).map(|number| datagram(5, &[b'r', b'i', b'n', b'g', number]));
    let expected: [&[u8]; 6] = [
        b"ring\x01",
        b"own 1",
        b"ring\x02",
        b"own 2",
        b"ring\x03",
        b"ring\x04",
    ];
    assert_eq!(receive_all(&mut host, id, ring(frames)), expected);
}

#[test]
fn discards_of_the_network_interface_are_counted_by_ring() {
    let mut host = host(1, Architecture::NiLrp);
    let id = host.bind(at("10.0.0.1:7")).unwrap();
    host.on_discards(Ring::Endpoint(id), 5);
    host.on_discards(Ring::Segments, 4);
    host.on_discards(Ring::Control, 3);
    host.on_discards(Ring::Fragments, 2);
    host.on_ring_closed(1);
    use DropReason::{ChannelFull, Closed, ControlFull, FragmentsFull};
    let all = [
        (ChannelFull, 9),
        (ControlFull, 3),
        (FragmentsFull, 2),
        (Closed, 1),
    ];
    assert_eq!(host.drops().iter().collect::<Vec<_>>(), all);
    let of_endpoint = &host.endpoint_counts(id).unwrap().drops;
    assert_eq!(of_endpoint.of(ChannelFull), 5);
    let counts = host.counts();
    assert_eq!(counts.frames_received, 15);
    assert_eq!(
        (counts.to_channels, counts.to_control, counts.to_fragments),
        (10, 3, 2)
    );
}
