//! Connections at their limits, and back.

use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, prlimit};

use crate::client::Client;
use crate::h2_frames::{Http2, Outcome, get};
use crate::server::{Server, directory, metric, until};
use crate::tls;

/// Connections that have made a request and are silent after it.
fn idle_clients(server: &Server, count: usize) -> Vec<Client> {
    let idle = (0..count).map(|_| {
        let mut client = server.connect();
        assert_eq!(client.request("HEAD", "/", &[]).status, 200);
        client
    });
    idle.collect()
}

#[test]
fn idle_connections_make_room_for_new_ones() {
    let options = ["--max-connections", "8", "--metrics", "127.0.0.1:0"];
    let server = Server::start(None, &options);
    let mut idle = idle_clients(&server, 8);
    let counts = || ["max_connections", "shed_connections"].map(|limit| server.reached(limit));
    assert_eq!(counts(), [0.0; 2]);
    let begun = Instant::now();
    let mut newcomers: Vec<_> = (0..8).map(|_| server.connect()).collect();
    for client in &mut newcomers {
        client.send(b"GET / HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n");
        assert_eq!(client.response("GET").status, 200);
    }
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert_eq!(idle[0].rest(), b"", "the longest idle was closed");
    assert!(counts().iter().all(|&count| count > 0.0), "{:?}", counts());
    server.until_logged("limit=\"max_connections\"");
}

/// Both unfinished heads and handshakes, long before their own timeout.
#[test]
fn slow_heads_make_room_for_new_ones() {
    let directory = tls::with_site(&[("site/f", b"file")]);
    let options = [
        ["--listen", "127.0.0.1:0"],
        ["--metrics", "127.0.0.1:0"],
        ["--max-connections", "8"],
        ["--head-timeout", "600"],
    ];
    let server = tls::start(&directory, &options.concat());
    let [secure, plain] = [0, 1].map(|index| server.addresses()[index]);
    let begin = |mut client: Client, beginning: &[u8]| {
        client.send(beginning);
        client
    };
    let heads = (0..4).map(|_| begin(Client::connect(plain), b"GET /f HTTP/1.1\r\nHost:"));
    let handshakes = (0..4).map(|_| begin(Client::connect(secure), b"\x16\x03\x01\x02"));
    let mut slow: Vec<_> = heads.chain(handshakes).collect();
    until("all are accepted", || {
        metric(server.metrics(), "softclock_connections_open") >= 8.0
    });
    for _ in 0..8 {
        let mut client = Client::connect(plain);
        client.send(b"GET /f HTTP/1.1\r\nHost: t\r\n\r\n");
        assert_eq!(client.response("GET").status, 200);
        slow.push(client);
    }
    assert_eq!(slow[0].rest(), b"", "the oldest head was given up");
    assert_eq!(slow[4].rest(), b"", "the oldest handshake was given up");
    assert!(server.reached("shed_connections") >= 8.0);
}

/// Each timeout of a client is counted once, under its own name; those of idle connections are not logged.
#[test]
fn timeouts_of_clients_are_counted() {
    let directory = tls::with_site(&[("site/f", b"file")]);
    let options = [
        ["--listen", "127.0.0.1:0"],
        ["--metrics", "127.0.0.1:0"],
        ["--first-byte-timeout", "0.3"],
        ["--head-timeout", "0.3"],
        ["--idle-timeout", "0.3"],
    ];
    let server = tls::start(&directory, &options.concat());
    let (secure, plain) = (server.addresses()[0], server.addresses()[1]);
    let mut handshake = Client::connect(secure);
    handshake.send(b"\x16");
    let mut head = Client::connect(plain);
    head.send(b"GET /f HTTP/1.1\r\n");
    let mut idle = Client::connect(plain);
    assert_eq!(idle.get("/f").text(), "file");
    let mut idle_in_2 = Http2::connect(secure, &directory.path().join("cert.pem"));
    idle_in_2.send(&get(1, "/f"));
    assert_eq!(idle_in_2.outcome(1), Outcome::Status(200));
    let silent = [plain, secure].map(Client::connect);
    for mut client in silent.into_iter().chain([idle, handshake]) {
        assert_eq!(client.rest(), b"");
    }
    assert_eq!(head.response("GET").status, 408);
    while idle_in_2.next().is_some() {}
    for (limit, count, is_logged) in [
        ("first_byte_timeout", 2.0, false),
        ("head_timeout", 1.0, true),
        ("handshake_timeout", 1.0, true),
        ("idle_timeout", 2.0, false),
    ] {
        assert_eq!(server.reached(limit), count, "{limit}");
        let logged = || server.log().contains(&format!("limit=\"{limit}\""));
        match is_logged {
            true => until(limit, logged),
            false => assert!(!logged(), "{limit}"),
        }
    }
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

#[test]
fn the_limit_of_connections_is_that_of_all_threads() {
    let directory = directory(&[("big", &[1; 20_000_000]), ("small", b"small")]);
    let options = ["--threads", "4", "--max-connections", "1"];
    let options = [&options[..], &["--metrics", "127.0.0.1:0"]].concat();
    let server = Server::start(Some(directory.path()), &options);
    let mut busy = server.connect();
    busy.send(b"GET /big HTTP/1.1\r\nHost: t\r\n\r\n");
    assert_eq!(busy.head().status, 200);
    let mut waiting: Vec<_> = (0..6).map(|_| server.connect()).collect();
    for client in &mut waiting {
        client.send(b"GET /small HTTP/1.1\r\nHost: t\r\n\r\n");
    }
    until("they wait", || server.reached("max_connections") > 0.0);
    thread::sleep(Duration::from_millis(100));
    let sample = |name| metric(server.metrics(), name);
    assert_eq!(sample("softclock_connections_open"), 1.0);
    assert_eq!(sample("softclock_connections_limit"), 1.0);
    drop(busy);
    // Each is idle after its response, and leaves for the next, whatever their threads are.
    for client in &mut waiting {
        assert_eq!(client.response("GET").text(), "small");
    }
}

/// Descriptors run out under a running server: it stops accepting for a while, answers 503 where it can, and recovers
/// when descriptors are free again.
#[test]
fn descriptors_run_out_and_come_back() {
    let directory = directory(&[("index.html", b"index")]);
    let server = Server::start(Some(directory.path()), &[]);
    assert_eq!(server.connect().get("/").status, 200);
    let held = idle_clients(&server, 20);
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
    // Lowers the limit of open files without the server's knowledge.
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
