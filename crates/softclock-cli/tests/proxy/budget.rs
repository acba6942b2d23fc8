//! The limit of connections to all upstreams together: the behaviour at the limit, and that each connection is
//! returned.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::client::Client;
use crate::h2_frames::{HEADERS, Http2, get};
use crate::reply::Reply;
use crate::server::{Server, directory, metric, softclock, until};
use crate::tls::make_certificate;
use crate::upstream::{Upstream, free_addresses, proxy};

/// Of these less 64, half are for clients and half for upstreams.
const DESCRIPTORS: usize = 256;

const PLACES: usize = (DESCRIPTORS - 64) / 2;

const STREAMS: usize = 120;

/// A proxy with few descriptors, with a plain address and a TLS address.
fn start(directory: &TempDir, upstream: &Upstream, options: &[&str]) -> Server {
    let (certificate, key) = make_certificate(directory);
    let script = format!("ulimit -n {DESCRIPTORS} && exec \"$0\" \"$@\"");
    let mut command = Command::new("sh");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_softclock"), "proxy"]);
    command.args(["--listen", "127.0.0.1:0", "--listen", "tls:127.0.0.1:0"]);
    command.args(["--tls-cert", &certificate, "--tls-key", &key]);
    command.args(["--upstream", &upstream.url()]).args(options);
    Server::spawn(&mut command)
}

/// Waits for a condition for as long as timeouts may take on a busy machine.
fn until_late(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < deadline, "in vain: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Requests more than sockets hold, in streams without a window, and waits for all heads.
fn stall(proxy: &Server, directory: &TempDir) -> Http2 {
    let no_window = [0, 1, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0];
    let trusted = directory.path().join("cert.pem");
    let mut client = Http2::with_settings(proxy.addresses()[1], &trusted, &no_window);
    for number in 0..STREAMS as u32 {
        assert!(client.send(&get(2 * number + 1, "/big")));
    }
    let mut heads = 0;
    while heads < STREAMS {
        let frame = client.next().expect("the rest of the heads");
        heads += usize::from(frame.kind == HEADERS);
    }
    client
}

#[test]
fn stalled_streams_leave_descriptors_to_accept_with() {
    for threads in ["1", "2"] {
        let directory = directory(&[]);
        let upstream = Upstream::start(|connection| {
            while let Some(request) = connection.request() {
                if !request.line.contains("big") {
                    connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
                    continue;
                }
                connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n");
                while connection.try_send(&[b'x'; 65_536]) {}
            }
        });
        let options = ["--max-fails", "1", "--fail-time", "100", "--send-timeout"];
        let more = ["4", "--metrics", "127.0.0.1:0", "--threads", threads];
        let proxy = start(&directory, &upstream, &[options, more].concat());
        let mut early = proxy.connect();
        assert_eq!(early.ask("GET", "/", &[]).text(), "ok");
        let before = proxy.descriptors();
        let stalled = [(); 3].map(|()| stall(&proxy, &directory));
        // Some streams may have been reset since, if the machine is slow.
        let mut ask = || {
            [
                proxy.connect().ask("GET", "/", &[]),
                early.ask("GET", "/", &[]),
            ]
        };
        for reply in ask() {
            let expected = match reply.status {
                200 => (200, None),
                _ => (503, Some("1")),
            };
            assert_eq!((reply.status, reply.header("retry-after")), expected);
        }
        let limit = "softclock_limits_reached_total{limit=\"upstream_connections\"}";
        assert!(metric(proxy.metrics(), limit) > 0.0);
        let most = before + PLACES + stalled.len() + 2;
        assert!(proxy.descriptors() <= most, "{}", proxy.descriptors());
        until_late("places given back", || {
            ask().iter().all(|reply| reply.status == 200)
        });
        until_late("descriptors given back", || {
            proxy.descriptors() <= before + stalled.len() + 2
        });
        let up = format!(
            "softclock_upstream_up_threads{{upstream=\"{}\"}}",
            upstream.url()
        );
        assert_eq!(metric(proxy.metrics(), &up).to_string(), threads);
        let log = proxy.log();
        assert!(!log.contains("left out") && !log.contains("cannot accept"));
        assert!(!log.contains("no descriptors"), "{log}");
        let lines = log.matches("limit=\"upstream_connections\"").count();
        assert!((1..60).contains(&lines), "{log}");
    }
}

/// The answer to a request on a new connection.
fn ask(proxy: &Server) -> Reply {
    proxy.connect().ask("GET", "/", &[])
}

#[test]
fn idle_connections_make_room() {
    for threads in ["1", "4"] {
        let upstreams = ["a", "b", "c"].map(Upstream::saying);
        let urls = upstreams.each_ref().map(Upstream::url);
        let options = ["--threads", threads, "--max-upstream-connections", "2"];
        let options = [&options[..], &["--metrics", "127.0.0.1:0"]].concat();
        let proxy = proxy(&urls.each_ref().map(String::as_str), &options);
        for _ in 0..60 {
            assert_eq!(ask(&proxy).status, 200);
        }
        let count = |name: &str| {
            let of = |url| metric(proxy.metrics(), &format!("{name}{{upstream=\"{url}\"}}"));
            urls.iter().map(of).sum::<f64>()
        };
        assert!(count("softclock_upstream_idle_connections") <= 2.0);
        assert!(count("softclock_upstream_connections_total") >= 20.0);
        let limit = "softclock_limits_reached_total{limit=\"upstream_connections\"}";
        assert_eq!(metric(proxy.metrics(), limit), 0.0);
    }
}

#[test]
fn tries_in_vain_give_their_place_back() {
    let closing = Upstream::start(|connection| drop(connection.request()));
    let good = Upstream::saying("good");
    let [nobody] = free_addresses();
    let urls = [closing.url(), format!("http://{nobody}"), good.url()];
    let options = ["--max-upstream-connections", "1", "--max-fails", "0"];
    let proxy = proxy(&urls.each_ref().map(String::as_str), &options);
    for _ in 0..30 {
        assert_eq!(ask(&proxy).text(), "good");
    }
    assert!(closing.connections() >= 10);
}

#[test]
fn what_holds_the_only_place_gives_it_back() {
    let upstream = Upstream::start(|connection| {
        while let Some(request) = connection.head() {
            match request.line.split(' ').nth(1).expect("a target") {
                "/tunnel" => {
                    let head = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n";
                    connection.send(format!("{head}Upgrade: echo\r\n\r\n").as_bytes());
                    drop(connection.rest());
                }
                "/upload" => {
                    connection.send(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno");
                    connection.body(9);
                }
                "/part" => {
                    connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\npart");
                    drop(connection.rest());
                }
                "/silent" => drop(connection.rest()),
                _ => connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"),
            }
        }
    });
    let options = ["--max-upstream-connections", "1", "--max-fails", "1"];
    let options = [
        &options[..],
        &["--upload-buffer", "4", "--fail-time", "100"],
    ]
    .concat();
    let proxy = proxy(&[&upstream.url()], &options);
    let upgrade = "Connection: Upgrade\r\nUpgrade: echo\r\n\r\n";
    for (line, rest, answers) in [
        ("GET /tunnel", upgrade, true),
        ("POST /upload", "Content-Length: 9\r\n\r\nhalf", true),
        ("GET /part", "\r\n", true),
        ("GET /silent", "\r\n", false),
    ] {
        let mut holder = proxy.connect();
        holder.send(format!("{line} HTTP/1.1\r\nHost: h\r\n{rest}").as_bytes());
        if answers {
            holder.head();
        }
        until(line, || ask(&proxy).status == 503);
        holder.reset();
        until("the place is free", || ask(&proxy).status == 200);
    }
    assert!(!proxy.log().contains("left out"), "{}", proxy.log());
}

#[test]
fn a_reload_keeps_the_count() {
    let upstream = |text: &'static str| {
        Upstream::start(move |connection| {
            while let Some(request) = connection.request() {
                let head = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n";
                connection.send(format!("{head}{}", &text[..2]).as_bytes());
                if request.line.contains("hold") {
                    drop(connection.rest());
                }
                connection.send(&text.as_bytes()[2..]);
            }
        })
    };
    let (old, new) = (upstream("old."), upstream("new."));
    let directory = directory(&[]);
    let file = directory.path().join("proxy.toml");
    let write = |upstream: &Upstream, limit: u32| {
        let url = upstream.url();
        let limit = format!("max-upstream-connections = {limit}");
        fs::write(
            &file,
            format!("upstream = \"{url}\"\nlisten = \"127.0.0.1:0\"\n{limit}\n"),
        )
        .unwrap();
    };
    write(&old, 1);
    let mut command = softclock();
    let command = command.args(["proxy", "-v", "--threads", "2", "--config"]);
    let proxy = Server::spawn(command.arg(&file));
    let hold = || {
        let mut client: Client = proxy.connect();
        client.send(b"GET /hold HTTP/1.1\r\nHost: h\r\n\r\n");
        assert_eq!(client.head().status, 200);
        client
    };
    let reloaded = |times| {
        until("reloaded", || {
            proxy.log().matches("reloaded").count() == times
        })
    };
    let first = hold();
    assert_eq!(ask(&proxy).status, 503);
    write(&new, 1);
    proxy.signal(Signal::HUP);
    reloaded(1);
    let is_still_full = (0..10).all(|_| ask(&proxy).status == 503);
    assert!(is_still_full, "the connection to the old upstream counts");
    write(&new, 2);
    proxy.signal(Signal::HUP);
    reloaded(2);
    until("room for a second", || ask(&proxy).text() == "new.");
    let second = hold();
    assert_eq!(ask(&proxy).status, 503);
    first.reset();
    second.reset();
    until("given back", || ask(&proxy).text() == "new.");
}
