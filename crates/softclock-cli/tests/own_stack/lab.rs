//! Two network namespaces with a link between them: [server] `host` (10.78.0.2; the program's stack: 10.78.0.7) --
//! `client` (10.78.0.1). With a TAP device there is only one namespace: the device's other end is the client. A path
//! has a third namespace in the middle, in which `softclock wan` connects two links.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{ChildStderr, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use softclock_testing::KilledOnDrop;
use softclock_testing::lab::{Namespace, connect};
use tempfile::TempDir;

/// The address of the program's stack.
pub(crate) const ADDRESS: &str = "10.78.0.7";

/// The mechanism that carries the program's frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Carrier {
    Tap,
    Packet,
    Xdp,
}

impl Carrier {
    pub(crate) const ALL: [Self; 3] = [Self::Tap, Self::Packet, Self::Xdp];

    /// The reason why this machine does not have the mechanism.
    fn check(self) -> Result<(), String> {
        use softclock_linux::probe::{xdp_program, xdp_socket};
        match self {
            Self::Tap if !Path::new("/dev/net/tun").exists() => {
                Err("there are no TAP devices here".into())
            }
            Self::Xdp => xdp_socket()
                .and_then(|()| xdp_program())
                .map_err(|error| format!("AF_XDP cannot be used here: {error}")),
            _ => Ok(()),
        }
    }

    /// The architectures that it can have.
    pub(crate) const fn architectures(self) -> &'static [&'static str] {
        match self {
            Self::Tap | Self::Packet => &["bsd", "early-demux", "soft-lrp"],
            Self::Xdp => &["bsd", "early-demux", "soft-lrp", "ni-lrp"],
        }
    }

    const fn options(self) -> &'static [&'static str] {
        match self {
            Self::Tap => &["--dev", "tap:client"],
            Self::Packet => &["--dev", "host", "--mechanism", "packet"],
            Self::Xdp => &["--dev", "host", "--mechanism", "xdp"],
        }
    }
}

/// The namespaces and a directory to serve, which exist until this is dropped.
pub(crate) struct Lab {
    carrier: Carrier,
    pub(crate) server: Namespace,
    /// `None` with a TAP device.
    other: Option<Namespace>,
    /// Between the two, if the client is far away.
    path: Option<WidePath>,
    directory: TempDir,
}

/// A running `softclock wan` in a namespace of its own, killed when dropped.
struct WidePath {
    _bridge: KilledOnDrop,
    /// Kept open, so that the bridge can report.
    _errors: BufReader<ChildStderr>,
    _middle: Namespace,
}

impl Lab {
    /// Creates a lab for one test; an error gives the reason why this machine cannot have one.
    pub(crate) fn new(carrier: Carrier) -> Result<Self, String> {
        let lab = Self::unconnected(carrier)?;
        lab.link().map_err(|error| error.to_string())?;
        Ok(lab)
    }

    /// Creates a lab whose client is at the other end of a path with these options of `softclock wan`. Its kernel
    /// neither joins nor segments packets, so that the path sees those of a network.
    pub(crate) fn with_path(carrier: Carrier, options: &str) -> Result<Self, String> {
        assert_ne!(carrier, Carrier::Tap, "it has no link");
        let mut lab = Self::unconnected(carrier)?;
        let path = lab.connect_path(options);
        lab.path = Some(path.map_err(|error| error.to_string())?);
        Ok(lab)
    }

    /// Creates a lab whose link has this number of queues in each direction.
    pub(crate) fn with_queues(carrier: Carrier, queues: u32) -> Result<Self, String> {
        let lab = Self::unconnected(carrier)?;
        let client = lab.client().id();
        let queues = format!("numrxqueues {queues} numtxqueues {queues}");
        let pair = format!(
            "link add name host {queues} type veth peer name client {queues} netns {client}\nlink set host up\n"
        );
        let link = || {
            lab.server.batch("ip", &pair)?;
            lab.client().run("ip link set client up")?;
            lab.give_addresses()
        };
        link().map_err(|error| error.to_string())?;
        Ok(lab)
    }

    fn unconnected(carrier: Carrier) -> Result<Self, String> {
        carrier.check()?;
        let lab = Self {
            carrier,
            server: Namespace::new()?,
            other: match carrier {
                Carrier::Tap => None,
                Carrier::Packet | Carrier::Xdp => Some(Namespace::new()?),
            },
            path: None,
            directory: tempfile::tempdir().map_err(|error| error.to_string())?,
        };
        fs::write(lab.path("small"), content(1024)).expect("a directory");
        fs::write(lab.path("large"), content(LARGE)).expect("a directory");
        Ok(lab)
    }

    fn link(&self) -> io::Result<()> {
        let Some(other) = &self.other else {
            return Ok(());
        };
        connect((&self.server, "host"), (other, "client"))?;
        self.give_addresses()
    }

    fn give_addresses(&self) -> io::Result<()> {
        self.server.run("ip addr add 10.78.0.2/24 dev host")?;
        self.client().run("ip addr add 10.78.0.1/24 dev client")
    }

    fn connect_path(&self, options: &str) -> io::Result<WidePath> {
        let middle = Namespace::new().map_err(io::Error::other)?;
        connect((&self.server, "host"), (&middle, "near"))?;
        connect((&middle, "far"), (self.client(), "client"))?;
        self.give_addresses()?;
        let offloads = "ethtool -K client tx off tso off gso off gro off";
        self.client().run(offloads)?;
        let mut command = middle.command(env!("CARGO_BIN_EXE_softclock"));
        command.args(["wan", "near", "far", "--mechanism", "packet", "--seed", "1"]);
        command.args(options.split_whitespace());
        let piped = command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut bridge = piped.spawn()?;
        let mut errors = BufReader::new(bridge.stderr.take().expect("piped"));
        let mut line = String::new();
        while !line.contains("between ") {
            line.clear();
            let read = errors.read_line(&mut line)?;
            assert_ne!(read, 0, "wan {options} ended");
        }
        Ok(WidePath {
            _bridge: KilledOnDrop::new(bridge),
            _errors: errors,
            _middle: middle,
        })
    }

    /// Sets the longest packet of both ends of the link, and returns the options that servers need for it: a TAP device
    /// is created by the server, which sets its MTU.
    pub(crate) fn set_mtu(&self, bytes: u16) -> Vec<String> {
        if self.other.is_none() {
            return vec!["--mtu".into(), bytes.to_string()];
        }
        let set = |namespace: &Namespace, name: &str| {
            let done = namespace.run(&format!("ip link set {name} mtu {bytes}"));
            done.unwrap_or_else(|error| panic!("{bytes} bytes: {error}"));
        };
        set(&self.server, "host");
        set(self.client(), "client");
        Vec::new()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The namespace of the interface `client`.
    pub(crate) fn client(&self) -> &Namespace {
        self.other.as_ref().unwrap_or(&self.server)
    }

    /// A command of the program on a stack, which listens at port 80 of the stack's address.
    pub(crate) fn command(&self, command: &str, arguments: &[&str]) -> Command {
        let mut program = self.server.command(env!("CARGO_BIN_EXE_softclock"));
        program.arg(command).args(self.carrier.options());
        program.args(["--address", "10.78.0.7/24", "--listen", "10.78.0.7:80"]);
        program.args(arguments);
        program
    }

    /// A command line at the client, whose words single spaces separate.
    pub(crate) fn at_client(&self, words: &str) -> Command {
        let mut words = words.split(' ');
        let mut command = self.client().command(words.next().expect("a program"));
        command.args(words);
        command
    }

    /// Runs a command line at the client, which must succeed, and returns its output.
    pub(crate) fn run_at_client(&self, words: &str) -> String {
        let output = self.at_client(words).output();
        let output = output.expect("nsenter is installed");
        assert!(output.status.success(), "{words}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Passes requests on to the upstream of [`echo_bodies`](crate::transfers::echo_bodies).
    pub(crate) fn proxy(&self, arguments: &[&str]) -> Server {
        let mut command = self.command("proxy", &["--upstream", "http://10.78.0.1:8080"]);
        command.args(arguments);
        self.start(command)
    }

    /// Serves the directory.
    pub(crate) fn serve(&self, arguments: &[&str]) -> Server {
        let mut command = self.command("serve", arguments);
        command.arg(self.directory.path());
        self.start(command)
    }

    /// Starts a server, and waits until it serves.
    pub(crate) fn start(&self, mut command: Command) -> Server {
        let spawned = command.stdout(Stdio::piped()).spawn();
        let mut child = spawned.expect("nsenter is installed");
        let output = child.stdout.take().expect("piped");
        let mut lines = BufReader::new(output).lines();
        let is_ready = |line: io::Result<String>| line.is_ok_and(|line| line.contains("Ctrl-C"));
        assert!(lines.any(is_ready), "it ended before it served");
        if self.other.is_none() {
            let address = self.server.run("ip addr add 10.78.0.1/24 dev client");
            address.expect("the device is there");
            self.server
                .run("ip link set client up")
                .expect("the device is there");
        }
        Server(KilledOnDrop::new(child))
    }

    /// Runs curl at the client. `words` are its arguments, of which those that begin with `@` are files of the server.
    pub(crate) fn curl(&self, words: &str) -> Output {
        let command = self.curl_command(words).output();
        command.expect("nsenter is installed")
    }

    pub(crate) fn curl_command(&self, words: &str) -> Command {
        let mut command = self.client().command("curl");
        command.args(["--silent", "--show-error", "--fail", "--max-time", "60"]);
        for word in words.split_whitespace() {
            match word.strip_prefix('@') {
                Some(path) => command.arg(format!("http://{ADDRESS}/{path}")),
                None => command.arg(word),
            };
        }
        command
    }

    /// Asserts that the small file is served.
    pub(crate) fn assert_serves(&self) {
        let output = self.curl("@small");
        assert!(
            output.stdout == content(1024),
            "{:?}: {output:?}",
            self.carrier
        );
    }

    /// The state of the server's interface, as its administrator sees it.
    pub(crate) fn link_state(&self) -> String {
        let mut command = self.server.command("ip");
        let output = command.args(["-details", "link", "show", "host"]).output();
        let output = output.expect("nsenter is installed");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// A connection of the client to port 80 of the stack.
    pub(crate) fn connect(&self) -> TcpStream {
        let address = SocketAddr::new(ADDRESS.parse().expect("an address"), 80);
        let connected = self
            .client()
            .inside(|| TcpStream::connect_timeout(&address, PATIENCE));
        connected.and_then(|stream| stream).expect("it listens")
    }
}

/// A running server, killed when dropped.
pub(crate) struct Server(pub(crate) KilledOnDrop);

impl Server {
    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    /// Ends the server as an administrator would, and waits for its end.
    pub(crate) fn end(mut self) {
        kill_process(Pid::from_child(&self.0), Signal::TERM).expect("our own child");
        assert!(self.0.wait().expect("our own child").success());
    }

    /// Asks the server to end, as an administrator would.
    pub(crate) fn begin_end(&self) {
        kill_process(Pid::from_child(&self.0), Signal::TERM).expect("our own child");
    }

    /// Stops the process, runs `meanwhile`, and continues the process.
    pub(crate) fn while_stopped(&self, meanwhile: impl FnOnce()) {
        let signal = |signal| kill_process(Pid::from_child(&self.0), signal);
        signal(Signal::STOP).expect("our own child");
        eventually(|| {
            let stat = fs::read_to_string(format!("/proc/{}/stat", self.id()));
            let stat = stat.expect("a running process");
            stat.rsplit_once(") ").expect("a name").1.starts_with('T')
        });
        meanwhile();
        signal(Signal::CONT).expect("our own child");
    }

    /// Kills the server, so that it cannot clean up.
    pub(crate) fn kill(mut self) {
        self.0.kill().expect("our own child");
        self.0.wait().expect("our own child");
    }
}

impl Server {
    /// Waits until the server has ended by itself.
    pub(crate) fn wait(mut self) -> std::process::ExitStatus {
        self.0.wait().expect("our own child")
    }
}

/// The bytes of a file of this length.
pub(crate) fn content(length: usize) -> Vec<u8> {
    (0..length).map(|i| ((i * 31) >> 3) as u8).collect()
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

/// The length of the large file.
pub(crate) const LARGE: usize = 10 << 20;

/// Creates a lab, with options of `softclock wan` one with a path, or skips the test.
macro_rules! lab {
    ($carrier:expr) => {
        crate::lab::lab!(@ crate::lab::Lab::new($carrier))
    };
    ($carrier:expr, $options:expr) => {{
        softclock_testing::require!("ethtool");
        crate::lab::lab!(@ crate::lab::Lab::with_path($carrier, $options))
    }};
    (@ $lab:expr) => {{
        softclock_testing::require!("ip", "unshare", "nsenter", "curl");
        match $lab {
            Ok(lab) => lab,
            Err(reason) => softclock_testing::skip!("{reason}"),
        }
    }};
}
pub(crate) use lab;
