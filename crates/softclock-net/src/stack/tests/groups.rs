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

/// A group of each version, a remote sender's address, and that of a member.
const JOINED: [(&str, &str, &str); 2] = [
    ("239.255.77.1:7", "10.0.0.2:5", "0.0.0.0:7"),
    ("[ff05::77]:7", "[2001:db8::2]:5", "[::]:7"),
];

#[test]
fn a_stack_receives_what_is_sent_to_a_group_while_it_has_a_member() {
    for architecture in Architecture::ALL {
        for (group, sender, member) in JOINED {
            let (mut here, mut there) = (host(1, architecture), host(2, architecture));
            let (one, two) = (
                here.bind(at(member)).unwrap(),
                there.bind(at(sender)).unwrap(),
            );
            let other = here.bind((at(member).ip(), 8).into()).unwrap();
            let mut send = |here: &mut Host| {
                there.send_to(NOW, two, at(group), b"all").unwrap();
                exchange(NOW, here, &mut there);
                here.receive(one).map(|datagram| datagram.destination)
            };
            assert_eq!(send(&mut here), None);
            here.join(one, at(group).ip()).unwrap();
            here.join(other, at(group).ip()).unwrap();
            assert_eq!(send(&mut here), Some(at(group).ip()));
            here.leave(one, at(group).ip()).unwrap();
            assert_eq!(
                send(&mut here),
                Some(at(group).ip()),
                "another member is left"
            );
            here.close(other);
            assert_eq!(send(&mut here), None);
        }
    }
}

#[test]
fn memberships_that_cannot_be_are_errors() {
    let mut host = host(1, Architecture::SoftLrp);
    let id = host.bind(at("0.0.0.0:7")).unwrap();
    let group = |text: &str| -> IpAddr { text.parse().unwrap() };
    assert_eq!(host.join(id, group("10.0.0.1")), Err(GroupError::NotAGroup));
    assert_eq!(host.join(id, group("ff05::77")), Err(GroupError::NotAGroup));
    assert_eq!(
        host.leave(id, group("239.1.1.1")),
        Err(GroupError::NotMember)
    );
    for number in 0..Routes::MOST_GROUPS {
        let [high, low] = (number as u16).to_be_bytes();
        host.join(id, [239, 0, high, low].into()).unwrap();
    }
    assert_eq!(host.join(id, group("239.0.0.1")), Err(GroupError::Member));
    assert_eq!(host.join(id, group("239.9.9.9")), Err(GroupError::TooMany));
    host.close(id);
    assert_eq!(host.join(id, group("239.9.9.9")), Err(GroupError::Closed));
    let id = host.bind(at("0.0.0.0:7")).unwrap();
    host.join(id, group("239.9.9.9")).unwrap();
}

#[test]
fn the_options_of_a_sender_say_how_far_datagrams_go() {
    for (group, _, member) in JOINED {
        let mut host = host(1, Architecture::SoftLrp);
        let id = host.bind(at(member)).unwrap();
        host.join(id, at(group).ip()).unwrap();
        for (group_hop_limit, loops_groups) in [(1, true), (1, false), (9, true), (0, true)] {
            let options = DatagramOptions {
                group_hop_limit,
                loops_groups,
                ..DatagramOptions::default()
            };
            host.set_datagram_options(id, options);
            host.send_to(NOW, id, at(group), b"all").unwrap();
            let sent = host.next_frame().map(|frame| hop_limit(&frame));
            assert_eq!(sent, (group_hop_limit > 0).then_some(group_hop_limit));
            host.process(NOW, 10);
            assert_eq!(host.receive(id).is_some(), loops_groups);
        }
    }
}

#[test]
fn datagrams_to_a_host_have_the_hop_limit_of_their_sender() {
    let (mut here, mut there) = (
        host(1, Architecture::SoftLrp),
        host(2, Architecture::SoftLrp),
    );
    for (one, two) in PAIRS {
        let (a, b) = (here.bind(at(one)).unwrap(), there.bind(at(two)).unwrap());
        here.send_to(NOW, a, at(two), b"first").unwrap();
        exchange(NOW, &mut here, &mut there);
        there.receive(b).unwrap();
        for limit in [64, 3] {
            let options = DatagramOptions {
                hop_limit: limit,
                ..DatagramOptions::default()
            };
            here.set_datagram_options(a, options);
            here.send_to(NOW, a, at(two), b"next").unwrap();
            assert_eq!(hop_limit(&here.next_frame().unwrap()), limit);
        }
    }
}

fn hop_limit(frame: &[u8]) -> u8 {
    ip::parse(&frame[Header::BYTES..]).unwrap().hop_limit
}
