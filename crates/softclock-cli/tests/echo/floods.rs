//! Floods and malformed packets of hping3 and nping, which aim at a stack as an attacker would, while a client goes on.

use std::process::Stdio;

use softclock_testing::{KilledOnDrop, require};

use crate::idle::is_idle;
use crate::lab::{ADDRESSES, Carrier, Lab, dropped, lab};
use crate::load::{echoed, impatient, resident_kb};

/// Arguments of a program, and reasons for which a flood of its packets is dropped; any of them suffices.
type Floods = [(&'static str, &'static [&'static str])];

/// Those of hping3.
const HPING: &Floods = &[
    // One port after the other.
    ("--udp -p ++1000", &["port_unreachable", "control_full"]),
    ("-S -p 80", &["port_unreachable", "control_full"]),
    // Senders everywhere, which the stack has no route to.
    (
        "-S -p ++80 --rand-source",
        &["no_route", "port_unreachable"],
    ),
    (
        "-F -S -R -P -A -U -X -Y -p 7 -d 20",
        &["port_unreachable", "control_full"],
    ),
    ("--icmp", &["icmp_rate", "control_full"]),
    // Nothing of these needs to be dropped. The first come in pieces of 16 bytes.
    ("--udp -p 7 -d 800 --frag", &[]),
    ("--udp -p 9 -d 64", &[]),
];

/// Those of nping.
const NPING: &Floods = &[
    ("--udp -p 7 10.78.0.7", &[]),
    ("--udp -p 1007 10.78.0.7", CLOSED),
    ("--tcp -p 80 --flags syn 10.78.0.7", CLOSED),
    ("--icmp 10.78.0.7", &["icmp_rate", "control_full"]),
    ("-6 --udp -p 7 fd78::7", &[]),
    ("-6 --udp -p 1007 fd78::7", CLOSED),
    ("-6 --tcp -p 80 --flags syn fd78::7", CLOSED),
    ("-6 --icmp fd78::7", &["icmp_rate", "control_full"]),
];

const CLOSED: &[&str] = &["port_unreachable", "control_full"];

/// A running flood, killed when dropped.
struct Flood(KilledOnDrop);

impl Flood {
    fn start(lab: &Lab, line: &str) -> Self {
        let (program, words) = line.split_once(' ').expect("arguments");
        let mut command = lab.client().command(program);
        command.args(words.split(' '));
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().expect("nsenter is installed");
        Self(KilledOnDrop::new(child))
    }

    fn is_running(&mut self) -> bool {
        self.0.try_wait().expect("our own child").is_none()
    }
}

/// During each flood by hping3 the echo service answers.
fn assert_survives_hping(lab: &Lab) {
    assert_survives(lab, "hping3 --quiet --flood 10.78.0.7", HPING);
}

/// During each flood by nping, over both versions of IP, the echo service answers.
fn assert_survives_nping(lab: &Lab) {
    let program = "nping --quiet --hide-sent --no-capture --rate 100000 -c 0";
    assert_survives(lab, program, NPING);
}

/// During each flood the echo service answers; the floods are counted; memory is bounded; and it is idle in the end.
fn assert_survives(lab: &Lab, program: &str, floods: &Floods) {
    let server = lab.serve(&[]);
    lab.assert_answers();
    let before = resident_kb(&server);
    for (words, _) in floods {
        let mut flood = Flood::start(lab, &format!("{program} {words}"));
        // Long enough to reach each limit of rate.
        std::thread::sleep(std::time::Duration::from_millis(700));
        let socket = impatient(lab, ADDRESSES[0]);
        for number in 0..10 {
            echoed(&socket, number);
        }
        assert!(flood.is_running(), "{words}");
    }
    let more = resident_kb(&server).saturating_sub(before);
    assert!(more < 16 << 10, "{more} KiB");
    lab.assert_answers();
    assert!(is_idle(&server));
    lab.assert_answers();
    let summary = server.end();
    for (words, reasons) in floods {
        let count: u64 = reasons.iter().map(|reason| dropped(&summary, reason)).sum();
        assert!(reasons.is_empty() || count > 0, "{words}: {summary}");
    }
}

#[test]
fn floods_of_hping_are_survived_over_a_tap_device() {
    require!("hping3");
    assert_survives_hping(&lab!(Carrier::Tap));
}

#[test]
fn floods_of_hping_are_survived_by_af_packet() {
    require!("hping3");
    assert_survives_hping(&lab!(Carrier::Packet));
}

#[test]
fn floods_of_hping_are_survived_by_af_xdp() {
    require!("hping3");
    assert_survives_hping(&lab!(Carrier::Xdp));
}

#[test]
fn floods_of_hping_are_survived_by_ni_lrp() {
    require!("hping3");
    assert_survives_hping(&lab!(Carrier::NiLrp));
}

#[test]
fn floods_of_nping_are_survived_over_a_tap_device() {
    require!("nping");
    assert_survives_nping(&lab!(Carrier::Tap));
}

#[test]
fn floods_of_nping_are_survived_by_af_packet() {
    require!("nping");
    assert_survives_nping(&lab!(Carrier::Packet));
}

#[test]
fn floods_of_nping_are_survived_by_af_xdp() {
    require!("nping");
    assert_survives_nping(&lab!(Carrier::Xdp));
}

#[test]
fn floods_of_nping_are_survived_by_ni_lrp() {
    require!("nping");
    assert_survives_nping(&lab!(Carrier::NiLrp));
}

/// Each packet of nping has its fate, at rates below all limits.
#[test]
fn packets_of_nping_are_counted() {
    require!("nping");
    for carrier in [Carrier::Packet, Carrier::Tap] {
        let lab = lab!(carrier);
        let server = lab.serve(&[]);
        lab.assert_answers();
        for (words, count) in [
            ("--udp -g 40000 -p 7", 50),
            ("--udp -g 40000 -p 7 --data-length 1400", 20),
            // Four pieces each.
            ("--udp -g 40000 -p 7 --data-length 80 --mtu 24", 10),
            ("--udp -g 40000 -p 1007", 20),
            ("--udp -g 40000 -p 7 --badsum", 20),
            (
                "--udp -g 40000 -p 7 --badsum-ip --send-eth --dest-mac 02:00:00:00:00:07",
                20,
            ),
            ("--udp -g 40000 -p 7 --ip-options R", 20),
            ("--udp -g 40000 -p 7 --ip-options L10.78.0.9", 20),
            ("--tcp -g 40000 -p 80 --flags syn", 20),
            ("--tcp -g 40000 -p 80 --flags fin,psh,urg", 20),
            ("--tcp -g 40000 -p 80 --badsum", 20),
            ("--icmp", 50),
            ("--icmp --icmp-type 13", 20),
            // It quotes nothing.
            ("--icmp --icmp-type 3", 20),
        ] {
            let line = format!("nping --hide-sent --rate 500 -c {count} {words} 10.78.0.7");
            let output = lab.run(&line);
            assert!(output.status.success(), "{line}: {output:?}");
        }
        lab.assert_answers();
        let summary = server.end();
        for (reason, count) in [
            ("port_unreachable", 60),
            ("udp_checksum", 20),
            ("ip_checksum", 20),
            ("ip_option", 20),
            ("tcp_checksum", 20),
            ("icmp_ignored", 20),
            ("icmp", 20),
        ] {
            assert_eq!(dropped(&summary, reason), count, "{reason}: {summary}");
        }
        // Four of each are those of the two looks whether it answers.
        assert_eq!(summary["echo"]["datagrams"], 100 + 4, "{summary}");
        assert_eq!(summary["pings"], 50 + 8, "{summary}");
        assert_eq!(summary["reassembled"], 10, "{summary}");
    }
}
