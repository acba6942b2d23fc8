//! The metrics: their values, and Prometheus' format.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::{Duration, Instant};

use softclock_linux::readiness::Poller;

use crate::client::Client;
use crate::server::{Server, metric};

/// Samples by name and labels as they stand there.
type Samples = BTreeMap<String, f64>;

/// Reads a page strictly: each family has HELP and TYPE, stands in one piece, and has samples of its name only.
fn parse(text: &str) -> Samples {
    assert!(text.ends_with('\n'));
    let mut samples = Samples::new();
    let (mut family, mut kind) = ("", "");
    let mut families = BTreeSet::new();
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, words) = help.split_once(' ').expect("words of help");
            assert!(families.insert(name) && words.ends_with('.'), "{line}");
            family = name;
        } else if let Some(declared) = line.strip_prefix("# TYPE ") {
            let (name, declared) = declared.split_once(' ').expect("a type");
            assert_eq!(name, family);
            assert!(
                ["counter", "gauge", "histogram"].contains(&declared),
                "{line}"
            );
            kind = declared;
            assert_eq!(name.ends_with("_total"), kind == "counter", "{line}");
        } else {
            let (key, value) = line.rsplit_once(' ').expect("a value");
            let name = key.split('{').next().unwrap();
            let suffix = name
                .strip_prefix(family)
                .unwrap_or_else(|| panic!("{line} in {family}"));
            match kind {
                "histogram" => assert!(["_bucket", "_sum", "_count"].contains(&suffix), "{line}"),
                _ => assert_eq!(suffix, "", "{line}"),
            }
            let legal = |c: char| c.is_ascii_alphanumeric() || c == '_';
            assert!(name.chars().all(legal), "{line}");
            assert_eq!(key.contains('{'), key.ends_with('}'), "{line}");
            let value: f64 = value.parse().expect("a number");
            assert!(
                samples.insert(key.into(), value).is_none(),
                "{line} is repeated"
            );
        }
    }
    samples
}

fn scrape(server: &Server) -> Samples {
    let response = Client::connect(server.metrics()).get("/metrics");
    let kind = response.header("content-type");
    assert_eq!(
        (response.status, kind),
        (200, Some("text/plain; version=0.0.4; charset=utf-8"))
    );
    parse(response.text())
}

/// A histogram's cumulative counts by bound.
fn buckets(samples: &Samples, name: &str) -> Vec<(f64, f64)> {
    let start = format!("{name}_bucket{{le=\"");
    let own = samples.iter().filter_map(|(key, &count)| {
        let bound = key.strip_prefix(&start)?.strip_suffix("\"}")?;
        Some((bound.replace("+Inf", "inf").parse().unwrap(), count))
    });
    let mut all: Vec<(f64, f64)> = own.collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    all
}

#[test]
fn requests_and_connections_of_all_threads_are_counted() {
    let server = Server::start(None, &["--threads", "2", "--metrics", "127.0.0.1:0"]);
    let mut bytes = 0;
    for _ in 0..20 {
        let mut client = server.connect();
        bytes += client.get("/").body.len();
        bytes += client.get("/missing").body.len();
        assert_eq!(client.request("HEAD", "/", &[]).status, 200);
        client.request("BREW", "/", &[]);
    }
    let samples = scrape(&server);
    let response = |method: &str, class: &str| {
        samples[&format!("softclock_http_responses_total{{method=\"{method}\",class=\"{class}\"}}")]
    };
    assert_eq!(
        (response("GET", "2xx"), response("GET", "4xx")),
        (20.0, 20.0)
    );
    assert_eq!(
        (response("HEAD", "2xx"), response("other", "4xx")),
        (20.0, 20.0)
    );
    assert!(samples["softclock_http_body_bytes_total"] >= bytes as f64);
    assert_eq!(samples["softclock_connections_accepted_total"], 20.0);
    assert_eq!(samples["softclock_threads"], 2.0);
    assert!(samples["softclock_connections_limit"] >= 2.0);
    let open = samples["softclock_connections_open"];
    assert!((0.0..25.0).contains(&open), "{open}");
    assert!(!samples.contains_key("softclock_access_log_lines_total"));
}

#[test]
fn histograms_are_whole() {
    let server = Server::start(None, &["--metrics", "127.0.0.1:0"]);
    let mut client = server.connect();
    for _ in 0..50 {
        client.get("/");
    }
    let samples = scrape(&server);
    for name in [
        "softclock_trigger_interval_seconds",
        "softclock_event_lateness_seconds",
    ] {
        let buckets = buckets(&samples, name);
        assert!(buckets.len() > 40, "{name}");
        assert!(
            buckets.is_sorted_by(|a, b| a.1 <= b.1),
            "{name} is cumulative"
        );
        assert_eq!(buckets.last().unwrap().0, f64::INFINITY);
        assert_eq!(buckets.last().unwrap().1, samples[&format!("{name}_count")]);
    }
    let of_source =
        |source: &str| samples[&format!("softclock_trigger_states_total{{source=\"{source}\"}}")];
    assert!(of_source("receive") >= 50.0 && of_source("send") >= 50.0);
    let all: f64 = samples
        .iter()
        .filter(|(key, _)| key.starts_with("softclock_trigger_states_total"))
        .map(|(_, count)| count)
        .sum();
    assert_eq!(all, samples["softclock_trigger_interval_seconds_count"]);
    assert!(samples["softclock_blocked_seconds_total"] > 0.0);
    let clock = |key: &&String| key.starts_with("softclock_clock_info{source=\"");
    assert_eq!(samples.keys().filter(clock).count(), 1);
}

#[test]
fn only_metrics_are_told_there_and_not_on_the_site() {
    let server = Server::start(None, &["--metrics", "127.0.0.1:0"]);
    assert_eq!(server.connect().get("/metrics").status, 404);
    let mut client = Client::connect(server.metrics());
    assert_eq!(client.get("/").status, 404);
    let response = client.request("POST", "/metrics", &["Content-Length: 0"]);
    assert_eq!(
        (response.status, response.header("allow")),
        (405, Some("GET, HEAD"))
    );
    assert_eq!(client.request("HEAD", "/metrics", &[]).status, 200);
}

#[test]
fn the_mechanism_of_readiness_can_be_chosen() {
    for name in ["io_uring", "epoll", "poll", "select"] {
        if !works(name) {
            softclock_testing::skip!("no {name}");
        }
        let options = ["--events", name, "--threads", "2", "-v"];
        let server = Server::start(
            None,
            &[&options[..], &["--metrics", "127.0.0.1:0"]].concat(),
        );
        for _ in 0..3 {
            assert_eq!(server.connect().get("/").status, 200);
        }
        let info = format!("softclock_readiness_info{{mechanism=\"{name}\"}}");
        assert_eq!(scrape(&server)[&info], 1.0);
        server.until_logged(&format!("events={name}"));
    }
}

#[test]
fn a_mechanism_taken_for_want_of_another_is_told_with_the_reason() {
    softclock_testing::require!("strace");
    // The server is the child process, and strace the child of the server.
    let mut command = Command::new("strace");
    command.args("-D -f -o /dev/null -e inject=epoll_create1:error=EPERM".split(' '));
    command.arg(env!("CARGO_BIN_EXE_softclock"));
    command.args(["serve", "--listen", "127.0.0.1:0"]);
    let server = Server::spawn(command.env_remove("SOFTCLOCK_EVENTS"));
    server.until_logged("WARN cannot use epoll: Operation not permitted (os error 1) events=poll");
}

/// So that tests run again by another mechanism are.
#[test]
fn the_environment_names_the_mechanism() {
    let name = std::env::var("SOFTCLOCK_EVENTS").unwrap_or("epoll".into());
    let server = Server::start(None, &["--metrics", "127.0.0.1:0"]);
    let info = format!("softclock_readiness_info{{mechanism=\"{name}\"}}");
    assert_eq!(scrape(&server)[&info], 1.0);
}

/// A connection to the metrics, over TCP or a Unix socket.
trait Connection: Read + Write {
    /// Makes calls fail that would wait.
    fn never_wait(&self);
}

impl Connection for TcpStream {
    fn never_wait(&self) {
        self.set_nonblocking(true).unwrap();
    }
}

impl Connection for UnixStream {
    fn never_wait(&self) {
        self.set_nonblocking(true).unwrap();
    }
}

/// A server with metrics over TCP and over a Unix socket, and how to connect to each.
fn with_metrics() -> (Server, [impl Fn() -> Box<dyn Connection>; 2]) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("metrics");
    let unix = format!("unix:{}", path.display());
    let server = Server::start(None, &["--metrics", "127.0.0.1:0", "--metrics", &unix]);
    let address = server.metrics();
    let directory = std::rc::Rc::new(directory);
    let connect = |is_unix| {
        let (path, directory) = (path.clone(), directory.clone());
        move || -> Box<dyn Connection> {
            let _kept = &directory;
            let limit = Some(Duration::from_secs(20));
            if is_unix {
                let stream = UnixStream::connect(&path).unwrap();
                stream.set_read_timeout(limit).unwrap();
                return Box::new(stream);
            }
            let stream = TcpStream::connect(address).unwrap();
            stream.set_read_timeout(limit).unwrap();
            Box::new(stream)
        }
    };
    (server, [connect(false), connect(true)])
}

/// Asks for the metrics over a new connection, and reads all of them. It takes much less time than a connection that
/// does nothing is kept for, 10 seconds at least.
fn scrape_over(mut connection: Box<dyn Connection>) {
    let begun = Instant::now();
    let request = b"GET /metrics HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n";
    connection.write_all(request).unwrap();
    let mut page = Vec::new();
    connection
        .read_to_end(&mut page)
        .expect("an answer in time");
    assert!(page.starts_with(b"HTTP/1.1 200 OK\r\n"));
    let page = String::from_utf8(page).unwrap();
    let (head, text) = page.split_once("\r\n\r\n").unwrap();
    let length = format!("content-length: {}", text.len());
    assert!(head.contains(&length), "the whole page");
    assert!(begun.elapsed() < Duration::from_secs(5));
}

/// Sends requests until the server takes no more; false if it has ended the connection.
fn pipeline(connection: &mut dyn Connection) -> bool {
    let requests = b"GET /metrics HTTP/1.1\r\nHost: t\r\n\r\n".repeat(1000);
    connection.never_wait();
    let mut pauses = 0;
    while pauses < 10 {
        match connection.write(&requests) {
            Ok(_) => pauses = 0,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                std::thread::sleep(Duration::from_millis(5));
                pauses += 1;
            }
            // The server closed the connection to make room.
            Err(_) => return false,
        }
    }
    true
}

#[test]
fn held_connections_do_not_stop_scrapes() {
    let (server, connects) = with_metrics();
    let displaced = || metric(server.metrics(), LIMITED);
    for connect in connects {
        let before = displaced();
        let silent: Vec<_> = (0..40).map(|_| connect()).collect();
        scrape_over(connect());
        let mut half = connect();
        half.write_all(b"GET /metrics HTTP/1.1\r\nHost:").unwrap();
        scrape_over(connect());
        assert!(displaced() > before, "some had to make room");
        drop((silent, half));
        let mut unread = Vec::new();
        let mut hold = || {
            let mut connection = connect();
            assert!(pipeline(&mut *connection), "held: {}", unread.len());
            unread.push(connection);
        };
        // Occupy all places; then open one that may take the place of the scrape.
        (0..32).for_each(|_| hold());
        let before = displaced();
        hold();
        for _ in 0..3 {
            scrape_over(connect());
        }
        assert!(displaced() > before, "all places were held");
    }
    server.until_logged("limit=\"metrics_connections\"");
}

#[test]
fn scrapes_go_on_under_a_flood_of_connections() {
    let (_server, connects) = with_metrics();
    for connect in connects {
        let (mut held, mut scrapes) = (Vec::new(), 0);
        for attempt in 0..1000 {
            let mut connection = connect();
            if attempt % 3 == 0 {
                let _ = connection.write_all(b"GET /metrics HTTP/1.1\r\nHost: t\r\n\r\n");
            }
            held.push(connection);
            if attempt % 50 == 0 {
                scrape_over(connect());
                scrapes += 1;
            }
        }
        assert_eq!(scrapes, 20);
    }
}

/// Scrapers that reuse their connection keep it beside connections that are held open.
#[test]
fn a_scraper_in_use_keeps_its_connection() {
    let (server, [connect, _]) = with_metrics();
    let mut scraper = Client::connect(server.metrics());
    let mut held = Vec::new();
    for _ in 0..20 {
        assert_eq!(scraper.get("/metrics").status, 200);
        held.extend((0..4).map(|_| connect()));
    }
}

const LIMITED: &str = "softclock_limits_reached_total{limit=\"metrics_connections\"}";

fn works(name: &str) -> bool {
    let mechanism = name.parse().expect("a name");
    Poller::with_mechanism(mechanism).is_ok()
}
