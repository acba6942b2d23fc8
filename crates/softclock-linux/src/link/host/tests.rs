//! Neighbors and routers of a namespace of its own, and ports of the host.

use std::net::{TcpListener, UdpSocket};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use softclock_testing::lab::Namespace;

use super::*;
use crate::link::two::two;

/// Gives both ends of the link an address of each version of IP.
fn give_addresses([near, far]: [Namespace; 2]) -> Result<[Namespace; 2], String> {
    let give = || -> io::Result<()> {
        near.run("ip addr add 10.79.0.1/24 dev near")?;
        near.run("ip addr add fd79::1/64 dev near nodad")?;
        far.run("ip addr add 10.79.0.2/24 dev far")?;
        far.run("ip addr add fd79::2/64 dev far nodad")
    };
    give().map_err(|error| error.to_string())?;
    Ok([near, far])
}

fn wait(fd: &impl AsFd) {
    let wait = Timespec::try_from(Duration::from_millis(100)).unwrap();
    poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&wait)).unwrap();
}

#[test]
fn the_kernel_finds_neighbors_that_are_asked_for() {
    let [near, far] = two!(give_addresses);
    let there = far.inside(|| Link::named("far").and_then(|link| link.hardware_address()));
    let there = there.unwrap().unwrap();
    let find = || {
        let neighbors = HostNeighbors::open(&Link::named("near").unwrap()).unwrap();
        for address in ["10.79.0.2", "fd79::2"] {
            let address = address.parse().unwrap();
            let mut found = neighbors.ask(address).unwrap();
            let mut tries = 0;
            while found.is_none() {
                tries += 1;
                assert!(tries < 100, "no answer about {address}");
                wait(&neighbors);
                let _ = neighbors.receive(|news, link| {
                    if news == address {
                        found = Some(link);
                    }
                });
            }
            assert_eq!(found, Some(there));
            assert_eq!(neighbors.ask(address).unwrap(), Some(there));
        }
        // No host has this address.
        assert_eq!(neighbors.ask("10.79.0.77".parse().unwrap()).unwrap(), None);
    };
    near.inside(find).unwrap();
}

#[test]
fn the_router_with_the_best_metric_is_found() {
    let [near, _far] = two!(give_addresses);
    let routers = || Link::named("near").unwrap().default_routers().unwrap();
    assert!(near.inside(routers).unwrap().is_empty());
    for route in [
        "default via 10.79.0.3 metric 20",
        "default via 10.79.0.2 metric 10",
        "192.0.2.0/24 via 10.79.0.4",
    ] {
        near.run(&format!("ip route add {route}")).unwrap();
    }
    near.run("ip -6 route add default via fd79::2").unwrap();
    let expected: [IpAddr; 2] = ["10.79.0.2", "fd79::2"].map(|text| text.parse().unwrap());
    assert_eq!(near.inside(routers).unwrap(), expected);
}

#[test]
fn a_reserved_port_is_not_free() {
    let local = SocketAddr::from(([127, 0, 0, 1], 0));
    let listener = TcpListener::bind(local).unwrap();
    let busy = reserve_port(Transport::Tcp, listener.local_addr().unwrap());
    assert_eq!(busy.unwrap_err().kind(), io::ErrorKind::AddrInUse);
    let tcp = listener.local_addr().unwrap();
    drop(listener);
    let udp = UdpSocket::bind(local).unwrap().local_addr().unwrap();
    let held = [(Transport::Tcp, tcp), (Transport::Udp, udp)]
        .map(|(transport, address)| reserve_port(transport, address).unwrap());
    assert!(TcpListener::bind(tcp).is_err() && UdpSocket::bind(udp).is_err());
    drop(held);
    UdpSocket::bind(udp).unwrap();
}

#[test]
fn any_bytes_are_read_without_a_panic() {
    for length in 0..64 {
        let bytes: Vec<u8> = (0u8..length).map(|at| at.wrapping_mul(37)).collect();
        let _ = Neighbor::parse(&bytes);
        let _ = Link::named("lo").unwrap().default_route(&bytes);
    }
}
