//! HTTP/2 clients that open no window, and a lack of descriptors: the effects on others, and the release of resources.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_socket_recv_buffer_size;
use rustix::process::{Resource, Rlimit, getrlimit, prlimit};
use softclock_testing::KilledOnDrop;
use tempfile::TempDir;

use crate::own_stack::connection_descriptors;
use crate::server::{Server, directory, metric};
use crate::tls::{curl, with_site};

/// A connection of HTTP/2 whose frames are made by hand, through openssl. Pings are answered.
struct Raw {
    _child: KilledOnDrop,
    input: Arc<Mutex<ChildStdin>>,
    seen: Arc<Mutex<Seen>>,
}

/// The frames received from the server.
#[derive(Clone, Default, Debug)]
struct Seen {
    heads: usize,
    /// Streams and the error codes that they were reset with.
    resets: Vec<(u32, u32)>,
    /// Bytes of content, by stream.
    content: std::collections::HashMap<u32, usize>,
    /// The error code of the connection's end.
    goaway: Option<u32>,
    has_ended: bool,
}

const HEADERS: u8 = 1;
const DATA: u8 = 0;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const ACK: u8 = 1;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let stream = stream.to_be_bytes();
    [&length[1..], &[kind, flags], &stream, payload].concat()
}

fn read_frames(
    mut output: ChildStdout,
    input: &Mutex<ChildStdin>,
    seen: &Mutex<Seen>,
) -> std::io::Result<()> {
    loop {
        let mut head = [0; 9];
        output.read_exact(&mut head)?;
        let number = |bytes: &[u8]| bytes.iter().fold(0, |n, &byte| n << 8 | u32::from(byte));
        let mut payload = vec![0; number(&head[..3]) as usize];
        output.read_exact(&mut payload)?;
        let (kind, flags, stream) = (head[3], head[4], number(&head[5..]));
        if kind == PING && flags & ACK == 0 {
            send(input, &frame(PING, ACK, 0, &payload));
        }
        let mut seen = seen.lock().unwrap();
        match kind {
            HEADERS => seen.heads += 1,
            DATA => *seen.content.entry(stream).or_default() += payload.len(),
            GOAWAY => seen.goaway = Some(number(&payload[4..8])),
            RST_STREAM => seen.resets.push((stream, number(&payload))),
            _ => {}
        }
    }
}

fn send(input: &Mutex<ChildStdin>, bytes: &[u8]) {
    let mut input = input.lock().unwrap();
    // Ignore the error: the reader notices a closed connection.
    let _ = input.write_all(bytes).and_then(|()| input.flush());
}

impl Raw {
    /// A client whose streams have no window at first.
    fn connect(address: SocketAddr) -> Self {
        let mut command = Command::new("openssl");
        command.args(["s_client", "-quiet", "-ign_eof", "-alpn", "h2", "-connect"]);
        command.arg(address.to_string());
        let piped = Stdio::piped;
        command.stdin(piped()).stdout(piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let input = Arc::new(Mutex::new(input));
        let seen = Arc::<Mutex<Seen>>::default();
        let (shared, answers) = (Arc::clone(&seen), Arc::clone(&input));
        thread::spawn(move || {
            let _ = read_frames(output, &answers, &shared);
            shared.lock().unwrap().has_ended = true;
        });
        let this = Self {
            _child: KilledOnDrop::new(child),
            input,
            seen,
        };
        let no_window = [0, 4, 0, 0, 0, 0];
        this.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        this.send(&frame(SETTINGS, 0, 0, &no_window));
        this.open_window(0, 1 << 30);
        this
    }

    fn send(&self, bytes: &[u8]) {
        send(&self.input, bytes);
    }

    fn get(&self, stream: u32, path: &str) {
        let mut block = vec![0x82, 0x87, 0x04, u8::try_from(path.len()).unwrap()];
        block.extend_from_slice(path.as_bytes());
        block.extend_from_slice(&[0x01, 1, b't']);
        self.send(&frame(HEADERS, 5, stream, &block));
    }

    fn open_window(&self, stream: u32, bytes: u32) {
        self.send(&frame(WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes()));
    }

    fn seen(&self) -> Seen {
        self.seen.lock().unwrap().clone()
    }
}

/// Waits for a condition for as long as timeouts may take on a busy machine.
fn until_late(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < deadline, "in vain: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// A server with few descriptors.
fn start(directory: &TempDir, descriptors: u32, options: &[&str]) -> Server {
    let path = |name: &str| directory.path().join(name);
    let script = format!("ulimit -n {descriptors} && exec \"$0\" \"$@\"");
    let mut command = Command::new("sh");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_softclock"), "serve"]);
    command.args(["--listen", "tls:127.0.0.1:0"]).args(options);
    command.arg("--tls-cert").arg(path("cert.pem"));
    command
        .arg("--tls-key")
        .arg(path("key.pem"))
        .arg(path("site"));
    Server::spawn(&mut command)
}

/// How often a limit was reached.
fn reached(server: &Server, limit: &str) -> u64 {
    let name = format!("softclock_limits_reached_total{{limit=\"{limit}\"}}");
    metric(server.metrics(), &name) as u64
}

const METRICS: &[&str] = &["--metrics", "127.0.0.1:0"];

const ENHANCE_YOUR_CALM: u32 = 0xb;

const BIG_BYTES: usize = 1_000_000;

fn site() -> TempDir {
    let big = vec![b'b'; BIG_BYTES];
    with_site(&[
        ("site/big", &big),
        ("site/other", &big),
        ("site/small", b"small"),
    ])
}

/// Has connections of 100 streams each ask for a large file and take nothing.
fn stalled_streams(options: &[&str]) {
    let directory = site();
    let options = [&["--threads", "1", "--send-timeout", "4"], METRICS, options].concat();
    let server = start(&directory, 256, &options);
    assert_eq!(
        curl(directory.path(), &server, "/small", &["--http2"]).stdout,
        b"small"
    );
    let before = server.descriptors();
    let stalled: Vec<_> = (0..4).map(|_| Raw::connect(server.address())).collect();
    for connection in &stalled {
        for number in 0..100 {
            connection.get(2 * number + 1, "/big");
        }
    }
    let heads = || {
        stalled
            .iter()
            .map(|connection| connection.seen().heads)
            .sum::<usize>()
    };
    until_late("all heads", || heads() == 400);
    for path in ["/small", "/other"] {
        let output = curl(directory.path(), &server, path, &["--http2"]);
        let bytes = if path == "/small" { 5 } else { BIG_BYTES };
        assert_eq!(
            output.stdout.len(),
            bytes,
            "{path}: {output:?}",
            output = output.stderr
        );
    }
    for connection in &stalled {
        until_late("the connection ended", || connection.seen().has_ended);
        let seen = connection.seen();
        assert!(seen.content.is_empty());
        // The client answers pings, so the connection can only have ended because all its streams take nothing.
        assert_eq!(seen.goaway, Some(ENHANCE_YOUR_CALM), "{seen:?}");
    }
    assert_eq!(reached(&server, "stalled_connection"), 4);
    assert!(reached(&server, "open_files") > 0);
    until_late("descriptors given back", || {
        server.descriptors() <= before + 4
    });
    let lines = server.log().lines().count();
    assert!(lines < 100, "{lines} lines: {}", server.log());
}

#[test]
fn stalled_streams_leave_descriptors_to_others() {
    softclock_testing::require!("curl", "openssl");
    stalled_streams(&[]);
}

#[test]
fn stalled_streams_of_a_paced_server_are_reset() {
    softclock_testing::require!("curl", "openssl");
    stalled_streams(&["--pace", "50mbit"]);
}

/// One stream gets no window; the other one gets window steadily, less or more than the server's pace.
fn one_of_two(options: &[&str], window: u32) {
    let directory = site();
    let options = [&["--threads", "1", "--send-timeout", "2"], METRICS, options].concat();
    let server = start(&directory, 256, &options);
    let client = Raw::connect(server.address());
    client.get(1, "/big");
    client.get(3, "/big");
    let mut rounds = 0;
    until_late("the stalled stream is reset", || {
        client.open_window(3, window);
        rounds += 1;
        let seen = client.seen();
        assert!(
            !seen.has_ended && seen.resets.iter().all(|reset| *reset == (1, 8)),
            "{seen:?} {}",
            server.log()
        );
        seen.resets.len() == 1
    });
    // The other one stays open for several more timeouts.
    let begun = Instant::now();
    let before = client.seen().content[&3];
    while begun.elapsed() < Duration::from_secs(8) {
        client.open_window(3, window);
        rounds += 1;
        thread::sleep(Duration::from_millis(100));
    }
    let seen = client.seen();
    assert_eq!(
        seen.resets,
        [(1, 8)],
        "{rounds} rounds, {seen:?} {}",
        server.log()
    );
    assert!(
        !seen.has_ended && seen.content[&3] > before,
        "{seen:?} {}",
        server.log()
    );
    assert!(!seen.content.contains_key(&1));
    assert_eq!(reached(&server, "stalled_stream"), 1);
    assert_eq!(reached(&server, "stalled_connection"), 0);
}

#[test]
fn a_stream_taken_slowly_is_not_reset_beside_one_that_stalls() {
    softclock_testing::require!("openssl");
    one_of_two(&[], 100);
}

#[test]
fn a_stream_whose_bytes_wait_for_the_pace_is_not_reset() {
    softclock_testing::require!("openssl");
    one_of_two(&["--pace", "64kbit"], 2_000);
    // Less window than the pace.
    one_of_two(&["--pace", "64kbit"], 20);
}

/// A stream whose client takes a little of it again and again is reset for the least rate, beside one that takes
/// enough.
#[test]
fn a_stream_taken_too_slowly_is_reset() {
    softclock_testing::require!("openssl");
    let directory = site();
    let options = [&["--threads", "1", "--min-rate", "256"], METRICS].concat();
    let server = start(&directory, 256, &options);
    let client = Raw::connect(server.address());
    client.get(1, "/big");
    client.get(3, "/big");
    until_late("the slow stream is reset", || {
        thread::sleep(Duration::from_millis(500));
        client.open_window(1, 1);
        client.open_window(3, 8_000);
        let seen = client.seen();
        assert!(!seen.has_ended, "{seen:?} {}", server.log());
        !seen.resets.is_empty()
    });
    let seen = client.seen();
    assert_eq!(seen.resets, [(1, 8)], "{seen:?}");
    assert!(seen.content[&1] > 0 && seen.content[&3] > 100 * seen.content[&1]);
    assert_eq!(reached(&server, "stalled_stream"), 1);
    assert_eq!(reached(&server, "stalled_connection"), 0);
}

/// An error of the socket does not count as a limit of the server.
#[test]
fn an_error_of_the_socket_is_no_stall() {
    softclock_testing::require!("openssl", "strace");
    let directory = site();
    let options = [&["--threads", "1"], METRICS].concat();
    let server = start(&directory, 256, &options);
    let client = Raw::connect(server.address());
    client.open_window(0, 1);
    client.get(1, "/small");
    until_late("a head", || client.seen().heads == 1);
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "-p", &server.id().to_string()]);
    strace.args(["-e", "trace=sendto,sendmsg,write,writev"]);
    strace.args(["-e", "inject=sendto,sendmsg,writev:error=ETIMEDOUT"]);
    strace.stdout(Stdio::null()).stderr(Stdio::null());
    let mut strace = strace.spawn().unwrap();
    let status = || std::fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
    until_late("traced", || !status().contains("TracerPid:\t0\n"));
    client.get(3, "/small");
    until_late("the connection ended", || client.seen().has_ended);
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&strace),
        rustix::process::Signal::INT,
    )
    .unwrap();
    strace.wait().unwrap();
    assert_eq!(client.seen().heads, 1);
    assert_eq!(reached(&server, "stalled_connection"), 0);
}

/// The end of a response that waits for the pace is watched as the rest is: its client takes none of it, and the
/// connection is reset.
#[test]
fn a_paced_end_that_is_not_taken_is_let_go() {
    let big = vec![b'b'; 2_000_000];
    let directory = directory(&[("big", &big), ("small", b"small")]);
    let options = ["--send-timeout", "2", "--pace", "200mbit", "--threads", "1"];
    let options = [&options, METRICS].concat();
    let server = Server::start(Some(directory.path()), &options);
    let mut other = server.connect();
    assert_eq!(other.get("/small").text(), "small");
    let before = server.descriptors();
    // The kernel decides how much it buffers: some of these responses end within the room for paced bytes.
    let clients: Vec<_> = (0..48)
        .map(|number| {
            let mut client = TcpStream::connect(server.address()).unwrap();
            let _ = set_socket_recv_buffer_size(&client, 4_096);
            let last = 300_000 + 16_000 * number;
            let range = format!("Range: bytes=0-{last}\r\nConnection: close");
            let request = format!("GET /big HTTP/1.1\r\nHost: t\r\n{range}\r\n\r\n");
            client.write_all(request.as_bytes()).unwrap();
            client
        })
        .collect();
    until_late("accepted", || server.descriptors() > before + 8);
    let begun = Instant::now();
    until_late("descriptors given back", || server.descriptors() <= before);
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(30), "{took:?}");
    assert!(reached(&server, "stalled_connection") > 0);
    drop(clients);
}

/// The end of a response that waits encrypted for the client is watched as the rest is.
#[test]
fn an_encrypted_end_that_is_not_taken_is_let_go() {
    softclock_testing::require!("openssl");
    let directory = with_site(&[("site/big", &vec![b'b'; 4_000_000])]);
    let options = [&["--threads", "1", "--send-timeout", "2"], METRICS].concat();
    let server = start(&directory, 1_024, &options);
    let before = server.descriptors();
    // As above; at most 64 KiB wait encrypted. The output of openssl is not read.
    let mut clients: Vec<_> = (0..32)
        .map(|number| {
            let mut command = Command::new("openssl");
            command.args(["s_client", "-quiet", "-ign_eof", "-connect"]);
            command.arg(server.address().to_string());
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut client = command.stderr(Stdio::null()).spawn().unwrap();
            let last = 500_000 + 40_000 * number;
            let range = format!("Range: bytes=0-{last}\r\nConnection: close");
            let request = format!("GET /big HTTP/1.1\r\nHost: t\r\n{range}\r\n\r\n");
            let input = client.stdin.as_mut().unwrap();
            input.write_all(request.as_bytes()).unwrap();
            client
        })
        .collect();
    until_late("a stall", || reached(&server, "stalled_connection") > 0);
    until_late("descriptors given back", || {
        server.descriptors() <= before + 4
    });
    for client in &mut clients {
        client.kill().unwrap();
        client.wait().unwrap();
    }
}

/// A paced connection whose client reads nothing is reset after the timeout, and its descriptor is released.
#[test]
fn a_paced_client_of_http_1_that_takes_nothing_is_let_go() {
    let big = vec![b'b'; 20_000_000];
    let directory = directory(&[("big", &big), ("small", b"small")]);
    let options = ["--send-timeout", "1", "--pace", "200mbit", "--threads", "1"];
    let server = Server::start(Some(directory.path()), &options);
    let mut other = server.connect();
    assert_eq!(other.get("/small").text(), "small");
    let before = server.descriptors();
    let mut client = TcpStream::connect(server.address()).unwrap();
    let _ = set_socket_recv_buffer_size(&client, 4_096);
    client
        .write_all(b"GET /big HTTP/1.1\r\nHost: t\r\n\r\n")
        .unwrap();
    until_late("the file opened", || {
        server.descriptors() > before + connection_descriptors()
    });
    let begun = Instant::now();
    until_late("descriptors given back", || server.descriptors() <= before);
    assert!(
        begun.elapsed() < Duration::from_secs(30),
        "{:?}",
        begun.elapsed()
    );
}

/// Without descriptors, cached files are served even if they are due for revalidation, and the log grows by one line a
/// second.
#[test]
fn files_in_memory_are_served_without_descriptors() {
    let content = [b'x'; 1_000];
    let directory = directory(&[("small", &content), ("other", b"other")]);
    let options = ["--cache-revalidate", "0.01", "--threads", "1"];
    let server = Server::start(Some(directory.path()), &options);
    let mut client = server.connect();
    // Files that were changed very recently are not cached.
    thread::sleep(Duration::from_millis(2_100));
    for _ in 0..3 {
        assert_eq!(client.get("/small").body, content);
    }
    let limit = Rlimit {
        current: Some(server.descriptors() as u64),
        maximum: getrlimit(Resource::Nofile).maximum,
    };
    let old = prlimit(Some(server.pid()), Resource::Nofile, limit).unwrap();
    let begun = Instant::now();
    for _ in 0..300 {
        assert_eq!(client.get("/other").status, 503);
        let small = client.get("/small");
        assert_eq!((small.status, small.body.as_slice()), (200, &content[..]));
    }
    server.until_logged("limit reached");
    let log = server.log();
    let lines = log
        .lines()
        .filter(|line| line.contains("limit reached"))
        .count() as u64;
    assert!(
        (1..=begun.elapsed().as_secs() + 2).contains(&lines),
        "{log}"
    );
    prlimit(Some(server.pid()), Resource::Nofile, old).unwrap();
    assert_eq!(client.get("/other").text(), "other");
}
