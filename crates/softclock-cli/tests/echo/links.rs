//! The link below the server: its MTU, its offloads, and its ups and downs.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use softclock_testing::require;

use crate::lab::{ADDRESSES, Carrier, Lab, assert_returned, eventually, lab};

/// The host's own addresses on the interface.
const HOST: [&str; 2] = ["10.78.0.2", "fd78::2"];

fn await_ping(lab: &Lab, address: &str) {
    eventually(|| lab.ping(address, 1, "-W 0.2") == 1);
}

#[test]
fn it_answers_again_when_the_interface_is_up_again() {
    for carrier in Carrier::ALL {
        let lab = lab!(carrier);
        let server = lab.serve(&[]);
        lab.assert_answers();
        let link = match carrier {
            Carrier::Tap => "client",
            _ => "host",
        };
        for _ in 0..2 {
            lab.configure(&format!("ip link set {link} down"));
            assert_eq!(lab.ping("10.78.0.7", 1, "-W 0.05"), 0);
            lab.configure(&format!("ip link set {link} up"));
            // Going down flushes addresses of IPv6.
            match carrier {
                Carrier::Tap => lab.configure("ip addr add fd78::1/64 dev client nodad"),
                _ => lab.configure("ip addr add fd78::2/64 dev host nodad"),
            }
            ADDRESSES
                .iter()
                .for_each(|address| await_ping(&lab, address));
            lab.assert_answers();
            if carrier != Carrier::Tap {
                HOST.iter().for_each(|address| await_ping(&lab, address));
            }
        }
        let summary = server.end();
        assert_eq!(summary["interface"], link);
    }
}

/// The other end going down takes the carrier away.
#[test]
fn it_answers_again_when_the_carrier_is_back() {
    for carrier in Carrier::SHARED {
        let lab = lab!(carrier);
        let server = lab.serve(&[]);
        lab.configure_client("ip link set client down");
        lab.configure_client("ip link set client up");
        lab.configure_client("ip addr add fd78::1/64 dev client nodad");
        await_ping(&lab, "fd78::7");
        lab.assert_answers();
        HOST.iter().for_each(|address| await_ping(&lab, address));
        server.end();
    }
}

/// The host's own addresses on the interface are removed and added again.
#[test]
fn it_answers_while_the_hosts_addresses_are_away() {
    for carrier in Carrier::SHARED {
        let lab = lab!(carrier);
        let server = lab.serve(&[]);
        lab.assert_answers();
        for (address, words) in [
            ("10.78.0.2", "10.78.0.2/24 dev host"),
            ("fd78::2", "fd78::2/64 dev host"),
        ] {
            lab.configure(&format!("ip addr del {words}"));
            assert_eq!(lab.ping(address, 1, "-W 0.2"), 0, "{carrier:?}");
            lab.assert_answers();
            lab.configure(&format!("ip addr add {words}"));
            lab.assert_answers();
            await_ping(&lab, address);
        }
        server.end();
    }
}

/// The kernel reports the end of a bridge's port much as that of the link itself.
#[test]
fn it_answers_after_the_interface_has_left_a_bridge() {
    for carrier in Carrier::SHARED {
        let lab = lab!(carrier);
        let server = lab.serve(&[]);
        lab.assert_answers();
        let bridge = lab.server.run("ip link add name bridge type bridge");
        if let Err(reason) = bridge {
            softclock_testing::skip!("no bridge: {reason}");
        }
        lab.configure("ip link set host master bridge");
        lab.configure("ip link set host nomaster");
        lab.assert_answers();
        HOST.iter().for_each(|address| await_ping(&lab, address));
        server.end();
    }
}

/// The client's addresses are removed and added again while it sends: in between, the stack's answers find no neighbor.
#[test]
fn it_answers_again_when_the_peers_addresses_are_back() {
    for carrier in Carrier::ALL {
        let lab = lab!(carrier);
        let server = lab.serve(&[]);
        lab.assert_answers();
        let sockets = ADDRESSES.map(|address| lab.socket(address, 7));
        let is_over = AtomicBool::new(false);
        let [sent, failed] = [(); 2].map(|()| AtomicU64::new(0));
        let send = |socket: &UdpSocket| {
            let counter = match socket.send(b"traffic") {
                Ok(_) => &sent,
                Err(_) => &failed,
            };
            counter.fetch_add(1, Ordering::Relaxed);
        };
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    sockets.iter().for_each(send);
                }
            });
            for _ in 0..2 {
                let more = |counter: &AtomicU64| {
                    let before = counter.load(Ordering::Relaxed);
                    eventually(|| counter.load(Ordering::Relaxed) > before + 100);
                };
                more(&sent);
                lab.configure_client("ip addr del 10.78.0.1/24 dev client");
                lab.configure_client("ip addr del fd78::1/64 dev client");
                more(&failed);
                lab.configure_client("ip addr add 10.78.0.1/24 dev client");
                lab.configure_client("ip addr add fd78::1/64 dev client nodad");
            }
            is_over.store(true, Ordering::Relaxed);
        });
        ADDRESSES
            .iter()
            .for_each(|address| await_ping(&lab, address));
        lab.assert_answers();
        server.end();
    }
}

/// Datagrams in one frame, from the shortest to the MTU, and in fragments of the longest frames.
fn assert_frames_to_the_mtu(lab: &Lab, mtu: usize) {
    for address in ADDRESSES {
        let headers = if address.contains(':') { 48 } else { 28 };
        let socket = lab.socket(address, 7);
        for frame_bytes in [
            64,
            65,
            128,
            512,
            1280,
            2048,
            4000,
            4096,
            mtu - 1,
            mtu,
            mtu + 1,
            2 * mtu,
        ] {
            let Some(bytes) = frame_bytes.checked_sub(headers) else {
                continue;
            };
            assert_returned(&socket, &vec![7; bytes]);
        }
        let most = mtu - headers;
        assert_eq!(lab.ping(address, 2, &format!("-M do -s {most}")), 2);
    }
}

fn set_mtu(lab: &Lab, mtu: usize) {
    lab.configure_client(&format!("ip link set client mtu {mtu}"));
    if lab.carrier != Carrier::Tap {
        lab.configure(&format!("ip link set host mtu {mtu}"));
    }
}

#[test]
fn frames_to_the_mtu_return() {
    for mtu in [1280, 1500, 3000, 9000] {
        let lab = lab!(Carrier::Packet);
        set_mtu(&lab, mtu);
        let server = lab.serve(&[]);
        assert_frames_to_the_mtu(&lab, mtu);
        let summary = server.end();
        assert_eq!(
            (&summary["lost"], &summary["refused"]),
            (&0.into(), &0.into()),
            "{summary}"
        );
    }
}

/// The device exists only while the server runs, whose own frames have the MTU at its start.
#[test]
fn frames_to_the_mtu_return_over_a_tap_device() {
    for mtu in [1280, 3000, 9000] {
        let lab = lab!(Carrier::Tap);
        let server = lab.serve(&[]);
        set_mtu(&lab, mtu);
        assert_frames_to_the_mtu(&lab, mtu);
        let summary = server.end();
        assert_eq!(summary["refused"], 0, "{summary}");
    }
}

/// The MTU of a running server's link may grow: longer frames arrive, and are answered in frames of the former MTU.
#[test]
fn an_mtu_that_grows_lets_longer_frames_arrive() {
    for carrier in Carrier::ALL {
        let lab = lab!(carrier);
        let server = lab.serve(&[]);
        lab.assert_answers();
        // The longest frames of AF_XDP are shorter than 4 KiB.
        set_mtu(&lab, 3000);
        assert_frames_to_the_mtu(&lab, 3000);
        let summary = server.end();
        assert_eq!(
            (&summary["lost"], &summary["refused"]),
            (&0.into(), &0.into()),
            "{carrier:?}: {summary}"
        );
    }
}

/// A frame longer than a chunk of AF_XDP: the program says at its start that it cannot have them.
#[test]
fn af_xdp_serves_long_frames_or_refuses_the_link() {
    let carriers = [Carrier::Xdp, Carrier::NiLrp];
    let cases = carriers.map(|carrier| [1280, 1500, 3000, 9000].map(|mtu| (carrier, mtu)));
    for (carrier, mtu) in cases.into_iter().flatten() {
        let lab = lab!(carrier);
        set_mtu(&lab, mtu);
        let before = lab.link_state();
        let output = lab.command(&["--duration", "1ms"]).output();
        let output = output.expect("nsenter is installed");
        if output.status.success() {
            let server = lab.serve(&[]);
            assert_frames_to_the_mtu(&lab, mtu);
            server.end();
        } else {
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(errors.lines().count(), 1, "{errors}");
            assert!(mtu > 3000 && errors.contains("MTU"), "{mtu}: {errors}");
            lab.await_link_state(&before);
        }
    }
}

/// The MTU of a running server's link may shrink; then its fragments do not fit, and it survives.
#[test]
fn an_mtu_that_shrinks_does_not_end_it() {
    for carrier in Carrier::SHARED {
        let lab = lab!(carrier);
        let server = lab.serve(&[]);
        lab.assert_answers();
        lab.configure("ip link set host mtu 1280");
        for address in ADDRESSES {
            let socket = lab.socket(address, 7);
            socket.send(&[1; 1400]).expect("a datagram leaves");
            lab.assert_echo(address, &[2; 1000]);
        }
        lab.configure("ip link set host mtu 1500");
        lab.assert_answers();
        lab.assert_echo("10.78.0.7", &[3; 1472]);
        server.end();
    }
}

/// With offloads on, a datagram from this machine arrives without its checksum; off, it arrives with it.
#[test]
fn checksums_may_be_left_to_the_link_or_not() {
    require!("ethtool");
    for carrier in Carrier::ALL {
        let lab = lab!(carrier);
        for offload in ["off", "on"] {
            let ethtool = |link| format!("ethtool -K {link} tx {offload}");
            let server = lab.serve(&[]);
            lab.configure_client(&ethtool("client"));
            if carrier != Carrier::Tap {
                lab.configure(&ethtool("host"));
            }
            for address in ADDRESSES {
                let socket = lab.socket(address, 7);
                for length in [1, 1000, 1472, 5000, 60_000] {
                    assert_returned(&socket, &vec![5; length]);
                }
            }
            let summary = server.end();
            assert!(summary["drops"]["udp_checksum"].is_null(), "{summary}");
        }
    }
}
