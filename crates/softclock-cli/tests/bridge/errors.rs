use std::process::{Command, Output};

use crate::lab::{Lab, Place, lab, xdp_lab};

/// The one line of standard error with the mistake.
pub(crate) fn mistake(output: &Output) -> String {
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(!text.contains("  "), "{text}");
    text
}

fn softclock(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_softclock"));
    command
        .args(arguments)
        .output()
        .expect("the program starts")
}

#[test]
fn mistakes_are_one_line() {
    for (arguments, part) in [
        (
            &["pace", "nolink0", "nolink1", "--class", "rate 1mbit"][..],
            "no interface nolink0",
        ),
        (
            &["pace", "lo", "lo", "--class", "rate 1mbit"],
            "two interfaces",
        ),
        (
            &["pace", "lo", "nolink1", "--class", "rate 1mbit"],
            "no interface nolink1; ip link",
        ),
        (&["pace", "a", "b"], "no class"),
        (&["pace", "a"], "<B>"),
        (
            &["pace", "a", "b", "--class", "rate 1mbit colour blue"],
            "unknown word 'colour'",
        ),
        (&["pace", "a", "b", "--class", "dport 80"], "needs a rate"),
        (
            &["pace", "a", "b", "--class", "rate 1mbit src x"],
            "an address or a prefix",
        ),
        (&["pace", "a", "b", "--link", "fast"], "'fast'"),
        (&["pace", "a", "b", "--overhead", "5000"], "--overhead"),
        (
            &["wan", "a", "b", "--delay", "1ms,2ms,3ms"],
            "'--delay <TIME>': 3 values; write one for both directions, or two",
        ),
        (
            &["wan", "a", "b", "--delay", "40"],
            "'--delay <TIME>': a time needs a unit: 40us, 40ms or 40s",
        ),
        (
            &["wan", "a", "b", "--rate", "50Mbps"],
            "'--rate <RATE>': write 50mbit for bits a second, or 50mbyte for bytes",
        ),
        (
            &["wan", "a", "b", "--delay", "30ms,2ms", "--jitter", "5ms"],
            "--jitter 5ms is more than --delay 2ms",
        ),
        (
            &["wan", "a", "b", "--queue", "x"],
            "'--queue <PACKETS>': write a whole number",
        ),
        (
            &["pace", "a", "b", "--class", "rate 20"],
            "rate '20': a rate needs a unit: 20bit, 20kbit or 20mbit",
        ),
        (&["wan", "a", "b", "--loss", "101%"], "percentage"),
        (
            &["wan", "a", "b", "--rate", "1mbit", "--queue", "0"],
            "lets nothing pass",
        ),
        (&["wan", "nolink0", "lo"], "no interface nolink0"),
    ] {
        let line = mistake(&softclock(arguments));
        assert!(line.contains(part), "{arguments:?}: {line}");
    }
}

#[test]
fn settings_come_from_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pace.toml");
    let file = path.to_str().unwrap();
    std::fs::write(&path, "class = [\"rate 1mbit\", \"rate\"]\n").unwrap();
    let line = mistake(&softclock(&["pace", "a", "b", "--config", file]));
    assert!(
        line.contains("pace.toml:1") && line.contains("'rate' stands without"),
        "{line}"
    );
    std::fs::write(&path, "class = [\"rate 1mbit\"]\n").unwrap();
    let line = mistake(&softclock(&["pace", "nolink0", "b", "--config", file]));
    assert!(line.contains("no interface nolink0"), "{line}");
    std::fs::write(&path, "delay = \"20ms,soon\"\n").unwrap();
    let line = mistake(&softclock(&["wan", "a", "b", "--config", file]));
    assert!(
        line.contains("pace.toml:1") && line.contains("20ms,soon"),
        "{line}"
    );
    std::fs::write(&path, "rate = \"1mbit\"\nqueue = \"0\"\n").unwrap();
    let line = mistake(&softclock(&["wan", "nolink0", "b", "--config", file]));
    assert!(line.contains("lets nothing pass"), "{line}");
    let flag = ["wan", "nolink0", "b", "--config", file, "--queue", "1"];
    let line = mistake(&softclock(&flag));
    assert!(line.contains("no interface nolink0"), "{line}");
}

#[test]
fn options_that_contradict_each_other_are_mistakes_in_arguments() {
    for arguments in [
        &["wan", "a", "b", "--jitter", "5ms"][..],
        &["wan", "a", "b", "--rate", "1mbit", "--queue", "0"],
        &["wan", "a", "b", "--queue", "20"],
        &["wan", "a", "b", "--reorder", "25%"],
        &["wan", "a", "b", "--delay", "20ms,0", "--reorder", "0,25%"],
        &["pace", "a", "b"],
        &[
            "pace",
            "a",
            "b",
            "--class",
            "default rate 1mbit",
            "--class-ab",
            "default rate 2mbit",
        ],
        &[
            "pace",
            "a",
            "b",
            "--class",
            "rate 10mbit",
            "--class",
            "rate 5mbit dport 443",
        ],
        &[
            "pace",
            "a",
            "b",
            "--class",
            "default rate 5mbit",
            "--class",
            "rate 10mbit",
        ],
    ] {
        let output = softclock(arguments);
        let line = mistake(&output);
        assert_eq!(output.status.code(), Some(2), "{line}");
    }
}

#[test]
fn options_that_only_seem_to_contradict_each_other_are_accepted() {
    for arguments in [
        &[
            "wan",
            "nolink0",
            "b",
            "--delay",
            "20ms,0",
            "--reorder",
            "25%,0",
        ][..],
        &[
            "pace",
            "nolink0",
            "b",
            "--class",
            "rate 5mbit dport 443",
            "--class",
            "rate 10mbit",
        ],
        &[
            "pace",
            "nolink0",
            "b",
            "--class-ab",
            "rate 5mbit",
            "--class",
            "default rate 10mbit",
        ],
    ] {
        let output = softclock(arguments);
        let line = mistake(&output);
        assert!(
            output.status.code() == Some(1) && line.contains("no interface nolink0"),
            "{line}"
        );
    }
}

/// A refused start changes no link.
#[test]
fn links_that_cannot_be_bridged() {
    softclock_testing::require!("setpriv");
    let lab = lab!();
    let before = lab.links();
    let line = mistake(&lab.softclock(&["pace", "lo", "veB", "--class", "rate 1mbit"]));
    assert!(line.contains("lo has no Ethernet frames"), "{line}");
    let unprivileged = |kept: &str| {
        let mut command = lab.command(Place::Middle, "setpriv");
        command.arg(format!("--bounding-set=-all{kept}"));
        command.arg(env!("CARGO_BIN_EXE_softclock"));
        command.args(["pace", "veA", "veB", "--class", "rate 1mbit"]);
        mistake(&command.output().expect("ip is installed"))
    };
    let line = unprivileged("");
    assert!(
        line.contains("veA") && line.contains("CAP_NET_RAW"),
        "{line}"
    );
    let line = unprivileged(",+net_raw");
    assert!(line.contains("veA") && line.contains("CAP_BPF"), "{line}");
    lab.await_links(&before);
}

/// A refused start changes no link.
#[test]
fn links_that_cannot_do_xdp() {
    let lab = xdp_lab!();
    lab.configure(Place::Middle, "link add name bri type bridge");
    lab.configure(Place::West, "link set west mtu 9000");
    lab.configure(
        Place::Middle,
        "link add name veC numrxqueues 2 type veth peer name veD numrxqueues 2 numtxqueues 2",
    );
    let before = lab.links();
    for (a, b, part) in [
        ("lo", "veB", "lo has no Ethernet frames"),
        ("veB", "bri", "the driver of bri has no XDP"),
        ("veB", "veA", "the MTU of veA or of its other end"),
        ("veB", "veC", "veC has 2 queues; ethtool -L veC"),
    ] {
        let arguments = ["pace", a, b, "--class", "rate 1mbit", "--mechanism", "xdp"];
        let line = mistake(&lab.softclock(&arguments));
        assert!(line.contains("no AF_XDP") && line.contains(part), "{line}");
    }
    lab.await_links(&before);
}

#[test]
fn a_link_that_goes_away_ends_it() {
    goes_away(&lab!(), "packet");
}

#[test]
fn a_link_that_goes_away_ends_it_by_xdp() {
    goes_away(&xdp_lab!(), "xdp");
}

fn goes_away(lab: &Lab, mechanism: &str) {
    let arguments = ["--class", "rate 1mbit", "--mechanism", mechanism];
    let bridge = lab.bridge("pace", &arguments);
    lab.configure(Place::Middle, "link delete veA");
    let line = bridge.fail();
    assert!(line.contains("veA is gone"), "{line}");
}
