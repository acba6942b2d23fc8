//! A flood to one service, while others go on.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::{Signal, kill_process};
use serde_json::Value;
use softclock_testing::beside;

use crate::frame::V4;
use crate::lab::{ADDRESSES, Carrier, Lab, Server, dropped, eventually, lab};

/// Calls `f` while datagrams flood the discard service, and returns after the flood, when a datagram is answered again.
pub(crate) fn flooded<R>(lab: &Lab, f: impl FnOnce() -> R) -> R {
    let sent = AtomicU64::new(0);
    let socket = lab.socket("10.78.0.7", 9);
    let send = || {
        // A full queue of the sender, and errors of the network, do not end the flood.
        let _ = socket.send(&[0; 18]);
        sent.fetch_add(1, Ordering::Relaxed);
    };
    let result = beside([send], || {
        eventually(|| sent.load(Ordering::Relaxed) > 1000);
        f()
    });
    echoed_after_load(lab);
    result
}

/// Calls `f` while a thread each sends datagrams to both services.
pub(crate) fn loaded<R>(lab: &Lab, f: impl FnOnce() -> R) -> R {
    let sockets = [7, 9].map(|port| lab.socket("10.78.0.7", port));
    let senders = sockets.iter().map(|socket| {
        || {
            let _ = socket.send(&[1; 200]);
        }
    });
    beside(senders, f)
}

/// The summary of a server that answers to a client during a flood. Some frames are lost in the device before the
/// server sees them, so a client repeats its question.
fn served_during_a_flood(lab: &Lab, arguments: &[&str]) -> Value {
    let server = lab.serve(arguments);
    lab.assert_answers();
    flooded(lab, || {
        // An eager stack may have no time for others.
        let some = if arguments.contains(&"bsd") { 0 } else { 20 };
        for address in ADDRESSES {
            let socket = impatient(lab, address);
            for number in 0..some {
                echoed(&socket, number);
            }
        }
    });
    lab.assert_answers();
    server.end()
}

/// A socket to the echo service that waits for an answer only shortly, to ask again.
pub(crate) fn impatient(lab: &Lab, address: &str) -> std::net::UdpSocket {
    impatient_at(lab, address, 7)
}

/// A socket to this port that waits for an answer only shortly.
pub(crate) fn impatient_at(lab: &Lab, address: &str, port: u16) -> std::net::UdpSocket {
    let socket = lab.socket(address, port);
    let patience = Some(Duration::from_millis(100));
    socket.set_read_timeout(patience).expect("a socket");
    socket
}

/// Sends frames, and waits until the server has handled them: it answers what arrives behind them.
fn inject_and_wait(lab: &Lab, frames: &[Vec<u8>]) {
    lab.inject(frames);
    echoed_after_load(lab);
}

/// Asserts that so many injected frames were counted. Some questions to the echo service may be among those lost.
fn assert_all(injected: u64, counted: u64, summary: &Value) {
    let most = injected + QUESTIONS as u64;
    assert!((injected..=most).contains(&counted), "{counted}: {summary}");
}

/// Waits until the echo service answers. What is sent right behind a flood may be lost, while the service's channel or
/// the device's buffer is still full.
pub(crate) fn echoed_after_load(lab: &Lab) {
    echoed(&impatient(lab, "10.78.0.7"), 0);
}

/// The most questions of [`echoed`].
const QUESTIONS: usize = 100;

/// Asks until the echo service answers with this number.
pub(crate) fn echoed(socket: &std::net::UdpSocket, number: u8) {
    for _ in 0..QUESTIONS {
        socket.send(&[number]).expect("a datagram leaves");
        let mut buffer = [0; 16];
        // Answers to earlier attempts may be among them.
        while let Ok(length) = socket.recv(&mut buffer) {
            if buffer[..length] == [number] {
                return;
            }
        }
    }
    panic!("no answer to {number} at {:?}", socket.peer_addr());
}

#[test]
fn a_flood_to_one_service_leaves_the_other_its_share() {
    for carrier in Carrier::ALL {
        let lab = lab!(carrier);
        for architecture in carrier.architectures() {
            let summary = served_during_a_flood(&lab, &["--architecture", architecture]);
            let discarded = summary["discard"]["datagrams"].as_u64();
            assert!(discarded > Some(100), "{summary}");
        }
    }
}

/// With a channel of one packet, what the service has no time for is discarded by the demultiplexer; and none of the
/// others' packets is, though their channels are as small.
#[test]
fn a_flood_is_discarded_early() {
    for (carrier, architecture) in [
        (Carrier::Packet, "early-demux"),
        (Carrier::Packet, "soft-lrp"),
        (Carrier::NiLrp, "ni-lrp"),
    ] {
        let lab = lab!(carrier);
        let server = lab.serve(&["--architecture", architecture, "--channel", "1"]);
        lab.assert_answers();
        // Several frames wait in the device when the server looks, so that a batch does not fit.
        kill_process(server.pid(), Signal::STOP).expect("our own child");
        lab.inject(&vec![V4::udp(9, b"flood").frame(); 2000]);
        kill_process(server.pid(), Signal::CONT).expect("our own child");
        echoed_after_load(&lab);
        lab.assert_answers();
        let summary = server.end();
        let lost = dropped(&summary, "channel_full") + dropped(&summary, "socket_full");
        assert!(lost > 0, "{summary}");
        if architecture != "early-demux" {
            assert_eq!(dropped(&summary, "socket_full"), 0, "{summary}");
        }
        let taken = summary["discard"]["datagrams"].as_u64().expect("a number");
        let in_device = summary["lost"].as_u64().expect("a number");
        assert_all(2000, taken + lost + in_device, &summary);
        assert_eq!(summary["pings"], 8);
    }
}

/// The discards of NI-LRP's program are those of the stack, as others see them.
#[test]
fn top_shows_what_the_program_discards() {
    let lab = lab!(Carrier::NiLrp);
    lab.configure("ip link set lo up");
    let server = lab.serve(&["--channel", "1", "--metrics", "127.0.0.1:9180"]);
    lab.assert_answers();
    let is_over = AtomicBool::new(false);
    let output = thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                lab.inject(&vec![V4::udp(9, b"flood").frame(); 500]);
            }
        });
        let mut top = lab.server.command(env!("CARGO_BIN_EXE_softclock"));
        let output = top.args(["top", "--once", "127.0.0.1:9180"]).output();
        is_over.store(true, Ordering::Relaxed);
        output.expect("nsenter is installed")
    });
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    for part in ["stack        on host by xdp, ni-lrp\n", "  channel_full "] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    let summary = server.end();
    assert!(dropped(&summary, "channel_full") > 0, "{summary}");
}

/// Behind the demultiplexer no packet of others is lost: what is missing was lost in the device, which is before it.
#[test]
fn pings_are_lost_in_the_device_at_most() {
    for carrier in [Carrier::Packet, Carrier::Tap, Carrier::NiLrp] {
        let lab = lab!(carrier);
        let server = lab.serve(&[]);
        lab.assert_answers();
        let received = flooded(&lab, || lab.ping("10.78.0.7", 50, "-W 1"));
        let summary = server.end();
        for reason in [
            "control_full",
            "icmp_rate",
            "send_queue_full",
            "ip_queue_full",
        ] {
            assert_eq!(dropped(&summary, reason), 0, "{summary}");
        }
        if summary["lost"] == 0 {
            assert_eq!(received, 50, "{summary}");
        }
    }
}

/// The errors about closed ports have a limit, and other services do not feel it.
#[test]
fn errors_about_closed_ports_are_limited() {
    let lab = lab!(Carrier::Packet);
    let server = lab.serve(&[]);
    inject_and_wait(&lab, &vec![V4::udp(1007, b"scan").frame(); 3000]);
    lab.assert_answers();
    let summary = server.end();
    let refused = dropped(&summary, "port_unreachable") + dropped(&summary, "control_full");
    let in_device = summary["lost"].as_u64().expect("a number");
    assert_all(3000, refused + in_device, &summary);
    assert!(
        summary["icmp_errors_sent"].as_u64() < Some(3000),
        "{summary}"
    );
}

/// The memory that a server uses, in KiB.
pub(crate) fn resident_kb(server: &Server) -> u64 {
    let id = server.pid().as_raw_nonzero().get();
    softclock_testing::resident_kb(id as u32).expect("it runs")
}

/// Fragments that are never completed, from many hosts, use bounded memory.
#[test]
fn incomplete_packets_use_bounded_memory() {
    let lab = lab!(Carrier::Packet);
    let server = lab.serve(&[]);
    lab.assert_answers();
    let before = resident_kb(&server);
    let frames: Vec<_> = (0..20_000u32)
        .map(|number| {
            let [_, _, high, low] = number.to_be_bytes();
            V4 {
                source: [10, 78, 1 + high, low].into(),
                ..V4::fragment(number as u16, 0, true, 1400)
            }
            .frame()
        })
        .collect();
    inject_and_wait(&lab, &frames);
    lab.assert_answers();
    let more = resident_kb(&server).saturating_sub(before);
    assert!(more < 16 << 10, "{more} KiB");
    // What is left over of the flood gives way to others.
    for address in ADDRESSES {
        lab.assert_echo(address, &[1; 20_000]);
    }
    let summary = server.end();
    let refused = ["fragment_memory", "fragments_full"];
    let refused: u64 = refused.iter().map(|reason| dropped(&summary, reason)).sum();
    assert!(refused > 0, "{summary}");
}

/// Addresses that nobody has, as senders: the stack asks for a bounded number of them.
#[test]
fn senders_that_do_not_exist_use_bounded_memory() {
    let lab = lab!(Carrier::Packet);
    let server = lab.serve(&[]);
    lab.assert_answers();
    let before = resident_kb(&server);
    let frames: Vec<_> = (0..20_000u32)
        .map(|number| {
            let [_, _, high, low] = number.to_be_bytes();
            let mut packet = V4 {
                source: [10, 78, 0, 10 + low % 200].into(),
                ..V4::udp(7, &[high, low])
            };
            packet.payload[6..8].fill(0);
            packet.frame()
        })
        .collect();
    inject_and_wait(&lab, &frames);
    lab.assert_answers();
    let more = resident_kb(&server).saturating_sub(before);
    assert!(more < 16 << 10, "{more} KiB");
    server.end();
}

/// A peer that closes its port answers with errors; they do not end the service.
#[test]
fn errors_about_answers_do_not_end_the_service() {
    let lab = lab!(Carrier::Packet);
    let server = lab.serve(&[]);
    for address in ADDRESSES {
        for _ in 0..20 {
            let socket = lab.socket(address, 7);
            socket.send(b"gone").expect("a datagram leaves");
        }
    }
    lab.assert_answers();
    let socket = lab.socket("10.78.0.7", 7);
    socket.set_nonblocking(true).expect("a socket");
    let error = socket.recv(&mut [0; 16]).expect_err("nothing was sent");
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    assert_eq!(server.end()["not_returned"]["error"], 0);
}
