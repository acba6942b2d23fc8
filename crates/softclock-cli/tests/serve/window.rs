//! Pacing in place of slow start (*Soft Timers*, section 5.7), over a pair of virtual Ethernet devices: a route with a
//! large initial window lets a response begin with all of it, and pacing spreads that over time.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use softclock_testing::lab::{Namespace, connect};

use crate::server::{Server, directory, noise};

/// Two network namespaces with a link between them.
struct Link {
    server: Namespace,
    client: Namespace,
}

const SERVER: &str = "198.18.77.1";
const CLIENT: &str = "198.18.77.2";

/// Less than the window, so that one window carries it.
const BYTES: usize = 120_000;

/// The initial window, in segments.
const WINDOW: u64 = 100;

impl Link {
    fn new() -> Result<Self, String> {
        let link = Self {
            server: Namespace::new()?,
            client: Namespace::new()?,
        };
        link.configure().map_err(|error| error.to_string())?;
        Ok(link)
    }

    fn configure(&self) -> io::Result<()> {
        connect((&self.server, "veth0"), (&self.client, "veth0"))?;
        for (namespace, address) in [(&self.server, SERVER), (&self.client, CLIENT)] {
            namespace.run(&format!("ip address add {address}/24 dev veth0"))?;
            namespace.run("ip link set lo up")?;
        }
        self.server.run(&format!(
            "ip route change 198.18.77.0/24 dev veth0 src {SERVER} initcwnd {WINDOW}"
        ))
    }

    fn serve(&self, directory: &Path, options: &[&str]) -> Server {
        let mut command = self.server.command(env!("CARGO_BIN_EXE_softclock"));
        command
            .args(["serve", "--listen", &format!("{SERVER}:0")])
            .args(options)
            .arg(directory);
        Server::spawn(&mut command)
    }

    /// A connection from the client's side.
    fn connect(&self, address: SocketAddr) -> TcpStream {
        let connect = || TcpStream::connect(address).unwrap();
        self.client.inside(connect).unwrap()
    }

    /// The congestion windows of the server's connections.
    fn windows(&self) -> Vec<u64> {
        let output = self.server.command("ss").arg("-tniH").output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let words = text.split_whitespace();
        words
            .filter_map(|word| word.strip_prefix("cwnd:")?.parse().ok())
            .collect()
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
    softclock_testing::require!("ip", "unshare", "nsenter", "ss");
    let link = match Link::new() {
        Ok(link) => link,
        Err(error) => softclock_testing::skip!("{error}"),
    };
    let content = noise(BYTES);
    let directory = directory(&[("f", &content)]);
    let took = |options: &[&str]| {
        let server = link.serve(directory.path(), options);
        let arrivals = arrivals(&link, server.address());
        let &(took, bytes) = arrivals.last().unwrap();
        assert!(bytes > BYTES);
        // The bytes that had arrived after half of the time.
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
