use std::io::Read;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::lab::{Bridge, Lab, Place, lab, xdp_lab};
use crate::ping::{ping, ping_at};
use crate::terminal::Terminal;

#[test]
fn all_kinds_of_traffic_pass() {
    all_pass(&lab!(), "packet");
}

#[test]
fn all_kinds_of_traffic_pass_by_xdp() {
    all_pass(&xdp_lab!(), "xdp");
}

/// Checks ARP, ICMP, ICMPv6, UDP, and TCP with all offloads of its sender and receiver.
fn all_pass(lab: &Lab, mechanism: &str) {
    let arguments = ["--class", "rate 400mbit", "--mechanism", mechanism];
    let bridge = lab.bridge("pace", &arguments);
    assert_eq!(ping(lab, "10.77.0.2", 5).numbers.len(), 5);
    assert_eq!(ping(lab, "fd77::2", 5).numbers.len(), 5);
    for arguments in ["-c 10.77.0.2", "-c fd77::2", "-c 10.77.0.2 -R"] {
        let rate = lab.iperf(5201, arguments);
        assert!(rate > 1.0 && rate < 440.0, "{arguments}: {rate} Mbit/s");
    }
    for arguments in ["-c 10.77.0.2 -u -b 5M", "-c fd77::2 -u -b 5M"] {
        let rate = lab.iperf(5201, arguments);
        assert!(rate > 2.0 && rate < 6.0, "{arguments}: {rate} Mbit/s");
    }
    let report = bridge.end();
    assert_eq!(report["directions"][0]["mechanism"], mechanism);
    for direction in 0..2 {
        let class = &report["directions"][direction]["classes"][0];
        assert!(class["packets"].as_u64() > Some(100), "{report}");
    }
}

/// Frames from a bursty sender leave evenly: few follow each other closely.
#[test]
fn frames_leave_apart() {
    softclock_testing::require!("tcpdump");
    leave_apart(&lab!(), "packet");
}

#[test]
fn frames_leave_apart_by_xdp() {
    softclock_testing::require!("tcpdump");
    leave_apart(&xdp_lab!(), "xdp");
}

fn leave_apart(lab: &Lab, mechanism: &str) {
    let arguments = ["--class-ab", "rate 10mbit", "--mechanism", mechanism];
    let bridge = lab.bridge("pace", &arguments);
    let mut capture = lab.command(Place::East, "tcpdump");
    capture.args("-n -tt --nano -Q in -i east -c 1500 tcp and greater 1000".split(' '));
    let capture = capture.stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let mut capture = capture.expect("ip is installed");
    // The rate does not matter: the capture needs only some hundred frames.
    let rate = lab.iperf(5201, "-c 10.77.0.2");
    kill_process(Pid::from_child(&capture), Signal::TERM).expect("our own child");
    let mut text = String::new();
    let output = capture.stdout.as_mut().expect("piped");
    output.read_to_string(&mut text).expect("text");
    capture.wait().expect("our own child");
    bridge.end();
    let times = text
        .lines()
        .filter_map(|line| line.split(' ').next()?.parse().ok());
    let times: Vec<f64> = times.collect();
    assert!(times.len() > 200, "{} frames at {rate} Mbit/s", times.len());
    let target = 1514.0 * 8.0 / 10e6;
    let gaps = times.windows(2).map(|pair| pair[1] - pair[0]);
    let close = gaps.filter(|gap| *gap < target / 10.0).count();
    assert!(
        close < times.len() / 10,
        "{close} of {} close together",
        times.len()
    );
}

/// Offloaded packets pass whole, and classes share transmissions.
#[test]
fn bursts_and_batches_pass() {
    let lab = lab!();
    let class = "rate 100mbit burst 256kb";
    let bridge = lab.bridge(
        "pace",
        &["--class", class, "--tolerance", "1ms", "--overhead", "24"],
    );
    assert_eq!(ping(&lab, "10.77.0.2", 5).numbers.len(), 5);
    for arguments in ["-c 10.77.0.2", "-c fd77::2"] {
        let rate = lab.iperf(5201, arguments);
        assert!(rate > 1.0 && rate < 110.0, "{arguments}: {rate} Mbit/s");
    }
    bridge.end();
}

#[test]
fn classes_keep_apart() {
    let lab = lab!();
    let classes = [
        "--class-ab",
        "name slow rate 4mbit limit 50 dport 5201",
        "--class-ab",
        "name fast rate 40mbit limit 50 dport 5202",
    ];
    let bridge = lab.bridge("pace", &classes);
    let slow = lab.iperf(5201, "-c 10.77.0.2 -u -b 20M");
    let fast = lab.iperf(5202, "-c 10.77.0.2 -u -b 20M");
    let tcp = lab.iperf(5201, "-c 10.77.0.2");
    // 4, 4 and 20, where nothing else slows them down.
    assert!(fast < 25.0, "{fast} Mbit/s");
    for slow in [slow, tcp] {
        assert!(slow < 5.0, "{slow} Mbit/s");
        assert!(
            fast > 1.5 * slow && slow > fast / 20.0,
            "{slow} and {fast} Mbit/s"
        );
    }
    let report = bridge.end();
    let there = &report["directions"][0]["classes"];
    assert_eq!(
        (&there[0]["name"], &there[1]["name"]),
        (&"slow".into(), &"fast".into())
    );
    let dropped = &there[0]["events"]["dropped for too many packets"];
    assert!(dropped.as_u64() > Some(10), "{report}");
    let back = report["directions"][1]["classes"].as_array();
    assert_eq!(
        back.map(Vec::len),
        Some(1),
        "nothing is paced there: {report}"
    );
}

/// The start prints one line about it, and the summary shows the rate that a class lost to lateness.
#[test]
fn classes_that_are_promised_too_much_are_told() {
    let lab = lab!();
    let classes = [
        "--class-ab",
        "rate 60mbit dport 1",
        "--class-ab",
        "default rate 60mbit",
    ];
    let run = |more: &[&str]| {
        let words = ["pace", "veA", "veB", "--duration", "0.2"];
        let output = lab.softclock(&[&words[..], &classes, more].concat());
        assert!(output.status.success());
        let [text, errors] =
            [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        (text, errors)
    };
    let (text, errors) = run(&["--link", "100mbit"]);
    let told = errors
        .lines()
        .find(|line| line.contains("promised"))
        .expect(&errors);
    assert!(
        told.contains("from A to B are promised 120mbit, the link has 100mbit"),
        "{told}"
    );
    assert!(text.contains("60mbit, at least 83.333 %"), "{text}");
    let (text, errors) = run(&["--link", "120mbit", "--json"]);
    assert!(!errors.contains("promised"), "{errors}");
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    let events = &report["directions"][0]["classes"][0]["events"];
    assert_eq!(events["bytes of its rate lost to lateness"], 0, "{report}");
}

/// Each direction has its own classes before those of both.
#[test]
fn directions_have_classes_of_their_own() {
    let lab = lab!();
    let classes = [
        "--class-ab",
        "name there rate 40mbit proto udp",
        "--class-ba",
        "name back rate 4mbit proto udp",
        "--class",
        "default name rest rate 100mbit",
    ];
    let bridge = lab.bridge("pace", &classes);
    let there = lab.iperf(5201, "-c 10.77.0.2 -u -b 20M");
    let back = lab.iperf(5201, "-c 10.77.0.2 -u -b 20M -R");
    let report = bridge.end();
    // 20 and 4, where nothing else slows them down.
    assert!(there < 25.0 && back < 5.0, "{there} and {back} Mbit/s");
    assert!(
        there > 1.5 * back && back > there / 20.0,
        "{there} and {back} Mbit/s"
    );
    for (direction, name) in [(0, "there"), (1, "back")] {
        let classes = report["directions"][direction]["classes"].as_array();
        let classes = classes.expect("classes");
        let names: Vec<_> = classes.iter().map(|class| &class["name"]).collect();
        assert_eq!(names, [name, "rest"]);
        let packets = |class: usize| classes[class]["packets"].as_u64();
        assert!(packets(0) > Some(100) && packets(1) > Some(0), "{report}");
    }
}

/// The picture is drawn while the bridge runs, and the summary stays when the key ends it.
#[test]
fn a_terminal_shows_what_happens() {
    softclock_testing::require!("script");
    let lab = lab!();
    let script = lab.command(Place::Middle, "script");
    let arguments = "pace veA veB --class 'name all rate 100mbit' --duration 60";
    let mut terminal = Terminal::start(script, arguments, &[]);
    let begun = terminal.wait_for("Ctrl-C ends it");
    assert_eq!(ping(&lab, "10.77.0.2", 5).numbers.len(), 5);
    // Redraws over the previous picture: a title and a class for each of two directions.
    let drawn = begun + &terminal.wait_for("A\rveA -> veB");
    assert!(drawn.contains("\x1b[?25l"), "{drawn:?}");
    assert!(drawn.contains("all 100mbit"), "{drawn:?}");
    terminal.press(b"\x03");
    let (rest, status) = terminal.end();
    assert!(status.success(), "{rest:?}");
    let (_, summary) = rest.rsplit_once("\x1b[?25h").expect("a cursor again");
    for title in ["veA -> veB", "veB -> veA"] {
        let (_, classes) = summary.split_once(title).expect("both directions");
        let (_, all) = classes.split_once("all 100mbit").expect("its class");
        let packets = all.split_whitespace().next().map(str::parse::<u32>);
        assert!(matches!(packets, Some(Ok(5..))), "{title}: {summary:?}");
    }
}

/// A failing standard error costs the messages, not the link.
#[test]
fn messages_that_cannot_be_written_are_ignored() {
    let lab = lab!();
    let full = std::fs::File::create("/dev/full").expect("a device");
    let output = lab
        .command(Place::Middle, env!("CARGO_BIN_EXE_softclock"))
        .args([
            "pace",
            "veA",
            "veB",
            "--duration",
            "0.2",
            "--json",
            "--link",
            "1mbit",
        ])
        .args(["--class", "rate 2mbit"])
        .stderr(full)
        .output()
        .expect("nsenter is installed");
    assert!(output.status.success(), "{}", output.status);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["directions"][0]["from"], "veA");
}

#[test]
fn a_summary_that_cannot_be_written_is_an_error() {
    let lab = lab!();
    let run = |output: Stdio| {
        let mut command = lab.command(Place::Middle, env!("CARGO_BIN_EXE_softclock"));
        command.args([
            "pace",
            "veA",
            "veB",
            "--duration",
            "0.1",
            "--quiet",
            "--class",
            "rate 1mbit",
        ]);
        let done = command.stdout(output).output();
        done.expect("nsenter is installed")
    };
    let full = std::fs::File::create("/dev/full").expect("a device");
    let output = run(full.into());
    let line = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{line}");
    assert!(line.contains("cannot write to standard output"), "{line}");
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    assert_eq!(run(writer.into()).status.code(), Some(0));
}

/// Lines that the terminal wraps or scrolls away could not be drawn over.
#[test]
fn a_picture_fits_the_terminal() {
    softclock_testing::require!("script", "sh", "stty");
    let lab = lab!();
    let drawn = |terminal: &str, classes: usize| {
        let classes: String = (1..=classes)
            .map(|port| format!(" --class 'rate 100mbit dport {port}'"))
            .collect();
        let command = format!(
            "stty cols 80 rows 24; TERM={terminal} exec {} pace veA veB --link 10mbit{classes} --duration 2.5",
            env!("CARGO_BIN_EXE_softclock")
        );
        let output = lab
            .command(Place::Middle, "script")
            .args(["--quiet", "--return", "--command", &command, "/dev/null"])
            .output()
            .expect("nsenter is installed");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{text}");
        text
    };
    for classes in [1, 40] {
        let text = drawn("xterm", classes);
        let (_, pictures) = text.split_once("\x1b[?25l").expect("pictures");
        let (pictures, _) = pictures.split_once("\x1b[?25h").expect("an end");
        for line in pictures.split(['\r', '\n']) {
            let line = line.trim_end_matches("\x1b[K");
            assert!(line.chars().count() <= 80, "{line:?}");
        }
        let moves = pictures
            .split("\x1b[")
            .filter_map(|part| part.split_once('A'));
        let moves: Vec<usize> = moves.filter_map(|(rows, _)| rows.parse().ok()).collect();
        assert!(
            !moves.is_empty() && moves.iter().all(|&rows| rows < 24),
            "{moves:?}"
        );
    }
    assert!(!drawn("dumb", 1).contains('\x1b'));
}

/// Ctrl-S stops the terminal. The bridge carries on, and a signal ends it.
#[test]
fn a_stopped_terminal_does_not_stop_the_bridge() {
    softclock_testing::require!("script");
    let lab = lab!();
    let script = lab.command(Place::Middle, "script");
    let arguments = "pace veA veB --class 'rate 100mbit' --duration 300";
    let mut terminal = Terminal::start(script, arguments, &[]);
    terminal.wait_for("A\rveA -> veB");
    terminal.press(b"\x13");
    // The next pictures find a terminal that takes none.
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(ping(&lab, "10.77.0.2", 5).numbers.len(), 5);
    let program = Pid::from_raw(terminal.program().cast_signed()).expect("a process");
    kill_process(program, Signal::TERM).expect("our own child");
    let killed = Instant::now();
    while !terminal.has_ended() {
        assert!(
            killed.elapsed() < Duration::from_secs(60),
            "it does not end"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The kernel undoes everything when the process ends, however it ends.
#[test]
fn a_killed_bridge_leaves_links_as_they_were() {
    links_are_as_before(&lab!(), "packet", |bridge| {
        bridge.kill();
    });
}

#[test]
fn a_killed_bridge_leaves_links_as_they_were_by_xdp() {
    softclock_testing::require!("ethtool");
    links_are_as_before(&xdp_lab!(), "xdp", |bridge| {
        bridge.kill();
    });
}

#[test]
fn an_interrupted_bridge_leaves_links_as_they_were() {
    links_are_as_before(&lab!(), "packet", |bridge| {
        bridge.interrupt();
    });
}

#[test]
fn an_interrupted_bridge_leaves_links_as_they_were_by_xdp() {
    softclock_testing::require!("ethtool");
    links_are_as_before(&xdp_lab!(), "xdp", |bridge| {
        bridge.interrupt();
    });
}

fn links_are_as_before(lab: &Lab, mechanism: &str, end: fn(Bridge)) {
    lab.configure(Place::Middle, "addr add 10.79.0.1/24 dev veA");
    lab.configure(Place::West, "addr add 10.79.0.2/24 dev west");
    let state = || {
        let told = |place, words: &str| {
            String::from_utf8_lossy(&lab.run(place, words).stdout).into_owned()
        };
        let features = match mechanism {
            "xdp" => told(Place::West, "ethtool -k west") + &told(Place::Middle, "ethtool -k veA"),
            _ => String::new(),
        };
        told(Place::Middle, "ip -details address show") + &features
    };
    assert_eq!(
        ping(lab, "10.79.0.1", 3).numbers.len(),
        3,
        "the host answers"
    );
    // The duplicate address detection of IPv6 takes some seconds, and would change the state later.
    let begun = Instant::now();
    let before = loop {
        std::thread::sleep(Duration::from_millis(500));
        let state = state();
        if !state.contains("tentative") && begun.elapsed() > Duration::from_secs(2) {
            break state;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{state}");
    };
    assert!(
        before.contains("promiscuity 0") && !before.contains("promiscuity 1"),
        "{before}"
    );
    let class = ["--class", "rate 100mbit", "--yes"];
    let bridge = lab.bridge("pace", &[&class[..], &["--mechanism", mechanism]].concat());
    assert_eq!(
        ping(lab, "10.79.0.1", 3).numbers.len(),
        0,
        "the host is deaf"
    );
    assert_eq!(ping(lab, "10.77.0.2", 3).numbers.len(), 3);
    end(bridge);
    let ended = Instant::now();
    // The kernel closes the sockets of a dead process some time after its end.
    while ping_at(lab, Place::West, "10.79.0.1", 1).numbers.is_empty() {
        assert!(
            ended.elapsed() < Duration::from_secs(20),
            "the host stays deaf"
        );
    }
    assert_eq!(
        ping(lab, "10.77.0.2", 1).numbers.len(),
        0,
        "nobody carries frames"
    );
    while state() != before {
        assert!(
            ended.elapsed() < Duration::from_secs(20),
            "{} is not {before}",
            state()
        );
    }
}

#[test]
fn a_link_that_goes_down_and_up_is_carried_on() {
    down_and_up(&lab!(), "packet");
}

#[test]
fn a_link_that_goes_down_and_up_is_carried_on_by_xdp() {
    down_and_up(&xdp_lab!(), "xdp");
}

/// Frames that the link refuses are a loss of the direction that sends them.
#[test]
fn frames_that_are_not_sent_are_counted_in_their_direction() {
    let lab = lab!();
    // Nothing answers a search for the neighbour.
    let neighbour = "neigh replace 10.77.0.2 lladdr 02:00:00:00:00:02 dev west nud permanent";
    lab.configure(Place::West, neighbour);
    let bridge = lab.bridge(
        "pace",
        &["--class", "rate 100mbit", "--mechanism", "packet"],
    );
    lab.configure(Place::Middle, "link set veB down");
    assert_eq!(ping(&lab, "10.77.0.2", 5).numbers.len(), 0);
    let report = bridge.end();
    let there = &report["directions"][0];
    assert!(
        there["not_sent"]["link down"].as_u64() >= Some(5),
        "{report}"
    );
    let back = &report["directions"][1];
    assert_eq!(back["not_sent"], serde_json::json!({}), "{report}");
    assert!(
        back["port_drops"]["link down"].as_u64() >= Some(5),
        "{report}"
    );
}

fn down_and_up(lab: &Lab, mechanism: &str) {
    let arguments = ["--class", "rate 100mbit", "--mechanism", mechanism];
    let bridge = lab.bridge("pace", &arguments);
    assert_eq!(ping(lab, "10.77.0.2", 2).numbers.len(), 2);
    lab.configure(Place::Middle, "link set veB down");
    assert_eq!(ping(lab, "10.77.0.2", 2).numbers.len(), 0);
    lab.configure(Place::Middle, "link set veB up");
    let up = Instant::now();
    while ping(lab, "10.77.0.2", 1).numbers.is_empty() {
        assert!(up.elapsed() < Duration::from_secs(20), "no frames any more");
    }
    bridge.end();
}

/// Frames of several kilobytes pass, not only as segments joined by offloads.
#[test]
fn jumbo_frames_pass() {
    let lab = lab!();
    jumbo(&lab, "packet", 9000);
}

/// Frames that fit into a page beside the room that the kernel reserves in it.
#[test]
fn jumbo_frames_pass_by_xdp() {
    let lab = xdp_lab!();
    jumbo(&lab, "xdp", 3000);
}

fn jumbo(lab: &Lab, mechanism: &str, mtu: usize) {
    let links = [
        (Place::West, "west"),
        (Place::Middle, "veA"),
        (Place::Middle, "veB"),
        (Place::East, "east"),
    ];
    for (place, link) in links {
        lab.configure(place, &format!("link set {link} mtu {mtu}"));
    }
    let arguments = ["--class", "rate 400mbit", "--mechanism", mechanism];
    let bridge = lab.bridge("pace", &arguments);
    let size = format!("10.77.0.2 -s {} -M do", mtu - 28);
    assert_eq!(ping(lab, &size, 3).numbers.len(), 3);
    assert!(lab.iperf(5201, "-c 10.77.0.2") > 1.0);
    bridge.end();
}

/// Virtual links copy frames, so AF_XDP has no advantage there.
#[test]
fn the_mechanism_is_chosen_and_told() {
    let lab = xdp_lab!();
    let bridge = lab.bridge("pace", &["--class", "rate 1mbit"]);
    assert!(
        bridge
            .greeting
            .contains("AF_PACKET rather than AF_XDP, since the driver of veA"),
        "{}",
        bridge.greeting
    );
    assert_eq!(bridge.end()["directions"][0]["mechanism"], "packet");
}
