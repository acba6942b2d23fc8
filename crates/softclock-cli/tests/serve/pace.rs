//! `--pace`: responses at a rate. Times are compared with others of the same run, and with the least that the rate
//! allows.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::client::Client;
use crate::own_stack;
use crate::server::{Server, directory, noise, softclock};
use crate::tls;

/// The time to receive `count` copies of a file of `content` at once.
fn time_of(server: &Server, content: &[u8], count: usize) -> Duration {
    let begun = Instant::now();
    thread::scope(|scope| {
        for _ in 0..count {
            scope.spawn(|| {
                let response = server.connect().get("/f");
                assert!(response.body == content);
            });
        }
    });
    begun.elapsed()
}

#[test]
fn a_response_takes_as_long_as_the_rate_says() {
    let content = noise(400_000);
    let directory = directory(&[("f", &content)]);
    let start = |options: &[&str]| Server::start(Some(directory.path()), options);
    let slow = time_of(&start(&["--pace", "8mbit"]), &content, 1);
    assert!(slow > Duration::from_millis(390), "{slow:?}");
    let fast = time_of(&start(&["--pace", "800mbit"]), &content, 1);
    let unpaced = time_of(&start(&[]), &content, 1);
    assert!(slow > 2 * fast && slow > 2 * unpaced, "{slow:?} {fast:?}");
}

#[test]
fn each_connection_has_its_rate_and_all_have_the_total() {
    let content = noise(100_000);
    let directory = directory(&[("f", &content)]);
    for threads in ["1", "2"] {
        let start = |more: &[&str]| {
            let options = [&["--threads", threads, "--pace", "8mbit"], more].concat();
            Server::start(Some(directory.path()), &options)
        };
        let apart = time_of(&start(&[]), &content, 8);
        // 800 KB at 1 MB/s, or more where a thread has more than its part of the connections.
        let together = time_of(&start(&["--pace-total", "8mbit"]), &content, 8);
        assert!(together > Duration::from_millis(700), "{together:?}");
        assert!(together > 2 * apart, "{together:?} {apart:?}");
    }
    let total = Server::start(Some(directory.path()), &["--pace-total", "8mbit"]);
    assert!(time_of(&total, &content, 4) > Duration::from_millis(370));
}

#[test]
fn pipelined_requests_and_small_responses_are_one_train() {
    let directory = directory(&[("f", &[b'x'; 2_000])]);
    let options = ["--pace", "8mbit", "--pace-quantum", "3000"];
    let options = [&options[..], &["--metrics", "127.0.0.1:0"]].concat();
    let server = Server::start(Some(directory.path()), &options);
    let mut client = server.connect();
    let begun = Instant::now();
    client.send(&b"GET /f HTTP/1.1\r\nHost: t\r\n\r\n".repeat(100));
    for _ in 0..100 {
        assert_eq!(client.response("GET").body, [b'x'; 2_000]);
    }
    assert!(begun.elapsed() > Duration::from_millis(190));
    if own_stack::is_chosen() {
        // A stack paces segments, which are no pieces of trains.
        return;
    }
    let value = |name: &str| metric(&server, name);
    let bytes = value("softclock_paced_bytes_total");
    assert!(bytes > 200_000);
    // The last piece of a train is smaller, and late pieces are sent together, those of 5 ms at most.
    let mean = bytes / value("softclock_paced_pieces_total");
    assert!((1_500..=8_000).contains(&mean), "{mean}");
    assert!(value("softclock_paced_pieces_total") > value("softclock_paced_trains_total"));
    assert_eq!(value("softclock_paced_pending_bytes"), 0);
}

/// The value of a metric.
fn metric(server: &Server, name: &str) -> u64 {
    let page = Client::connect(server.metrics()).get("/metrics");
    let mut lines = page.text().lines();
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.unwrap().parse().unwrap()
}

#[test]
fn what_a_stop_made_late_is_forgotten_and_counted() {
    let content = noise(400_000);
    let directory = directory(&[("f", &content)]);
    let options = ["--pace", "8mbit", "--metrics", "127.0.0.1:0"];
    let server = Server::start(Some(directory.path()), &options);
    let mut client = server.connect();
    client.send(b"GET /f HTTP/1.1\r\nHost: t\r\n\r\n");
    assert_eq!(client.head().status, 200);
    let mut body = vec![0; content.len()];
    // The train of the body has begun.
    let mut come = 50_000;
    client.read_exact(&mut body[..come]);
    let begun = server.while_stopped(|| {
        thread::sleep(Duration::from_millis(500));
        let stream = client.another();
        stream.set_nonblocking(true).unwrap();
        while let Ok(read @ 1..) = client.read(&mut body[come..]) {
            come += read;
        }
        stream.set_nonblocking(false).unwrap();
        Instant::now()
    });
    client.read_exact(&mut body[come..]);
    assert!(body == content);
    // Of the 500 KB that the rate allowed in the meantime, at most 50 are made up for, and a train more.
    let at_rate = Duration::from_micros((content.len() - come).saturating_sub(80_000) as u64);
    assert!(begun.elapsed() > at_rate, "{:?}", begun.elapsed());
    if own_stack::is_chosen() {
        // A stack forgets without counting.
        return;
    }
    let forgotten = metric(&server, "softclock_paced_forgotten_bytes_total");
    assert!(forgotten > 300_000, "{forgotten}");
}

#[test]
fn clients_are_not_slow_because_we_are() {
    let content = noise(60_000);
    let directory = directory(&[("f", &content)]);
    let options = ["--pace", "64kbit", "--send-timeout", "0.3", "--min-rate"];
    let options = [&options[..], &["1000000", "--idle-timeout", "0.3"]].concat();
    let server = Server::start(Some(directory.path()), &options);
    let took = time_of(&server, &content, 2);
    assert!(took > Duration::from_secs(6), "{took:?}");
}

#[test]
fn clients_that_take_nothing_are_slow_all_the_same() {
    let content = noise(20_000_000);
    let directory = directory(&[("f", &content)]);
    let options = ["--pace", "10gbit", "--send-timeout", "0.5"];
    let server = Server::start(Some(directory.path()), &options);
    let mut client = server.connect();
    client.send(b"GET /f HTTP/1.1\r\nHost: t\r\n\r\n");
    thread::sleep(Duration::from_millis(2_000));
    let mut buffer = vec![0; 1 << 16];
    let error = loop {
        match client.read(&mut buffer) {
            Ok(0) => panic!("an end in place of a reset"),
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
}

#[test]
fn both_versions_of_http_are_paced_through_tls() {
    softclock_testing::require!("curl");
    let content = noise(300_000);
    let directory = tls::with_site(&[("site/f", &content)]);
    let server = tls::start(&directory, &["--pace", "8mbit"]);
    for version in ["--http1.1", "--http2"] {
        let begun = Instant::now();
        let output = tls::curl(directory.path(), &server, "/f", &[version]);
        assert!(output.stdout == content, "{version}");
        assert!(begun.elapsed() > Duration::from_millis(290), "{version}");
    }
}

#[test]
fn the_end_waits_for_what_is_paced() {
    let content = noise(200_000);
    let directory = directory(&[("f", &content)]);
    let mut server = Server::start(Some(directory.path()), &["--pace", "4mbit"]);
    let mut client = server.connect();
    client.send(b"GET /f HTTP/1.1\r\nHost: t\r\n\r\n");
    let begun = Instant::now();
    assert_eq!(client.head().status, 200);
    server.signal(Signal::TERM);
    let mut body = vec![0; content.len()];
    client.read_exact(&mut body);
    assert!(body == content);
    assert!(begun.elapsed() > Duration::from_millis(350));
    assert_eq!(server.wait().code(), Some(0));
}

/// A site with one file, and the configuration by which it is served.
struct Configured {
    directory: TempDir,
}

impl Configured {
    fn new(content: &[u8]) -> Self {
        let directory = directory(&[("site/f", content)]);
        Self { directory }
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("softclock.toml")
    }

    /// Writes the configuration with this additional line.
    fn write(&self, line: &str) {
        let site = self.directory.path().join("site");
        let text = format!(
            "directory = \"{}\"\nlisten = \"127.0.0.1:0\"\nlog-level = \"info\"\n{line}\n",
            site.display()
        );
        let new = self.directory.path().join("new");
        fs::write(&new, text).unwrap();
        fs::rename(&new, self.file()).unwrap();
    }

    fn start(&self) -> Server {
        Server::spawn(softclock().args(["serve", "--config"]).arg(self.file()))
    }
}

#[test]
fn a_reload_changes_the_rate_of_connections_in_use() {
    let content = noise(2_000_000);
    let site = Configured::new(&content);
    site.write("pace = \"800kbit\"");
    let server = site.start();
    let mut client = server.connect();
    let begun = Instant::now();
    client.send(b"GET /f HTTP/1.1\r\nHost: t\r\n\r\n");
    assert_eq!(client.head().status, 200);
    site.write("pace = \"1gbit\"");
    server.signal(Signal::HUP);
    server.until_logged("reloaded");
    let mut body = vec![0; content.len()];
    client.read_exact(&mut body);
    assert!(body == content);
    let took = begun.elapsed();
    assert!(
        took < Duration::from_secs(10),
        "20 s at the first: {took:?}"
    );
}

#[test]
fn a_reload_paces_connections_that_were_accepted_without_a_rate() {
    let content = noise(200_000);
    let site = Configured::new(&content);
    site.write("");
    let server = site.start();
    let mut client = server.connect();
    let mut time_of = || {
        let begun = Instant::now();
        assert!(client.get("/f").body == content);
        begun.elapsed()
    };
    let unpaced = time_of();
    site.write("pace = \"4mbit\"");
    server.signal(Signal::HUP);
    server.until_logged("reloaded");
    let paced = time_of();
    assert!(paced > Duration::from_millis(350), "{paced:?}");
    assert!(paced > 2 * unpaced, "{paced:?} {unpaced:?}");
}

#[test]
fn wrong_rates_are_one_line() {
    for (options, part) in [
        (&["--pace", "5mb"][..], "rates are written 100mbit"),
        (&["--pace", "9600bit"], "less than 64kbit"),
        (
            &["--pace", "1mbit", "--pace-quantum", "1mb"],
            "not from 512 to 64kb",
        ),
        (
            &["--pace", "2mbit", "--pace-burst", "1mbit"],
            "--pace-burst 1mbit is less than --pace 2mbit",
        ),
    ] {
        let mut command: Command = softclock();
        let output = command.args(["serve", "--check"]).args(options).output();
        let output = output.unwrap();
        let line = String::from_utf8(output.stderr).unwrap();
        assert!(
            !output.status.success() && line.lines().count() == 1,
            "{line}"
        );
        assert!(line.contains(part), "{line}");
    }
}

/// The nice value and the policy of each thread (proc_pid_stat(5)).
fn scheduling(server: &Server) -> Vec<(i32, u32)> {
    let tasks = fs::read_dir(format!("/proc/{}/task", server.id())).unwrap();
    let stats = tasks.map(|task| fs::read_to_string(task.unwrap().path().join("stat")).unwrap());
    let fields = stats.map(|stat| {
        let (_, rest) = stat.rsplit_once(") ").unwrap();
        let field = |number: usize| rest.split(' ').nth(number - 3).unwrap();
        (field(19).parse().unwrap(), field(41).parse().unwrap())
    });
    fields.collect()
}

#[test]
fn all_threads_have_the_priority() {
    let options = ["--threads", "2", "--priority"];
    let start = |priority| Server::start(None, &[&options[..], &[priority]].concat());
    let nice = scheduling(&start("nice:15"));
    assert!(
        nice.len() >= 2 && nice.iter().all(|&(nice, _)| nice == 15),
        "{nice:?}"
    );
    let may = softclock_linux::priority::Priority::Fifo(1);
    if thread::spawn(move || may.apply()).join().unwrap().is_err() {
        softclock_testing::skip!("needs permission for real-time priorities");
    }
    for (priority, policy) in [("fifo:1", 1), ("rr:1", 2)] {
        let threads = scheduling(&start(priority));
        assert!(threads.iter().all(|&(_, its)| its == policy), "{threads:?}");
    }
}
