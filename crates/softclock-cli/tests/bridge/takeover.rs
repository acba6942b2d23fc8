//! Bridges take links from the host, and conflict with other bridges.

use std::time::{Duration, Instant};

use crate::errors::mistake;
use crate::lab::{Lab, Place, lab};
use crate::ping::ping;
use crate::terminal::Terminal;

const PACE: [&str; 5] = ["pace", "veA", "veB", "--class", "rate 100mbit"];

/// A lab whose middle has an address, and a route by `veA`.
fn with_address(lab: &Lab) {
    lab.configure(Place::Middle, "addr add 10.79.0.1/24 dev veA");
    lab.configure(Place::Middle, "addr add fd79::1/64 dev veA nodad");
    lab.configure(Place::Middle, "route add default via 10.79.0.2");
    lab.configure(Place::West, "addr add 10.79.0.2/24 dev west");
}

#[test]
fn addresses_and_routes_are_not_cut_off_unasked() {
    let lab = lab!();
    with_address(&lab);
    let line = mistake(&lab.softclock(&PACE));
    for part in [
        "10.79.0.1/24",
        "fd79::1/64",
        "default via 10.79.0.2",
        "fd79::/64",
        "give --yes",
    ] {
        assert!(line.contains(part), "{part} is not in {line}");
    }
    assert!(!line.contains("fe80"), "{line}");
    assert_eq!(ping(&lab, "10.79.0.1", 2).numbers.len(), 2);
    let bridge = lab.bridge("pace", &["--class", "rate 100mbit", "--yes"]);
    assert_eq!(ping(&lab, "10.79.0.1", 2).numbers.len(), 0);
    bridge.end();
}

/// The addresses of a Linux bridge above an interface depend on that interface.
#[test]
fn addresses_of_a_bridge_above_are_named() {
    let lab = lab!();
    lab.configure(Place::Middle, "link add name bri type bridge");
    lab.configure(Place::Middle, "link set veB master bri");
    lab.configure(Place::Middle, "addr add 10.79.0.1/24 dev bri");
    let line = mistake(&lab.softclock(&PACE));
    assert!(line.contains("bri has the address 10.79.0.1/24"), "{line}");
}

#[test]
fn addresses_with_a_label_are_named() {
    let lab = lab!();
    lab.configure(Place::Middle, "addr add 10.79.0.1/32 dev veB label veB:1");
    let line = mistake(&lab.softclock(&PACE));
    assert!(line.contains("10.79.0.1/32"), "{line}");
}

/// The kernel's tables have the name of the interface, whichever name the user gives.
#[test]
fn routes_of_an_alternative_name_are_found() {
    let lab = lab!();
    lab.configure(Place::Middle, "link property add dev veA altname vealt");
    lab.configure(Place::Middle, "route add default dev veA");
    let class = ["--class", "rate 100mbit"];
    // Without the mistake it would not end by itself.
    let arguments = [
        &["pace", "vealt", "veB"],
        &class[..],
        &["--duration", "0.1"],
    ]
    .concat();
    let line = mistake(&lab.softclock(&arguments));
    assert!(line.contains("veA has the route default"), "{line}");
}

#[test]
fn a_terminal_is_asked() {
    softclock_testing::require!("script");
    let lab = lab!();
    with_address(&lab);
    let arguments = "pace veA veB --class 'rate 100mbit'";
    let ask = || {
        let mut terminal = Terminal::start(lab.command(Place::Middle, "script"), arguments, &[]);
        let question = terminal.wait_for("[y/N] ");
        assert!(question.contains("10.79.0.1/24"), "{question}");
        terminal
    };
    let mut terminal = ask();
    terminal.press(b"\n");
    let (text, status) = terminal.end();
    assert!(text.contains("not started") && !status.success(), "{text}");
    let mut terminal = ask();
    terminal.press(b"y\n");
    terminal.wait_for("Ctrl-C ends it");
    terminal.press(b"\x03");
    let (text, status) = terminal.end();
    assert!(status.success(), "{text}");
}

#[test]
fn an_interface_has_one_bridge() {
    let lab = lab!();
    lab.configure(Place::Middle, "link add name veC type veth peer name veD");
    let bridge = lab.bridge("pace", &["--class", "rate 100mbit"]);
    let process = bridge.pid().as_raw_nonzero().get();
    for arguments in [&PACE[..], &["wan", "veC", "veB"]] {
        let line = mistake(&lab.softclock(arguments));
        let other = format!("process {process} (");
        assert!(
            line.contains("already in use")
                && line.contains(&other)
                && line.contains("pace veA veB"),
            "{line}"
        );
    }
    assert_eq!(ping(&lab, "10.77.0.2", 2).numbers.len(), 2);
    bridge.kill();
    let killed = Instant::now();
    // The kernel closes the sockets of a dead process some time after its end.
    while !lab
        .softclock(&[&PACE[..], &["--duration", "10ms"]].concat())
        .status
        .success()
    {
        let late = killed.elapsed() > Duration::from_secs(20);
        assert!(!late, "nobody else may have the interface");
    }
}

/// The time before the first frame and after the last does not count.
#[test]
fn rates_are_of_the_time_of_activity() {
    let lab = lab!();
    let bridge = lab.bridge("pace", &["--class-ab", "rate 8mbit proto icmp"]);
    ping(&lab, "10.77.0.2", 20);
    std::thread::sleep(Duration::from_millis(500));
    let report = bridge.end();
    let class = &report["directions"][0]["classes"][0];
    let number = |name: &str| class[name].as_f64().expect("a number");
    let whole = report["seconds"].as_f64().expect("a number");
    let active = number("active_seconds");
    assert!(
        active > 0.0 && active < whole - 0.4,
        "{active} s of {whole} s"
    );
    let mean = number("bytes") * 8.0 / active;
    let rate = number("bits_per_second");
    assert!(rate < mean && rate > mean * 0.5, "{rate} and {mean}");
    assert!(number("most_queued_packets") >= 1.0 && number("queued_packets") == 0.0);
    assert!(report["seed"].is_null(), "{report}");
}

#[test]
fn the_report_has_the_settings_and_a_seed_that_matters() {
    let lab = lab!();
    let options = ["--delay", "20ms,0", "--loss", "1%,0", "--rate", "8mbit"];
    let report = lab.bridge("wan", &options).end();
    assert!(report["seed"].is_u64(), "{report}");
    let settings = [0, 1].map(|way| &report["directions"][way]["settings"]);
    for (name, there) in [("delay", "20ms"), ("loss", "1%"), ("rate", "8mbit")] {
        assert_eq!(settings[0][name][0], there, "{report}");
    }
    assert!(settings[1]["loss"].is_null(), "{report}");
    let report = lab.bridge("wan", &["--delay", "1ms"]).end();
    assert!(
        report["seed"].is_null(),
        "nothing is left to chance: {report}"
    );
}

/// At the start on standard error, at the end with the summary.
#[test]
fn settings_are_shown_at_the_start_and_at_the_end() {
    let lab = lab!();
    let line = "veA -> veB: class rate 2mbit dport 80";
    let output = lab.softclock(&[
        "pace",
        "veA",
        "veB",
        "--class-ab",
        "rate 2mbit dport 80",
        "--duration",
        "50ms",
    ]);
    for text in [&output.stderr, &output.stdout] {
        let text = String::from_utf8_lossy(text);
        assert!(text.contains(line) && !text.contains("seed"), "{text}");
    }
}
