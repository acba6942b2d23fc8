//! Two network namespaces with a link between them: [server] `host` (10.78.0.2; the stack of the example: 10.78.0.7 and
//! fd78::7) -- `client` (10.78.0.1, fd78::1). With a TAP device there is only one namespace: the device's other end is
//! the client.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use softclock_testing::KilledOnDrop;
use softclock_testing::lab::{Namespace, connect};

/// The addresses of the example's stack.
pub(crate) const ADDRESSES: [&str; 2] = ["10.78.0.7", "fd78::7"];

/// The mechanism that carries the stack's frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Carrier {
    Tap,
    Packet,
    Xdp,
    /// AF_XDP with a ring for each socket.
    NiLrp,
}

impl Carrier {
    /// The reason why this machine does not have the mechanism.
    fn check(self) -> Result<(), String> {
        use softclock_linux::probe::{xdp_program, xdp_socket};
        match self {
            Self::Tap if !Path::new("/dev/net/tun").exists() => {
                Err("there are no TAP devices here".into())
            }
            Self::Xdp | Self::NiLrp => xdp_socket()
                .and_then(|()| xdp_program())
                .map_err(|error| format!("AF_XDP cannot be used here: {error}")),
            _ => Ok(()),
        }
    }

    const fn options(self) -> &'static [&'static str] {
        match self {
            Self::Tap => &["--dev", "tap:client"],
            Self::Packet => &["--dev", "host", "--mechanism", "packet"],
            Self::Xdp => &["--dev", "host", "--mechanism", "xdp"],
            Self::NiLrp => &["--dev", "host", "--ni-lrp"],
        }
    }
}

/// The namespaces, which exist until this is dropped.
pub(crate) struct Lab {
    carrier: Carrier,
    pub(crate) server: Namespace,
    /// `None` with a TAP device.
    other: Option<Namespace>,
}

impl Lab {
    /// Creates a lab for one test; an error gives the reason why this machine cannot have one.
    pub(crate) fn new(carrier: Carrier) -> Result<Self, String> {
        carrier.check()?;
        let server = Namespace::new()?;
        let failed = |error: std::io::Error| error.to_string();
        server.run("ip link set lo up").map_err(failed)?;
        let mut other = None;
        if carrier != Carrier::Tap {
            let client = other.insert(Namespace::new()?);
            connect((&server, "host"), (client, "client")).map_err(failed)?;
            server
                .run("ip addr add 10.78.0.2/24 dev host")
                .map_err(failed)?;
            client.batch("ip", CLIENT_ADDRESSES).map_err(failed)?;
        }
        Ok(Self {
            carrier,
            server,
            other,
        })
    }

    /// The namespace of the interface `client`.
    pub(crate) fn client(&self) -> &Namespace {
        self.other.as_ref().unwrap_or(&self.server)
    }

    /// Starts an example on a stack, and waits until it serves at `sockets` addresses.
    pub(crate) fn start(&self, example: &str, arguments: &[&str], sockets: usize) -> KilledOnDrop {
        let path = softclock_testing::example("softclock", example);
        let mut command = self.server.command(path.to_str().expect("UTF-8"));
        command.args(self.carrier.options());
        command.args(["--address", "10.78.0.7/24", "--address", "fd78::7/64"]);
        command.args(arguments);
        let spawned = command.stdout(Stdio::piped()).spawn();
        let mut child = spawned.expect("nsenter is installed");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let lines = output.lines().map_while(Result::ok);
        let serving = lines
            .filter(|line| line.starts_with("serving"))
            .take(sockets);
        assert_eq!(serving.count(), sockets, "{example} ended");
        if self.other.is_none() {
            let commands = format!("link set client up\n{CLIENT_ADDRESSES}");
            self.server.batch("ip", &commands).expect("it is there");
        }
        KilledOnDrop::new(child)
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
            std::io::Result::Ok(socket)
        };
        let socket = self.client().inside(open).and_then(|socket| socket);
        socket.expect("the client has an address")
    }
}

const CLIENT_ADDRESSES: &str =
    "addr add 10.78.0.1/24 dev client\naddr add fd78::1/64 dev client nodad\n";

/// Long enough for any answer on a machine under load.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Creates a lab, or skips the test.
macro_rules! lab {
    ($carrier:expr) => {{
        softclock_testing::require!("ip", "unshare", "nsenter");
        match crate::lab::Lab::new($carrier) {
            Ok(lab) => lab,
            Err(reason) => softclock_testing::skip!("{reason}"),
        }
    }};
}
pub(crate) use lab;
