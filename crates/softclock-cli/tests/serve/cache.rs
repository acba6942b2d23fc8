//! The cache of small files notices changes.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::server::{Server, directory, noise};

/// Age from which a file is cached.
const SETTLE: Duration = Duration::from_millis(150);

#[test]
fn changes_are_noticed_in_time() {
    let directory = directory(&[("d/f", b"old"), ("e/f", b"other")]);
    let path = |name: &str| directory.path().join(name);
    sleep(SETTLE);
    let server = Server::start(Some(directory.path()), &["--cache-revalidate", "0.3"]);
    let mut client = server.connect();
    let mut text = |expected: &str| {
        let begun = Instant::now();
        while client.get("/d/f").text() != expected {
            assert!(begun.elapsed() < Duration::from_millis(900), "{expected}");
        }
        // A changed file must be cached again before the next change.
        sleep(SETTLE);
        client.get("/d/f");
    };
    text("old");
    fs::write(path("d/f"), "rewritten").unwrap();
    text("rewritten");
    fs::write(path("d/g"), "replaced").unwrap();
    fs::rename(path("d/g"), path("d/f")).unwrap();
    text("replaced");
    fs::rename(path("d"), path("x")).unwrap();
    fs::rename(path("e"), path("d")).unwrap();
    text("other");
    fs::remove_file(path("d/f")).unwrap();
    let begun = Instant::now();
    while client.get("/d/f").status != 404 {
        assert!(begun.elapsed() < Duration::from_millis(900));
    }
    fs::write(path("d/f"), "again").unwrap();
    assert_eq!(
        client.get("/d/f").text(),
        "again",
        "what is missing is not remembered"
    );
}

#[test]
fn what_is_kept_needs_no_file_system() {
    let directory = directory(&[("f", b"content")]);
    sleep(SETTLE);
    let server = Server::start(Some(directory.path()), &["--cache-revalidate", "60"]);
    let mut client = server.connect();
    let first = client.get("/f");
    fs::remove_file(directory.path().join("f")).unwrap();
    let second = client.get("/f");
    assert_eq!(second.text(), "content");
    assert_eq!(first.undated_headers(), second.undated_headers());
    let tag = format!("If-None-Match: {}", first.header("etag").unwrap());
    assert_eq!(client.request("GET", "/f", &[&tag]).status, 304);
    assert_eq!(
        client.request("GET", "/f", &["Range: bytes=0-2"]).text(),
        "con"
    );
    assert_eq!(
        client.request("HEAD", "/f", &[]).undated_headers(),
        first.undated_headers()
    );
    assert_eq!(
        client.request("GET", "/f", &["If-Match: \"x\""]).status,
        412
    );
}

#[test]
fn without_a_cache_every_change_shows_at_once() {
    let directory = directory(&[("f", b"")]);
    for options in [["--cache", "0"], ["--cache-revalidate", "0"]] {
        let server = Server::start(Some(directory.path()), &options);
        let mut client = server.connect();
        for n in 0..50 {
            let content = "x".repeat(n);
            fs::write(directory.path().join("f"), &content).unwrap();
            assert_eq!(client.get("/f").text(), content);
        }
    }
}

/// Content and validators belong to the same state of the file, during all changes.
#[test]
fn nothing_is_mixed() {
    let directory = directory(&[("f", &[0; 100_000])]);
    let server = Server::start(Some(directory.path()), &["--cache-revalidate", "0.005"]);
    let path = directory.path().join("f");
    let mut tags = std::collections::HashMap::new();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for n in 1..=30u8 {
                let new = directory.path().join("new");
                fs::write(&new, vec![n; 100_000 + usize::from(n)]).unwrap();
                fs::rename(&new, &path).unwrap();
                sleep(Duration::from_millis(if n % 2 == 0 { 100 } else { 3 }));
            }
        });
        let mut client = server.connect();
        while !writer.is_finished() {
            sleep(Duration::from_millis(1));
            let response = client.get("/f");
            assert_eq!(response.status, 200);
            let version = response.body[0];
            assert!(response.body.iter().all(|&byte| byte == version), "mixed");
            assert_eq!(response.body.len(), 100_000 + usize::from(version));
            let tag = response.header("etag").unwrap().to_owned();
            assert_eq!(*tags.entry(tag).or_insert(version), version);
        }
    });
    assert!(tags.len() > 5, "{}", tags.len());
}

#[test]
fn memory_is_bounded() {
    let files: Vec<_> = (0..600)
        .map(|n| (format!("f{n}"), noise(100_000 + n)))
        .collect();
    let list: Vec<_> = files
        .iter()
        .map(|(name, content)| (name.as_str(), &content[..]))
        .collect();
    let directory = directory(&list);
    sleep(SETTLE);
    let server = Server::start(Some(directory.path()), &["--cache", "4M"]);
    let mut client = server.connect();
    for round in 0..2 {
        for (name, content) in &files {
            assert!(
                client.get(&format!("/{name}")).body == *content,
                "{round} {name}"
            );
        }
    }
    let peak = server.peak_resident_kb();
    assert!(peak < 32 << 10, "{peak} kB resident for 4 MB of cache");
}
