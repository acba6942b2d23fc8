//! Datagrams, their endpoints and their receivers.

use super::*;

#[test]
fn datagrams_go_both_ways_in_all_architectures_and_versions() {
    for architecture in Architecture::ALL {
        for (one, two) in PAIRS {
            let (mut here, mut there) = (host(1, architecture), host(2, architecture));
            let (a, b) = (here.bind(at(one)).unwrap(), there.bind(at(two)).unwrap());
            here.send_to(NOW, a, at(two), b"to").unwrap();
            exchange(NOW, &mut here, &mut there);
            let received = there.receive(b).unwrap();
            assert_eq!((received.payload(), received.source), (&b"to"[..], at(one)));
            assert_eq!(received.destination, at(two).ip());
            there.send_to(NOW, b, received.source, b"and fro").unwrap();
            exchange(NOW, &mut here, &mut there);
            assert_eq!(here.receive(a).unwrap().payload(), b"and fro");
            assert_eq!((here.drops().total(), there.drops().total()), (0, 0));
        }
    }
}

#[test]
fn the_protocols_run_when_the_receiver_asks_only_if_they_are_lazy() {
    for architecture in Architecture::ALL {
        let mut host = host(1, architecture);
        let id = host.bind(at("0.0.0.0:7")).unwrap();
        let mut damaged = datagram(5, b"payload");
        *damaged.last_mut().unwrap() ^= 1;
        arrive(&mut host, damaged);
        host.process(NOW, 10);
        let is_lazy = architecture.is_lazy();
        assert_eq!(host.drops().of(DropReason::UdpChecksum) == 0, is_lazy);
        assert!(host.receive(id).is_none());
        assert_eq!(host.drops().of(DropReason::UdpChecksum), 1);
    }
}

#[test]
fn a_receiver_is_woken_once_and_only_if_it_waits() {
    for architecture in Architecture::ALL {
        let mut host = host(1, architecture);
        let id = host.bind(at("0.0.0.0:7")).unwrap();
        let deliver = |host: &mut Host| {
            arrive(host, datagram(5, b""));
            host.process(NOW, 10);
        };
        deliver(&mut host);
        assert_eq!(host.next_woken(), None);
        assert!(!host.wait(id), "a datagram is there");
        while host.receive(id).is_some() {}
        assert!(host.wait(id));
        deliver(&mut host);
        deliver(&mut host);
        assert_eq!(host.next_woken(), Some(id));
        assert_eq!(host.next_woken(), None);
    }
}

#[test]
fn a_connected_endpoint_receives_from_its_peer_only() {
    let mut host = host(1, Architecture::SoftLrp);
    let id = host.bind(at("0.0.0.0:7")).unwrap();
    host.connect(id, at("10.0.0.9:5")).unwrap();
    assert_eq!(host.local(id), Some(at("10.0.0.1:7")));
    arrive(&mut host, datagram(5, b"peer"));
    arrive(&mut host, datagram(6, b"other"));
    assert_eq!(host.receive(id).unwrap().payload(), b"peer");
    assert!(host.receive(id).is_none());
}

#[test]
fn a_datagram_to_the_stack_itself_arrives() {
    for architecture in Architecture::ALL {
        let mut host = host(1, architecture);
        let (one, two) = (
            host.bind(at("10.0.0.1:0")).unwrap(),
            host.bind(at("0.0.0.0:8")).unwrap(),
        );
        host.send_to(NOW, one, at("10.0.0.1:8"), b"self").unwrap();
        host.process(NOW, 10);
        assert_eq!(host.receive(two).unwrap().payload(), b"self");
        assert_eq!(host.next_frame(), None);
        // It is no frame of the device.
        assert_eq!(verdicts(&host), 0);
    }
}

#[test]
fn ports_are_exclusive_and_given_back() {
    let mut host = host(1, Architecture::SoftLrp);
    let id = host.bind(at("10.0.0.1:7")).unwrap();
    assert_eq!(host.bind(at("10.0.0.1:7")), Err(BindError::InUse));
    assert_eq!(host.bind(at("10.0.0.2:7")), Err(BindError::NotOurAddress));
    arrive(&mut host, datagram(5, b"waits"));
    host.close(id);
    assert_eq!(host.drops().of(DropReason::Closed), 1);
    assert!(host.receive(id).is_none());
    assert!(!host.wait(id));
    let again = host.bind(at("10.0.0.1:7")).unwrap();
    assert_ne!(again, id, "a number is never used again");
    let any = host.bind(at("10.0.0.1:0")).unwrap();
    assert!(host.local(any).unwrap().port() >= 49_152);
}

#[test]
fn datagrams_of_all_lengths_are_sent_or_refused() {
    let mut host = host(1, Architecture::SoftLrp);
    for (from, to, most) in [
        ("10.0.0.1:0", "10.0.0.2:8", udp::MOST_PAYLOAD),
        ("[2001:db8::1]:0", "[2001:db8::2]:8", udp::MOST_PAYLOAD_V6),
    ] {
        let id = host.bind(at(from)).unwrap();
        for (length, expected) in [
            (most, Ok(())),
            (most + 1, Err(SendError::TooLong)),
            (70_000, Err(SendError::TooLong)),
        ] {
            let sent = host.send_to(NOW, id, at(to), &vec![0; length]);
            assert_eq!(sent, expected, "{length} bytes to {to}");
        }
    }
}

/// Another thread may do the work of the protocols on both sides.
#[test]
fn packets_can_be_processed_and_built_elsewhere() {
    for architecture in Architecture::ALL {
        let (mut here, mut there) = (host(1, architecture), host(2, architecture));
        let id = there.bind(at("10.0.0.2:8")).unwrap();
        let addresses = |source: &str| Addresses {
            source: source.parse().unwrap(),
            destination: "10.0.0.2".parse().unwrap(),
        };
        let ports = Ports {
            source: 7,
            destination: 8,
        };
        let class = DatagramOptions {
            traffic_class: 3,
            ..DatagramOptions::default()
        };
        let numbers = here.identifications().clone();
        for payload in [&[5; 100][..], &[6; 4000]] {
            let packet =
                datagram_packet(addresses("10.0.0.1"), ports, &class, &numbers, payload).unwrap();
            here.send_packet(NOW, packet).unwrap();
            exchange(NOW, &mut here, &mut there);
            let pending = there.take_pending(id).unwrap();
            assert!(pending.bytes() > payload.len());
            let copied: Pending<Vec<u8>> = pending.copied();
            let datagram = copied.into_datagram(there.routes()).unwrap();
            assert_eq!((datagram.payload(), datagram.ecn), (payload, 3));
            assert_eq!(datagram.source, at("10.0.0.1:7"));
        }
        let foreign = datagram_packet(addresses("10.0.0.3"), ports, &class, &numbers, b"").unwrap();
        assert_eq!(here.send_packet(NOW, foreign), Err(SendError::Remote));
        assert_eq!(here.send_packet(NOW, vec![0; 20]), Err(SendError::Remote));
    }
}

/// The identification of a packet of IPv4, or of a fragment of IPv6, and its receiver.
fn identification(frame: &[u8]) -> Option<(IpAddr, u32)> {
    let packet = frame.get(Header::BYTES..)?;
    let parsed = ip::parse(packet).ok()?;
    let to = parsed.addresses.destination;
    let number = match to {
        IpAddr::V4(_) => u16::from_be_bytes([packet[4], packet[5]]).into(),
        IpAddr::V6(_) => parsed.fragment?.identification,
    };
    Some((to, number))
}

/// RFC 7739: a receiver neither learns how much is sent to others, nor can it tell their identifications.
#[test]
fn each_receiver_has_identifications_of_its_own() {
    for [own, one, other] in [
        ["10.0.0.1:7", "10.0.0.2:9", "10.0.0.3:9"],
        ["[2001:db8::1]:7", "[2001:db8::2]:9", "[2001:db8::3]:9"],
    ] {
        let mut here = host(1, Architecture::SoftLrp);
        let id = here.bind(at(own)).unwrap();
        for (number, to) in [(2, one), (3, other)] {
            here.send_to(NOW, id, at(to), b"first").unwrap();
            exchange(NOW, &mut here, &mut host(number, Architecture::SoftLrp));
        }
        let mut sent = Vec::new();
        for to in [one, other, other, one, other, one] {
            here.send_to(NOW, id, at(to), &[1; 1600]).unwrap();
            while let Some(frame) = here.next_frame() {
                sent.extend(identification(&frame));
            }
        }
        let [to_one, to_other] = [one, other].map(|address| {
            let of = sent.iter().filter(|(to, _)| *to == at(address).ip());
            let mut numbers: Vec<_> = of.map(|(_, number)| *number).collect();
            numbers.dedup();
            numbers
        });
        for numbers in [&to_one, &to_other] {
            let following = numbers.windows(2).filter(|pair| pair[1] == pair[0] + 1);
            assert_eq!((numbers.len(), following.count()), (3, 2), "{sent:?}");
        }
        assert!(to_one.iter().all(|number| !to_other.contains(number)));
    }
}

/// Threads that build packets for a stack take part in its sequences.
#[test]
fn built_packets_have_the_identifications_of_the_stack() {
    let [mut here, mut there] = [1, 2].map(|number| host(number, Architecture::SoftLrp));
    let id = here.bind(at("10.0.0.1:7")).unwrap();
    here.send_to(NOW, id, at("10.0.0.2:9"), b"first").unwrap();
    exchange(NOW, &mut here, &mut there);
    let addresses = Addresses {
        source: "10.0.0.1".parse().unwrap(),
        destination: "10.0.0.2".parse().unwrap(),
    };
    let ports = Ports {
        source: 8,
        destination: 9,
    };
    let identifications = here.identifications().clone();
    let mut sent = Vec::new();
    for _ in 0..2 {
        here.send_to(NOW, id, at("10.0.0.2:9"), b"own").unwrap();
        let class = DatagramOptions::default();
        let packet = datagram_packet(addresses, ports, &class, &identifications, b"built").unwrap();
        here.send_packet(NOW, packet).unwrap();
    }
    while let Some(frame) = here.next_frame() {
        sent.extend(identification(&frame).map(|(_, number)| number));
    }
    let first = sent[0];
    assert_eq!(sent, [0, 1, 2, 3].map(|more| (first + more) & 0xffff));
}

/// RFC 6056: a resolver's next port must not follow from the ports that it used before.
#[test]
fn chosen_ports_do_not_follow_one_another() {
    let mut host = host(1, Architecture::SoftLrp);
    let mut ports = Vec::new();
    for _ in 0..20 {
        let id = host.bind(at("0.0.0.0:0")).unwrap();
        ports.push(host.local(id).unwrap().port());
    }
    let following = ports
        .windows(2)
        .filter(|pair| pair[1].wrapping_sub(pair[0]) <= 16);
    assert!(following.count() < 3, "{ports:?}");
}
