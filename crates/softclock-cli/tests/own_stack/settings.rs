//! The options of TCP: the stack has the settings that they name.

use std::fs;
use std::io::{Read, Write};

use softclock_testing::require;

use crate::lab::{Carrier, LARGE, Lab, Server, content, eventually, lab};
use crate::metrics::{METRICS, samples};

/// Starts a server that serves its metrics at the loopback address of its host.
fn serve_with_metrics(lab: &Lab, arguments: &[&str]) -> Server {
    lab.server.run("ip link set lo up").expect("a namespace");
    lab.serve(&[arguments, &["--metrics", METRICS]].concat())
}

/// The packets with ECT(0) that have arrived at the client's kernel.
fn marked_packets(lab: &Lab) -> u64 {
    let text = lab.run_at_client("cat /proc/net/netstat");
    let mut lines = text.lines().filter(|line| line.starts_with("IpExt:"));
    let mut line = || lines.next().expect("a line of names, and one of values");
    let (names, values) = (line(), line());
    let mut counters = names.split(' ').zip(values.split(' '));
    let found = counters.find(|(name, _)| *name == "InECT0Pkts");
    found
        .and_then(|(_, value)| value.parse().ok())
        .expect(&text)
}

/// The client's kernel offers ECN, as that of a system whose administrator has turned it on.
#[test]
fn ecn_is_accepted_unless_it_is_off() {
    for (arguments, expected) in [(&[][..], true), (&["--tcp-ecn", "off"], false)] {
        let lab = lab!(Carrier::Tap);
        let offer = || fs::write("/proc/sys/net/ipv4/tcp_ecn", "1");
        let offers = lab.client().inside(offer).and_then(|written| written);
        offers.expect("a namespace of its own");
        let _server = lab.serve(arguments);
        let output = lab.curl("@large");
        assert!(output.stdout == content(LARGE), "{arguments:?}");
        assert_eq!(marked_packets(&lab) > 0, expected, "{arguments:?}");
    }
}

/// SYNs of an address that no host has: their handshakes are never completed, nor reset.
#[test]
fn the_oldest_half_open_connection_gives_way_without_cookies() {
    require!("hping3");
    let lab = lab!(Carrier::Packet);
    let arguments = ["--tcp-half-open", "8", "--tcp-cookies", "never"];
    let _server = serve_with_metrics(&lab, &arguments);
    lab.assert_serves();
    let words = "hping3 --quiet -S -p 80 -a 10.78.0.66 -c 100 -i u1000 10.78.0.7";
    // It fails, as there is no answer to its own address.
    let output = lab.at_client(words).output();
    output.expect("nsenter is installed");
    let displaced = "softclock_tcp_queue_overflows_total{queue=\"syn\"}";
    eventually(|| samples(&lab)[displaced] > 0.0);
    let samples = samples(&lab);
    let half_open = samples["softclock_tcp_connections{state=\"syn_received\"}"];
    assert!(half_open <= 8.0, "{half_open}");
    assert_eq!(
        samples["softclock_tcp_cookies_total{outcome=\"sent\"}"],
        0.0
    );
    lab.assert_serves();
}

/// A server closes a connection that says so in its response, so TIME-WAIT is the server's.
#[test]
fn time_wait_lasts_as_long_as_the_option_says() {
    let lab = lab!(Carrier::Packet);
    let _server = serve_with_metrics(&lab, &["--tcp-time-wait", "5"]);
    lab.curl("--http1.0 -o /dev/null @small");
    let waiting = || samples(&lab)["softclock_tcp_connections{state=\"time_wait\"}"];
    eventually(|| waiting() == 1.0);
    // The default is a minute, longer than this waits.
    eventually(|| waiting() == 0.0);
}

/// The client's kernel answers the probes, so the connection stays.
#[test]
fn idle_connections_are_probed_if_the_option_says_so() {
    let lab = lab!(Carrier::Packet);
    let arguments = ["--tcp-keep-alive", "1", "--idle-timeout", "60s"];
    let _server = serve_with_metrics(&lab, &arguments);
    let mut client = lab.connect();
    let mut ask = || {
        let written = client.write_all(b"GET /small HTTP/1.1\r\nHost: a\r\n\r\n");
        written.expect("it is open");
        client.read_exact(&mut [0; 1024]).expect("it answers");
    };
    ask();
    let sent = || samples(&lab)["softclock_tcp_segments_total{direction=\"sent\"}"];
    let before = sent();
    // Acknowledgments of the response, and then probes.
    eventually(|| sent() >= before + 4.0);
    ask();
}

/// A client that reads nothing acknowledges probes of its closed window, which does not count as progress.
#[test]
fn unread_data_ends_the_connection_after_the_user_timeout() {
    let lab = lab!(Carrier::Packet);
    let arguments = ["--tcp-user-timeout", "2", "--send-timeout", "60s"];
    let _server = serve_with_metrics(&lab, &arguments);
    let mut client = lab.connect();
    let written = client.write_all(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
    written.expect("it is open");
    eventually(|| samples(&lab)["softclock_tcp_failed_total"] == 1.0);
    lab.assert_serves();
}
