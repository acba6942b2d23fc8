use std::time::{Duration, Instant};

use serde_json::Value;

use crate::errors::mistake;
use crate::lab::{Bridge, Lab, Place, lab};
use crate::ping::ping_at;

/// A TAP device of the middle, with an address, and a bridge from it to `veB`.
fn bridge(lab: &Lab, class: &str) -> Bridge {
    let bridge = lab.bridge_between("pace", ["tap:paced0", "veB"], &["--class", class]);
    lab.configure(Place::Middle, "addr add 10.77.0.3/24 dev paced0");
    lab.configure(Place::Middle, "addr add fd77::3/64 dev paced0 nodad");
    bridge
}

macro_rules! tap_lab {
    () => {{
        if !std::path::Path::new("/dev/net/tun").exists() {
            softclock_testing::skip!("there are no TAP devices here");
        }
        lab!()
    }};
}

/// Frames that the host sends on the device are paced, segmented, and arrive; so do the answers.
#[test]
fn the_host_is_paced() {
    let lab = tap_lab!();
    let bridge = bridge(&lab, "rate 20mbit");
    for address in ["10.77.0.2", "fd77::2"] {
        let echoes = ping_at(&lab, Place::Middle, address, 5);
        assert_eq!(echoes.numbers.len(), 5, "{address}");
    }
    for arguments in [
        "-c 10.77.0.2",
        "-c fd77::2",
        "-c 10.77.0.2 -R",
        "-c 10.77.0.2 -u -b 40M",
    ] {
        let rate = lab.iperf_from(Place::Middle, 5201, arguments);
        assert!(
            rate > 1.0 && rate < 25.0,
            "{arguments}: {rate} Mbit/s of 20"
        );
    }
    let report = bridge.end();
    let mechanisms = [0, 1].map(|way| &report["directions"][way]["mechanism"]);
    assert_eq!(mechanisms, ["tap", "packet"], "{report}");
    assert!(!lab.has_link(Place::Middle, "paced0"), "it went");
}

/// Packets joined by the host's offloads pass whole if no class paces them.
#[test]
fn what_is_not_paced_passes_whole() {
    let lab = tap_lab!();
    let bridge = bridge(&lab, "rate 1mbit proto 253");
    for arguments in ["-c 10.77.0.2", "-c fd77::2", "-c 10.77.0.2 -R"] {
        let rate = lab.iperf_from(Place::Middle, 5201, arguments);
        assert!(rate > 2.0, "{arguments}: {rate} Mbit/s");
    }
    let report = bridge.end();
    let unpaced = &report["directions"][0]["classes"][1];
    let number = |name: &str| unpaced[name].as_u64().expect("a number");
    assert!(number("bytes") > number("packets") * 2000, "{report}");
}

/// The device can be moved to a container's namespace.
#[test]
fn it_can_be_moved() {
    let lab = tap_lab!();
    let bridge = lab.bridge_between("wan", ["veB", "tap:moved0"], &["--delay", "10ms"]);
    let west = lab.namespace(Place::West).id();
    lab.configure(Place::Middle, &format!("link set moved0 netns {west}"));
    lab.configure(Place::West, "addr flush dev west");
    lab.configure(Place::West, "addr add 10.77.0.1/24 dev moved0");
    lab.configure(Place::West, "link set moved0 up");
    // Longer than the interval between two checks of the links.
    std::thread::sleep(Duration::from_millis(1500));
    let echoes = ping_at(&lab, Place::West, "10.77.0.2", 10);
    assert!(echoes.numbers.len() == 10 && echoes.median_ms() >= 20.0);
    let report = bridge.end();
    let lost = report["directions"][1]["port_drops"].get("not taken in time");
    assert_eq!(lost, Some(&Value::Null), "its counts are elsewhere");
    assert!(!lab.has_link(Place::West, "moved0"), "it went");
}

#[test]
fn it_dies_with_the_process() {
    let lab = tap_lab!();
    let bridge = bridge(&lab, "rate 20mbit");
    assert_eq!(
        ping_at(&lab, Place::Middle, "10.77.0.2", 2).numbers.len(),
        2
    );
    bridge.kill();
    let killed = Instant::now();
    // The kernel removes the device some time after the process died.
    while lab.has_link(Place::Middle, "paced0") {
        assert!(
            killed.elapsed() < Duration::from_secs(20),
            "it is still there"
        );
    }
}

#[test]
fn one_that_is_deleted_ends_it() {
    let lab = tap_lab!();
    let bridge = bridge(&lab, "rate 20mbit");
    lab.configure(Place::Middle, "link delete paced0");
    let line = bridge.fail();
    assert!(line.contains("paced0 is gone"), "{line}");
}

#[test]
fn a_name_that_is_taken_is_refused() {
    let lab = tap_lab!();
    lab.configure(Place::Middle, "tuntap add dev kept0 mode tap");
    let state = || lab.run(Place::Middle, "ip -details link show").stdout;
    let before = state();
    for (name, part) in [
        ("tap:kept0", "an interface kept0 exists already"),
        ("tap:veA", "an interface veA exists already"),
        ("tap:", "'' is not a valid interface name"),
        ("tap:a%d", "is not a valid interface name"),
        ("tap:sixteen-letters0", "is not a valid interface name"),
    ] {
        let arguments = ["pace", name, "veB", "--class", "rate 1mbit"];
        let line = mistake(&lab.softclock(&arguments));
        assert!(line.contains(part), "{name}: {line}");
    }
    let line = mistake(&lab.softclock(&["wan", "tap:one", "tap:one"]));
    assert!(line.contains("tap:one is both sides"), "{line}");
    let line = mistake(&lab.softclock(&["wan", "tap:one", "nolink0"]));
    assert!(line.contains("no interface nolink0"), "{line}");
    assert_eq!(before, state(), "nothing changed");
}

/// The device is created last and only once; its interface number shows it.
#[test]
fn it_is_made_last_and_once() {
    let lab = tap_lab!();
    lab.configure(Place::Middle, "tuntap add dev kept0 mode tap");
    let number = |name: &str| {
        let path = format!("/sys/class/net/{name}/ifindex");
        let text = lab.run(Place::Middle, &format!("cat {path}")).stdout;
        let text = String::from_utf8(text).expect("text");
        text.trim().parse::<u32>().expect("a number")
    };
    let before = number("kept0");
    let refused = ["pace", "tap:paced0", "lo", "--class", "rate 1mbit"];
    let line = mistake(&lab.softclock(&refused));
    assert!(line.contains("lo has no Ethernet frames"), "{line}");
    let bridge = bridge(&lab, "rate 20mbit");
    assert!(bridge.greeting.contains("rather than AF_XDP"));
    assert_eq!(number("paced0"), before + 1);
    bridge.end();
}
