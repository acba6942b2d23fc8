//! Packets that are longer than the MTU of the link or of the path.

use softclock_wire::packet::ICMPV6;

use super::*;

#[test]
fn long_datagrams_are_fragmented_and_reassembled() {
    for architecture in Architecture::ALL {
        for (one, two) in PAIRS {
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
    for (one, two) in PAIRS {
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

/// Else each host on the link would answer a datagram to a closed port of one (RFC 1122, 3.2.2 and 3.3.6).
#[test]
fn fragments_in_frames_to_all_hosts_are_dropped() {
    for (from, to) in PAIRS {
        let mut here = host(1, Architecture::SoftLrp);
        let mut there = host(2, Architecture::SoftLrp);
        let id = here.bind(at(from)).unwrap();
        // Both learn each other's link addresses first.
        here.send_to(NOW, id, at(to), b"").unwrap();
        exchange(NOW, &mut here, &mut there);
        let answered = there.counts().errors_sent;
        here.send_to(NOW, id, at(to), &[1; 2000]).unwrap();
        let mut fragments = 0;
        while let Some(mut frame) = here.next_frame() {
            frame[..6].copy_from_slice(&LinkAddress::BROADCAST.0);
            there.on_frame(NOW, NOW, frame, Verify::Yes);
            fragments += 1;
        }
        there.process(NOW, 10);
        assert_eq!(there.counts().errors_sent, answered);
        assert_eq!(there.drops().of(DropReason::NotOurAddress), fragments);
    }
}

/// Nothing tells a genuine report that a message of ICMPv6 is too long from a forged one, so none is needed.
#[test]
fn long_echoes_fit_into_any_path_of_ipv6() {
    let mut host = host(1, Architecture::SoftLrp);
    let addresses = Addresses {
        source: "2001:db8::9".parse().unwrap(),
        destination: "2001:db8::1".parse().unwrap(),
    };
    let echo = Echo {
        identifier: 1,
        sequence: 2,
        data: &[7; 1400],
    };
    let mut request = Vec::new();
    icmp_v6::write_echo_request(addresses, &echo, &mut request);
    let released = host.neighbors.on_request(NOW, addresses.source, link(9));
    assert_eq!(released, []);
    arrive(&mut host, packet_v6(ICMPV6, &request));
    host.process(NOW, 1);
    let lengths = core::iter::from_fn(|| host.next_frame()).map(|frame| frame.len());
    let lengths: Vec<_> = lengths.collect();
    assert_eq!(lengths.len(), 2);
    assert!(lengths.iter().all(|&length| length <= Header::BYTES + 1280));
}

/// Extension headers behind a fragment header do not hide that a packet is an error message, which is never answered.
#[test]
fn an_error_message_of_which_fragments_are_lost_is_not_answered() {
    let mut host = host(1, Architecture::SoftLrp);
    let fragment = [DESTINATION_OPTIONS, 0, 0, 1, 0, 0, 0, 1];
    let options = [ICMPV6, 0, 1, 4, 0, 0, 0, 0];
    let error = [1, 4, 0, 0, 0, 0, 0, 0];
    arrive(
        &mut host,
        packet_v6(FRAGMENT, &[fragment, options, error].concat()),
    );
    host.process(NOW, 1);
    host.on_timer(NOW + Duration::from_secs(31));
    assert_eq!(host.drops().of(DropReason::FragmentTimeout), 1);
    assert_eq!(host.counts().errors_sent, 0);
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

/// The number of the header of options for the destination.
const DESTINATION_OPTIONS: u8 = 60;
