//! The access log.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::server::{Server, directory, until};

fn start(log: &Path, options: &[&str]) -> Server {
    let log = format!("--access-log={}", log.display());
    let mut all = vec![log.as_str()];
    all.extend_from_slice(options);
    Server::start(None, &all)
}

#[test]
fn each_response_is_a_line_within_two_seconds_and_at_the_end() {
    let directory = directory(&[]);
    let path = directory.path().join("access.log");
    let mut server = start(&path, &["--threads", "2", "--log-format", "combined"]);
    let mut client = server.connect();
    let size = client.get("/style.css").body.len();
    client.request(
        "HEAD",
        "/none?a=b",
        &["User-Agent: me", "Referer: http://x/"],
    );
    let asked = Instant::now();
    until("the lines", || {
        fs::read_to_string(&path).unwrap().lines().count() == 2
    });
    assert!(asked.elapsed() < Duration::from_secs(4));
    let text = fs::read_to_string(&path).unwrap();
    let lines: Vec<_> = text.lines().collect();
    let address = client.another().local_addr().unwrap().ip();
    assert!(lines[0].starts_with(&format!("{address} - - [")), "{text}");
    let first = format!(" +0000] \"GET /style.css HTTP/1.1\" 200 {size} \"-\" \"-\"");
    assert!(lines[0].ends_with(&first), "{text}");
    assert!(
        lines[1].ends_with("\"HEAD /none?a=b HTTP/1.1\" 404 - \"http://x/\" \"me\""),
        "{text}"
    );

    client.get("/clock.svg");
    server.signal(Signal::TERM);
    assert_eq!(server.wait().code(), Some(0));
    let text = fs::read_to_string(&path).unwrap();
    assert!(
        text.lines().nth(2).unwrap().contains("/clock.svg"),
        "{text}"
    );
}

#[test]
fn json_lines_hold_whatever_a_client_sends() {
    let directory = directory(&[]);
    let path = directory.path().join("access.log");
    let mut server = start(&path, &["--log-format", "json"]);
    let mut client = server.connect();
    client.send(b"GET /%22%0a?x HTTP/1.1\r\nHost: t\r\nUser-Agent: \"}\\\xff\tx\x80\r\nConnection: close\r\n\r\n");
    client.rest();
    server.signal(Signal::TERM);
    server.wait();
    let text = fs::read_to_string(&path).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.trim_end().chars().all(|c| !c.is_control()), "{text:?}");
    assert!(text.contains(r#""target":"/%22%0a?x""#), "{text}");
    softclock_testing::require!("python3");
    let script = "import json,sys; print(json.loads(open(sys.argv[1]).read())['user_agent'])";
    let output = Command::new("python3")
        .args(["-c", script])
        .arg(&path)
        .output()
        .unwrap();
    let agent = String::from_utf8(output.stdout).unwrap();
    assert_eq!(agent, "\"}\\\u{fffd}\tx\u{fffd}\n");
}

#[test]
fn refused_requests_are_told_without_their_words() {
    let directory = directory(&[]);
    let path = directory.path().join("access.log");
    let server = start(&path, &["--metrics", "127.0.0.1:0"]);
    let mut client = server.connect();
    client.send(b"GET /\x1b[2J HTTP/1.1\r\nHost: t\r\n\r\n");
    client.rest();
    until("the line", || {
        fs::read_to_string(&path)
            .unwrap()
            .contains("] \"-\" 400 -\n")
    });
    let metrics = crate::client::Client::connect(server.metrics()).get("/metrics");
    let count = "softclock_http_responses_total{method=\"other\",class=\"4xx\"} 1\n";
    assert!(metrics.text().contains(count));
}

#[test]
fn a_renamed_log_is_opened_anew() {
    let directory = directory(&[]);
    let (path, old) = (directory.path().join("log"), directory.path().join("log.1"));
    let server = start(&path, &[]);
    let mut client = server.connect();
    client.get("/style.css");
    fs::rename(&path, &old).unwrap();
    server.signal(Signal::USR1);
    until("the new file", || path.exists());
    client.get("/clock.svg");
    until("its line", || {
        fs::read_to_string(&path).unwrap().contains("/clock.svg")
    });
    let old = fs::read_to_string(&old).unwrap();
    assert!(
        old.contains("/style.css") && !old.contains("/clock.svg"),
        "{old}"
    );
}

#[test]
fn a_full_disk_never_stops_serving() {
    let server = start(Path::new("/dev/full"), &["--metrics", "127.0.0.1:0"]);
    let mut client = server.connect();
    for _ in 0..3 {
        assert_eq!(client.get("/").status, 200);
        server.until_logged("cannot write");
        std::thread::sleep(Duration::from_millis(1100));
    }
    assert_eq!(client.get("/").status, 200);
    assert_eq!(server.log().matches("cannot write").count(), 1, "told once");
    let failed = || {
        let metrics = crate::client::Client::connect(server.metrics()).get("/metrics");
        metrics.text().contains("lines_total{outcome=\"failed\"} 4")
    };
    until("the count", failed);
}

/// A disk of 64 KB, filled by the log, and emptied.
#[test]
fn the_log_recovers_when_there_is_room_again() {
    softclock_testing::require!("unshare", "mount");
    let directory = directory(&[]);
    let mount = format!(
        "mount -t tmpfs -o size=64k none {}",
        directory.path().display()
    );
    let possible = Command::new("unshare")
        .args(["-m", "sh", "-c", &mount])
        .output()
        .unwrap();
    if !possible.status.success() {
        softclock_testing::skip!("no mount namespace to be had");
    }
    let path = directory.path().join("log");
    let run = format!(
        "{mount} && exec {} serve --listen 127.0.0.1:0 --access-log {}",
        env!("CARGO_BIN_EXE_softclock"),
        path.display()
    );
    let mut command = Command::new("unshare");
    let server = Server::spawn(command.args(["-m", "sh", "-c", &run]));
    // The file as the server's own namespace has it.
    let path = format!("/proc/{}/root{}", server.id(), path.display());
    let mut client = server.connect();
    let agent = format!("User-Agent: {}", "x".repeat(200));
    let long = format!("/{}", "x".repeat(2000));
    for _ in 0..60 {
        assert_eq!(client.request("GET", &long, &[&agent]).status, 404);
    }
    server.until_logged("cannot write");
    assert_eq!(client.get("/").status, 200);
    fs::OpenOptions::new()
        .write(true)
        .truncate(true)
        .open(&path)
        .unwrap();
    until("a line after the room", || {
        client.get("/style.css");
        std::thread::sleep(Duration::from_millis(100));
        fs::read_to_string(&path).unwrap().contains("/style.css")
    });
    server.until_logged("written again");
}
