//! `softclock echo`: a small server on a network stack of its own, without the kernel's sockets.
//!
//! - [`error`]: the errors, as lines for the user.
//! - [`metrics`]: the page of metrics.
//! - [`report`]: counts and drops, as text and JSON; pure.
//!
//! UDP echo (RFC 862) on port 7, discard (RFC 863) on port 9; the stack itself answers echo requests of ICMP.

mod error;
mod metrics;
mod report;

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use clap::Args;
use futures_lite::future::or;
use softclock::Runtime;
use softclock::net::stack::{self, Prefix, Stack, StackOptions, Transport};
use softclock::net::{RecvBatch, UdpSocket};
use softclock::signal::{Signal, Signals};
use softclock_http::{DEFAULT_SOCKET_MODE, ListenAddress, MetricsEndpoint, Place};

use crate::demo::screen::{Drawing, is_drawable};
use crate::logging;
use crate::options::{Pcap, StackArgs, signalling};
use crate::stdout;
use crate::values::{seconds, url, whole};
use error::EchoError;
use report::{Report, Served};

/// The options of `softclock echo`.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = NOTES,
    mut_arg("dev", |arg| arg.required(true)),
    mut_arg("address", |arg| arg.required(true)),
    mut_arg("signalling", |arg| arg
        .help(signalling::STACK_HELP)
        .long_help(signalling::long_help(signalling::STACK_HELP))),
    mut_arg("napi", |arg| arg.help(NAPI_HELP)),
)]
pub(crate) struct EchoOptions {
    #[command(flatten)]
    stack: StackArgs,

    /// Most packets that wait for each of the two services (1 to 65536); more are discarded at once. With ni-lrp, 4 KiB
    /// are reserved for each of them, at each address
    #[arg(long, value_name = "PACKETS", default_value_t = 256, value_parser = whole(1..=65_536usize))]
    channel: usize,

    /// Address of this host that serves metrics in Prometheus' format, at /metrics; repeatable
    #[arg(long, value_name = "ADDR")]
    metrics: Vec<ListenAddress>,

    /// End after this time [default: on Ctrl-C or SIGTERM]
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, value_parser = seconds)]
    duration: Option<Duration>,

    /// Print the summary as a JSON object
    #[arg(long)]
    json: bool,

    /// Print nothing but errors and the summary
    #[arg(long, short)]
    quiet: bool,
}

/// Without `suspend`, which takes a thread that polls the device.
const NAPI_HELP: &str = "\
Delay the interrupts of the interface, such as flush=200us or defer=2,flush=50us: with flush=TIME the kernel polls the \
device at this interval, until defer=ROUNDS (1) polls in a row find nothing. Undone at the end, also after kill -9. \
Needs CAP_NET_ADMIN";

const NOTES: &str = "\
The stack answers ping and ARP for its addresses, returns UDP datagrams that are sent to port 7 and takes those to \
port 9. It refuses TCP. Datagrams from ports below 1024 are not returned, since two echo services could then keep each \
other busy for ever.

The addresses must be free, or host: then the services are at the host's addresses on the interface, by AF_XDP, and \
ping, ARP and all other ports stay the host's. With addresses of its own, the stack leaves the host's addresses and \
traffic untouched. The host and the stack do not reach each other over an interface that they share; they do over a TAP \
device, once its end has an address (ip addr add 192.0.2.1/24 dev NAME). All is restored when the command ends, even if \
it is killed. Needs root; or CAP_NET_RAW for AF_PACKET, CAP_NET_ADMIN for a TAP device, and for AF_XDP both, \
CAP_BPF, and CAP_IPC_LOCK or 12 MiB of locked memory for each queue.

With soft-lrp a packet is only demultiplexed when it arrives, and discarded there if its service has more than \
--channel packets to do. With ni-lrp the XDP program of the interface does this, before the kernel spends anything on \
the packet; so it needs AF_XDP, not a TAP device. bsd and early-demux are eager designs, for comparison (Druschel and \
Banga, OSDI 1996).

--pcap FILE has the frames that the stack received and sent, with their times. A frame that was dropped when it arrived \
has the reason as a comment, such as dropped: channel_full. A full disk, or --pcap-limit, ends the capture and not the \
server. Only its owner can read the file.

At the end the command prints what was served, and the packets that were dropped, by reason. While it runs, softclock \
top shows them by --metrics, whose addresses belong to the host and not to the stack.

Examples:
  softclock echo --dev tap:sc0 --address 192.0.2.7/24
  softclock echo --dev tap:sc0 --address 192.0.2.7/24 --metrics 127.0.0.1:9180
  softclock echo --dev tap:sc0 --address 192.0.2.7/24 --pcap echo.pcapng --pcap-snaplen 128
  softclock echo --dev eth0 --address host
  softclock echo --dev eth0 --address 192.0.2.7/24 --address 2001:db8::7/64 --gateway 192.0.2.1
";

/// Serves until a signal arrives, `--duration` is over or the interface is deleted.
pub(crate) fn run(options: &EchoOptions) -> Result<(), EchoError> {
    let failed = |error: io::Error| EchoError(format!("cannot start: {error}"));
    if options
        .stack
        .napi
        .is_some_and(|delay| !delay.suspension.is_zero())
    {
        let reason = "suspend=TIME of --napi needs --busy-poll, which only serve and proxy have";
        return Err(EchoError(reason.into()));
    }
    // Threads inherit the mask, so block the signals before any thread starts.
    let signals = Signals::block(&[Signal::Interrupt, Signal::Terminate]).map_err(failed)?;
    let endpoint = options.metrics_endpoint()?;
    Runtime::new().map_err(failed)?.block_on(async move {
        let stack = stack::open(&options.stack_options())?;
        let mut services = Vec::new();
        for prefix in stack.addresses() {
            for service in Service::ALL {
                let address = SocketAddr::new(prefix.address, service.port());
                let socket = UdpSocket::bind(address).map_err(failed)?;
                let counts = Rc::new(Counts::default());
                drop(softclock::spawn_local(serve(
                    service,
                    socket,
                    counts.clone(),
                )));
                services.push((service, counts));
            }
        }
        let sharing = stack.clone();
        drop(softclock::spawn_local(async move {
            loop {
                let change = sharing.host_address_changed().await;
                logging::note(&change.to_string());
            }
        }));
        let server = Rc::new(Server {
            pcap: Pcap::watch(&stack, &options.stack.pcap),
            stack,
            services,
        });
        let measured = Rc::clone(&server);
        let page = async move || {
            let report = measured.report(Duration::ZERO);
            metrics::page(&measured.stack, &report, &softclock::statistics())
        };
        endpoint.start(page)?;
        if !options.quiet {
            server.greet(options);
            for address in endpoint.local_addresses() {
                logging::note(&format!("metrics on {}metrics", url(&address)));
            }
        }
        let stopped = async {
            let signal = signals.next().await.map(drop);
            signal.map_err(|error| EchoError(error.to_string()))
        };
        let ended = async { Err(server.stack.ended().await.into()) };
        server.watch(or(ended, stopped), options).await
    })
}

impl EchoOptions {
    fn stack_options(&self) -> StackOptions {
        // Never without an interface, as the option is required here.
        let dev = self.stack.dev.clone().unwrap_or_default();
        let ports = Service::ALL.map(|service| (Transport::Udp, service.port()));
        // As many as the host may have.
        let addresses = match self.stack.shares_host() {
            true => stack::host_addresses(&dev).map_or(1, |all| all.len()),
            false => self.stack.address.len(),
        };
        let mut options = self.stack.options(dev, ports.into());
        options.sockets = (Service::ALL.len() * addresses) as u32;
        options.listeners = 0;
        options.channel.packets = self.channel;
        // The bytes of as many of the longest frames, so that the packets are the limit.
        options.channel.bytes = self.channel.saturating_mul(2048).max(MOST_DATAGRAM);
        options
    }

    /// Binds the addresses of the metrics, which are the kernel's.
    fn metrics_endpoint(&self) -> Result<MetricsEndpoint, EchoError> {
        for address in &self.metrics {
            let Place::One(socket) = address.place else {
                continue;
            };
            let host = socket.ip().to_canonical();
            if self.stack.own_addresses().any(|own| own.address == host) {
                return Err(EchoError(format!(
                    "--metrics {address}: {host} is an address of the stack, which refuses TCP; give one of this host, \
                     such as 127.0.0.1:9180"
                )));
            }
        }
        Ok(MetricsEndpoint::bind(&self.metrics, DEFAULT_SOCKET_MODE)?)
    }
}

/// A service of the stack.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Service {
    Echo,
    Discard,
}

impl Service {
    const ALL: [Self; 2] = [Self::Echo, Self::Discard];

    const fn port(self) -> u16 {
        match self {
            Self::Echo => 7,
            Self::Discard => 9,
        }
    }
}

/// What a service has done for one address.
#[derive(Default)]
struct Counts {
    datagrams: Cell<u64>,
    bytes: Cell<u64>,
    /// Datagrams that were not returned, since they come from a port of a service.
    unanswered: Cell<u64>,
    /// Datagrams that could not be returned.
    failed: Cell<u64>,
}

/// Serves the datagrams of a socket. Each round takes those that wait, at most a batch, and then sends the answers.
async fn serve(service: Service, socket: UdpSocket, counts: Rc<Counts>) {
    let add = |cell: &Cell<u64>, more: u64| cell.set(cell.get() + more);
    let mut batch = RecvBatch::new(BATCH, MOST_DATAGRAM);
    loop {
        match socket.recv_batch(&mut batch).await {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NetworkDown => return,
            // Reports of the network about earlier datagrams.
            Err(_) => continue,
        }
        for datagram in batch.datagrams() {
            add(&counts.datagrams, 1);
            add(&counts.bytes, datagram.payload.len() as u64);
            if service == Service::Discard {
                continue;
            }
            if datagram.source.port() < FIRST_CLIENT_PORT {
                add(&counts.unanswered, 1);
                continue;
            }
            let sent = socket.send_to(datagram.payload, datagram.source).await;
            add(&counts.failed, u64::from(sent.is_err()));
        }
    }
}

/// A running server.
struct Server {
    stack: Stack,
    /// The capture, if there is one.
    pcap: Option<Rc<Pcap>>,
    services: Vec<(Service, Rc<Counts>)>,
}

impl Server {
    fn greet(&self, options: &EchoOptions) {
        let interface = self.stack.interface();
        let by = match self.stack.mechanism() {
            "tap" => "a TAP device",
            "xdp" => "AF_XDP",
            _ => "AF_PACKET",
        };
        let addresses = self.stack.addresses();
        let addresses: Vec<_> = addresses.iter().map(Prefix::to_string).collect();
        let addresses = addresses.join(" and ");
        let link = self.stack.link_address();
        let greeting = match options.stack.shares_host() {
            true => format!(
                "UDP echo (port 7) and discard (9) at the host's {addresses} on {interface}, by {by}; Ctrl-C \
                 ends it"
            ),
            false => format!(
                "UDP echo (port 7), discard (9) and ping at {addresses} on {interface}, by {by}; Ctrl-C ends it"
            ),
        };
        logging::note(&greeting);
        logging::note(&format!(
            "link address {link}, architecture {}, at most {} packets wait for a service",
            self.stack.architecture().name(),
            options.channel
        ));
    }

    /// Draws the state every second until the end, then prints the summary.
    async fn watch(
        &self,
        ended: impl Future<Output = Result<(), EchoError>>,
        options: &EchoOptions,
    ) -> Result<(), EchoError> {
        let mut ended = pin!(ended);
        let begun = softclock::now();
        let on_screen = !options.quiet && !options.json && is_drawable();
        let mut drawing = on_screen.then(Drawing::begin).flatten();
        let mut previous = self.report(Duration::ZERO);
        // An idle server that draws nothing has no reason to wake up.
        let pause = if on_screen { FRAME } else { Duration::MAX };
        let all = options.duration.unwrap_or(Duration::MAX);
        loop {
            let left = all.saturating_sub(softclock::now().since(begun));
            let ended = softclock::timeout(left.min(pause), ended.as_mut()).await;
            let after = softclock::now().since(begun);
            let is_over = ended.is_ok() || after >= all;
            // First, so that the summary has what came of it.
            if let (true, Some(pcap)) = (is_over, &self.pcap) {
                pcap.finish();
            }
            let report = self.report(after);
            if let Some(drawing) = &mut drawing {
                let _ = drawing.draw(&report.lines(Some(&previous)));
            }
            if is_over {
                drop(drawing);
                let shown = show_summary(&report, options);
                return ended.unwrap_or(Ok(())).and(shown);
            }
            previous = report;
        }
    }

    fn report(&self, after: Duration) -> Report {
        let sum = |wanted: Service| {
            let mut sum = Served::default();
            for (_, counts) in self.services.iter().filter(|(of, _)| *of == wanted) {
                sum.datagrams += counts.datagrams.get();
                sum.bytes += counts.bytes.get();
                sum.unanswered += counts.unanswered.get();
                sum.failed += counts.failed.get();
            }
            sum
        };
        Report {
            after,
            interface: self.stack.interface().to_owned(),
            mechanism: self.stack.mechanism(),
            echo: sum(Service::Echo),
            discard: sum(Service::Discard),
            stack: self.stack.report(),
        }
    }
}

fn show_summary(report: &Report, options: &EchoOptions) -> Result<(), EchoError> {
    let text = match options.json {
        true => format!("{}\n", report.json()),
        false => report.lines(None).join("\n") + "\n",
    };
    let shown = stdout::print_summary(&text);
    shown.map_err(|error| EchoError(stdout::not_written(&error)))
}

/// Interval between drawings.
const FRAME: Duration = Duration::from_secs(1);

/// The most datagrams that are taken at once.
const BATCH: usize = 32;

/// The longest datagram.
const MOST_DATAGRAM: usize = 65_535;

/// Ports below are those of services.
const FIRST_CLIENT_PORT: u16 = 1024;
