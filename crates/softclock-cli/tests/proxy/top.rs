//! `softclock top` before a proxy.

use std::process::Stdio;
use std::time::Duration;

use crate::server::{softclock, until};
use crate::upstream::{Upstream, proxy};

/// An address on which no server listens.
const NOBODY: &str = "http://127.0.0.1:1";

#[test]
fn upstreams_have_a_line_each() {
    let upstream = Upstream::saying("hello");
    let url = upstream.url();
    let options = ["--metrics", "127.0.0.1:0", "--threads", "1"];
    let proxy = proxy(&[&url, NOBODY], &options);
    let mut client = proxy.connect();
    // Until it is left out; meanwhile the requests are answered by the other one.
    until("the other is left out", || {
        assert_eq!(client.ask("GET", "/", &[]).status, 200);
        proxy.log().contains("left out")
    });
    let top = softclock()
        .args(["top", "--once", &proxy.metrics().to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    for _ in 0..60 {
        client.ask("GET", "/", &[]);
        std::thread::sleep(Duration::from_millis(15));
    }
    let output = top.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let words = |start: &str| -> Vec<&str> {
        let line = text
            .lines()
            .find(|line| line.trim_start().starts_with(start));
        line.unwrap_or_else(|| panic!("no {start} in\n{text}"))
            .split_whitespace()
            .collect()
    };
    let [
        _,
        "in",
        requests,
        "/s",
        "0",
        "/s",
        active,
        idle,
        p50,
        unit,
        ..,
    ] = words(&url)[..]
    else {
        panic!("{text}")
    };
    // The sample may be taken during a request.
    assert!([("0", "1"), ("1", "0")].contains(&(active, idle)), "{text}");
    assert_ne!(requests, "0", "{text}");
    assert!(p50.parse::<f64>().unwrap() > 0.0, "{text}");
    assert!(["us", "ms", "s"].contains(&unit), "{text}");
    let none = [NOBODY, "out", "0", "/s", "0", "/s", "0", "0", "-", "-"];
    assert_eq!(words(NOBODY), none, "{text}");
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
}
