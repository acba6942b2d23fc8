//! Pacing in place of slow start (*Soft Timers*, section 5.7), over a pair of virtual Ethernet devices: a route with a
//! large initial window lets a response begin with all of it, and pacing spreads that over time.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{self, Command};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::server::{Server, directory, noise};

/// Two network namespaces with a link between them, removed when dropped.
struct Link {
    server: String,
    client: String,
}

const SERVER: &str = "198.18.77.1";
const CLIENT: &str = "198.18.77.2";

/// Less than the window.
const BYTES: usize = 120_000;

/// Segments.
const WINDOW: u64 = 100;

fn ip(arguments: &str) -> Result<(), String> {
    let output = Command::new("ip").args(arguments.split(' ')).output();
    let output = output.map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!(
            "ip {arguments}: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        )),
    }
}

impl Link {
    fn new() -> Result<Self, String> {
        let id = process::id();
        let link = Self {
            server: format!("softclock-s-{id}"),
            client: format!("softclock-c-{id}"),
        };
        let (server, client) = (&link.server, &link.client);
        ip(&format!("netns add {server}"))?;
        ip(&format!("netns add {client}"))?;
        ip(&format!(
            "-n {server} link add veth0 type veth peer name veth0 netns {client}"
        ))?;
        for (namespace, address) in [(server, SERVER), (client, CLIENT)] {
            ip(&format!(
                "-n {namespace} address add {address}/24 dev veth0"
            ))?;
            ip(&format!("-n {namespace} link set lo up"))?;
            ip(&format!("-n {namespace} link set veth0 up"))?;
        }
        ip(&format!(
            "-n {server} route change 198.18.77.0/24 dev veth0 src {SERVER} initcwnd {WINDOW}"
        ))?;
        Ok(link)
    }

    fn serve(&self, directory: &Path, options: &[&str]) -> Server {
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", &self.server])
            .arg(env!("CARGO_BIN_EXE_softclock"))
            .args(["serve", "--listen", &format!("{SERVER}:0")])
            .args(options)
            .arg(directory);
        Server::spawn(&mut command)
    }

    /// A connection from the client's side.
    fn connect(&self, address: SocketAddr) -> TcpStream {
        let namespace = File::open(Path::new("/run/netns").join(&self.client)).unwrap();
        // A thread is in a namespace, and a socket stays in that of its birth.
        let client = thread::spawn(move || {
            let network = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(namespace.as_fd(), network).unwrap();
            TcpStream::connect(address).unwrap()
        });
        client.join().unwrap()
    }

    /// The congestion windows of the server's connections.
    fn windows(&self) -> Vec<u64> {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.server, "ss", "-tniH"]);
        let output = command.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let words = text.split_whitespace();
        words
            .filter_map(|word| word.strip_prefix("cwnd:")?.parse().ok())
            .collect()
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        for name in [&self.server, &self.client] {
            let _ = ip(&format!("netns delete {name}"));
        }
    }
}

/// When the bytes of a response arrived: the time since the request, and how many there were by then.
fn arrivals(link: &Link, address: SocketAddr) -> Vec<(Duration, usize)> {
    let mut stream = link.connect(address);
    let patience = Some(Duration::from_secs(30));
    stream.set_read_timeout(patience).unwrap();
    let request = b"GET /f HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n";
    let begun = Instant::now();
    stream.write_all(request).unwrap();
    let (mut arrivals, mut all, mut buffer) = (Vec::new(), 0, vec![0; 1 << 16]);
    loop {
        match stream.read(&mut buffer).unwrap() {
            0 => return arrivals,
            read => all += read,
        }
        arrivals.push((begun.elapsed(), all));
    }
}

#[test]
fn a_large_first_window_leaves_paced() {
    softclock_testing::require!("ip", "ss");
    let link = match Link::new() {
        Ok(link) => link,
        Err(error) => softclock_testing::skip!("no network namespaces: {error}"),
    };
    let content = noise(BYTES);
    let directory = directory(&[("f", &content)]);
    let took = |options: &[&str]| {
        let server = link.serve(directory.path(), options);
        let arrivals = arrivals(&link, server.address());
        let &(took, bytes) = arrivals.last().unwrap();
        assert!(bytes > BYTES);
        // How much had come after half of the time.
        let half = arrivals.iter().rfind(|(at, _)| *at <= took / 2);
        let half = half.map_or(0, |&(_, bytes)| bytes);
        (took, half as f64 / bytes as f64)
    };
    let (burst, _) = took(&[]);
    // 120 ms, or some 80 segments of slow start's first 10.
    let (paced, half) = took(&["--pace", "8mbit"]);
    assert!(paced > Duration::from_millis(110), "{paced:?}");
    assert!(paced > 3 * burst, "{paced:?}, unpaced {burst:?}");
    assert!(
        (0.2..0.8).contains(&half),
        "{half} of it in half of the time"
    );

    // The window is there from the first segment on.
    let server = link.serve(directory.path(), &["--pace", "64kbit"]);
    let _stream = link.connect(server.address());
    let windows = link.windows();
    assert!(
        windows.iter().any(|&window| window >= WINDOW),
        "{windows:?}"
    );
}
