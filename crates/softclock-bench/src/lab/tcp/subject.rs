//! The web servers that are compared, and where their receive work takes place.

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;

use softclock::fs::raise_descriptor_limit;
use softclock::signalling::Policy;
use softclock_net::link::LinkAddress;
use softclock_net::stack::Architecture;

use crate::lab::lrp::{Level, Link, Network};
use crate::lab::signalling::policy_name;
use crate::servers::nginx::{self, Files};
use crate::servers::{StackArguments, softclock_command, version};

/// A web server in the setup.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subject {
    /// The server of `softclock serve` on a stack of its own.
    Stack(Architecture, Carrier),
    /// The same with SOFT-LRP by AF_XDP, with a policy of signalling.
    Signalled(Policy),
    /// The same server on the kernel.
    Kernel(Placement),
    /// nginx, with a method of sending files.
    Nginx(Files, Placement),
    /// The server of `softclock serve` on the kernel behind nft's `synproxy`, which completes handshakes in its place.
    GuardedKernel(Placement),
    /// nginx behind the same.
    GuardedNginx(Files, Placement),
}

/// The mechanism that carries the frames of this project's stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Carrier {
    /// AF_XDP in copy mode.
    Xdp,
    /// AF_PACKET.
    Packet,
}

/// The place of the receive work for the kernel's sockets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Placement {
    /// Interrupts of the server's processor, by receive packet steering.
    Rps,
    /// A kernel thread on the server's processor, of the same priority as the server.
    ThreadedNapi,
}

impl Subject {
    /// Returns the name in tables: the program, and the settings in which its rows differ.
    pub fn name(self) -> String {
        let files = |files| match files {
            Files::Sendfile => "sendfile on",
            Files::SendfileCached => "sendfile on, open_file_cache",
            Files::ReadCached => "sendfile off, open_file_cache",
        };
        match self {
            Self::Stack(architecture, carrier) => {
                format!(
                    "softclock, own stack, {}, {}",
                    architecture.name(),
                    carrier.name()
                )
            }
            Self::Signalled(policy) => format!("softclock, own stack, {}", policy_name(policy)),
            Self::Kernel(placement) => format!("softclock, kernel, {}", placement.name()),
            Self::Nginx(of, placement) => format!("nginx, {}, {}", files(of), placement.name()),
            Self::GuardedKernel(placement) => {
                format!("{}, synproxy", Self::Kernel(placement).name())
            }
            Self::GuardedNginx(of, placement) => {
                format!("{}, synproxy", Self::Nginx(of, placement).name())
            }
        }
    }

    /// Returns whether it is `softclock` on its own stack, by its name in tables.
    pub fn is_stack(name: &str) -> bool {
        name.starts_with("softclock, own stack")
    }

    /// Returns whether its connections have descriptors, which are limited.
    pub fn uses_descriptors(self) -> bool {
        !matches!(self, Self::Stack(..) | Self::Signalled(_))
    }

    /// Returns the programs that are missing, as the end of a sentence.
    ///
    /// # Errors
    /// A program is missing.
    pub fn check(self) -> Result<(), String> {
        let needs = |program: &str, argument: &str, package: &str| match version(program, argument)
        {
            Some(_) => Ok(()),
            None => Err(format!(
                "{package} is not installed (Debian's package {package})"
            )),
        };
        match self {
            Self::Stack(..) | Self::Signalled(_) | Self::Kernel(_) => Ok(()),
            Self::Nginx(..) => needs(nginx::program(), "-v", "nginx"),
            Self::GuardedKernel(_) => needs("nft", "--version", "nftables"),
            Self::GuardedNginx(files, placement) => {
                Self::Nginx(files, placement).check()?;
                needs("nft", "--version", "nftables")
            }
        }
    }

    /// Returns the address at which the server answers.
    pub fn address(self) -> Ipv4Addr {
        match self {
            Self::Stack(..) | Self::Signalled(_) => STACK_ADDRESS,
            _ => Link::Server.address(),
        }
    }

    /// Returns its address on the link.
    pub fn link_address(self) -> LinkAddress {
        match self {
            Self::Stack(..) | Self::Signalled(_) => STACK_LINK_ADDRESS,
            _ => Link::Server.link_address(),
        }
    }

    /// Returns whether it can hold this number of connections if a process may have so many descriptors.
    pub fn holds(self, connections: usize, descriptors: u64) -> bool {
        match self {
            Self::Stack(..) | Self::Signalled(_) | Self::Nginx(..) | Self::GuardedNginx(..) => true,
            Self::Kernel(_) | Self::GuardedKernel(_) => {
                connections as u64 + OTHER_DESCRIPTORS <= descriptors
            }
        }
    }

    /// Returns the command of the server, for the files of `root` and this number of connections, and a port at which
    /// it listens in vain.
    pub(super) fn command(
        self,
        network: &Network,
        root: &Path,
        connections: usize,
        directory: &Path,
    ) -> io::Result<Command> {
        let address = SocketAddr::from((self.address(), PORT));
        match self {
            Self::Stack(architecture, carrier) => {
                let mut stack = stack_arguments(network);
                stack.packet = carrier == Carrier::Packet;
                stack.architecture = Some(architecture);
                on_stack(root, address, &stack)
            }
            Self::Signalled(policy) => {
                let mut stack = stack_arguments(network);
                stack.signalling = Some(policy);
                on_stack(root, address, &stack)
            }
            Self::Kernel(_) | Self::GuardedKernel(_) => softclock_command(Some(root), address),
            Self::Nginx(files, _) | Self::GuardedNginx(files, _) => {
                let descriptors = raise_descriptor_limit();
                nginx::of_many(files, root, address, connections, descriptors, directory)
            }
        }
    }

    /// Prepares the network for the server. Call it before the server starts.
    pub(super) fn prepare(self, network: &Network) -> io::Result<()> {
        let (server, clients) = (network.name(Link::Server), network.name(Link::Clients));
        let neighbor = format!(
            "neigh replace {STACK_ADDRESS} lladdr {STACK_LINK_ADDRESS} dev {clients} nud permanent\n"
        );
        network.clients.batch("ip", &neighbor)?;
        // The idle clients and the sources of floods.
        let router = Link::Clients.address();
        let routes = format!("route add 10.80.0.0/15 via {router} dev {server}\nlink set lo up\n");
        network.server.batch("ip", &routes)?;
        // The best for all: segments cross the link joined.
        network
            .server
            .run(&format!("ethtool -K {server} tso on gso on"))?;
        if let Self::GuardedKernel(_) | Self::GuardedNginx(..) = self {
            guard(network)?;
        }
        network.server.run("sysctl -q -w net.ipv4.tcp_syncookies=1")
    }

    /// Places the receive work of the server's link. Call it when the server has started, as this ends when an XDP
    /// program is attached.
    pub(super) fn place(self, network: &Network) -> io::Result<()> {
        let processor = network.processors.server;
        match self {
            Self::Stack(_, Carrier::Xdp) | Self::Signalled(_) => {
                network.thread_napi(Link::Server, processor, Level::Nice(0))
            }
            Self::Stack(_, Carrier::Packet) => network.steer(Link::Server, processor),
            Self::Kernel(placement)
            | Self::Nginx(_, placement)
            | Self::GuardedKernel(placement)
            | Self::GuardedNginx(_, placement) => match placement {
                Placement::Rps => network.steer(Link::Server, processor),
                Placement::ThreadedNapi => {
                    let name = network.name(Link::Server);
                    network.server.run(&format!("ethtool -K {name} gro on"))?;
                    network.thread_napi(Link::Server, processor, Level::Nice(0))
                }
            },
        }
    }
}

impl Carrier {
    const fn name(self) -> &'static str {
        match self {
            Self::Xdp => "AF_XDP",
            Self::Packet => "AF_PACKET",
        }
    }
}

impl Placement {
    const fn name(self) -> &'static str {
        match self {
            Self::Rps => "RPS",
            Self::ThreadedNapi => "threaded NAPI",
        }
    }
}

fn stack_arguments(network: &Network) -> StackArguments {
    StackArguments {
        dev: Some(network.name(Link::Server)),
        stack_address: format!("{STACK_ADDRESS}/24").parse().ok(),
        link_address: Some(STACK_LINK_ADDRESS),
        gateway: Some(IpAddr::V4(Link::Clients.address())),
        packet: false,
        architecture: None,
        send_buffer: None,
        signalling: None,
        signalling_latency: None,
    }
}

/// The command of the server on its own stack, which also listens in vain.
fn on_stack(root: &Path, address: SocketAddr, stack: &StackArguments) -> io::Result<Command> {
    let mut command = softclock_command(Some(root), address)?;
    let silent = SocketAddr::new(address.ip(), SILENT_PORT);
    command.args(["--silent", &silent.to_string()]);
    command.args(stack.to_words());
    Ok(command)
}

/// Makes nft answer the SYNs to the server's ports, with the settings of its wiki.
fn guard(network: &Network) -> io::Result<()> {
    let mut rules = tempfile::NamedTempFile::new()?;
    rules.write_all(SYNPROXY.as_bytes())?;
    network
        .server
        .run(&format!("nft -f {}", rules.path().display()))?;
    // A client's port comes back after a second or two. A SYN of a connection that conntrack still remembers would not
    // be answered, so it forgets them when they end.
    network.server.run(&format!("sysctl -q -w {FORGETFUL}"))
}

/// Of a server on the kernel: for files, listeners and logs.
const OTHER_DESCRIPTORS: u64 = 300;

/// The port of the server.
pub const PORT: u16 = 80;
/// A port at which a listener never accepts, and a UDP socket is never read.
pub const SILENT_PORT: u16 = 81;

const STACK_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 79, 0, 7);
const STACK_LINK_ADDRESS: LinkAddress = LinkAddress([2, 0, 0, 79, 0, 7]);

const FORGETFUL: &str = "net.netfilter.nf_conntrack_tcp_loose=0 \
    net.netfilter.nf_conntrack_tcp_timeout_time_wait=0 net.netfilter.nf_conntrack_tcp_timeout_close=0 \
    net.netfilter.nf_conntrack_tcp_timeout_last_ack=0";

const SYNPROXY: &str = "table ip guard {
 chain first { type filter hook prerouting priority raw; policy accept;
  tcp dport { 80, 81 } tcp flags syn notrack
 }
 chain second { type filter hook input priority filter; policy accept;
  tcp dport { 80, 81 } ct state invalid,untracked synproxy mss 1460 wscale 7 timestamp sack-perm
  ct state invalid drop
 }
}
";
