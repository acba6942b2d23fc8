use alloc::vec;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use proptest::prelude::*;
use softclock_core::Instant;
use softclock_wire::packet::{ICMP, UDP};

use super::*;
use crate::channel::Limits;
use crate::checksum::{Addresses, Verify};
use crate::icmp::{self, Echo};
use crate::link::{Header, LinkAddress};
use crate::routes::Prefix;
use crate::{icmp_v6, ip, udp};

mod groups;
mod rings;
pub(super) mod simulation;
#[path = "target.rs"]
mod target;

type Host = Stack<Vec<u8>>;

fn host(number: u8, architecture: Architecture) -> Host {
    with(number, |settings| settings.architecture = architecture)
}

fn with(number: u8, change: impl FnOnce(&mut Settings)) -> Host {
    let prefixes = vec![
        alloc::format!("10.0.0.{number}/24").parse().unwrap(),
        alloc::format!("2001:db8::{number}/64").parse().unwrap(),
    ];
    let mut settings = Settings::new(link(number), 1500);
    change(&mut settings);
    let routes = Routes::new(prefixes, vec![]).unwrap();
    Stack::new(settings, routes, HashKey([number.into(), 7]))
}

const fn link(number: u8) -> LinkAddress {
    LinkAddress([2, 0, 0, 0, 0, number])
}

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// Moves frames between two hosts until both are silent.
fn exchange(now: Instant, one: &mut Host, two: &mut Host) {
    for _ in 0..100 {
        let mut is_silent = true;
        for _ in 0..2 {
            if one.next_timeout().is_some_and(|due| due <= now) {
                one.on_timer(now);
            }
            while let Some(frame) = one.next_frame() {
                two.on_frame(now, now, frame, Verify::Yes);
                is_silent = false;
            }
            while two.process(now, 8) > 0 {}
            core::mem::swap(one, two);
        }
        if is_silent {
            return;
        }
    }
    panic!("the hosts never stop");
}

/// The frames of the device that have a verdict.
fn verdicts(host: &Host) -> u64 {
    host.counts()
        .verdicts()
        .iter()
        .map(|(_, frames)| frames)
        .sum()
}

/// A frame with a datagram from host 9 to port 7 of host 1.
fn datagram(source_port: u16, payload: &[u8]) -> Vec<u8> {
    packet(UDP, "10.0.0.1", |addresses, bytes| {
        udp::write(addresses, source_port, 7, payload, bytes).unwrap();
    })
}

fn packet(protocol: u8, to: &str, write: impl FnOnce(Addresses, &mut Vec<u8>)) -> Vec<u8> {
    let addresses = Addresses {
        source: "10.0.0.9".parse().unwrap(),
        destination: to.parse().unwrap(),
    };
    let mut body = Vec::new();
    write(addresses, &mut body);
    let output = ip::Output {
        addresses,
        protocol,
        hop_limit: 64,
        traffic_class: 0,
        identification: 1,
        may_fragment: true,
    };
    let destination = LinkAddress::of_group(addresses.destination);
    let header = Header {
        destination: destination.unwrap_or(link(1)),
        source: link(9),
        ether_type: 0x0800,
    };
    let mut frame = header.to_bytes().to_vec();
    ip::write_header(&output, body.len(), &mut frame);
    frame.extend(body);
    frame
}

const NOW: Instant = Instant::from_ns(1_000_000_000);

fn arrive(host: &mut Host, frame: Vec<u8>) {
    host.on_frame(NOW, NOW, frame, Verify::Yes);
}

#[test]
fn datagrams_go_both_ways_in_all_architectures_and_versions() {
    for architecture in Architecture::ALL {
        for (one, two) in [
            ("10.0.0.1:7", "10.0.0.2:8"),
            ("[2001:db8::1]:7", "[2001:db8::2]:8"),
        ] {
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
fn a_flood_is_discarded_where_the_architecture_says() {
    let small = |architecture| {
        with(1, |settings| {
            settings.architecture = architecture;
            settings.channel.packets = 4;
            settings.ip_queue.packets = 10;
        })
    };
    let lost = |architecture| {
        let mut host = small(architecture);
        host.bind(at("0.0.0.0:7")).unwrap();
        for _ in 0..3 {
            (0..20).for_each(|_| arrive(&mut host, datagram(5, b"flood")));
            host.process(NOW, usize::MAX);
        }
        host.drops().iter().collect::<Vec<_>>()
    };
    use DropReason::{ChannelFull, IpQueueFull, SocketFull};
    assert_eq!(lost(Architecture::SoftLrp), [(ChannelFull, 56)]);
    assert_eq!(lost(Architecture::NiLrp), [(ChannelFull, 56)]);
    // The first ten of each burst fill the shared queue; a full socket is seen before they are queued.
    assert_eq!(
        lost(Architecture::EarlyDemux),
        [(ChannelFull, 40), (SocketFull, 6), (IpQueueFull, 10)]
    );
    assert_eq!(
        lost(Architecture::Bsd),
        [(SocketFull, 26), (IpQueueFull, 30)]
    );
}

#[test]
fn a_flood_to_one_endpoint_costs_another_nothing() {
    let mut host = host(1, Architecture::SoftLrp);
    let flooded = host.bind(at("0.0.0.0:7")).unwrap();
    let other = host.bind(at("0.0.0.0:8")).unwrap();
    (0..10_000).for_each(|_| arrive(&mut host, datagram(5, b"flood")));
    let to_other = packet(UDP, "10.0.0.1", |addresses, bytes| {
        udp::write(addresses, 5, 8, b"ping", bytes).unwrap();
    });
    arrive(&mut host, to_other);
    assert_eq!(host.receive(other).unwrap().payload(), b"ping");
    let drops = &host.endpoint_counts(flooded).unwrap().drops;
    assert_eq!(drops.of(DropReason::ChannelFull), 10_000 - 256);
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
fn echo_requests_are_answered_under_a_rate_limit() {
    let mut host = with(1, |settings| settings.echoes_of_source_per_second = 10);
    let ping = packet(ICMP, "10.0.0.1", |_, bytes| {
        let echo = Echo {
            identifier: 1,
            sequence: 2,
            data: b"data",
        };
        icmp::write_echo_request(&echo, bytes);
    });
    for _ in 0..100 {
        arrive(&mut host, ping.clone());
    }
    host.process(NOW, 200);
    assert_eq!(host.counts().echoes_answered, 50, "a burst");
    assert_eq!(host.drops().of(DropReason::IcmpRate), 50);
    arrive(&mut host, ping);
    let later = NOW + Duration::from_millis(100);
    host.process(later, 1);
    assert_eq!(host.counts().echoes_answered, 51);
}

#[test]
fn a_connected_endpoint_learns_that_a_port_is_closed() {
    for (from, to) in [
        ("10.0.0.1:7", "10.0.0.2:9"),
        ("[2001:db8::1]:7", "[2001:db8::2]:9"),
    ] {
        let (mut here, mut there) = (
            host(1, Architecture::SoftLrp),
            host(2, Architecture::SoftLrp),
        );
        let id = here.bind(at(from)).unwrap();
        here.connect(id, at(to)).unwrap();
        assert!(here.wait(id));
        here.send(NOW, id, b"anyone?").unwrap();
        exchange(NOW, &mut here, &mut there);
        assert_eq!(there.drops().of(DropReason::PortUnreachable), 1);
        assert_eq!(here.next_woken(), Some(id));
        assert_eq!(here.take_error(id), Some(NetworkError::Refused));
        assert_eq!(here.take_error(id), None);
    }
}

#[test]
fn a_flood_to_closed_ports_leaves_the_control_channel_to_others() {
    let mut host = with(1, |settings| settings.errors_per_second = 10);
    (0..10_000).for_each(|_| arrive(&mut host, datagram(5, b"flood")));
    assert_eq!(
        host.process(NOW, usize::MAX),
        50,
        "the burst of the rate limit"
    );
    assert_eq!(host.drops().of(DropReason::ControlFull), 0);
    assert_eq!(host.drops().of(DropReason::PortUnreachable), 10_000);
}

#[test]
fn a_long_datagram_to_a_closed_port_is_refused() {
    for (from, to) in [
        ("10.0.0.1:7", "10.0.0.2:9"),
        ("[2001:db8::1]:7", "[2001:db8::2]:9"),
    ] {
        let (mut here, mut there) = (
            host(1, Architecture::SoftLrp),
            host(2, Architecture::SoftLrp),
        );
        let id = here.bind(at(from)).unwrap();
        here.connect(id, at(to)).unwrap();
        here.send(NOW, id, &[1; 5000]).unwrap();
        exchange(NOW, &mut here, &mut there);
        assert_eq!(there.drops().of(DropReason::PortUnreachable), 1);
        assert_eq!(there.counts().errors_sent, 1);
        assert_eq!(here.take_error(id), Some(NetworkError::Refused));
    }
}

#[test]
fn a_packet_of_an_unknown_protocol_is_counted_once() {
    {
        let mut host = with(1, |settings| settings.errors_per_second = 10);
        for _ in 0..1000 {
            let frame = packet(253, "10.0.0.1", |_, bytes| bytes.extend([0; 20]));
            arrive(&mut host, frame);
            host.process(NOW, 10);
        }
        assert_eq!(host.counts().errors_sent, 50, "the burst of the rate limit");
        let reasons = [DropReason::Protocol, DropReason::IcmpRate];
        let dropped: u64 = reasons.map(|reason| host.drops().of(reason)).iter().sum();
        assert_eq!(dropped, 1000);
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
fn long_datagrams_are_fragmented_and_reassembled() {
    for architecture in Architecture::ALL {
        for (one, two) in [
            ("10.0.0.1:7", "10.0.0.2:8"),
            ("[2001:db8::1]:7", "[2001:db8::2]:8"),
        ] {
            let (mut here, mut there) = (host(1, architecture), host(2, architecture));
            let (a, b) = (here.bind(at(one)).unwrap(), there.bind(at(two)).unwrap());
            let payload: Vec<u8> = (0..20_000u32).map(|i| ((i * 31) >> 3) as u8).collect();
            here.send_to(NOW, a, at(two), &payload).unwrap();
            exchange(NOW, &mut here, &mut there);
            assert!(there.receive(b).unwrap().payload() == payload);
            assert_eq!(there.counts().reassembled, 1);
            assert_eq!(there.drops().total(), 0);
        }
    }
}

#[test]
fn a_lost_fragment_is_reported_if_the_first_one_arrived() {
    for (one, two) in [
        ("10.0.0.1:7", "10.0.0.2:8"),
        ("[2001:db8::1]:7", "[2001:db8::2]:8"),
    ] {
        for lost in [0, 1] {
            let hosts = || {
                (
                    host(1, Architecture::SoftLrp),
                    host(2, Architecture::SoftLrp),
                )
            };
            let (mut here, mut there) = hosts();
            let id = here.bind(at(one)).unwrap();
            // Both learn each other's link addresses first.
            here.send_to(NOW, id, at(two), b"to a closed port").unwrap();
            exchange(NOW, &mut here, &mut there);

            here.send_to(NOW, id, at(two), &[0; 2000]).unwrap();
            let mut place = 0;
            while let Some(frame) = here.next_frame() {
                if place != lost {
                    there.on_frame(NOW, NOW, frame, Verify::Yes);
                }
                place += 1;
            }
            there.process(NOW, 10);
            there.on_timer(NOW + Duration::from_secs(31));
            assert_eq!(there.drops().of(DropReason::FragmentTimeout), 1);

            let mut kinds = Vec::new();
            while let Some(frame) = there.next_frame() {
                let (_, bytes) = Header::parse(&frame).unwrap();
                let Ok(packet) = ip::parse(bytes) else {
                    continue;
                };
                let error = match packet.addresses.source {
                    IpAddr::V4(_) => match icmp::parse(packet.payload, Verify::Yes) {
                        Ok(icmp::Message::Error(error)) => error,
                        _ => continue,
                    },
                    IpAddr::V6(_) => {
                        match icmp_v6::parse(packet.addresses, packet.payload, Verify::Yes) {
                            Ok(icmp_v6::Message::Error(error)) => error,
                            _ => continue,
                        }
                    }
                };
                assert_eq!(error.quoted.ports, Some((7, 8)));
                kinds.push(error.kind);
            }
            let expected: &[_] = match lost {
                0 => &[],
                _ => &[icmp::ErrorKind::ReassemblyTimeExceeded],
            };
            assert_eq!(kinds, expected, "{one}, fragment {lost} lost");
        }
    }
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
fn packets_that_are_not_for_the_stack_are_counted_by_reason() {
    let mut host = host(1, Architecture::SoftLrp);
    let id = host.bind(at("0.0.0.0:7")).unwrap();
    let mut other_host = datagram(5, b"");
    other_host[5] = 99;
    arrive(&mut host, other_host);
    let mut broadcast = datagram(5, b"");
    broadcast[..6].fill(0xff);
    arrive(&mut host, broadcast);
    arrive(&mut host, vec![0; 5]);
    let mut spoofed = datagram(5, b"");
    // The source becomes the stack's own address, and the checksums those of it.
    spoofed[29] = 1;
    let sum = u16::from_be_bytes([spoofed[24], spoofed[25]]) + 8;
    spoofed[24..26].copy_from_slice(&sum.to_be_bytes());
    arrive(&mut host, spoofed);
    assert!(host.receive(id).is_none());
    let drops: Vec<_> = host.drops().iter().collect();
    use DropReason::{IpSource, NotOurAddress, OtherHost, TooShort};
    assert_eq!(
        drops,
        [
            (TooShort, 1),
            (OtherHost, 1),
            (IpSource, 1),
            (NotOurAddress, 1)
        ]
    );
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
fn a_host_that_does_not_answer_is_given_up() {
    let mut host = host(1, Architecture::SoftLrp);
    let id = host.bind(at("0.0.0.0:0")).unwrap();
    host.send_to(NOW, id, at("10.0.0.77:9"), b"").unwrap();
    let mut now = NOW;
    let mut requests = 0;
    while let Some(due) = host.next_timeout() {
        now = now.max(due);
        host.on_timer(now);
        while host.next_frame().is_some() {
            requests += 1;
        }
    }
    assert_eq!(requests, 3);
    assert_eq!(host.drops().of(DropReason::NeighborUnreachable), 1);
    assert!(now - Duration::from_secs(5) < NOW);
}

#[test]
fn the_queue_for_the_link_is_bounded() {
    let mut host = with(1, |settings| settings.send_queue = 3);
    let id = host.bind(at("0.0.0.0:0")).unwrap();
    let to_group = at("224.0.0.1:9");
    let sent = (0..10).map(|_| host.send_to(NOW, id, to_group, b"x"));
    assert_eq!(sent.filter(Result::is_ok).count(), 3);
    host.next_frame().unwrap();
    assert_eq!(host.send_to(NOW, id, to_group, b"x"), Ok(()));
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
        for payload in [&[5; 100][..], &[6; 4000]] {
            let packet = datagram_packet(addresses("10.0.0.1"), ports, 3, 9, payload).unwrap();
            here.send_packet(NOW, packet).unwrap();
            exchange(NOW, &mut here, &mut there);
            let pending = there.take_pending(id).unwrap();
            assert!(pending.bytes() > payload.len());
            let copied: Pending<Vec<u8>> = pending.copied();
            let datagram = copied.into_datagram(there.routes()).unwrap();
            assert_eq!((datagram.payload(), datagram.ecn), (payload, 3));
            assert_eq!(datagram.source, at("10.0.0.1:7"));
        }
        let foreign = datagram_packet(addresses("10.0.0.3"), ports, 0, 9, b"").unwrap();
        assert_eq!(here.send_packet(NOW, foreign), Err(SendError::Remote));
        assert_eq!(here.send_packet(NOW, vec![0; 20]), Err(SendError::Remote));
    }
}

#[test]
fn two_hosts_with_one_address_are_noticed() {
    let (mut one, mut two) = (
        host(1, Architecture::SoftLrp),
        host(1, Architecture::SoftLrp),
    );
    two.settings.link_address = link(2);
    two.announce(NOW);
    exchange(NOW, &mut two, &mut one);
    assert_eq!(
        one.counts().address_conflicts,
        2,
        "by ARP and by neighbor discovery"
    );
}

/// The first announcement may be lost, and others would send to a former link address for a minute.
#[test]
fn addresses_are_announced_twice() {
    let mut host = host(1, Architecture::SoftLrp);
    host.announce(NOW);
    let first = core::iter::from_fn(|| host.next_frame()).count();
    assert_eq!(first, 2, "by ARP and by neighbor discovery");
    let again = NOW + Duration::from_secs(2);
    assert_eq!(host.next_timeout(), Some(again));
    host.on_timer(again);
    assert_eq!(core::iter::from_fn(|| host.next_frame()).count(), first);
    assert_eq!(host.next_timeout(), None);
}

/// A frame of a kind that the stack handles.
fn sample(kind: usize) -> Vec<u8> {
    let mut peer = host(9, Architecture::SoftLrp);
    let id = peer.bind(at("[::]:5")).unwrap();
    let frame = match kind {
        0 => return datagram(5, b"hello"),
        1 => {
            return packet(ICMP, "10.0.0.1", |_, bytes| {
                let echo = Echo {
                    identifier: 1,
                    sequence: 1,
                    data: b"echo",
                };
                icmp::write_echo_request(&echo, bytes);
            });
        }
        // A solicitation, then a datagram to a group, an announcement, and a first fragment.
        2 => peer
            .send_to(NOW, id, at("[2001:db8::1]:7"), b"v6")
            .map(|()| peer.on_timer(NOW)),
        3 => peer.send_to(NOW, id, at("[ff02::1]:7"), b"to all"),
        4 => {
            peer.announce(NOW);
            Ok(())
        }
        _ => peer.send_to(NOW, id, at("[ff02::1]:7"), &[1; 1600]),
    };
    frame.unwrap();
    peer.next_frame().unwrap()
}

proptest! {
    #[test]
    fn the_architectures_agree_about_any_bytes(
        bytes in prop::collection::vec(any::<u8>(), 0..600),
    ) {
        target::check(&bytes);
    }

    /// Like any bytes, but most frames are datagrams, echo requests or ARP with a few bytes changed.
    #[test]
    fn the_architectures_agree_about_damaged_frames(
        steps in prop::collection::vec(
            (any::<u8>(), 0..6usize, prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3)),
            1..40,
        ),
    ) {
        let mut input = Vec::new();
        for (control, kind, changes) in steps {
            let mut frame = sample(kind);
            for (place, value) in changes {
                let place = place.index(frame.len());
                frame[place] = value;
            }
            input.push(control);
            input.extend((frame.len() as u16).to_be_bytes());
            input.extend(frame);
        }
        target::check(&input);
    }

    /// No frame makes a stack panic, and each is accounted for.
    #[test]
    fn any_frame_is_handled(
        architecture in prop::sample::select(&Architecture::ALL[..]),
        frames in prop::collection::vec((0..6u8, prop::collection::vec(any::<u8>(), 0..120)), 1..40),
    ) {
        let mut host = host(1, architecture);
        let id = host.bind(at("0.0.0.0:7")).unwrap();
        let all = frames.len() as u64;
        for (kind, bytes) in frames {
            let mut frame = bytes;
            if kind > 0 && frame.len() > 34 {
                frame[..6].copy_from_slice(&link(1).0);
                let ether_type = [0x0800u16, 0x86dd, 0x0806][usize::from(kind) % 3];
                frame[12..14].copy_from_slice(&ether_type.to_be_bytes());
                frame[14] = if ether_type == 0x86dd { 0x60 } else { 0x45 };
                if kind > 3 {
                    frame[30..34].copy_from_slice(&[10, 0, 0, 1]);
                }
            }
            host.on_frame(NOW, NOW, frame, Verify::Trusted);
        }
        host.process(NOW, 1_000);
        let mut received = 0;
        while host.receive(id).is_some() {
            received += 1;
        }
        let counts = host.counts();
        prop_assert_eq!(counts.frames_received, all);
        prop_assert_eq!(verdicts(&host), all);
        prop_assert!(received <= counts.to_channels);
        prop_assert!(host.drops().total() + received <= all);
        host.on_timer(NOW + Duration::from_secs(100));
        prop_assert!(!host.has_work());
    }
}

#[test]
fn a_smaller_path_mtu_is_obeyed() {
    let (mut here, mut there) = (
        host(1, Architecture::SoftLrp),
        host(2, Architecture::SoftLrp),
    );
    let (from, to) = (at("[2001:db8::1]:7"), at("[2001:db8::2]:9"));
    let id = here.bind(from).unwrap();
    here.connect(id, to).unwrap();
    here.send(NOW, id, &[0; 1400]).unwrap();
    exchange(NOW, &mut here, &mut there);
    here.path_mtus.on_report(NOW, to.ip(), 1300);
    here.send(NOW, id, &[0; 1400]).unwrap();
    let lengths: Vec<_> = core::iter::from_fn(|| here.next_frame())
        .map(|frame| frame.len())
        .collect();
    assert_eq!(lengths.len(), 2);
    assert!(lengths.iter().all(|&length| length <= 1300 + Header::BYTES));
}

/// The smallest limits make nothing loop or panic.
#[test]
fn limits_of_nothing_are_limits_of_one() {
    let nothing = Limits {
        packets: 0,
        bytes: 0,
    };
    for architecture in Architecture::ALL {
        let mut host = with(1, |settings| {
            settings.architecture = architecture;
            settings.channel = nothing;
            settings.ip_queue = nothing;
            settings.control = nothing;
            settings.fragments = nothing;
        });
        let id = host.bind(at("0.0.0.0:7")).unwrap();
        (0..3).for_each(|_| arrive(&mut host, datagram(5, b"")));
        host.process(NOW, 10);
        assert!(host.receive(id).is_none());
        let _: IpAddr = host.routes().addresses()[0].address;
    }
}

/// A stack that shares the addresses of its host asks its caller for neighbors, and sends nothing but packets.
#[test]
fn a_caller_finds_the_neighbors_if_it_wants_to() {
    let mut settings = Settings::new(LinkAddress([2, 0, 0, 0, 0, 1]), 1500);
    settings.asks_caller = true;
    let routes = Routes::new(vec!["10.0.0.1/24".parse().unwrap()], Vec::new()).unwrap();
    let mut stack: Stack<Vec<u8>> = Stack::new(settings, routes, HashKey([1, 2]));
    let now = Instant::from_ns(1_000_000_000);
    stack.announce(now);
    let socket = stack.bind("0.0.0.0:7".parse().unwrap()).unwrap();
    let neighbor = "10.0.0.9".parse().unwrap();
    stack
        .send_to(now, socket, (neighbor, 9).into(), b"hello")
        .unwrap();
    stack.on_timer(now);
    assert_eq!(stack.next_frame(), None);
    assert!(stack.has_work());
    assert_eq!(stack.next_question(), Some(neighbor));
    assert_eq!(stack.next_question(), None);
    let strange = "10.0.0.10".parse().unwrap();
    stack.on_neighbor(now, strange, LinkAddress([2, 0, 0, 0, 0, 10]));
    let link = LinkAddress([2, 0, 0, 0, 0, 9]);
    stack.on_neighbor(now, neighbor, link);
    let frame = stack.next_frame().expect("the datagram waited");
    assert_eq!(Header::parse(&frame).unwrap().0.destination, link);
    // Without an answer the question is repeated, and then given up.
    stack
        .send_to(now, socket, (strange, 9).into(), b"hello")
        .unwrap();
    let mut asked = 0;
    for second in 0..10 {
        stack.on_timer(now + Duration::from_secs(second));
        asked += u32::from(stack.next_question() == Some(strange));
    }
    assert_eq!(asked, 3);
    assert_eq!(stack.drops().of(DropReason::NeighborUnreachable), 1);
}
