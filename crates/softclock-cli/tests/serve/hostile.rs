//! Requests that only a malicious client makes.

use std::fs;
use std::process::Command;

use crate::server::{Server, copy_program, directory};

#[test]
fn nothing_outside_the_root_is_served() {
    let top = directory(&[
        ("secret", b"secret"),
        ("root/index.html", b"index"),
        ("root/a/b", b"b"),
    ]);
    let server = Server::start(Some(&top.path().join("root")), &[]);
    for target in [
        "/../secret",
        "/a/../../secret",
        "/%2e%2e/secret",
        "/%2E%2E/secret",
        "/.%2e/secret",
        "/%2e./secret",
        "/..%2fsecret",
        "/%2e%2e%2fsecret",
        "/a%2f..%2f..%2fsecret",
        "/..%5csecret",
        "/..\\secret",
        "/%252e%252e/secret",
        "/%252e%252e%252fsecret",
        "/%c0%ae%c0%ae/secret",
        "/a/%2e%2e/%2e%2e/secret",
        "//../secret",
        "/./../secret",
        "/a/b/../../../secret",
        "/..;/secret",
        "/%00/../secret",
        "/..%00/secret",
        "/index.html%00.png",
        "/%2e%2e",
        "/..",
        "/a/..",
        "/.",
        "/....//secret",
        "/%uff0e%uff0e/secret",
        "/%",
        "/%%32%65%%32%65/secret",
        "http://x/../secret",
        "/\u{2025}/secret",
        "/proc/self/root",
        "/a%2fb",
    ] {
        let mut client = server.connect();
        client.send(
            format!("GET {target} HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n").as_bytes(),
        );
        let answer = client.rest();
        let answer = String::from_utf8_lossy(&answer);
        let status = answer.split(' ').nth(1).unwrap_or_default();
        assert!(
            ["400", "403", "404"].contains(&status),
            "{target}: {answer}"
        );
        assert!(!answer.contains("secret"), "{target}: {answer}");
    }
    assert_eq!(server.connect().get("/a/b").text(), "b");
}

#[test]
fn only_regular_files_are_served() {
    let directory = directory(&[("f", b"content")]);
    let path = directory.path();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        path.join("fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o644),
        0,
    )
    .unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(path.join("socket")).unwrap();
    fs::create_dir_all(path.join("d/index.html")).unwrap();
    let server = Server::start(Some(path), &[]);
    let mut client = server.connect();
    assert_eq!(client.get("/fifo").status, 403);
    assert_eq!(client.get("/socket").status, 403);
    assert_eq!(client.get("/d/").status, 404);
    assert_eq!(client.get("/f").status, 200);
}

#[test]
fn malformed_requests_end_only_their_own_connection() {
    let server = Server::start(None, &[]);
    let mut bystander = server.connect();
    assert_eq!(bystander.get("/").status, 200);
    let long = format!("GET /{} HTTP/1.1\r\nHost: t\r\n\r\n", "a".repeat(200_000));
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(500));
    for request in [
        "\0\0\0\0\r\n\r\n",
        "GET\r\n\r\n",
        "GET / HTTP/9.9\r\n\r\n",
        "GET / HTTP/1.1\r\nbad header\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: t\r\nContent-Length: x\r\n\r\n",
        &long,
        &many,
    ] {
        let mut client = server.connect();
        client.send(request.as_bytes());
        let answer = client.rest();
        let status = String::from_utf8_lossy(&answer)
            .split(' ')
            .nth(1)
            .unwrap_or_default()
            .to_owned();
        assert!(
            status.starts_with('4') || status == "505",
            "{}: {status}",
            &request[..request.len().min(60)]
        );
    }
    assert_eq!(bystander.get("/").status, 200);
}

#[test]
fn a_refused_upload_gets_its_answer() {
    let server = Server::start(None, &[]);
    for length in [1 << 10, 1 << 20] {
        let mut client = server.connect();
        let head = format!("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: {length}\r\n\r\n");
        client.send(head.as_bytes());
        for _ in 0..length >> 10 {
            client.send(&[b'x'; 1 << 10]);
        }
        assert_eq!(client.response("POST").status, 405);
    }
}

#[test]
fn files_that_may_not_be_read() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    if !rustix::process::geteuid().is_root() {
        softclock_testing::skip!("needs root, to become somebody else");
    }
    let directory = directory(&[("shut", b"secret"), ("open", b"open")]);
    let allow = |name: &str, mode| {
        let path = directory.path().join(name);
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    allow("", 0o755);
    allow("open", 0o644);
    allow("shut", 0o600);
    // Other users, who may not enter the build directory, can start the program from here.
    let program = directory.path().join("softclock");
    copy_program(&program);
    let mut command = Command::new(&program);
    command
        .args(["serve", "--listen", "127.0.0.1:0"])
        .arg(directory.path())
        .uid(NOBODY)
        .gid(NOBODY);
    let server = Server::spawn(&mut command);
    let mut client = server.connect();
    assert_eq!(client.get("/shut").status, 403);
    assert_eq!(client.get("/open").text(), "open");
}

#[test]
fn more_clients_than_descriptors() {
    // (80 - 64) / 2 = 8 connections at a time.
    let script = "ulimit -n 80 && exec \"$0\" serve --listen 127.0.0.1:0";
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_softclock")]);
    let server = Server::spawn(&mut command);
    let mut clients: Vec<_> = (0..100).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.send(b"GET / HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n");
    }
    for client in &mut clients {
        assert_eq!(client.response("GET").status, 200);
    }
}

const NOBODY: u32 = 65_534;
