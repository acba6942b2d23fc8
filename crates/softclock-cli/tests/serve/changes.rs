//! Files and directories that change under the server.
//!
//! A response is made of the file that was open when it began, even if its name changes or goes away. If that file
//! shrinks, the connection ends early; if it is written to in place, the client may see old bytes and new, as with any
//! reader, but never more than the announced length. A large file is sent from the kernel's page cache, so changes show
//! in bytes that the client has not received yet, and truncated parts read as zeros. The next request sees the new
//! state, or with a cache a little later. The root is the directory that was opened at the start, even if it is
//! renamed; if it is removed, nothing is found.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::client::Client;
use crate::server::{Server, copy_program, directory, noise};

const WITHOUT_CACHE: &[&str] = &["--cache", "0"];

const LEN: usize = 20_000_000;

/// A response of [`LEN`] bytes that has begun and waits for its client.
fn begun(server: &Server) -> Client {
    let mut client = server.connect();
    client.send(b"GET /f HTTP/1.1\r\nHost: t\r\n\r\n");
    assert_eq!(client.head().header("content-length"), Some("20000000"));
    client
}

fn body(client: &mut Client) -> Vec<u8> {
    let mut body = vec![0; LEN];
    client.read_exact(&mut body);
    body
}

#[test]
fn a_file_that_vanishes_or_is_replaced_is_sent_to_its_end() {
    let content = noise(LEN);
    let directory = directory(&[("f", &content), ("new", b"new")]);
    let file = directory.path().join("f");
    let server = Server::start(Some(directory.path()), WITHOUT_CACHE);
    let mut first = begun(&server);
    fs::rename(directory.path().join("new"), &file).unwrap();
    assert!(body(&mut first) == content);
    assert_eq!(first.get("/f").text(), "new");

    fs::write(directory.path().join("f2"), &content).unwrap();
    fs::rename(directory.path().join("f2"), &file).unwrap();
    let mut second = begun(&server);
    fs::remove_file(&file).unwrap();
    assert!(body(&mut second) == content);
    assert_eq!(second.get("/f").status, 404);
}

#[test]
fn a_file_that_grows_is_sent_as_long_as_promised() {
    let content = noise(LEN);
    let directory = directory(&[("f", &content)]);
    let server = Server::start(Some(directory.path()), WITHOUT_CACHE);
    let mut client = begun(&server);
    let file = File::options()
        .append(true)
        .open(directory.path().join("f"));
    std::io::Write::write_all(&mut file.unwrap(), b"more").unwrap();
    assert!(body(&mut client) == content);
    let grown = client.get("/f");
    assert!(grown.body.len() == LEN + 4 && grown.body.ends_with(b"more"));
}

#[test]
fn a_file_that_is_written_to_has_bytes_of_then_and_now() {
    let directory = directory(&[("f", &[b'a'; LEN])]);
    let server = Server::start(Some(directory.path()), WITHOUT_CACHE);
    let mut client = begun(&server);
    let file = File::options().write(true).open(directory.path().join("f"));
    file.unwrap().write_all_at(&vec![b'b'; LEN], 0).unwrap();
    let body = body(&mut client);
    assert!(body.iter().all(|byte| matches!(byte, b'a' | b'b')));
    assert!(client.get("/f").body.iter().all(|&byte| byte == b'b'));
}

#[test]
fn a_small_file_that_shrinks_meanwhile_is_never_made_up() {
    let directory = directory(&[("f", &[1; 50_000])]);
    let path = directory.path().join("f");
    let server = Server::start(Some(directory.path()), WITHOUT_CACHE);
    std::thread::scope(|scope| {
        let changing = scope.spawn(|| {
            for round in 0..2_000 {
                let file = File::options().write(true).open(&path).unwrap();
                file.set_len(0).unwrap();
                file.write_all_at(&vec![1; 1 + round * 20], 0).unwrap();
            }
        });
        let mut client = server.connect();
        while !changing.is_finished() {
            let response = client.get("/f");
            match response.status {
                200 => assert!(response.body.iter().all(|&byte| byte <= 1)),
                status => assert_eq!(status, 503),
            }
        }
    });
}

#[test]
fn directories_replaced_while_serving() {
    let directory = directory(&[("live/f", b"one"), ("next/f", b"two")]);
    let path = |name: &str| directory.path().join(name);
    let server = Server::start(Some(directory.path()), WITHOUT_CACHE);
    let mut client = server.connect();
    assert_eq!(client.get("/live/f").text(), "one");
    for round in 0..50 {
        rustix::fs::renameat_with(
            rustix::fs::CWD,
            path("live"),
            rustix::fs::CWD,
            path("next"),
            rustix::fs::RenameFlags::EXCHANGE,
        )
        .unwrap();
        let expected = ["two", "one"][round % 2];
        assert_eq!(client.get("/live/f").text(), expected);
    }
    fs::remove_dir_all(path("live")).unwrap();
    assert_eq!(client.get("/live/f").status, 404);
    fs::write(path("live"), "a file now").unwrap();
    assert_eq!(client.get("/live").text(), "a file now");
    assert_eq!(client.get("/live/f").status, 404);
}

#[test]
fn the_root_is_the_directory_opened_at_the_start() {
    let top = directory(&[("root/f", b"old")]);
    let root = top.path().join("root");
    let server = Server::start(Some(&root), WITHOUT_CACHE);
    let mut client = server.connect();
    assert_eq!(client.get("/f").text(), "old");
    fs::rename(&root, top.path().join("moved")).unwrap();
    fs::create_dir(&root).unwrap();
    fs::write(root.join("f"), "new").unwrap();
    assert_eq!(client.get("/f").text(), "old");
    fs::remove_dir_all(top.path().join("moved")).unwrap();
    assert_eq!(client.get("/f").status, 404);
    assert_eq!(client.get("/").status, 404);
}

#[test]
fn permissions_revoked_while_serving() {
    if !rustix::process::geteuid().is_root() {
        softclock_testing::skip!("needs root, to become somebody else");
    }
    let content = noise(LEN);
    let directory = directory(&[("f", &content), ("d/g", b"g")]);
    let allow = |name: &str, mode| {
        let path = directory.path().join(name);
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    allow("", 0o755);
    allow("d", 0o755);
    // Other users, who may not enter the build directory, can start the program from here.
    let program = directory.path().join("softclock");
    copy_program(&program);
    let mut command = Command::new(&program);
    command
        .args(["serve", "--listen", "127.0.0.1:0"])
        .args(WITHOUT_CACHE)
        .arg(directory.path())
        .uid(NOBODY)
        .gid(NOBODY);
    let server = Server::spawn(&mut command);
    let mut client = begun(&server);
    let mut other = server.connect();
    assert_eq!(other.get("/d/g").text(), "g");
    allow("f", 0o600);
    allow("d", 0o700);
    assert!(body(&mut client) == content, "it is open already");
    assert_eq!(client.get("/f").status, 403);
    assert_eq!(other.get("/d/g").status, 403);
    allow("f", 0o644);
    allow("d", 0o755);
    assert_eq!(other.get("/d/g").text(), "g");
    assert!(client.get("/f").body == content);
}

const NOBODY: u32 = 65_534;
