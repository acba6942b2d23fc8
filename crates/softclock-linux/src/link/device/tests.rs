//! A device shares a link with the host: both are reached at their own addresses.

use std::io;
use std::net::UdpSocket;
use std::time::Duration;

use softclock_testing::lab::{Namespace, connect};

use super::*;
use crate::link::Pool;
use crate::link::cable::{SENDER, cable, frame, joined};

/// The host with the shared link `near`, and its neighbour with the link `far`, each in a namespace. The neighbour
/// finds the link address of the stack by ARP.
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
        let add = |address, link| format!("ip addr add {address}/24 dev {link}");
        near.run(&add(HOST, "near")).unwrap();
        far.run(&add(NEIGHBOUR, "far")).unwrap();
        Ok(Self {
            near_socket: near.inside(|| socket(HOST)).unwrap(),
            far_socket: far.inside(|| socket(NEIGHBOUR)).unwrap(),
            near,
            _far: far,
        })
    }

    /// The state of the shared link, with its promiscuity and XDP program.
    fn state(&self) -> String {
        let mut show = self.near.command("ip");
        let output = show.args(["-details", "link", "show", "near"]).output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    }

    /// A datagram of the host reaches its neighbour, and one of the neighbour the host.
    fn exchange(&self) {
        let mut buffer = [0; 64];
        let [near, far] = [&self.near_socket, &self.far_socket];
        for (from, to) in [(near, far), (far, near)] {
            from.send_to(b"between hosts", to.local_addr().unwrap())
                .unwrap();
            let (length, source) = to.recv_from(&mut buffer).unwrap();
            assert_eq!(&buffer[..length], b"between hosts");
            assert_eq!(source, from.local_addr().unwrap());
        }
    }

    /// Sends datagrams from the neighbour to the stack, and the stack's answers to ARP requests, until a datagram is
    /// there.
    fn reach(&self, device: &Device) -> Vec<u8> {
        for _ in 0..1000 {
            // Errors are those of earlier datagrams whose ARP request had no answer.
            let _ = self.far_socket.send_to(b"to the stack", (STACK, PORT));
            std::thread::sleep(Duration::from_millis(10));
            for frame in frames(device) {
                if is_arp_request(&frame) {
                    let mut reply = Pool::new().copy_of(&arp_reply(&frame));
                    assert_eq!(device.send([(&mut reply, &Offload::NONE)]).unwrap(), 1);
                } else if is_to(&frame, STACK) {
                    return frame;
                }
            }
        }
        panic!("no datagram")
    }
}

fn socket(address: &str) -> UdpSocket {
    let socket = UdpSocket::bind((address, 0)).unwrap();
    let timeout = Some(Duration::from_secs(10));
    socket.set_read_timeout(timeout).unwrap();
    socket
}

/// The frames that have arrived.
fn frames(device: &Device) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    loop {
        match device.receive(|received| frames.push(received.unwrap().bytes.to_vec())) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return frames,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Whether this is an ARP request for the stack's address.
fn is_arp_request(frame: &[u8]) -> bool {
    frame[12..14] == [8, 6] && frame[20..22] == [0, 1] && frame[38..42] == octets(STACK)
}

fn arp_reply(request: &[u8]) -> Vec<u8> {
    let asking = &request[22..32];
    let header = [&request[6..12], &STACK_LINK, &request[12..20], &[0, 2]];
    [&header.concat(), &STACK_LINK[..], &octets(STACK), asking].concat()
}

/// Whether this is a UDP datagram over IPv4 to the address.
fn is_to(frame: &[u8], address: &str) -> bool {
    frame[12..14] == [8, 0] && frame[23] == 17 && frame[30..34] == octets(address)
}

fn octets(address: &str) -> [u8; 4] {
    address.parse::<std::net::Ipv4Addr>().unwrap().octets()
}

/// Opens a device and expects that the stack and the host are reached, and that the link is as before afterwards.
/// `sees_all` is whether the device receives the host's frames, too. An error says why the machine cannot do it.
fn expect_sharing(
    open: impl FnOnce(&Link) -> Result<Device, DeviceError> + Send,
    sees_all: bool,
) -> Result<(), String> {
    let hosts = Hosts::new()?;
    hosts.exchange();
    let before = hosts.state();
    assert!(before.contains("promiscuity 0"), "{before}");
    let opened = hosts.near.inside(|| -> Result<(), String> {
        let device = open(&Link::named("near").unwrap()).map_err(|error| error.to_string())?;
        let during = hosts.state();
        assert!(during.contains("promiscuity 1"), "{during}");
        assert_eq!(during.contains("prog/xdp"), !sees_all, "{during}");
        let datagram = hosts.reach(&device);
        assert_eq!(datagram[..6], STACK_LINK);
        assert_eq!(datagram[42..54], *b"to the stack");
        for _ in 0..10 {
            hosts.exchange();
        }
        let seen = frames(&device);
        let seen = seen.iter().filter(|frame| is_to(frame, HOST)).count();
        assert_eq!(seen, if sees_all { 10 } else { 0 });
        assert_eq!(device.take_lost().unwrap(), 0);
        Ok(())
    });
    opened.unwrap()?;
    // The kernel may end a program a little after its descriptor is closed.
    for _ in 0..100 {
        if hosts.state() == before {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(hosts.state(), before);
    hosts.exchange();
    Ok(())
}

#[test]
fn a_link_is_shared_by_af_packet() {
    softclock_testing::require!("ip", "unshare", "nsenter");
    if let Err(reason) = expect_sharing(Device::share_packet, true) {
        softclock_testing::skip!("{reason}");
    }
}

#[test]
fn a_link_is_shared_by_af_xdp() {
    softclock_testing::require!("ip", "unshare", "nsenter");
    let filter = XdpFilter::Addresses(vec![STACK.parse().unwrap()]);
    let open = |link: &Link| Device::share_xdp(link, Copies::Allowed, filter);
    if let Err(reason) = expect_sharing(open, false) {
        softclock_testing::skip!("{reason}");
    }
}

/// A frame with pending segmentation leaves whole, between those before and behind it.
#[test]
fn long_frames_leave_whole_by_af_xdp() {
    let cable = cable!();
    let [a, b] = cable.links();
    let devices = Device::share_xdp_queues(&a, Copies::Allowed, &XdpFilter::All);
    let devices = match devices {
        Ok(devices) => devices,
        Err(error) => softclock_testing::skip!("AF_XDP cannot be used here: {error}"),
    };
    let device = &devices[0];
    assert!(device.takes_offloads());
    let peer = PacketSocket::open(&b, 1 << 20).unwrap();
    let [first, short, long, last] = [60, 100, 9000, 200].map(|bytes| frame(&[], bytes));
    let mut arrived = Vec::new();
    let receive = |arrived: &mut Vec<_>| {
        let _ = peer.receive(|received| {
            let received = received.unwrap();
            if received.bytes[6..12] == SENDER {
                let segmentation = received.offload.segmentation;
                arrived.push((received.bytes.len(), segmentation.is_some()));
            }
        });
        std::thread::sleep(Duration::from_millis(1));
    };
    // While it comes up, the link loses the frames of packet sockets, by which long ones leave.
    let host = PacketSocket::open(&a, 1 << 20).unwrap();
    for _ in 0..10_000 {
        if !arrived.is_empty() {
            break;
        }
        host.send([(&first[..], &Offload::NONE)]).unwrap();
        receive(&mut arrived);
    }
    let offload = joined(1400);
    let frames = [
        (&short[..], &Offload::NONE),
        (&long[..], &offload),
        (&last[..], &Offload::NONE),
    ];
    assert_eq!(device.send_bytes(frames).unwrap(), 3);
    for _ in 0..1000 {
        receive(&mut arrived);
        arrived.retain(|&(bytes, _)| bytes != first.len());
        if arrived.len() == 3 {
            break;
        }
    }
    assert_eq!(arrived, [(100, false), (9000, true), (200, false)]);
    // A frame that cannot be sent has an error of its own, behind those before it.
    let too_long = vec![0; XdpSocket::MOST_BYTES + 1];
    let frames = [(&long[..], &offload), (&too_long[..], &Offload::NONE)];
    assert_eq!(device.send_bytes(frames).unwrap(), 1);
    device
        .send_bytes([(&too_long[..], &Offload::NONE)])
        .unwrap_err();
}

const HOST: &str = "10.77.0.1";
const NEIGHBOUR: &str = "10.77.0.2";
const STACK: &str = "10.77.0.9";
const STACK_LINK: [u8; 6] = [2, 0, 0, 0, 0x5c, 9];
const PORT: u16 = 7;
