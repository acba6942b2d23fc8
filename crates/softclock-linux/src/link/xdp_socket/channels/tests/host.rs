//! The host keeps its own traffic beside the channels, and gets the link back when their process is killed.

use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::process::Stdio;
use std::time::Instant;

use softclock_testing::KilledOnDrop;
use softclock_testing::lab::{Namespace, connect};

use super::*;

const HOST: &str = "10.77.0.1";
const NEIGHBOUR: &str = "10.77.0.2";
const STACK: &str = "10.77.0.9";

/// The host with the link `near` and its neighbour, each in a namespace. The neighbour sends frames for the stack to
/// the host's link address.
struct Hosts {
    near: Namespace,
    near_socket: UdpSocket,
    far_socket: UdpSocket,
    _far: Namespace,
}

impl Hosts {
    fn new() -> Result<Self, String> {
        let (near, far) = (Namespace::new()?, Namespace::new()?);
        for namespace in [&near, &far] {
            namespace.disable_ipv6().unwrap();
        }
        connect((&near, "near"), (&far, "far")).unwrap();
        let address = "02:00:5e:10:00:01";
        near.run(&format!("ip link set near address {address}"))
            .unwrap();
        near.run(&format!("ip addr add {HOST}/24 dev near"))
            .unwrap();
        far.run(&format!("ip addr add {NEIGHBOUR}/24 dev far"))
            .unwrap();
        far.run(&format!("ip neigh add {STACK} lladdr {address} dev far"))
            .unwrap();
        let socket = |address| {
            let socket = UdpSocket::bind((address, 0)).unwrap();
            let timeout = Some(Duration::from_secs(10));
            socket.set_read_timeout(timeout).unwrap();
            socket
        };
        Ok(Self {
            near_socket: near.inside(|| socket(HOST)).unwrap(),
            far_socket: far.inside(|| socket(NEIGHBOUR)).unwrap(),
            near,
            _far: far,
        })
    }

    /// A datagram of the host reaches its neighbour, and one of the neighbour the host.
    fn exchange(&self) {
        let mut buffer = [0; 64];
        let [near, far] = [&self.near_socket, &self.far_socket];
        for (from, to) in [(near, far), (far, near)] {
            from.send_to(b"between hosts", to.local_addr().unwrap())
                .unwrap();
            let (length, _) = to.recv_from(&mut buffer).unwrap();
            assert_eq!(&buffer[..length], b"between hosts");
        }
    }

    fn send(&self, port: u16) {
        self.far_socket
            .send_to(b"to the stack", (STACK, port))
            .unwrap();
    }

    fn state(&self) -> String {
        let mut show = self.near.command("ip");
        let output = show.args(["-details", "link", "show", "near"]).output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    }
}

/// Makes the hosts, or skips the test if the machine does not permit them.
macro_rules! hosts {
    () => {{
        softclock_testing::require!("ip", "unshare", "nsenter");
        match Hosts::new() {
            Ok(hosts) => hosts,
            Err(reason) => softclock_testing::skip!("{reason}"),
        }
    }};
}

fn of_stack() -> ChannelSettings {
    let mut settings = settings(2);
    settings.link.filter = XdpFilter::Addresses(vec![STACK.parse().unwrap()]);
    settings
}

#[test]
fn a_flood_to_one_endpoint_leaves_the_other_and_the_host_alone() {
    let hosts = hosts!();
    hosts.exchange();
    let before = hosts.state();
    let tried = hosts.near.inside(|| -> Result<(), XdpError> {
        let channels = XdpChannels::open(&Link::named("near").unwrap(), of_stack())?;
        let add = |port| channels.add(&[udp(STACK, port)], LIMIT).unwrap();
        let (flooded, served) = (add(7), add(8));
        let mut received = 0;
        for _ in 0..200 {
            (0..50).for_each(|_| hosts.send(7));
            hosts.send(8);
            hosts.exchange();
            wait(|| {
                let _ = served.receive(|datagram| {
                    assert_eq!(datagram.unwrap().bytes[42..], *b"to the stack");
                    received += 1;
                });
                (served.delivered() == received).then_some(())
            });
        }
        wait(|| (served.delivered() == 200).then_some(()));
        wait(|| (flooded.delivered() + flooded.discarded() == 10_000).then_some(()));
        assert_eq!((served.discarded(), flooded.delivered()), (0, LIMIT.into()));
        Ok(())
    });
    if let Err(error) = tried.unwrap() {
        softclock_testing::skip!("AF_XDP cannot be used here: {error:?}");
    }
    wait(|| (hosts.state() == before).then_some(()));
    hosts.exchange();
}

#[test]
fn a_killed_process_leaves_the_link_as_it_was() {
    let hosts = hosts!();
    hosts.exchange();
    let before = hosts.state();
    let program = std::env::current_exe().unwrap();
    let mut child = hosts.near.command(program.to_str().unwrap());
    // Names of tests are without that of the crate.
    let (_, holder) = HOLDER.split_once("::").unwrap();
    child
        .args(["--exact", "--nocapture", holder])
        .env(HOLDS, "1");
    let mut child = KilledOnDrop::new(child.stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let is_open = lines.any(|line| line.unwrap().ends_with(OPEN));
    if !is_open {
        softclock_testing::skip!("AF_XDP cannot be used here");
    }
    assert!(hosts.state().contains("prog/xdp"));
    for _ in 0..1000 {
        [7, 8].into_iter().for_each(|port| hosts.send(port));
    }
    hosts.exchange();
    drop(child);
    (0..100).for_each(|_| hosts.send(7));
    wait(|| (hosts.state() == before).then_some(()));
    hosts.exchange();
    // The queue is free.
    let again = hosts
        .near
        .inside(|| XdpChannels::open(&Link::named("near").unwrap(), of_stack()).map(drop));
    again.unwrap().unwrap();
}

/// The child process of the test above: receives from one channel and not from the other, until killed.
#[test]
fn a_process_with_channels() {
    if std::env::var_os(HOLDS).is_none() {
        return;
    }
    let Ok(channels) = XdpChannels::open(&Link::named("near").unwrap(), of_stack()) else {
        return;
    };
    let [_full, drained] = [7, 8].map(|port| channels.add(&[udp(STACK, port)], LIMIT).unwrap());
    println!("{OPEN}");
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(20) {
        let _ = drained.receive(drop);
    }
}

/// The variable that makes a process of the tests such a child.
const HOLDS: &str = "SOFTCLOCK_HOLDS_CHANNELS";

const HOLDER: &str = concat!(module_path!(), "::a_process_with_channels");
const OPEN: &str = "the channels are open";
