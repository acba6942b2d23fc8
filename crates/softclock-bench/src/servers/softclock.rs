//! The servers of `softclock serve` and `softclock proxy` in a separate process: this program, started again.
//!
//! Thereby the measured server is the code of this build, not an older installed program.

use std::error::Error;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use ::softclock::EventContext;
use ::softclock::events::Mechanism;
use ::softclock::fs::raise_descriptor_limit;
use ::softclock::net::stack::{Architecture, LinkAddress, Prefix, StackMechanism, StackOptions};
use ::softclock::net::{TcpListener, UdpSocket};
use ::softclock::signalling::{LatencyBound, Policy};
use clap::Args;
use softclock_http::{Proxy, ProxyOptions, Served, Server, Settings, Site};

/// Arguments of `serve`.
#[derive(Args, Debug)]
pub struct ServeOptions {
    /// Address to listen on.
    address: SocketAddr,
    /// Directory of the files to serve; without it, the server answers with a built-in page.
    directory: Option<PathBuf>,
    /// Marks each trigger state by a store to an address that the server prints at its start.
    #[arg(long)]
    mark: bool,
    /// Address at which connections are not accepted and datagrams not read.
    #[arg(long)]
    silent: Option<SocketAddr>,
    #[command(flatten)]
    stack: StackArguments,
}

/// A network stack of the server's own.
#[derive(Args, Clone, Debug)]
pub struct StackArguments {
    /// Its interface.
    #[arg(long)]
    pub dev: Option<String>,
    /// Its address with the prefix of its network.
    #[arg(long, requires = "dev")]
    pub stack_address: Option<Prefix>,
    /// Its address on the link.
    #[arg(long, requires = "dev")]
    pub link_address: Option<LinkAddress>,
    /// Its router.
    #[arg(long, requires = "dev")]
    pub gateway: Option<IpAddr>,
    /// Whether it uses AF_PACKET instead of AF_XDP.
    #[arg(long, requires = "dev")]
    pub packet: bool,
    /// The receive architecture.
    #[arg(long, requires = "dev", value_parser = architecture)]
    pub architecture: Option<Architecture>,
    /// The most bytes that a connection buffers to send; without it, the default.
    #[arg(long, requires = "dev")]
    pub send_buffer: Option<u32>,
    /// How it learns of frames; without it, the default.
    #[arg(long, requires = "dev")]
    pub signalling: Option<Policy>,
    /// The latency bound of the policy, in microseconds.
    #[arg(long, requires = "signalling")]
    pub signalling_latency: Option<u64>,
}

impl StackArguments {
    fn options(&self) -> Option<StackOptions> {
        let mut options = StackOptions::new(self.dev.clone()?);
        options.mechanism = match self.packet {
            true => StackMechanism::Packet,
            false => StackMechanism::Xdp,
        };
        options.addresses.extend(self.stack_address);
        options.gateways.extend(self.gateway);
        options.link_address = self.link_address;
        options.architecture = self.architecture.unwrap_or_default();
        if let Some(bytes) = self.send_buffer {
            options.tcp.connection.send.most_buffer = bytes;
        }
        if let Some(policy) = self.signalling {
            let bound = self.signalling_latency.map(Duration::from_micros);
            let bound = bound.and_then(|bound| LatencyBound::new(bound).ok());
            options.signalling = policy.with_bound(bound.unwrap_or_default());
        }
        Some(options)
    }

    /// Returns the arguments that parse to this.
    pub(crate) fn to_words(&self) -> Vec<String> {
        let mut words = Vec::new();
        let mut add = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                words.extend([format!("--{name}"), value]);
            }
        };
        add("dev", self.dev.clone());
        add(
            "stack-address",
            self.stack_address.map(|prefix| prefix.to_string()),
        );
        add(
            "link-address",
            self.link_address.map(|address| address.to_string()),
        );
        add("gateway", self.gateway.map(|address| address.to_string()));
        add(
            "architecture",
            self.architecture.map(|of| of.name().to_owned()),
        );
        add(
            "send-buffer",
            self.send_buffer.map(|bytes| bytes.to_string()),
        );
        add(
            "signalling",
            self.signalling.map(|policy| policy.to_string()),
        );
        let bound = self.signalling.and_then(|policy| policy.bound());
        add(
            "signalling-latency",
            bound.map(|bound| (bound.as_ns() / 1_000).to_string()),
        );
        if self.packet {
            words.push("--packet".to_owned());
        }
        words
    }
}

fn architecture(name: &str) -> Result<Architecture, String> {
    let mut all = Architecture::ALL.into_iter();
    let found = all.find(|architecture| architecture.name() == name);
    found.ok_or_else(|| "not the name of an architecture".to_owned())
}

pub(crate) fn command(root: Option<&Path>, address: SocketAddr) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("serve").arg(address.to_string()).args(root);
    Ok(command)
}

pub(super) fn proxy_command(
    address: SocketAddr,
    upstream: SocketAddr,
    mechanism: Mechanism,
    signalling: Policy,
) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["proxy", &address.to_string(), &upstream.to_string()])
        .args(["--events", mechanism.name()])
        .args(["--signalling", &signalling.to_string()]);
    if let Some(bound) = signalling.bound() {
        let us = bound.as_ns() / 1_000;
        command.args(["--signalling-latency", &us.to_string()]);
    }
    Ok(command)
}

/// Serves the directory, or the bundled site, on one thread until standard input is closed. With `mark`, prints an
/// address at the start and stores to it at each trigger state.
///
/// # Errors
/// Those of the server.
pub fn serve(options: &ServeOptions) -> Result<(), Box<dyn Error>> {
    let root = options.directory.as_deref();
    let site = root.map_or(Ok(Site::bundled()), Site::directory)?;
    let mut settings = settings(site.into(), options.address)?;
    let stack = options.stack.options();
    if stack.is_some() {
        // These connections have no descriptors.
        settings.worker.max_connections = MOST_ON_STACK;
    }
    let server = Server::with(settings);
    let server = match stack {
        Some(stack) => server.stack(stack),
        // The command's default; the library's is to be woken by each event.
        None => server.signalling(Policy::default()),
    };
    run(server.bind()?, || {
        if options.mark {
            mark_trigger_states();
        }
        let silent = options.silent.map(|address| {
            let listener = TcpListener::bind(address)?;
            Ok::<_, io::Error>((listener, UdpSocket::bind(address)?))
        });
        // The experiment cannot go on without them, and shows this error.
        silent.transpose().expect("the silent sockets can be bound")
    });
    Ok(())
}

/// Passes requests to `upstream`, on one thread, until standard input is closed.
///
/// # Errors
/// Those of the server.
pub fn proxy(
    address: SocketAddr,
    upstream: SocketAddr,
    mechanism: Mechanism,
    signalling: Policy,
) -> Result<(), Box<dyn Error>> {
    let upstream = format!("http://{upstream}").parse()?;
    let proxy = Proxy::new(vec![upstream], ProxyOptions::default())?;
    let server = Server::with(settings(proxy.into(), address)?)
        .events(mechanism)
        .signalling(signalling)
        .bind()?;
    run(server, || {});
    Ok(())
}

/// Returns the defaults, with as many connections as the process can have and a timeout of an hour for silent ones,
/// because cold connections stay for a whole measurement.
fn settings(served: Served, address: SocketAddr) -> Result<Settings, Box<dyn Error>> {
    let mut settings = Settings::new(served);
    settings.listen.push(address.to_string().parse()?);
    settings.worker.max_connections = usize::try_from(raise_descriptor_limit())?;
    settings.worker.drain = Duration::ZERO;
    settings.worker.connection.timeouts.first_byte = Some(Duration::from_secs(3600));
    Ok(settings)
}

/// Runs the server until standard input is closed; calls `first` on its runtime, and keeps its result until the end.
fn run<R>(server: Server, first: impl FnOnce() -> R) {
    let (closed, end) = async_channel::bounded::<()>(1);
    thread::spawn(move || {
        // Returns at the end of standard input.
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        drop(closed);
    });
    server.run(async {
        let _kept = first();
        // Closing the channel is the signal, and arrives as an error.
        let _ = end.recv().await;
    });
}

fn mark_trigger_states() {
    println!("{}", std::ptr::from_ref(&MARK.0).addr());
    ::softclock::schedule_soft_event(0, |event: &mut EventContext<'_>| {
        MARK.0.store(1, Relaxed);
        event.reschedule(0);
    });
}

/// The most connections of a server with a stack of its own.
const MOST_ON_STACK: usize = 1 << 20;

/// A mark in a separate cache line.
#[repr(align(64))]
struct Mark(AtomicU64);

static MARK: Mark = Mark(AtomicU64::new(0));
