//! Floods, full queues, and packets that are not for the stack.

use super::*;

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
fn the_queue_for_the_link_is_bounded() {
    let mut host = with(1, |settings| settings.send_queue = 3);
    let id = host.bind(at("0.0.0.0:0")).unwrap();
    let to_group = at("224.0.0.1:9");
    let sent = (0..10).map(|_| host.send_to(NOW, id, to_group, b"x"));
    assert_eq!(sent.filter(Result::is_ok).count(), 3);
    host.next_frame().unwrap();
    assert_eq!(host.send_to(NOW, id, to_group, b"x"), Ok(()));
}

/// The smallest limits make nothing loop or panic.
#[test]
fn limits_of_nothing_are_limits_of_one() {
    let nothing = ChannelLimits {
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
