//! Two network namespaces with a link between them, the program in the first one:
//! [server] `host` (10.78.0.2, fd78::2; the program's stack: 10.78.0.7, fd78::7) -- `client` (10.78.0.1, fd78::1).
//! With a TAP device there is only one namespace: the device's other end is the client.

use std::io::{self, BufRead, BufReader, Read};
use std::net::{SocketAddr, UdpSocket};
use std::process::{ChildStderr, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use softclock_testing::KilledOnDrop;
use softclock_testing::lab::{Namespace, connect};

/// The addresses of the program's stack.
pub(crate) const ADDRESSES: [&str; 2] = ["10.78.0.7", "fd78::7"];

/// The link address of the program's stack.
pub(crate) const LINK_ADDRESS: [u8; 6] = [2, 0, 0, 0, 0, 7];

/// The names of the architectures that all mechanisms have.
pub(crate) const ARCHITECTURES: [&str; 3] = ["bsd", "early-demux", "soft-lrp"];

/// The mechanism that carries the program's frames, and for [`NiLrp`](Self::NiLrp) the architecture, too.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Carrier {
    Tap,
    Packet,
    Xdp,
    /// AF_XDP with a ring for each service, and not with any other architecture.
    NiLrp,
}

impl Carrier {
    pub(crate) const ALL: [Self; 4] = [Self::Tap, Self::Packet, Self::Xdp, Self::NiLrp];

    /// Those whose interface is shared with the host.
    pub(crate) const SHARED: [Self; 3] = [Self::Packet, Self::Xdp, Self::NiLrp];

    /// The architectures that it can have.
    pub(crate) const fn architectures(self) -> &'static [&'static str] {
        match self {
            Self::NiLrp => &["ni-lrp"],
            _ => &ARCHITECTURES,
        }
    }

    /// The reason why this machine does not have the mechanism.
    pub(crate) fn check(self) -> Result<(), String> {
        use softclock_linux::probe::{xdp_program, xdp_socket};
        match self {
            Self::Tap if !std::path::Path::new("/dev/net/tun").exists() => {
                Err("there are no TAP devices here".into())
            }
            Self::Xdp | Self::NiLrp => xdp_socket()
                .and_then(|()| xdp_program())
                .map_err(|error| format!("AF_XDP cannot be used here: {error}")),
            _ => Ok(()),
        }
    }

    fn options(self) -> &'static [&'static str] {
        match self {
            Self::Tap => &["--dev", "tap:client", "--mechanism", "auto"],
            Self::Packet => &["--dev", "host", "--mechanism", "packet"],
            Self::Xdp => &["--dev", "host", "--mechanism", "xdp"],
            // Its architecture implies the mechanism.
            Self::NiLrp => &["--dev", "host"],
        }
    }
}

/// The namespaces, which exist until this is dropped.
pub(crate) struct Lab {
    pub(crate) carrier: Carrier,
    pub(crate) server: Namespace,
    /// `None` with a TAP device.
    other: Option<Namespace>,
}

impl Lab {
    /// Creates a lab for one test; an error gives the reason why this machine cannot have one.
    pub(crate) fn new(carrier: Carrier) -> Result<Self, String> {
        carrier.check()?;
        let lab = Self {
            carrier,
            server: Namespace::new()?,
            other: match carrier {
                Carrier::Tap => None,
                Carrier::Packet | Carrier::Xdp | Carrier::NiLrp => Some(Namespace::new()?),
            },
        };
        lab.link().map_err(|error| error.to_string())?;
        Ok(lab)
    }

    fn link(&self) -> io::Result<()> {
        let Some(other) = &self.other else {
            return Ok(());
        };
        connect((&self.server, "host"), (other, "client"))?;
        self.server.batch("ip", &addresses("host", 2))?;
        other.batch("ip", &addresses("client", 1))
    }

    /// The namespace of the interface `client`.
    pub(crate) fn client(&self) -> &Namespace {
        self.other.as_ref().unwrap_or(&self.server)
    }

    /// Runs a command line at the client to its end.
    pub(crate) fn run(&self, words: &str) -> Output {
        let mut words = words.split(' ');
        let mut command = self.client().command(words.next().expect("a program"));
        command.args(words).output().expect("nsenter is installed")
    }

    /// Runs a command line in the server's namespace, which must succeed.
    pub(crate) fn configure(&self, words: &str) {
        let done = self.server.run(words);
        done.unwrap_or_else(|error| panic!("{words}: {error}"));
    }

    /// Runs a command line in the client's namespace, which must succeed.
    pub(crate) fn configure_client(&self, words: &str) {
        let done = self.client().run(words);
        done.unwrap_or_else(|error| panic!("{words}: {error}"));
    }

    /// The command `softclock echo` in the server's namespace, with the addresses of the stack and these arguments.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.server.command(env!("CARGO_BIN_EXE_softclock"));
        command.arg("echo").args(self.carrier.options());
        if self.carrier == Carrier::NiLrp && !arguments.contains(&"--architecture") {
            command.args(["--architecture", "ni-lrp"]);
        }
        command.args(["--address", "10.78.0.7/24", "--address", "fd78::7/64"]);
        command.args(["--link-address", "02:00:00:00:00:07", "--json"]);
        command.args(arguments);
        command
    }

    /// Starts the program with these arguments, and waits until it serves.
    pub(crate) fn serve(&self, arguments: &[&str]) -> Server {
        let mut child = self
            .command(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("nsenter is installed");
        let mut errors = BufReader::new(child.stderr.take().expect("piped"));
        let mut said = String::new();
        while !said.contains("link address") {
            let read = errors.read_line(&mut said).expect("text");
            assert_ne!(read, 0, "it ended before it served: {said}");
        }
        if self.other.is_none() {
            let configured = self.server.batch("ip", &addresses("client", 1));
            configured.expect("the device is there");
            self.configure("ip link set client up");
        }
        let child = KilledOnDrop::new(child);
        Server { child, errors }
    }

    /// A UDP socket at the client, connected to this port of the stack.
    pub(crate) fn socket(&self, address: &str, port: u16) -> UdpSocket {
        let remote = SocketAddr::new(address.parse().expect("an address"), port);
        let open = || {
            let local = if remote.is_ipv4() {
                "0.0.0.0:0"
            } else {
                "[::]:0"
            };
            let socket = UdpSocket::bind(local)?;
            socket.connect(remote)?;
            socket.set_read_timeout(Some(PATIENCE))?;
            io::Result::Ok(socket)
        };
        let socket = self.client().inside(open).and_then(|socket| socket);
        socket.expect("the client has an address")
    }

    /// Sends `bytes` to the echo service, and asserts that they return.
    pub(crate) fn assert_echo(&self, address: &str, bytes: &[u8]) {
        assert_returned(&self.socket(address, 7), bytes);
    }

    /// Asserts that the stack answers to ping and echoes datagrams over both versions of IP.
    pub(crate) fn assert_answers(&self) {
        for address in ADDRESSES {
            self.assert_echo(address, b"are you there");
            assert_eq!(self.ping(address, 2, ""), 2, "{address}");
        }
    }

    /// The number of echo requests, of `count` with these options, that are answered. Each is a ping of its own: one
    /// with a count waits for the last reply no longer than two round trips.
    pub(crate) fn ping(&self, address: &str, count: usize, options: &str) -> usize {
        let mut words = vec!["-n", "-q", "-c", "1", "-W", "5"];
        words.extend(options.split_whitespace());
        words.push(address);
        let is_answered = |_: &usize| {
            let output = self.client().command("ping").args(&words).output();
            output.expect("nsenter is installed").status.success()
        };
        (0..count).filter(is_answered).count()
    }

    /// The state of the server's interface, as its administrator sees it.
    pub(crate) fn link_state(&self) -> String {
        let mut command = self.server.command("ip");
        let output = command.args(["-details", "link", "show", "host"]).output();
        let output = output.expect("nsenter is installed");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Waits until the server's interface is as it was.
    pub(crate) fn await_link_state(&self, before: &str) {
        // The kernel closes the sockets of a dead process some time after its end.
        eventually(|| self.link_state() == before);
    }
}

fn addresses(link: &str, host: u32) -> String {
    format!("addr add 10.78.0.{host}/24 dev {link}\naddr add fd78::{host}/64 dev {link} nodad\n")
}

/// Asserts that a connected socket gets back what it sends.
pub(crate) fn assert_returned(socket: &UdpSocket, bytes: &[u8]) {
    socket.send(bytes).expect("a datagram leaves");
    let mut buffer = vec![0; 65_536];
    let length = socket.recv(&mut buffer);
    let length = length.unwrap_or_else(|error| panic!("{} bytes: {error}", bytes.len()));
    assert!(
        buffer[..length] == *bytes,
        "{length} of {} bytes",
        bytes.len()
    );
}

/// Waits until a condition holds.
pub(crate) fn eventually(mut holds: impl FnMut() -> bool) {
    let since = Instant::now();
    while !holds() {
        assert!(since.elapsed() < 2 * PATIENCE, "it does not come true");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Long enough for any answer on a machine under load.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// A running server, killed when dropped.
pub(crate) struct Server {
    child: KilledOnDrop,
    errors: BufReader<ChildStderr>,
}

impl Server {
    pub(crate) fn pid(&self) -> Pid {
        // nsenter executes the program, so the process ID is the same.
        Pid::from_child(&self.child)
    }

    /// Ends the server as an administrator would, and returns its summary.
    pub(crate) fn end(self) -> Value {
        self.end_by(Signal::TERM)
    }

    /// Ends the server by this signal, and returns its summary.
    pub(crate) fn end_by(self, signal: Signal) -> Value {
        kill_process(self.pid(), signal).expect("our own child");
        self.summary()
    }

    /// Waits for the end, and returns the summary.
    pub(crate) fn summary(mut self) -> Value {
        let text = self.output();
        assert!(self.child.wait().expect("our own child").success());
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// Ends the server, and returns the errors that nothing has read yet, and its summary.
    pub(crate) fn end_with_errors(mut self) -> (String, Value) {
        kill_process(self.pid(), Signal::TERM).expect("our own child");
        let summary = self.output();
        let mut errors = String::new();
        self.errors.read_to_string(&mut errors).expect("text");
        (errors, serde_json::from_str(&summary).expect("JSON"))
    }

    /// The next line of errors.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.errors.read_line(&mut line).expect("text");
        line
    }

    /// Waits until the server fails, and returns its errors and its summary.
    pub(crate) fn fail(mut self) -> (String, Value) {
        let summary = self.output();
        let mut errors = String::new();
        self.errors.read_to_string(&mut errors).expect("text");
        assert!(!self.child.wait().expect("our own child").success());
        (errors, serde_json::from_str(&summary).expect("JSON"))
    }

    fn output(&mut self) -> String {
        let mut text = String::new();
        let output = self.child.stdout.as_mut().expect("piped");
        output.read_to_string(&mut text).expect("text");
        text
    }

    /// Kills the server, so that it cannot clean up.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("our own child");
        self.child.wait().expect("our own child");
    }
}

/// The packets that a summary counts as dropped for this reason.
pub(crate) fn dropped(summary: &Value, reason: &str) -> u64 {
    summary["drops"][reason].as_u64().unwrap_or(0)
}

/// Creates a lab, or skips the test.
macro_rules! lab {
    ($carrier:expr) => {{
        softclock_testing::require!("ip", "unshare", "nsenter", "ping");
        match crate::lab::Lab::new($carrier) {
            Ok(lab) => lab,
            Err(reason) => softclock_testing::skip!("{reason}"),
        }
    }};
}
pub(crate) use lab;
