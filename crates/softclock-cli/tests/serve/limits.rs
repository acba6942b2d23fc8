//! Connections at their limits, and back.

use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, prlimit};

use crate::client::Client;
use crate::server::{Server, directory};

/// Connections that have made a request and keep silent since.
fn idle(server: &Server, count: usize) -> Vec<Client> {
    let idle = (0..count).map(|_| {
        let mut client = server.connect();
        assert_eq!(client.request("HEAD", "/", &[]).status, 200);
        client
    });
    idle.collect()
}

#[test]
fn idle_connections_make_room_for_new_ones() {
    let server = Server::start(None, &["--max-connections", "8"]);
    let mut idle = idle(&server, 8);
    let begun = Instant::now();
    let mut newcomers: Vec<_> = (0..8).map(|_| server.connect()).collect();
    for client in &mut newcomers {
        client.send(b"GET / HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n");
        assert_eq!(client.response("GET").status, 200);
    }
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert_eq!(idle[0].rest(), b"", "the longest idle was closed");
}

#[test]
fn busy_connections_make_none() {
    let directory = directory(&[("big", &[1; 20_000_000]), ("small", b"small")]);
    let server = Server::start(Some(directory.path()), &["--max-connections", "2"]);
    let mut busy: Vec<_> = (0..2).map(|_| server.connect()).collect();
    for client in &mut busy {
        client.send(b"GET /big HTTP/1.1\r\nHost: t\r\n\r\n");
        assert_eq!(client.head().status, 200);
    }
    let mut waiting = server.connect();
    waiting.send(b"GET /small HTTP/1.1\r\nHost: t\r\n\r\n");
    thread::sleep(Duration::from_millis(700));
    for client in &mut busy {
        let mut body = vec![0; 20_000_000];
        client.read_exact(&mut body);
        assert!(body.iter().all(|&byte| byte == 1));
    }
    // Now they are idle, and one leaves.
    assert_eq!(waiting.response("GET").text(), "small");
}

/// Descriptors run out under a running server: it accepts nothing for a while, says 503 where it can, and is whole
/// again when there are some.
#[test]
fn descriptors_run_out_and_come_back() {
    let directory = directory(&[("index.html", b"index")]);
    let server = Server::start(Some(directory.path()), &[]);
    assert_eq!(server.connect().get("/").status, 200);
    let held = idle(&server, 20);
    let limit = Rlimit {
        current: Some(server.descriptors() as u64),
        maximum: getrlimit(Resource::Nofile).maximum,
    };
    let old = prlimit(Some(server.pid()), Resource::Nofile, limit).unwrap();
    let mut clients: Vec<_> = (0..60).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.send(b"GET / HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n");
    }
    thread::sleep(Duration::from_millis(300));
    // Idle connections leave after half a second, and make room for descriptors.
    for client in &mut clients {
        assert!(matches!(client.response("GET").status, 200 | 503));
    }
    drop(held);
    prlimit(Some(server.pid()), Resource::Nofile, old).unwrap();
    let mut all: Vec<_> = (0..60).map(|_| server.connect()).collect();
    for client in &mut all {
        assert_eq!(client.get("/").text(), "index");
    }
}

#[test]
fn many_more_clients_than_descriptors() {
    let directory = directory(&[("index.html", b"index")]);
    let server = Server::start(Some(directory.path()), &[]);
    // As if `ulimit -n` were that low, but unknown to the server.
    let limit = Rlimit {
        current: Some(40),
        maximum: Some(40),
    };
    prlimit(Some(server.pid()), Resource::Nofile, limit).unwrap();
    let mut clients: Vec<_> = (0..300).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.send(b"GET / HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n");
    }
    let mut answered = 0;
    for client in &mut clients {
        let response = client.response("GET");
        assert!(matches!(response.status, 200 | 503), "{}", response.status);
        answered += usize::from(response.status == 200);
    }
    assert!(answered > 0);
    drop(clients);
    assert_eq!(server.connect().get("/").text(), "index");
}

#[test]
fn a_limit_beyond_the_descriptors_is_cut() {
    let script = "ulimit -n 80 && exec \"$0\" serve --listen 127.0.0.1:0 --max-connections 1000";
    let mut command = std::process::Command::new("sh");
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
