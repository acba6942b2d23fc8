//! Large files.

use std::fs::File;
use std::thread;
use std::time::Duration;

use crate::server::{Server, directory, noise};

#[test]
fn large_files_arrive_byte_for_byte() {
    let content = noise(3_333_333);
    let directory = directory(&[("big", &content)]);
    let server = Server::start(Some(directory.path()), &["--threads", "2"]);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut client = server.connect();
                for _ in 0..3 {
                    assert!(client.get("/big").body == content);
                }
            });
        }
    });
}

#[test]
fn memory_stays_bounded() {
    const LEN: u64 = 100 << 20;
    let directory = directory(&[]);
    File::create(directory.path().join("sparse"))
        .unwrap()
        .set_len(LEN)
        .unwrap();
    let server = Server::start(Some(directory.path()), &[]);
    // The server holds buffered bytes for slow readers.
    let slow: Vec<_> = (0..50)
        .map(|_| {
            let mut client = server.connect();
            client.send(b"GET /sparse HTTP/1.1\r\nHost: t\r\n\r\n");
            assert_eq!(client.head().status, 200);
            client
        })
        .collect();
    let mut client = server.connect();
    client.send(b"GET /sparse HTTP/1.1\r\nHost: t\r\n\r\n");
    assert_eq!(client.head().header("content-length"), Some("104857600"));
    let mut buffer = vec![0; 1 << 20];
    let mut left = LEN;
    while left > 0 {
        let read = client.read(&mut buffer).unwrap();
        assert!(read > 0 && buffer[..read].iter().all(|&byte| byte == 0));
        left -= read as u64;
    }
    assert_eq!(client.get("/").status, 404, "the connection goes on");
    let peak = server.peak_resident_kb();
    assert!(peak < 64 << 10, "{peak} kB resident");
    drop(slow);
}

#[test]
fn the_disk_is_read_by_helpers() {
    let content = noise(1_000_000);
    let directory = directory(&[("cold", &content), ("hot", b"hot")]);
    let start = || Server::start(Some(directory.path()), &["--precompressed", "off"]);
    // The kernel may refuse a cached look-up while other processes change directories, so one success is enough.
    let needs_none = (0..TRIES).any(|_| {
        let server = start();
        assert_eq!(server.connect().get("/hot").text(), "hot");
        !server.has_thread("softclock-helper")
    });
    // Some file systems (overlayfs) cannot tell cached from uncached reads, and so use helper threads for all.
    let tells = is_cached(&File::open(directory.path().join("hot")).unwrap());
    assert_eq!(needs_none, tells, "what is cached needs no helper");
    if !tells {
        softclock_testing::in_part!("this file system does not tell what is in memory");
    }

    let server = start();
    let file = File::open(directory.path().join("cold")).unwrap();
    file.sync_all().unwrap();
    // The kernel may have read ahead.
    let helped = (0..TRIES).any(|_| {
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        assert!(server.connect().get("/cold").body == content);
        server.has_thread("softclock-helper")
    });
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    if !helped && is_cached(&file) {
        softclock_testing::skip!("this file system keeps everything in memory");
    }
    assert!(helped);
}

const TRIES: u32 = 10;

fn is_cached(file: &File) -> bool {
    let mut buffer = [0];
    let vectors = &mut [std::io::IoSliceMut::new(&mut buffer)];
    rustix::io::preadv2(file, vectors, 0, rustix::io::ReadWriteFlags::NOWAIT).is_ok()
}

#[test]
fn a_file_that_shrinks_ends_its_connection() {
    let directory = directory(&[("f", &[1; 30_000_000])]);
    let server = Server::start(Some(directory.path()), &[]);
    let mut client = server.connect();
    client.send(b"GET /f HTTP/1.1\r\nHost: t\r\n\r\n");
    assert_eq!(client.head().header("content-length"), Some("30000000"));
    let file = File::options()
        .write(true)
        .open(directory.path().join("f"))
        .unwrap();
    file.set_len(1_000).unwrap();
    let body = client.rest();
    assert!(body.len() < 30_000_000, "the length promised can't be true");
    let (left, cut) = body.split_at(1_000);
    assert!(left.iter().all(|&byte| byte == 1));
    assert!(cut.iter().all(|&byte| byte <= 1), "nothing is made up");
    assert_eq!(server.connect().get("/f").body.len(), 1_000);
}

#[test]
fn clients_that_leave_do_no_harm() {
    let directory = directory(&[("f", &[1; 5_000_000])]);
    let server = Server::start(Some(directory.path()), &[]);
    for _ in 0..50 {
        let mut client = server.connect();
        client.send(b"GET /f HTTP/1.1\r\nHost: t\r\n\r\n");
        assert_eq!(client.head().status, 200);
    }
    thread::sleep(Duration::from_millis(50));
    assert_eq!(server.connect().get("/f").body.len(), 5_000_000);
}
