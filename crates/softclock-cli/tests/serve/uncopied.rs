//! Large files, which are sent by `sendfile` unless the server must process their bytes.

use std::fs::{self, File};
use std::num::NonZeroU64;
use std::thread;
use std::time::Duration;

use rustix::fs::{Advice, fadvise};

use crate::client::Client;
use crate::server::{Server, directory, noise, until};

const LEN: usize = 2_000_000;

/// Sizes around the thresholds of the server.
const SIZES: [usize; 10] = [
    1, 65_535, 65_536, 65_537, 131_072, 262_143, 262_144, 262_145, 1_000_000, LEN,
];

fn request(method: &str, first: usize, len: usize) -> String {
    let last = first + len - 1;
    format!("{method} /big HTTP/1.1\r\nHost: t\r\nRange: bytes={first}-{last}\r\n\r\n")
}

#[test]
fn ranges_of_all_sizes_one_after_the_other() {
    let content = noise(LEN);
    let directory = directory(&[("big", &content), ("small", b"small")]);
    for cache in ["0", "8M"] {
        let server = Server::start(Some(directory.path()), &["--cache", cache]);
        let mut client = server.connect();
        for len in SIZES {
            for first in [0, 1, 4_095, LEN - len] {
                let len = len.min(LEN - first);
                client.send(request("GET", first, len).as_bytes());
                let response = client.response("GET");
                assert_eq!(response.status, 206);
                assert!(response.body == content[first..][..len], "{first} {len}");
            }
            assert_eq!(client.get("/small").text(), "small");
        }
        assert!(client.get("/big").body == content);
    }
}

/// Reads `len` bytes, in pieces and with pauses, as a slow network does.
fn read_slowly(client: &mut Client, len: usize) -> Vec<u8> {
    let mut body = vec![0; len];
    for piece in body.chunks_mut(200_000) {
        client.read_exact(piece);
        thread::sleep(Duration::from_millis(1));
    }
    body
}

#[test]
fn pipelines_to_slow_readers() {
    let content = noise(LEN);
    let directory = directory(&[("big", &content), ("small", b"small")]);
    let server = Server::start(Some(directory.path()), &[]);
    let mut client = server.connect();
    let mut all = String::new();
    for len in SIZES {
        all += &request("GET", LEN - len, len);
        all += &request("HEAD", 0, len);
        all += "GET /small HTTP/1.1\r\nHost: t\r\n\r\n";
    }
    client.send(all.as_bytes());
    for len in SIZES {
        assert_eq!(client.head().status, 206);
        let body = read_slowly(&mut client, len);
        assert!(body == content[LEN - len..], "{len}");
        assert_eq!(client.response("HEAD").status, 200);
        assert_eq!(client.response("GET").text(), "small");
    }
}

#[test]
fn files_that_are_partly_in_memory() {
    let content = noise(LEN);
    let directory = directory(&[("big", &content), ("small", b"small")]);
    let server = Server::start(Some(directory.path()), &[]);
    let mut client = server.connect();
    let file = File::open(directory.path().join("big")).unwrap();
    file.sync_all().unwrap();
    for hole in [4_096, 50_000, 150_000, 300_000] {
        for first in (0..LEN).step_by(2 * hole) {
            let len = NonZeroU64::new(hole as u64);
            fadvise(&file, first as u64, len, Advice::DontNeed).unwrap();
        }
        assert!(client.get("/big").body == content, "holes of {hole}");
        assert_eq!(client.get("/small").text(), "small");
    }
}

#[test]
fn the_log_and_the_metrics_count_what_was_sent() {
    let content = noise(LEN);
    let directory = directory(&[("site/big", &content)]);
    let path = directory.path().join("access.log");
    let log = format!("--access-log={}", path.display());
    let options = [log.as_str(), "--metrics", "127.0.0.1:0"];
    let server = Server::start(Some(&directory.path().join("site")), &options);
    let mut client = server.connect();
    assert_eq!(client.get("/big").body.len(), LEN);
    client.send(request("GET", 7, 300_000).as_bytes());
    assert_eq!(client.response("GET").body.len(), 300_000);
    assert_eq!(client.request("HEAD", "/big", &[]).status, 200);
    let lines = || fs::read_to_string(&path).unwrap();
    until("the lines", || lines().lines().count() == 3);
    let logged = lines();
    let counts: Vec<_> = (logged.lines())
        .map(|line| line.rsplit(' ').next().unwrap())
        .collect();
    assert_eq!(counts, [&LEN.to_string(), "300000", "-"], "{logged}");
    let metrics = Client::connect(server.metrics()).get("/metrics");
    let total = format!("softclock_http_body_bytes_total {}\n", LEN + 300_000);
    assert!(metrics.text().contains(&total), "{}", metrics.text());
}

#[test]
fn clients_that_leave_in_the_middle_leave_nothing_behind() {
    let directory = directory(&[("big", &vec![1; 30_000_000])]);
    let server = Server::start(Some(directory.path()), &[]);
    assert_eq!(server.connect().get("/none").status, 404);
    let before = server.descriptors();
    for round in 0..20 {
        let mut client = server.connect();
        client.send(b"GET /big HTTP/1.1\r\nHost: t\r\n\r\n");
        assert_eq!(client.head().status, 200);
        read_slowly(&mut client, 300_000 * (round % 3));
        if round % 2 == 0 {
            client.reset();
        }
    }
    until("all closed", || server.descriptors() <= before);
    assert_eq!(server.connect().get("/big").body.len(), 30_000_000);
}
