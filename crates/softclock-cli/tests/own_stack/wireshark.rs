//! Wireshark's expert information about the captures of the stack.

use std::process::Command;

use softclock_testing::require;

use crate::lab::{ADDRESS, Carrier, Lab, lab};
use crate::transfers::{assert_downloads, assert_returns, echo_bodies};

/// The path of a capture, which decides what Wireshark may say about it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Judge {
    /// Nothing is lost.
    Good,
    /// Packets are lost, repeated or reordered.
    Bad,
    /// Packets are damaged, too, so that those that arrive may hold anything.
    Damaged,
}

#[test]
fn wireshark_does_not_object() {
    require!("tshark", "ab");
    for carrier in Carrier::ALL {
        let lab = lab!(carrier);
        let capture = lab.path("serve.pcapng").display().to_string();
        let server = lab.serve(&["--pcap", &capture]);
        assert_downloads(&lab, "small");
        assert_downloads(&lab, "large");
        for options in ["-n 100 -c 8", "-n 200 -c 8 -k"] {
            lab.run_at_client(&format!("ab -q {options} http://{ADDRESS}/small"));
        }
        server.end();
        assert_no_objection(&lab, "serve.pcapng", Judge::Good, &format!("{carrier:?}"));
        let capture = lab.path("proxy.pcapng").display().to_string();
        let proxy = lab.proxy(&["--pcap", &capture]);
        echo_bodies(&lab);
        assert_returns(&lab, "large");
        proxy.end();
        assert_no_objection(&lab, "proxy.pcapng", Judge::Good, &format!("{carrier:?}"));
    }
}

/// Asserts that Wireshark has no warnings and errors about a capture of the lab but those that its path explains, and
/// that the stack sent no reset. Its notes, such as those about retransmissions, are no objections.
pub(crate) fn assert_no_objection(lab: &Lab, capture: &str, judge: Judge, name: &str) {
    let path = lab.path(capture).display().to_string();
    let packets = listed(&path, &format!("_ws.expert.severity >= {WARNING}"));
    let mut objections = Vec::new();
    for [source, severities, messages, number, port] in &packets {
        for (severity, message) in severities.split('|').zip(messages.split('|')) {
            let severity: u32 = severity.parse().expect("a number");
            if severity >= WARNING && !is_explained(judge, source, message) {
                objections.push(format!("{number}, {source}:{port}: {message}"));
            }
        }
    }
    objections.truncate(20);
    assert!(objections.is_empty(), "{name}, {capture}: {objections:#?}");
    // A late copy that finds no connection is reset without an acknowledgment (RFC 9293, 3.10.7.1).
    let of_none = match judge {
        Judge::Good => "",
        Judge::Bad | Judge::Damaged => " && tcp.flags.ack == 1",
    };
    // A client that ends HTTP/2 over TLS sends two records. The server closes the connection at the first (GOAWAY), so
    // it answers the second by a reset (RFC 9293, 3.6.1).
    let by_tls = "tcp.srcport == 443";
    let resets = format!("tcp.flags.reset == 1 && ip.src == {ADDRESS}{of_none} && !({by_tls})");
    let resets = listed(&path, &resets);
    assert!(resets.is_empty(), "{name}, {capture}: {resets:?}");
}

/// Asserts that both ends announce this length of segments in their SYNs.
pub(crate) fn assert_announced(lab: &Lab, capture: &str, bytes: u16, name: &str) {
    let path = lab.path(capture).display().to_string();
    let listed = |filter: &str| listed(&path, filter).len();
    for by in ["==", "!="] {
        let sender = format!("ip.src {by} {ADDRESS}");
        let announced = format!("{sender} && tcp.flags.syn == 1 && tcp.options.mss_val == {bytes}");
        assert!(listed(&announced) > 0, "{name}, {capture}: {sender}");
    }
    let others = format!("tcp.flags.syn == 1 && tcp.options.mss_val != {bytes}");
    assert_eq!(listed(&others), 0, "{name}, {capture}");
}

/// Whether the path or the client explains an objection.
fn is_explained(judge: Judge, source: &str, message: &str) -> bool {
    let is_one_of = |parts: &[&str]| parts.iter().any(|part| message.starts_with(part));
    // A receiver that is slower than its sender is flow control. Either end probes for a lost tail when the other is
    // late on a machine under load, and reports the copy.
    let by_either = ["TCP window specified", "TCP Zero Window", "D-SACK Sequence"];
    // What a sender repeats after a loss. Resets are looked at apart.
    let by_path = [
        "This frame is a (suspected) out-of-order",
        "New fragment overlaps",
        "Connection reset (RST)",
    ];
    // The client's kernel leaves checksums to a device, or writes 0xffff where 0 is meant. The queue of that device may
    // overflow on its way to a stack that is late.
    let by_client = [
        "Bad checksum",
        "TCP Checksum 0xffff",
        "Previous segment(s) not captured",
    ];
    // Wireshark takes the bytes of a damaged segment for sent, although its length may be damaged, too.
    let by_damage = ["ACKed segment that wasn't captured"];
    let is_clients = source != ADDRESS;
    is_one_of(&by_either)
        || judge == Judge::Damaged && is_one_of(&by_damage)
        || (is_clients || judge != Judge::Good) && is_one_of(&by_path)
        || is_clients && (judge == Judge::Damaged || is_one_of(&by_client))
}

/// The packets that a filter selects: the sender, the severities and messages of Wireshark's remarks, the number, and
/// the port.
fn listed(path: &str, filter: &str) -> Vec<[String; 5]> {
    let mut command = Command::new("tshark");
    command.args(["-n", "-r", path, "-Y", filter, "-T", "fields"]);
    command.args(["-E", "aggregator=|"]);
    // The bytes of bodies are not to be taken for those of some protocol.
    for port in ["80", "443", "8080"] {
        command.args(["-d", &format!("tcp.port=={port},data")]);
    }
    for field in FIELDS {
        command.args(["-e", field]);
    }
    for option in ["tcp.check_checksum:TRUE", "ip.check_checksum:TRUE"] {
        command.args(["-o", option]);
    }
    let output = command.output().expect("it is installed");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    let packet = |line: &str| {
        let mut fields = line.split('\t').map(str::to_owned);
        std::array::from_fn(|_| fields.next().expect("a field"))
    };
    text.lines().map(packet).collect()
}

const FIELDS: [&str; 5] = [
    "ip.src",
    "_ws.expert.severity",
    "_ws.expert.message",
    "frame.number",
    "tcp.srcport",
];

/// Wireshark's number for a warning; errors have higher ones.
const WARNING: u32 = 0x0060_0000;
