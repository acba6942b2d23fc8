//! The metrics of the stack on the page of `serve` and `proxy`, and in `softclock top`.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use crate::lab::{Carrier, LARGE, Lab, PATIENCE, content, eventually, lab};

/// The address of the metrics, in the namespace of the server.
pub(crate) const METRICS: &str = "127.0.0.1:9180";

/// The values of the page by name and labels.
pub(crate) fn samples(lab: &Lab) -> BTreeMap<String, f64> {
    let fetch = || {
        let mut stream = TcpStream::connect(METRICS)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        std::io::Result::Ok(text)
    };
    let page = lab.server.inside(fetch).and_then(|page| page);
    let page = page.expect("metrics are served");
    let (_, page) = page.split_once("\r\n\r\n").expect("a head");
    let lines = page.lines().filter(|line| !line.starts_with('#'));
    let samples = lines.map(|line| {
        let (name, value) = line.rsplit_once(' ').expect("a name and a value");
        (name.to_owned(), value.parse().expect("a number"))
    });
    samples.collect()
}

/// The sum over all labels.
pub(crate) fn sum(samples: &BTreeMap<String, f64>, name: &str) -> f64 {
    let of_name = samples.iter().filter(|(key, _)| {
        let rest = key.strip_prefix(name);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('{'))
    });
    of_name.map(|(_, value)| value).sum()
}

#[test]
fn connections_and_retransmissions_are_on_the_page_and_in_top() {
    // So slow that segments are always under way.
    let lab = lab!(Carrier::Packet, "--rate 50mbit --delay 5ms");
    lab.server.run("ip link set lo up").expect("a namespace");
    let _server = lab.serve(&["--metrics", METRICS]);
    let open: Vec<_> = (0..3).map(|_| lab.connect()).collect();
    let established = "softclock_tcp_connections{state=\"established\"}";
    eventually(|| samples(&lab)[established] == 3.0);
    let before = samples(&lab);
    assert_eq!(before["softclock_tcp_opened_total{side=\"passive\"}"], 3.0);
    let again = "softclock_tcp_retransmitted_segments_total";
    assert_eq!(sum(&before, again), 0.0, "{before:?}");

    let words = "-o /dev/null @large";
    let mut client = lab.curl_command(words).spawn().expect("it is installed");
    thread::sleep(Duration::from_millis(500));
    // Longer than any retransmission timeout of so short a path.
    lab.server.run("ip link set host down").expect("a link");
    thread::sleep(Duration::from_secs(1));
    lab.server.run("ip link set host up").expect("a link");
    let mut top = lab.server.command(env!("CARGO_BIN_EXE_softclock"));
    let top = top.args(["top", "--once", METRICS]).output();
    let top = top.expect("nsenter is installed");
    assert!(client.wait().expect("our own child").success());

    let after = samples(&lab);
    let timeouts = "softclock_tcp_events_total{event=\"timeout\"}";
    assert!(after[timeouts] >= 1.0, "{after:?}");
    assert!(sum(&after, again) >= 1.0, "{after:?}");
    let sent = after["softclock_tcp_segments_total{direction=\"sent\"}"];
    assert!(sent > LARGE as f64 / 1500.0, "{after:?}");
    // The client has closed its connection; the others are still there.
    eventually(|| samples(&lab)[established] == 3.0);
    let text = String::from_utf8_lossy(&top.stdout);
    for part in [
        "segments ",
        "\ntcp ",
        " established",
        "sent again ",
        "dropped ",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    drop(open);
    eventually(|| samples(&lab)[established] == 0.0);
}

#[test]
fn a_proxy_counts_the_connections_to_its_upstreams() {
    let lab = lab!(Carrier::Packet);
    lab.server.run("ip link set lo up").expect("a namespace");
    let mut upstream = lab.client().command(env!("CARGO_BIN_EXE_softclock"));
    upstream.args(["serve", "--listen", "10.78.0.1:8080"]);
    upstream.arg(lab.path(""));
    let _upstream = lab.start(upstream);
    let arguments = ["--upstream", "http://10.78.0.1:8080", "--metrics", METRICS];
    let _proxy = lab.start(lab.command("proxy", &arguments));
    let output = lab.curl("@small");
    assert!(output.stdout == content(1024), "{output:?}");
    let samples = samples(&lab);
    assert_eq!(samples["softclock_tcp_opened_total{side=\"active\"}"], 1.0);
    assert_eq!(samples["softclock_tcp_opened_total{side=\"passive\"}"], 1.0);
}
