//! `softclock echo --metrics` on a TAP device in a network namespace of its own: the page, and `softclock top`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use softclock_testing::lab::Namespace;
use softclock_testing::{KilledOnDrop, require, skip};

/// A running server, killed when dropped. Its stack is 10.79.0.7, the other end of its TAP device is 10.79.0.1.
struct Server {
    _child: KilledOnDrop,
    namespace: Namespace,
    /// The address of the metrics.
    metrics: SocketAddr,
}

impl Server {
    fn start(namespace: Namespace) -> Self {
        let mut child = echo(&namespace, "127.0.0.1:0")
            .stderr(Stdio::piped())
            .spawn()
            .expect("nsenter is installed");
        let mut errors = BufReader::new(child.stderr.take().expect("piped"));
        let mut text = String::new();
        let metrics = loop {
            let read = errors.read_line(&mut text).expect("text");
            assert_ne!(read, 0, "it ended before it served: {text}");
            if let Some((_, url)) = text.trim().split_once("metrics on http://") {
                let address = url.strip_suffix("/metrics").expect("the page's path");
                break address.parse().expect("an address");
            }
        };
        let other_end = "addr add 10.79.0.1/24 dev scm0\nlink set scm0 up\n";
        namespace.batch("ip", other_end).expect("the device exists");
        Self {
            _child: KilledOnDrop::new(child),
            namespace,
            metrics,
        }
    }

    /// A UDP socket of the host, connected to this port of the stack.
    fn socket(&self, port: u16) -> UdpSocket {
        let open = || {
            let socket = UdpSocket::bind("0.0.0.0:0")?;
            socket.connect(("10.79.0.7", port))?;
            socket.set_read_timeout(Some(PATIENCE))?;
            std::io::Result::Ok(socket)
        };
        let socket = self.namespace.inside(open).and_then(|socket| socket);
        socket.expect("the host has an address on the device")
    }

    /// Sends `count` datagrams of 100 bytes to the echo service, and receives each.
    fn exchange(&self, count: usize) {
        let socket = self.socket(7);
        for _ in 0..count {
            socket.send(&[7; 100]).expect("a datagram leaves");
            assert_eq!(socket.recv(&mut [0; 200]).expect("it returns"), 100);
        }
    }

    fn page(&self) -> String {
        let fetch = || {
            let mut stream = TcpStream::connect(self.metrics)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
            let mut text = String::new();
            stream.read_to_string(&mut text)?;
            std::io::Result::Ok(text)
        };
        let page = self.namespace.inside(fetch).and_then(|page| page);
        let page = page.expect("metrics are served");
        assert!(page.starts_with("HTTP/1.0 200 "), "{page}");
        page
    }

    /// The values of the page by name and labels.
    fn samples(&self) -> BTreeMap<String, f64> {
        let page = self.page();
        let (_, page) = page.split_once("\r\n\r\n").expect("a head");
        let mut samples = BTreeMap::new();
        for line in page.lines().filter(|line| !line.starts_with('#')) {
            let (name, value) = line.rsplit_once(' ').expect("a name and a value");
            let value = value.parse().expect("a number");
            let former = samples.insert(name.to_owned(), value);
            assert_eq!(former, None, "{name} is there twice");
        }
        samples
    }

    /// Waits until a metric has at least this value.
    fn await_value(&self, name: &str, least: f64) {
        let since = Instant::now();
        while self.samples()[name] < least {
            assert!(since.elapsed() < PATIENCE, "{name} stays below {least}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// The command `softclock echo` in the namespace, with metrics at this address.
fn echo(namespace: &Namespace, metrics: &str) -> Command {
    let mut command = namespace.command(SOFTCLOCK);
    command.args(["echo", "--dev", "tap:scm0", "--address", "10.79.0.7/24"]);
    command.args(["--json", "--metrics", metrics]);
    command
}

/// Creates a namespace for a TAP device, or skips the test.
macro_rules! namespace {
    () => {{
        require!("ip", "unshare", "nsenter");
        if !std::path::Path::new("/dev/net/tun").exists() {
            skip!("there are no TAP devices here");
        }
        let namespace = match Namespace::new() {
            Ok(namespace) => namespace,
            Err(reason) => skip!("{reason}"),
        };
        // In a namespace without any address, the kernel lets sockets be bound to all addresses.
        let loopback = namespace.run("ip link set lo up");
        loopback.expect("a namespace has a loopback interface");
        namespace
    }};
}

#[test]
fn the_page_counts_packets_services_and_drops() {
    let server = Server::start(namespace!());
    server.exchange(20);
    server.socket(9).send(&[9; 50]).expect("a datagram leaves");
    server.socket(4).send(b"closed").expect("a datagram leaves");
    let unreachable = "softclock_stack_drops_total{reason=\"port_unreachable\"}";
    server.await_value(unreachable, 1.0);
    server.await_value("softclock_echo_datagrams_total{service=\"discard\"}", 1.0);
    let samples = server.samples();
    for (name, value) in [
        ("softclock_echo_datagrams_total{service=\"echo\"}", 20.0),
        ("softclock_echo_bytes_total{service=\"echo\"}", 2000.0),
        ("softclock_echo_bytes_total{service=\"discard\"}", 50.0),
        (
            "softclock_stack_datagrams_total{direction=\"received\"}",
            21.0,
        ),
        ("softclock_stack_datagrams_total{direction=\"sent\"}", 20.0),
        ("softclock_stack_echoes_total", 0.0),
        ("softclock_stack_refused_total", 0.0),
        ("softclock_stack_address_conflicts_total", 0.0),
        ("softclock_stack_drops_total{reason=\"channel_full\"}", 0.0),
        (unreachable, 1.0),
        (
            "softclock_stack_info{interface=\"scm0\",mechanism=\"tap\",architecture=\"soft-lrp\"}",
            1.0,
        ),
        ("softclock_threads", 1.0),
    ] {
        assert_eq!(samples.get(name), Some(&value), "{name} in {samples:?}");
    }
    for name in [
        "softclock_stack_frames_total{direction=\"received\"}",
        "softclock_stack_frames_total{direction=\"sent\"}",
        "softclock_trigger_interval_seconds_count",
    ] {
        assert!(samples[name] > 20.0, "{name} in {samples:?}");
    }
    // Each frame has one verdict; most of these are for the services.
    let verdict = |name| samples[&format!("softclock_stack_verdicts_total{{verdict=\"{name}\"}}")];
    let verdicts = ["channel", "control", "fragment", "drop"].map(verdict);
    let received = samples["softclock_stack_frames_total{direction=\"received\"}"];
    assert_eq!(verdicts.iter().sum::<f64>(), received, "{samples:?}");
    assert_eq!((verdicts[0], verdicts[2]), (21.0, 0.0), "{samples:?}");
    assert!(verdicts[1] >= 2.0, "ARP and a closed port: {samples:?}");
    let reasons = samples.keys();
    let reasons = reasons.filter(|key| key.starts_with("softclock_stack_drops_total{"));
    assert_eq!(
        reasons.count(),
        softclock::net::stack::DropReason::ALL.len()
    );
    assert!(!samples.keys().any(|key| key.starts_with("softclock_http")));
}

#[test]
fn the_documents_list_the_metrics_of_the_page() {
    let server = Server::start(namespace!());
    let samples = server.samples();
    let name = |key: &str| key.split_once('{').map_or(key, |(name, _)| name).to_owned();
    let is_own = |name: &String| {
        let parts = [
            "softclock_stack_",
            "softclock_signalling_",
            "softclock_tcp_",
            "softclock_echo_",
        ];
        parts.iter().any(|part| name.starts_with(part))
    };
    let mut served: BTreeSet<_> = samples.keys().map(|key| name(key)).filter(is_own).collect();
    // Absent if the device does not count them.
    served.insert("softclock_stack_lost_total".into());
    let documents = [
        include_str!("../../../docs/stack.md"),
        include_str!("../../../docs/tcp.md"),
    ];
    let rows = documents.iter().flat_map(|text| text.lines());
    let cells = rows.filter_map(|row| row.strip_prefix("| ")?.split(" | ").next());
    let names = cells.flat_map(|cell| cell.split('`'));
    let documented: BTreeSet<_> = names.map(str::to_owned).filter(is_own).collect();
    assert_eq!(served, documented);
    // The values of labels, too.
    for key in samples
        .keys()
        .filter(|key| key.starts_with("softclock_tcp_"))
    {
        if let Some((_, labels)) = key.split_once("=\"") {
            let value = labels.trim_end_matches("\"}");
            let is_named = documents[1].contains(&format!("`{value}`"));
            assert!(is_named || key.contains("{state="), "{key}");
        }
    }
}

#[test]
fn top_shows_packets_in_place_of_requests() {
    let server = Server::start(namespace!());
    server.exchange(1);
    let mut top = server.namespace.command(SOFTCLOCK);
    let top = top
        .args(["top", "--once", &server.metrics.to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .expect("nsenter is installed");
    let since = Instant::now();
    let closed = server.socket(4);
    while since.elapsed() < Duration::from_millis(1500) {
        server.exchange(5);
        // An answer that the port is closed is an error of the socket, which the next call returns.
        let _ = closed.send(b"closed");
        std::thread::sleep(Duration::from_millis(10));
    }
    let output = top.wait_with_output().expect("our own child");
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success(), "{text}");
    for part in [
        "stack        on scm0 by tap, soft-lrp\n",
        "packets ",
        "verdicts ",
        "datagrams ",
        "echo ",
        "pings                0 /s\n",
        "  port_unreachable ",
        "trigger states",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    for part in ["requests", "connections", "channel_full"] {
        assert!(!text.contains(part), "{part:?} is in\n{text}");
    }
    let echo = text.lines().find(|line| line.starts_with("echo "));
    assert!(!echo.expect("was found").contains(" 0 /s"), "{text}");
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
}

#[test]
fn addresses_that_cannot_serve_metrics_are_refused_before_the_device_is_created() {
    let namespace = namespace!();
    for (metrics, told) in [
        ("10.79.0.7:9180", "10.79.0.7 is an address of the stack"),
        (
            "[::ffff:10.79.0.7]:9180",
            "10.79.0.7 is an address of the stack",
        ),
        ("10.79.0.8:9180", "no such address"),
        ("tls:127.0.0.1:9180", "leave out tls:"),
    ] {
        let output = echo(&namespace, metrics)
            .args(["--duration", "20"])
            .output();
        let Output { status, stderr, .. } = output.expect("nsenter is installed");
        let text = String::from_utf8_lossy(&stderr);
        assert_eq!(status.code(), Some(1), "{text}");
        assert!(text.contains(told) && text.lines().count() == 1, "{text}");
        assert!(namespace.run("ip link show scm0").is_err(), "{text}");
    }
}

const SOFTCLOCK: &str = env!("CARGO_BIN_EXE_softclock");

/// Long enough for any answer on a machine under load.
const PATIENCE: Duration = Duration::from_secs(10);
