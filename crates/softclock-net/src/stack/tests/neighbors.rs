//! Link addresses of neighbors, and announcements of the stack's own.

use softclock_wire::packet::ICMPV6;

use super::*;
use crate::ip::ndisc;

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

/// The stack itself reports it, as a router does for a host behind it (RFC 4861, 7.2.2).
#[test]
fn a_connected_endpoint_learns_that_its_neighbor_does_not_answer() {
    for architecture in Architecture::ALL {
        for (from, to) in PAIRS {
            let mut host = host(1, architecture);
            let id = host.bind(at(from)).unwrap();
            host.connect(id, at(to)).unwrap();
            assert!(host.wait(id));
            host.send(NOW, id, b"anyone?").unwrap();
            while let Some(due) = host.next_timeout() {
                host.on_timer(due);
                while host.next_frame().is_some() {}
            }
            while host.process(NOW, 8) > 0 {}
            assert_eq!(host.next_woken(), Some(id), "{architecture:?}, {from}");
            assert_eq!(host.take_error(id), Some(NetworkError::HostUnreachable));
            assert_eq!(host.drops().total(), 1);
        }
    }
}

/// Fragmentation would hide it from filters of the link (RFC 6980).
#[test]
fn a_solicitation_behind_a_fragment_header_is_ignored() {
    for architecture in Architecture::ALL {
        let mut host = host(1, architecture);
        let addresses = Addresses {
            source: "2001:db8::9".parse().unwrap(),
            destination: "2001:db8::1".parse().unwrap(),
        };
        let target = "2001:db8::1".parse().unwrap();
        let message = ndisc::write_solicitation(addresses, target, Some(link(9)));
        let atomic = [&[ICMPV6, 0, 0, 0, 0, 0, 0, 1][..], &message].concat();
        arrive(&mut host, packet_v6(FRAGMENT, &atomic));
        host.process(NOW, 8);
        assert_eq!(host.drops().of(DropReason::NeighborDiscovery), 1);
        assert_eq!(host.next_frame(), None);
        assert_eq!(host.neighbors.find(NOW, addresses.source), None);
        arrive(&mut host, packet_v6(ICMPV6, &message));
        host.process(NOW, 8);
        assert!(host.next_frame().is_some(), "without the header it counts");
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
