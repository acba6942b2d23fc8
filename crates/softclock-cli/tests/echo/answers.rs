//! What a stranger's tools get from the stack: ping, datagrams of any length, closed ports, traceroute.

use std::io::{ErrorKind, Write};
use std::process::Stdio;

use crate::lab::{ADDRESSES, ARCHITECTURES, Carrier, Lab, assert_returned, dropped, lab};

/// Payloads of datagrams: the shortest, around the first and second fragment, and long ones.
const LENGTHS: [usize; 14] = [
    1, 2, 17, 18, 19, 1024, 1451, 1452, 1453, 1472, 1473, 5000, 20_000, 60_000,
];

/// Pings and sends datagrams of all lengths over both versions of IP, and compares the summary.
fn assert_all_lengths_return(lab: &Lab, architecture: &str) {
    let server = lab.serve(&["--architecture", architecture]);
    let mut expected_bytes = 0;
    for address in ADDRESSES {
        for size in [0, 1, 56, 1452, 1472, 1473, 5000, 20_000] {
            let replies = lab.ping(address, 2, &format!("-s {size}"));
            assert_eq!(replies, 2, "{address} -s {size}, {architecture}");
        }
        let socket = lab.socket(address, 7);
        for length in LENGTHS {
            let bytes: Vec<u8> = (0..length).map(|place| (place % 251) as u8).collect();
            assert_returned(&socket, &bytes);
            expected_bytes += length;
        }
    }
    let summary = server.end();
    assert_eq!(summary["echo"]["datagrams"], 2 * LENGTHS.len());
    assert_eq!(summary["echo"]["bytes"], expected_bytes);
    assert_eq!(summary["pings"], 32);
    let fragmented = summary["reassembled"].as_u64();
    assert!(fragmented >= Some(10), "{summary}");
    let drops = summary["drops"].as_object().expect("an object");
    // The client's kernel looks for routers and reports its groups.
    assert!(
        drops.keys().all(|reason| reason == "not_our_address"),
        "{summary}"
    );
}

#[test]
fn all_lengths_return_over_a_tap_device() {
    for architecture in ARCHITECTURES {
        let lab = lab!(Carrier::Tap);
        assert_all_lengths_return(&lab, architecture);
    }
}

#[test]
fn all_lengths_return_by_af_packet() {
    let lab = lab!(Carrier::Packet);
    for architecture in ARCHITECTURES {
        assert_all_lengths_return(&lab, architecture);
    }
}

#[test]
fn all_lengths_return_by_af_xdp() {
    for carrier in [Carrier::Xdp, Carrier::NiLrp] {
        let lab = lab!(carrier);
        for architecture in carrier.architectures() {
            assert_all_lengths_return(&lab, architecture);
        }
    }
}

/// An empty datagram is echoed as one, and does not end the service.
#[test]
fn empty_datagrams_return() {
    let lab = lab!(Carrier::Packet);
    let server = lab.serve(&[]);
    for address in ADDRESSES {
        lab.assert_echo(address, b"");
        lab.assert_echo(address, b"not empty");
    }
    assert_eq!(server.end()["echo"]["datagrams"], 4);
}

#[test]
fn closed_ports_refuse_at_once() {
    for carrier in Carrier::ALL {
        let lab = lab!(carrier);
        for architecture in carrier.architectures() {
            let server = lab.serve(&["--architecture", architecture]);
            for address in ADDRESSES {
                // In one frame, and in fragments.
                for length in [5, 5000] {
                    let socket = lab.socket(address, 1007);
                    socket.send(&vec![1; length]).expect("a datagram leaves");
                    let error = socket.recv(&mut [0; 16]).expect_err("closed");
                    assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{address}");
                }
            }
            let summary = server.end();
            assert_eq!(dropped(&summary, "port_unreachable"), 4, "{summary}");
            assert_eq!(summary["icmp_errors_sent"], 4);
        }
    }
}

/// Datagrams that the client's kernel joins into one long frame (UDP_SEGMENT) arrive as datagrams.
#[test]
fn joined_datagrams_are_taken_apart() {
    softclock_testing::require!("python3");
    for carrier in Carrier::ALL {
        let lab = lab!(carrier);
        let server = lab.serve(&[]);
        for address in ADDRESSES {
            let mut command = lab.client().command("python3");
            let output = command.args(["-c", SEGMENTS, address]).output();
            let output = output.expect("nsenter is installed");
            assert_eq!(
                output.stdout, b"[1000, 1000, 1000, 1000, 4]\n",
                "{output:?}"
            );
        }
        let summary = server.end();
        assert_eq!(summary["echo"]["datagrams"], 2 * 6, "{summary}");
    }
}

/// Sends a datagram, so that the link address is known, and then several by one system call; prints the lengths of the
/// answers. Option 103 is UDP_SEGMENT (udp(7)).
const SEGMENTS: &str = "
import socket, sys
family = socket.AF_INET6 if ':' in sys.argv[1] else socket.AF_INET
client = socket.socket(family, socket.SOCK_DGRAM)
client.settimeout(10)
client.connect((sys.argv[1], 7))
client.send(b'first')
client.recv(2000)
client.setsockopt(socket.IPPROTO_UDP, 103, 1000)
client.send(bytes(4004))
print([len(client.recv(2000)) for _ in range(5)])
";

/// Datagrams to port 9 are counted and not answered.
#[test]
fn discarded_datagrams_are_counted() {
    let lab = lab!(Carrier::Packet);
    let server = lab.serve(&[]);
    for address in ADDRESSES {
        let socket = lab.socket(address, 9);
        for _ in 0..5 {
            socket.send(&[9; 100]).expect("a datagram leaves");
        }
        // What follows on the same link arrives after it.
        lab.assert_echo(address, b"done");
    }
    let summary = server.end();
    assert_eq!(summary["discard"]["datagrams"], 10);
    assert_eq!(summary["discard"]["bytes"], 1000);
}

/// Two echo services could otherwise keep each other busy for ever.
#[test]
fn datagrams_from_ports_of_services_are_not_returned() {
    let lab = lab!(Carrier::Packet);
    let server = lab.serve(&[]);
    let socket = lab.client().inside(|| {
        let socket = std::net::UdpSocket::bind("10.78.0.1:19").expect("free");
        socket.connect("10.78.0.7:7").expect("a route");
        socket
    });
    let socket = socket.expect("the namespace is there");
    socket.send(b"chargen").expect("a datagram leaves");
    lab.assert_echo("10.78.0.7", b"done");
    socket.set_nonblocking(true).expect("a socket");
    let error = socket.recv(&mut [0; 16]).expect_err("no answer");
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    assert_eq!(server.end()["not_returned"]["port"], 1);
}

#[test]
fn netcat_gets_its_line_back() {
    softclock_testing::require!("nc");
    for carrier in Carrier::ALL {
        let lab = lab!(carrier);
        let _server = lab.serve(&[]);
        for address in ADDRESSES {
            let mut child = lab
                .client()
                .command("nc")
                .args(["-u", "-n", "-w", "1", address, "7"])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .expect("nsenter is installed");
            let mut input = child.stdin.take().expect("piped");
            input.write_all(b"a line\n").expect("it reads");
            drop(input);
            let output = child.wait_with_output().expect("our own child");
            assert_eq!(output.stdout, b"a line\n", "{address}");
        }
    }
}

/// The stack is one hop away, by the port-unreachable error and by the echo reply.
#[test]
fn traceroute_arrives() {
    softclock_testing::require!("traceroute");
    for carrier in Carrier::ALL {
        let lab = lab!(carrier);
        let _server = lab.serve(&[]);
        for address in ADDRESSES {
            for method in ["-U", "-I"] {
                let words = format!("traceroute -n {method} -q 1 -w 5 -m 3 {address}");
                let output = lab.run(&words);
                let text = String::from_utf8_lossy(&output.stdout).into_owned();
                let hops: Vec<_> = text.lines().skip(1).collect();
                assert!(
                    hops.len() == 1 && hops[0].contains(address),
                    "{words}: {text}"
                );
            }
        }
    }
}

/// The stack has no TCP, and says so: a connection fails at once, with the error for an unknown protocol.
#[test]
fn connections_of_tcp_are_refused_as_an_unknown_protocol() {
    let lab = lab!(Carrier::Packet);
    let server = lab.serve(&[]);
    for address in ["10.78.0.7:80", "[fd78::7]:80"] {
        let connected = lab
            .client()
            .inside(|| std::net::TcpStream::connect(address));
        let error = connected
            .expect("the namespace is there")
            .expect_err("no TCP");
        assert!(
            matches!(error.raw_os_error(), Some(92 | 111 | 71)),
            "{address}: {error:?}"
        );
    }
    let summary = server.end();
    assert!(dropped(&summary, "protocol") >= 2, "{summary}");
}
