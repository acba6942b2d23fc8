//! Echoes and errors of ICMP and ICMPv6.

use alloc::collections::BTreeSet;
use core::net::SocketAddrV6;

use softclock_wire::packet::ICMPV6;

use super::*;
use crate::icmp::{ErrorKind, ErrorMessage, Message, Quoted};

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

/// Sends a datagram from a connected endpoint, which waits, to a closed port, over each version of IP. Passes both
/// hosts and the endpoint to `check`.
fn send_to_closed_ports(payload: &[u8], check: impl Fn(&mut Host, &Host, EndpointId)) {
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
        here.send(NOW, id, payload).unwrap();
        exchange(NOW, &mut here, &mut there);
        assert_eq!(there.drops().of(DropReason::PortUnreachable), 1);
        check(&mut here, &there, id);
    }
}

#[test]
fn a_connected_endpoint_learns_that_a_port_is_closed() {
    send_to_closed_ports(b"anyone?", |here, _, id| {
        assert_eq!(here.next_woken(), Some(id));
        assert_eq!(here.take_error(id), Some(NetworkError::Refused));
        assert_eq!(here.take_error(id), None);
    });
}

/// They may have been sent to another port (RFC 1122, 4.1.3.4; RFC 8200, 8.1).
#[test]
fn damaged_datagrams_to_a_closed_port_are_not_answered() {
    let whole = datagram(5, b"anyone?");
    let mut damaged = whole.clone();
    *damaged.last_mut().unwrap() ^= 1;
    // From port 5 to port 7, without a checksum, which only IPv4 allows.
    let mut header = [0, 5, 0, 7, 0, 15, 0, 0].to_vec();
    header.extend(b"anyone?");
    let v4 = packet(UDP, "10.0.0.1", |_, bytes| bytes.extend(&header));
    let v6 = packet_v6(UDP, &header);
    // Its length is more than there are bytes.
    header[5] = 16;
    let cut_off = packet(UDP, "10.0.0.1", |_, bytes| bytes.extend(&header));
    for architecture in Architecture::ALL {
        for (frame, reason) in [
            (&whole, DropReason::PortUnreachable),
            (&damaged, DropReason::UdpChecksum),
            (&v4, DropReason::PortUnreachable),
            (&v6, DropReason::UdpChecksum),
            (&cut_off, DropReason::UdpHeader),
        ] {
            let mut host = host(1, architecture);
            arrive(&mut host, frame.clone());
            host.process(NOW, 10);
            let is_answered = reason == DropReason::PortUnreachable;
            assert_eq!(host.drops().of(reason), 1, "{architecture:?}");
            assert_eq!(
                host.counts().errors_sent,
                u64::from(is_answered),
                "{reason:?}"
            );
        }
    }
}

/// A caller may name the link of an address, and a flow label; frames have neither.
#[test]
fn the_scope_of_a_connected_address_hides_no_error() {
    let mut here = host(1, Architecture::SoftLrp);
    let mut there = host(2, Architecture::SoftLrp);
    let id = here.bind(at("[2001:db8::1]:7")).unwrap();
    let peer = "2001:db8::2".parse().unwrap();
    here.connect(id, SocketAddrV6::new(peer, 9, 5, 3).into())
        .unwrap();
    here.send(NOW, id, b"anyone?").unwrap();
    exchange(NOW, &mut here, &mut there);
    assert_eq!(here.take_error(id), Some(NetworkError::Refused));
}

#[test]
fn a_flood_to_closed_ports_leaves_the_control_channel_to_others() {
    let mut host = with(1, |settings| settings.errors_per_second = 10);
    (0..10_000).for_each(|_| arrive(&mut host, datagram(5, b"flood")));
    let answered = host.process(NOW, usize::MAX);
    assert!((25..=50).contains(&answered), "{answered} of a burst of 50");
    assert_eq!(host.drops().of(DropReason::ControlFull), 0);
    assert_eq!(host.drops().of(DropReason::PortUnreachable), 10_000);
}

/// Who cannot see the errors that others get cannot count them either.
#[test]
fn the_rate_limit_of_errors_cannot_be_counted() {
    let bursts = (0..20).map(|key| {
        let routes = Routes::new(vec!["10.0.0.1/24".parse().unwrap()], vec![]).unwrap();
        let mut host: Host = Stack::new(Settings::new(link(1), 1500), routes, HashKey([key, 7]));
        (0..1000).for_each(|_| arrive(&mut host, datagram(5, b"flood")));
        host.process(NOW, usize::MAX)
    });
    let bursts: BTreeSet<_> = bursts.collect();
    assert!(bursts.len() > 3, "{bursts:?}");
}

#[test]
fn a_long_datagram_to_a_closed_port_is_refused() {
    send_to_closed_ports(&[1; 5000], |here, there, id| {
        assert_eq!(there.counts().errors_sent, 1);
        assert_eq!(here.take_error(id), Some(NetworkError::Refused));
    });
}

#[test]
fn a_packet_of_an_unknown_protocol_is_counted_once() {
    let mut host = with(1, |settings| settings.errors_per_second = 10);
    for _ in 0..1000 {
        let frame = packet(253, "10.0.0.1", |_, bytes| bytes.extend([0; 20]));
        arrive(&mut host, frame);
        host.process(NOW, 10);
    }
    let sent = host.counts().errors_sent;
    assert!((25..=50).contains(&sent), "{sent} of a burst of 50");
    let reasons = [DropReason::Protocol, DropReason::IcmpRate];
    let dropped: u64 = reasons.map(|reason| host.drops().of(reason)).iter().sum();
    assert_eq!(dropped, 1000);
}

/// Nothing follows the header, which is no protocol that is missing (RFC 8200, 4.7).
#[test]
fn a_packet_without_a_next_header_is_not_answered() {
    let mut host = host(1, Architecture::SoftLrp);
    arrive(&mut host, packet_v6(59, b"ignored"));
    let fragments = [(1, b"ignored "), (8, b"as well ")];
    for (place, payload) in fragments {
        let header = [59, 0, 0, place, 0, 0, 0, 1];
        arrive(&mut host, packet_v6(FRAGMENT, &[header, *payload].concat()));
    }
    host.process(NOW, 10);
    assert_eq!(host.counts().reassembled, 1);
    assert_eq!(host.drops().of(DropReason::Protocol), 2);
    assert_eq!(host.counts().errors_sent, 0);
}

/// An error message behind an authentication header is not answered by another one (RFC 4443, 2.4 e), as two hosts would
/// send them to and fro.
#[test]
fn an_error_behind_an_authentication_header_is_not_answered() {
    const AUTHENTICATION: u8 = 51;
    for (protocol, is_answered) in [(ICMPV6, false), (UDP, true)] {
        let mut host = host(1, Architecture::SoftLrp);
        // A report of an unreachable port, with a quote that is left out.
        let content = [&[protocol, 1][..], &[0; 10], &[1, 4], &[0; 46]].concat();
        arrive(&mut host, packet_v6(AUTHENTICATION, &content));
        host.process(NOW, 10);
        assert_eq!(host.drops().of(DropReason::Protocol), 1);
        assert_eq!(host.counts().errors_sent, u64::from(is_answered));
    }
}

/// Gives the host a report that a datagram is longer than 1300 bytes.
fn report_too_big(host: &mut Host, from: SocketAddr, to: SocketAddr) -> Result<(), DropReason> {
    let carrier = datagram(5, b"");
    let packet = ip::parse(&carrier[Header::BYTES..]).unwrap();
    let error = ErrorMessage {
        kind: ErrorKind::PacketTooBig,
        next_hop_mtu: Some(1300),
        quoted: Quoted {
            addresses: Addresses {
                source: from.ip(),
                destination: to.ip(),
            },
            protocol: UDP,
            ports: Some((from.port(), to.port())),
            transport: &[],
        },
    };
    host.on_icmp(NOW, &packet, &Message::Error(error), false)
}

/// Routers fragment datagrams of IPv4, so a report about one is most likely forged.
#[test]
fn a_report_about_a_datagram_narrows_a_path_only_if_it_may_be_genuine() {
    for (from, to) in PAIRS {
        let (from, to) = (at(from), at(to));
        for is_connected in [false, true] {
            let mut host = host(1, Architecture::SoftLrp);
            let id = host.bind(from).unwrap();
            if is_connected {
                host.connect(id, to).unwrap();
            }
            let _ = report_too_big(&mut host, from, to);
            let is_believed = is_connected || from.is_ipv6();
            let noted = host.path_mtus.of(NOW, to.ip());
            assert_eq!(noted, is_believed.then_some(1300), "{from}");
        }
    }
}
