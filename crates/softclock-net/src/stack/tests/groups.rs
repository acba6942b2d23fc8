//! Datagrams to groups.

use super::*;

#[test]
fn a_datagram_to_a_group_goes_to_all_that_are_bound_to_its_port() {
    for architecture in Architecture::ALL {
        for (bound, other, group) in GROUPS {
            let mut host = host(1, architecture);
            let ids = bound.map(|local| host.bind(at(local)).unwrap());
            let other = host.bind(at(other)).unwrap();
            arrive(&mut host, to_group(group));
            host.process(NOW, 10);
            for id in ids {
                let datagram = host.receive(id).unwrap();
                assert_eq!(datagram.payload(), b"all");
                assert_eq!(datagram.destination, at(group).ip());
            }
            assert!(host.receive(other).is_none());
            assert_eq!(host.drops().total(), 0);
            assert_eq!((host.counts().to_channels, verdicts(&host)), (1, 1));
        }
    }
}

/// Addresses that are bound to port 7 and receive what is sent to the group, one that does not, and the group.
const GROUPS: [([&str; 2], &str, &str); 2] = [
    (["0.0.0.0:7", "224.0.0.1:7"], "10.0.0.1:7", "224.0.0.1:7"),
    (["[::]:7", "[ff02::1]:7"], "[2001:db8::1]:7", "[ff02::1]:7"),
];

/// A frame with a datagram from host 9 to a group.
fn to_group(group: &str) -> Vec<u8> {
    let mut peer = host(9, Architecture::SoftLrp);
    let any = match at(group) {
        SocketAddr::V4(_) => "0.0.0.0:5",
        SocketAddr::V6(_) => "[::]:5",
    };
    let id = peer.bind(at(any)).unwrap();
    peer.send_to(NOW, id, at(group), b"all").unwrap();
    peer.next_frame().unwrap()
}

/// The endpoint that has room receives the frame itself: no copy was made for the other.
#[test]
fn a_datagram_to_a_group_is_not_copied_for_an_endpoint_without_room() {
    for architecture in Architecture::ALL {
        for (bound, _, group) in GROUPS {
            for behind in [0, 1] {
                let mut host = with(1, |settings| {
                    settings.architecture = architecture;
                    settings.channel.packets = 1;
                });
                let ids = bound.map(|local| host.bind(at(local)).unwrap());
                let arrive = |host: &mut Host| {
                    arrive(host, to_group(group));
                    host.process(NOW, 10);
                };
                arrive(&mut host);
                host.receive(ids[1 - behind]).unwrap();
                arrive(&mut host);
                let datagram = host.receive(ids[1 - behind]).unwrap();
                let is_eager = architecture == Architecture::Bsd;
                let is_copied = !matches!(datagram.memory, endpoint::Memory::Frame(_));
                assert!(is_eager || !is_copied, "{architecture:?}, {group}");
                let reason = match is_eager {
                    true => DropReason::SocketFull,
                    false => DropReason::ChannelFull,
                };
                let drops = &host.endpoint_counts(ids[behind]).unwrap().drops;
                assert_eq!((drops.of(reason), host.drops().total()), (1, 1));
            }
        }
    }
}
