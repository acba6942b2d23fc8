//! `dig` asks the example `dns`.

use std::time::Duration;

use softclock_testing::{KilledOnDrop, require};

use crate::lab::{ADDRESSES, Carrier, Lab, PATIENCE, lab};

#[test]
fn dig_is_answered_over_a_tap_device() {
    require!("dig");
    assert_answers(&lab!(Carrier::Tap));
}

#[test]
fn dig_is_answered_by_af_packet() {
    require!("dig");
    assert_answers(&lab!(Carrier::Packet));
}

#[test]
fn dig_is_answered_by_af_xdp() {
    require!("dig");
    assert_answers(&lab!(Carrier::Xdp));
}

#[test]
fn dig_is_answered_by_ni_lrp() {
    require!("dig");
    assert_answers(&lab!(Carrier::NiLrp));
}

fn assert_answers(lab: &Lab) {
    let _server = serve(lab);
    for server in ADDRESSES {
        assert_names(lab, server);
        assert_options(lab, server);
        assert_malformed(lab, server);
        // And it goes on.
        assert_names(lab, server);
    }
}

/// Starts the example with two names, one of which has more addresses than fit into a message without EDNS.
fn serve(lab: &Lab) -> KilledOnDrop {
    let mut arguments: Vec<String> = ["--listen", "10.78.0.7:53", "--listen", "[fd78::7]:53"]
        .map(str::to_owned)
        .to_vec();
    arguments.extend(["www.example=192.0.2.1", "www.example=2001:db8::1"].map(str::to_owned));
    arguments.extend((1..=MANY).map(|last| format!("many.example=192.0.2.{last}")));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    lab.start("dns", &arguments, 2)
}

/// The output of dig for these arguments.
fn dig(lab: &Lab, server: &str, words: &str) -> String {
    let mut command = lab.client().command("dig");
    command.args(["-r", &format!("@{server}"), "+tries=3", "+timeout=5"]);
    let output = command.args(words.split(' ')).output();
    let output = output.expect("nsenter is installed");
    assert!(output.status.success(), "{words}: {output:?}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn assert_names(lab: &Lab, server: &str) {
    let short = |words: &str| dig(lab, server, &format!("+short {words}"));
    assert_eq!(short("www.example A"), "192.0.2.1\n");
    assert_eq!(short("www.example AAAA"), "2001:db8::1\n");
    assert_eq!(short("+noedns WWW.Example. A"), "192.0.2.1\n");
    for (question, status, answers) in [
        ("www.example A", "NOERROR", 1),
        // A name without records of this type exists.
        ("www.example MX", "NOERROR", 0),
        ("no.example A", "NXDOMAIN", 0),
        ("example A", "NXDOMAIN", 0),
        (". A", "NXDOMAIN", 0),
    ] {
        let text = dig(lab, server, question);
        assert!(text.contains(&format!("status: {status},")), "{text}");
        assert!(text.contains(&format!("ANSWER: {answers},")), "{text}");
        assert!(text.contains(";; flags: qr aa rd;"), "{text}");
    }
    let refused = dig(lab, server, "CH TXT version.bind");
    assert!(refused.contains("status: REFUSED,"), "{refused}");
    let other = dig(lab, server, "+opcode=STATUS www.example");
    assert!(other.contains("status: NOTIMP,"), "{other}");
}

/// Options of EDNS are tolerated, a later version is not, and messages are as long as the client allows.
fn assert_options(lab: &Lab, server: &str) {
    let with = |words: &str| dig(lab, server, &format!("{words} www.example A"));
    for words in [
        "+nsid +cookie +subnet=198.51.100.0/24 +bufsize=4096",
        "+ednsopt=65001:cafe +dnssec +padding=128",
    ] {
        let text = with(words);
        assert!(text.contains("EDNS: version: 0,"), "{text}");
        assert!(text.contains("192.0.2.1"), "{text}");
    }
    let later = with("+edns=1 +noednsnegotiation");
    assert!(later.contains("status: BADVERS,"), "{later}");
    let many = |words: &str| dig(lab, server, &format!("{words} +ignore many.example A"));
    let whole = many("+bufsize=1232");
    assert!(whole.contains(&format!("ANSWER: {MANY},")), "{whole}");
    for words in ["+noedns", "+bufsize=512"] {
        let cut = many(words);
        assert!(cut.contains(";; flags: qr aa tc rd;"), "{cut}");
    }
}

/// Malformed questions are answered with FORMERR, and what is no question is not answered.
fn assert_malformed(lab: &Lab, server: &str) {
    let good = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x03www\x07example\0\0\x01\0\x01";
    let with = |changes: &[(usize, u8)], more: &[u8]| {
        let mut message = good.to_vec();
        changes
            .iter()
            .for_each(|&(place, value)| message[place] = value);
        [&message, more].concat()
    };
    // A record of EDNS; its first bytes are the name of the root, the type, and the longest message.
    let edns = b"\0\0\x29\x04\xd0\0\0\0\0\0\0";
    let socket = lab.socket(server, 53);
    let mut buffer = [0; 2000];
    for (name, message) in [
        ("only a header", good[..12].to_vec()),
        ("cut off in the name", good[..18].to_vec()),
        ("cut off in the type", good[..26].to_vec()),
        ("bytes behind the question", with(&[], b"?")),
        ("no question", with(&[(5, 0)], &[])),
        ("two questions", with(&[(5, 2)], &good[12..])),
        ("an answer in the question", with(&[(7, 1)], edns)),
        ("a label of 64 letters", with(&[(12, 64)], &[b'a'; 80])),
        ("a pointer to itself", with(&[(12, 0xc0), (13, 12)], &[])),
        (
            "a name that is too long",
            [&good[..12], &b"\x01a".repeat(128), &good[24..]].concat(),
        ),
        ("no record of those announced", with(&[(11, 1)], &[])),
        ("a record cut off", with(&[(11, 1)], &edns[..10])),
        (
            "two records of EDNS",
            with(&[(11, 2)], &[&edns[..], edns].concat()),
        ),
        (
            "EDNS below a name",
            with(&[(11, 1)], &[b"\x01a", &edns[..]].concat()),
        ),
        (
            "an option cut off",
            with(&[(11, 1)], &[&edns[..10], b"\x04\0\x03\0\x08"].concat()),
        ),
    ] {
        socket.send(&message).expect("a datagram leaves");
        let length = socket.recv(&mut buffer);
        let length = length.unwrap_or_else(|error| panic!("{name}: {error}"));
        // The same number, a response, and the code.
        let expected = [0x12, 0x34, 0x81, 1];
        assert_eq!(buffer[..length.min(4)], expected, "{name}");
    }
    socket
        .set_read_timeout(Some(Duration::from_millis(100)))
        .expect("a socket");
    for message in [b"".to_vec(), good[..11].to_vec(), with(&[(2, 0x81)], &[])] {
        socket.send(&message).expect("a datagram leaves");
        socket.recv(&mut buffer).expect_err("no answer");
    }
    socket.set_read_timeout(Some(PATIENCE)).expect("a socket");
    socket.send(good).expect("a datagram leaves");
    assert_eq!(
        socket.recv(&mut buffer).expect("an answer"),
        good.len() + 16
    );
}

const MANY: usize = 40;
