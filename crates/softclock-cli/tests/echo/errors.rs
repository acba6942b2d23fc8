//! Mistakes of the user: each is one line that names the remedy or the cause.

use std::process::{Command, Output};

use crate::lab::{Carrier, lab};

/// The one line of standard error with the mistake.
fn mistake(output: &Output) -> String {
    assert!(!output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(text.lines().count(), 1, "{text}");
    text
}

#[test]
fn wrong_options_are_one_line() {
    let dev = ["--dev", "lo"];
    for (arguments, part) in [
        (&["--address", "192.0.2.7/24"][..], "--dev"),
        (&["--dev", "lo"], "--address"),
        (
            &["--dev", "nolink0", "--address", "192.0.2.7/24"],
            "no interface nolink0",
        ),
        (&["--dev", "lo", "--address", "192.0.2.7"], "192.0.2.7/24"),
        (
            &["--dev", "lo", "--address", "192.0.2.7/33"],
            "192.0.2.7/24",
        ),
        (
            &["--dev", "lo", "--address", "192.0.2.300/24"],
            "192.0.2.7/24",
        ),
        (&["--dev", "lo", "--address", "192.0.2.0/24"], "192.0.2.0"),
        (
            &["--dev", "lo", "--address", "192.0.2.255/24"],
            "192.0.2.255",
        ),
        (&["--dev", "lo", "--address", "224.0.0.1/24"], "224.0.0.1"),
        (&["--dev", "lo", "--address", "127.0.0.1/8"], "127.0.0.1"),
        (&["--dev", "lo", "--address", "::/64"], "::"),
        (
            &["--dev", "tap:", "--address", "192.0.2.7/24"],
            "not a valid interface name",
        ),
        (
            &["--dev", "tap:sixteen-letters0", "--address", "192.0.2.7/24"],
            "not a valid interface name",
        ),
    ] {
        let line = mistake(&softclock(arguments));
        assert!(line.contains(part), "{arguments:?}: {line}");
    }
    let address = ["--address", "192.0.2.7/24"];
    for (more, part) in [
        (&["--address", "192.0.2.7/24"][..], "192.0.2.7"),
        (&["--gateway", "198.51.100.1"], "198.51.100.1"),
        (&["--gateway", "192.0.2.7"], "192.0.2.7"),
        (&["--gateway", "router"], "an IP address"),
        (&["--link-address", "01:00:00:00:00:01"], "a single host"),
        (&["--link-address", "00:00:00:00:00:00"], "a single host"),
        (&["--link-address", "02:00"], "a single host"),
        (&["--mtu", "575"], "at least 576"),
        (&["--mtu", "65536"], "at least 576"),
        (&["--mechanism", "uring"], "not one of"),
        (&["--architecture", "lazy"], "not one of"),
        (&["--channel", "0"], "--channel"),
        (&["--channel", "100000"], "--channel"),
        (&["--duration", "-1"], "--duration"),
        (&["--duration", "soon"], "--duration"),
        (&["--pcap-snaplen", "96"], "--pcap"),
        (&["--pcap", "a", "--pcap-snaplen", "0"], "--pcap-snaplen"),
        (&["--pcap", "a", "--pcap-limit", "1K"], "4K or more"),
        (&["more"], "more"),
    ] {
        let line = mistake(&softclock(&[&dev[..], &address, more].concat()));
        assert!(line.contains(part), "{more:?}: {line}");
    }
}

fn softclock(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_softclock"));
    command.arg("echo").args(arguments);
    command.output().expect("the program starts")
}

#[test]
fn an_interface_without_ethernet_frames_is_refused() {
    let lab = lab!(Carrier::Packet);
    for mechanism in ["packet", "xdp"] {
        let line = mistake(
            &lab.server
                .command(env!("CARGO_BIN_EXE_softclock"))
                .args(["echo", "--dev", "lo", "--address", "192.0.2.7/24"])
                .args(["--mechanism", mechanism])
                .output()
                .expect("nsenter is installed"),
        );
        assert!(line.contains("lo has no Ethernet frames"), "{line}");
    }
}

/// NI-LRP demultiplexes in an XDP program, which these mechanisms do not have.
#[test]
fn ni_lrp_without_af_xdp_is_refused() {
    let address = ["--address", "192.0.2.7/24", "--architecture", "ni-lrp"];
    for more in [
        &["--dev", "lo", "--mechanism", "packet"][..],
        &["--dev", "tap:sclazy0"],
    ] {
        let line = mistake(&softclock(&[&address[..], more].concat()));
        assert!(line.contains("--architecture ni-lrp"), "{line}");
        assert!(line.contains("--mechanism"), "{line}");
    }
}

/// Every host of IPv6 takes packets of 1280 bytes.
#[test]
fn packets_too_short_for_ipv6_are_refused() {
    let arguments = ["--dev", "tap:sclazy0", "--mtu", "1279", "--address"];
    let line = mistake(&softclock(&[&arguments[..], &["fd78::7/64"]].concat()));
    assert!(line.contains("at least 1280"), "{line}");
}

/// NI-LRP reserves memory for all packets that may wait.
#[test]
fn more_memory_than_af_xdp_can_have_is_refused() {
    let lab = lab!(Carrier::NiLrp);
    let mut arguments = vec!["--channel".to_owned(), "65536".to_owned()];
    for host in 20..27 {
        arguments.extend(["--address".to_owned(), format!("10.78.0.{host}/24")]);
    }
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let output = lab.command(&arguments).output();
    let line = mistake(&output.expect("nsenter is installed"));
    assert!(line.contains("4 GiB"), "{line}");
}

/// An opened device would take the host's packets, if only for a moment.
#[test]
fn an_address_of_the_host_is_refused_before_the_device_is_opened() {
    for carrier in [Carrier::Xdp, Carrier::NiLrp] {
        let lab = lab!(carrier);
        // AF_XDP cannot be opened with this MTU.
        lab.configure("ip link set host mtu 9000");
        let output = lab.command(&["--address", "10.78.0.2/24"]).output();
        let line = mistake(&output.expect("nsenter is installed"));
        assert!(line.contains("address of this host"), "{line}");
    }
}

/// Both would answer for the address.
#[test]
fn an_address_of_the_host_is_refused() {
    for carrier in Carrier::SHARED {
        let lab = lab!(carrier);
        let before = lab.link_state();
        for address in ["10.78.0.2/24", "fd78::2/64"] {
            let output = lab.command(&["--address", address]).output();
            let line = mistake(&output.expect("nsenter is installed"));
            let bare = address.split('/').next().expect("an address");
            assert!(
                line.contains(bare) && line.contains("address of this host"),
                "{line}"
            );
        }
        lab.await_link_state(&before);
        assert_eq!(lab.ping("10.78.0.2", 1, ""), 1);
    }
}

#[test]
fn an_interface_has_one_server() {
    for carrier in Carrier::SHARED {
        let lab = lab!(carrier);
        let server = lab.serve(&[]);
        let process = server.pid().as_raw_nonzero().get();
        let line = mistake(&lab.command(&[]).output().expect("nsenter is installed"));
        assert!(
            line.contains(&format!("process {process} ")) && line.contains("host"),
            "{line}"
        );
        lab.assert_answers();
        server.end();
    }
}

#[test]
fn a_name_that_is_taken_is_refused_for_a_tap_device() {
    let lab = lab!(Carrier::Tap);
    lab.configure("ip link add client type veth peer name other");
    let line = mistake(&lab.command(&[]).output().expect("nsenter is installed"));
    assert!(
        line.contains("an interface client exists already"),
        "{line}"
    );
}
